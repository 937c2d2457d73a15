#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <string>

namespace quire {

Result<> InitLog(std::string_view level, std::string_view process) {
  const std::string name(level);
  const auto parsed = spdlog::level::from_str(name);
  if (parsed == spdlog::level::off && name != "off") {
    return FailParam("log_level", "unknown log level \"{}\"; use trace, debug, info, warn, error or off", name);
  }
  auto logger =
      std::make_shared<spdlog::logger>(std::string(process), std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%H:%M:%S.%e %^%-5l%$ %n: %v");
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace quire
