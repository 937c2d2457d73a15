// Traces of the whole server: its own threads and those of its engines, collected by a thread into one file with one
// clock. At most one at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/tracer.h"
#include "server/trace_file.h"
#include "wire/engine_client.h"

namespace quire::server {

class Profiler {
 public:
  // Everything outlives the profiler. `bytes_max` is of a file.
  Profiler(Tracer* tracer, std::int64_t bytes_max) : tracer_(tracer), bytes_max_(bytes_max) {}
  ~Profiler();  // ends a trace

  // The lane of a thread of the server's own.
  TraceLane* Lane(std::string_view name) { return tracer_->Lane(name); }
  // An engine that comes or goes while a trace is written comes into it, or goes. Removing waits for the call to the
  // engine that is under way.
  void AddEngine(std::string name, EngineClient* client);
  void RemoveEngine(const EngineClient* client);

  struct Summary {
    std::string path;
    std::int64_t num_events = 0;
    std::uint64_t num_dropped = 0;  // events that found no place in their buffer
    std::string problem;            // why the trace ended before it was asked to; "": it did not
  };

  // kUnavailable: a trace is being written already. kIo: the file cannot be written.
  Result<> Start(const std::string& path, TraceFile::Mode mode);
  // kUnavailable: no trace has been started.
  Result<Summary> Stop();

 private:
  struct Engine {
    std::string name;
    EngineClient* client = nullptr;
    bool is_on = false;
    int pid = 0;
    Duration offset{};  // what has to be added to its clock
  };

  void Run(TraceFile file);
  Result<> Collect(TraceCommand command, TraceFile* file);
  Result<> CollectEngine(TraceCommand command, Engine* engine, TraceFile* file);
  void Note(const TraceBatch& batch);
  // False when it is time to stop.
  bool Pause();

  Tracer* const tracer_;
  const std::int64_t bytes_max_;

  std::mutex control_mutex_;  // one Start or Stop at a time; guards thread_
  std::thread thread_;

  std::mutex engines_mutex_;  // guards engines_
  std::vector<Engine> engines_;

  // Of the thread, while there is one.
  Summary summary_;
  std::vector<std::pair<std::pair<int, std::string>, std::uint64_t>> dropped_;  // by process and lane

  std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  bool stop_ = false;
  bool has_ended_ = false;  // by itself
};

}  // namespace quire::server
