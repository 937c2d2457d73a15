// Spans on their way to a collector (OTLP over HTTP): a bounded queue and a thread that sends them in batches. A
// collector that is slow or dead costs whoever hands a span over nothing, and spans, which are counted.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/http_post.h"
#include "server/span.h"

namespace quire::server {

class SpanExporter {
 public:
  struct Options {
    HttpUrl url;
    std::size_t queue_max = 2048;  // spans
    std::size_t batch_max = 512;
    std::chrono::milliseconds delay{1'000};       // that a span may wait for others
    std::chrono::milliseconds timeout{10'000};    // of one attempt
    int attempts_max = 3;                         // for a batch, if the collector cannot be had or says "later"
    std::chrono::milliseconds backoff{1'000};     // before the second; doubles
    std::chrono::milliseconds last_words{2'000};  // for what is left at the end
  };
  struct Counts {
    std::uint64_t exported = 0;
    std::uint64_t dropped = 0;
  };

  explicit SpanExporter(Options options);
  // Sends what is left, if that can be done soon.
  ~SpanExporter();

  // Never waits. When the queue is full, the span is dropped.
  void Push(Span span);
  Counts counts() const;

 private:
  void Run();
  // Nothing when it is time to end.
  std::optional<std::vector<Span>> NextBatch();
  void Send(const std::vector<Span>& batch);
  // Waits before another attempt; false when there is no time for one.
  bool Pause(std::chrono::milliseconds pause);
  bool IsOver() const;  // the time for last words, too

  const Options options_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  std::deque<Span> queue_;
  Counts counts_;
  std::optional<std::chrono::steady_clock::time_point> end_;  // when the thread must end at the latest
  bool has_warned_ = false;                                   // of the failures in a row
  std::thread thread_;
};

}  // namespace quire::server
