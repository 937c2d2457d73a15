#include "server/engine_monitor.h"

#include <chrono>
#include <utility>

#include "base/log.h"

namespace quire::server {
namespace {
constexpr std::chrono::milliseconds kInfoPause{50};
constexpr std::chrono::milliseconds kStatsPause{1000};
}  // namespace

EngineMonitor::EngineMonitor(EngineClient* engine, Metrics* metrics, std::function<void()> on_change)
    : engine_(engine), metrics_(metrics), on_change_(std::move(on_change)) {
  info_thread_ = std::thread([this] { WatchInfo(); });
  stats_thread_ = std::thread([this] { WatchStats(); });
}

EngineMonitor::~EngineMonitor() {
  Stop();
}

void EngineMonitor::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (info_thread_.joinable()) info_thread_.join();
  if (stats_thread_.joinable()) stats_thread_.join();
}

std::shared_ptr<const EngineInfo> EngineMonitor::info() const {
  const std::lock_guard lock(mutex_);
  return info_;
}

void EngineMonitor::RequestStats() {
  {
    const std::lock_guard lock(mutex_);
    stats_wanted_ = true;
  }
  wake_.notify_all();
}

bool EngineMonitor::Pause(std::chrono::milliseconds pause, bool* wanted) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, pause, [&] { return stop_ || (wanted != nullptr && *wanted); });
  if (wanted != nullptr) *wanted = false;
  return !stop_;
}

void EngineMonitor::WatchInfo() {
  bool was_ready = false;
  do {
    auto info = engine_->Info();
    if (info.has_value() == std::exchange(was_ready, info.has_value())) continue;
    if (info) {
      metrics_->SetInfo(*info);
      const std::lock_guard lock(mutex_);
      info_ = std::make_shared<const EngineInfo>(*std::move(info));
    } else {
      spdlog::warn("the engine is not available: {}", info.error().message);
    }
    on_change_();
  } while (Pause(kInfoPause, nullptr));
}

void EngineMonitor::WatchStats() {
  do {
    if (const auto stats = engine_->Stats()) metrics_->Update(*stats);
    num_stats_.fetch_add(1, std::memory_order_release);
  } while (Pause(kStatsPause, &stats_wanted_));
}

}  // namespace quire::server
