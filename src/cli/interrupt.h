// Ctrl-C while an answer is written stops the answer, not the program.
#pragma once

namespace quire::cli {

// While one lives, SIGINT is noted instead of ending the program. One at a time.
class InterruptCatcher {
 public:
  InterruptCatcher();
  ~InterruptCatcher();
  InterruptCatcher(const InterruptCatcher&) = delete;
  InterruptCatcher& operator=(const InterruptCatcher&) = delete;

  // Whether SIGINT came since the last call of Clear.
  bool interrupted() const;
  void Clear();
};

}  // namespace quire::cli
