// A line from the user: with editing and history on a terminal, plain otherwise.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace quire::cli {

class LineEditor {
 public:
  // `history_file` keeps lines from one session to the next; empty: none. It can be read by its owner only.
  explicit LineEditor(std::filesystem::path history_file);
  ~LineEditor();

  enum class Outcome { kLine, kEnd, kInterrupted };
  // Shows the prompt on a terminal and reads a line, without its end. kEnd: Ctrl-D, or the end of the input;
  // kInterrupted: Ctrl-C.
  Outcome Read(const std::string& prompt, std::string* line);

  bool is_interactive() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::cli
