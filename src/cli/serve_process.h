// A `quire serve` in a process of its own, for commands that measure servers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "wire/child_process.h"

namespace quire::cli {

class ServeProcess {
 public:
  // Runs this program's `serve` with the arguments, on a free port, and returns when its model is loaded. What it says
  // on standard output is kept away; its warnings are seen.
  static Result<ServeProcess> Start(const std::vector<std::string>& arguments);

  // As SIGTERM does; killed when that takes long.
  ~ServeProcess();
  ServeProcess(ServeProcess&&) noexcept = default;

  const std::string& url() const { return url_; }

 private:
  ServeProcess(wire::ChildProcess process, UniqueFd output)
      : process_(std::make_unique<wire::ChildProcess>(std::move(process))), output_(std::move(output)) {}
  Result<> WaitForAddress();
  Result<> WaitUntilReady();

  std::unique_ptr<wire::ChildProcess> process_;  // null: moved from
  UniqueFd output_;
  std::string url_;
};

}  // namespace quire::cli
