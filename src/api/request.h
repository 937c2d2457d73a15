// What the front end asks of an engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/sampling_params.h"
#include "base/strong_id.h"

namespace quire {

// When a request shall be served, and at whose expense; nothing here changes what it gets. The scheduling policies
// are in docs/scheduling.md.
struct ServiceTerms {
  std::int32_t priority = 0;  // lower goes first; not 0 only under the priority policy
  // Targets of the slo policy, which others refuse; 0: the engine's defaults.
  double ttft_ms = 0;                 // arrival to first token, [0, kServiceMsMax]
  double tpot_ms = 0;                 // between tokens, [0, kServiceMsMax]
  std::int32_t queue_timeout_ms = 0;  // shed when it has not run by then; 0: the engine's default
  std::int32_t tenant = 0;            // whose share it takes, an API key's number; [0, kTenantsMax)
  std::int32_t route = 0;             // requests of one tenant and route are taken to be alike; [0, kRoutesMax)
  friend bool operator==(const ServiceTerms&, const ServiceTerms&) = default;
};

inline constexpr double kServiceMsMax = 24 * 3600 * 1000;
inline constexpr std::int32_t kTenantsMax = 1 << 16;
inline constexpr std::int32_t kRoutesMax = 16;

inline constexpr std::int32_t kCacheRetentionSecondsMax = 24 * 3600;

struct GenerateRequest {
  RequestId id;
  std::vector<TokenId> prompt;  // 1 … max_model_len - 1 ids, each below vocab_size
  SamplingParams sampling;
  StopCriteria stop;
  // Requests with different salts never share cached blocks.
  std::string cache_salt;
  // For how long the prompt's blocks are evicted after all others, [0, kCacheRetentionSecondsMax]; 0: not.
  std::int32_t cache_retention_s = 0;
  ServiceTerms terms;
};

}  // namespace quire
