// A trace in Chrome's format (a JSON object with an array of events), which Perfetto and chrome://tracing open. The file
// is whole after every Append: the end of the array is written each time, and written over the next time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "base/tracer.h"
#include "base/unique_fd.h"

namespace quire::server {

class TraceFile {
 public:
  enum class Mode : std::uint8_t {
    kOverwrite,  // a name that the user chose
    kOwn,        // in a folder that others may write to: never through a link, never into a file of somebody else's
  };
  static Result<TraceFile> Create(const std::string& path, Mode mode, std::int64_t bytes_max);

  // Adds the events of a process whose clock shows `offset` less than the one that all times are given by. An error
  // means that nothing was added and nothing more can be: kOutOfRange, the file would grow beyond its limit; kIo, the
  // disk is full, for instance. What was there before stays whole.
  Result<> Append(const TraceBatch& batch, std::string_view process, Duration offset);

  const std::string& path() const { return path_; }
  std::int64_t num_events() const { return num_events_; }

 private:
  TraceFile(std::string path, UniqueFd fd, std::int64_t bytes_max)
      : path_(std::move(path)), fd_(std::move(fd)), bytes_max_(bytes_max) {}

  int ThreadOf(int pid, const std::string& lane, std::string_view process, std::string* out);
  Result<> WriteAtEnd(std::string text);
  Result<> WriteAt(std::string_view text, std::int64_t offset);

  std::string path_;
  UniqueFd fd_;
  std::int64_t bytes_max_;
  std::int64_t end_ = 0;  // where the next event goes
  std::int64_t num_events_ = 0;
  std::map<std::pair<int, std::string>, int> threads_;  // (process, lane) → its number; bounded by Tracer::kLanesMax
  std::map<int, int> num_threads_;                      // of each process
};

}  // namespace quire::server
