#include "server/config.h"

#include <cstdint>

#include "api/request.h"
#include "server/http_post.h"

namespace quire::server {
namespace {

template <typename T>
Result<> CheckRange(const char* name, T value, T min, T max) {
  if (value >= min && value <= max) return {};
  return FailParam(name, "{} must be from {} to {}, got {}", name, min, max, value);
}

Result<> CheckTime(const char* name, std::chrono::milliseconds value, std::int64_t min_ms) {
  constexpr std::int64_t kDayMs = 24 * 3600 * 1000;
  return CheckRange<std::int64_t>(name, value.count(), min_ms, kDayMs);
}

}  // namespace

Result<> ServerConfig::Validate() const {
  constexpr std::size_t kGigabyte = std::size_t{1} << 30;
  QUIRE_TRY_VOID(CheckRange("port", port, 0, 65535));
  QUIRE_TRY_VOID(CheckRange<std::size_t>("body_bytes_max", body_bytes_max, 1, kGigabyte));
  QUIRE_TRY_VOID(CheckRange<std::size_t>("all_bodies_bytes_max", all_bodies_bytes_max, body_bytes_max, 64 * kGigabyte));
  QUIRE_TRY_VOID(CheckRange<std::size_t>("header_bytes_max", header_bytes_max, 1024, std::size_t{1} << 20));
  QUIRE_TRY_VOID(CheckRange("header_fields_max", header_fields_max, 8, 10'000));
  QUIRE_TRY_VOID(CheckRange("connections_max", connections_max, 1, 1'000'000));
  QUIRE_TRY_VOID(CheckRange("requests_max", requests_max, 1, 1'000'000));
  QUIRE_TRY_VOID(CheckRange("waiting_tokens_max", waiting_tokens_max, 1, INT32_MAX));
  QUIRE_TRY_VOID(CheckRange("logprobs_max", logprobs_max, 0, 1000));
  QUIRE_TRY_VOID(CheckRange<std::size_t>("unread_output_bytes_max", unread_output_bytes_max, 1024, kGigabyte));
  QUIRE_TRY_VOID(CheckRange("worker_threads", worker_threads, 1, 256));
  QUIRE_TRY_VOID(CheckTime("idle_timeout", idle_timeout, 1));
  QUIRE_TRY_VOID(CheckTime("header_timeout", header_timeout, 1));
  QUIRE_TRY_VOID(CheckTime("body_timeout", body_timeout, 1));
  QUIRE_TRY_VOID(CheckTime("write_timeout", write_timeout, 1));
  QUIRE_TRY_VOID(CheckTime("keep_alive_interval", keep_alive_interval, 0));
  QUIRE_TRY_VOID(CheckTime("drain_timeout", drain_timeout, 0));
  QUIRE_TRY_VOID(CheckRange<std::size_t>("trace_bytes_max", trace_bytes_max, 4096, 1024 * kGigabyte));
  if (profile_dir.empty()) return FailParam("profile_dir", "profile_dir must name a folder");
  if (!otlp_traces_endpoint.empty()) QUIRE_TRY_VOID(ParseHttpUrl(otlp_traces_endpoint, "otlp_traces_endpoint"));
  if (api_keys.size() > kTenantsMax) {
    return FailParam("api_keys", "{} API keys are given; at most {} are allowed", api_keys.size(), kTenantsMax);
  }
  for (const std::string& key : api_keys) {
    if (key.empty()) return FailParam("api_keys", "an API key must not be empty");
  }
  return {};
}

}  // namespace quire::server
