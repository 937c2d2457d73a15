#include "server/models_config.h"

namespace quire::server {

Result<> ModelsConfig::Validate() const {
  constexpr std::int64_t kDayMs = 24 * 3600 * 1000;
  const auto check = [](const char* name, std::int64_t value, std::int64_t min, std::int64_t max) -> Result<> {
    if (value >= min && value <= max) return {};
    return FailParam(name, "{} must be from {} to {}, got {}", name, min, max, value);
  };
  QUIRE_TRY_VOID(check("memory", memory_bytes, 0, std::int64_t{1} << 50));
  QUIRE_TRY_VOID(check("models_max", loaded_max, 1, 1000));
  QUIRE_TRY_VOID(check("model_wait_timeout", wait_timeout.count(), 0, kDayMs));
  QUIRE_TRY_VOID(check("max_model_waiters", waiting_max, 0, 1'000'000));
  return check("model_idle_timeout", idle_timeout.count(), 0, kDayMs);
}

}  // namespace quire::server
