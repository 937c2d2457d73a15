#include "server/span_exporter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace quire::server {
namespace {

using std::chrono::steady_clock;

// What a collector says when the same request may succeed later (OTLP's specification).
bool IsWorthAnother(int status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

}  // namespace

SpanExporter::SpanExporter(Options options) : options_(std::move(options)), thread_([this] { Run(); }) {}

SpanExporter::~SpanExporter() {
  {
    const std::lock_guard lock(mutex_);
    end_ = steady_clock::now() + options_.last_words;
  }
  wake_.notify_all();
  thread_.join();
}

void SpanExporter::Push(Span span) {
  bool is_batch = false;
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() >= options_.queue_max) {
      ++counts_.dropped;
      return;
    }
    queue_.push_back(std::move(span));
    is_batch = queue_.size() == 1 || queue_.size() == options_.batch_max;
  }
  if (is_batch) wake_.notify_all();
}

SpanExporter::Counts SpanExporter::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void SpanExporter::Run() {
  while (const auto batch = NextBatch()) Send(*batch);
}

std::optional<std::vector<Span>> SpanExporter::NextBatch() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return end_ || !queue_.empty(); });
  wake_.wait_for(lock, options_.delay, [&] { return end_ || queue_.size() >= options_.batch_max; });
  if (queue_.empty()) return std::nullopt;  // the end
  const auto count = static_cast<std::ptrdiff_t>(std::min(queue_.size(), options_.batch_max));
  std::vector<Span> batch(std::make_move_iterator(queue_.begin()), std::make_move_iterator(queue_.begin() + count));
  queue_.erase(queue_.begin(), queue_.begin() + count);
  return batch;
}

void SpanExporter::Send(const std::vector<Span>& batch) {
  const std::string body = OtlpJson(batch);
  std::string problem = "there is no time left";
  for (int attempt = 1; attempt <= options_.attempts_max && !IsOver(); ++attempt) {
    const Result<int> status = PostJson(options_.url, body, options_.timeout, [this] { return IsOver(); });
    if (status && *status >= 200 && *status < 300) {
      const std::lock_guard lock(mutex_);
      counts_.exported += batch.size();
      has_warned_ = false;
      return;
    }
    problem = status ? fmt::format("it answered with status {}", *status) : status.error().message;
    if (status && !IsWorthAnother(*status)) break;
    if (attempt < options_.attempts_max && !Pause(options_.backoff * (1 << (attempt - 1)))) break;
  }
  bool warns = false;
  {
    const std::lock_guard lock(mutex_);
    counts_.dropped += batch.size();
    warns = !std::exchange(has_warned_, true);
  }
  if (warns) {
    spdlog::warn("the collector at {} took no spans, {} are dropped: {}", options_.url.authority, batch.size(),
                 problem);
  }
}

bool SpanExporter::Pause(std::chrono::milliseconds pause) {
  std::unique_lock lock(mutex_);
  // At the end there is no waiting for better times.
  return !wake_.wait_for(lock, pause, [&] { return end_.has_value(); });
}

bool SpanExporter::IsOver() const {
  const std::lock_guard lock(mutex_);
  return end_ && steady_clock::now() >= *end_;
}

}  // namespace quire::server
