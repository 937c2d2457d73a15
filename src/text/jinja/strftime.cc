#include "text/jinja/strftime.h"

#include <chrono>
#include <cstdio>
#include <ctime>

#include "base/utf8.h"
#include "text/jinja/value.h"

namespace quire::text::jinja {
namespace {

Result<std::tm> Moment(std::string_view now) {
  std::tm moment{};
  if (now.empty()) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    if (!localtime_r(&seconds, &moment)) return RenderError("the local time cannot be read");
    return moment;
  }
  const std::string text(now);
  if (std::sscanf(text.c_str(), "%4d-%2d-%2d %2d:%2d:%2d", &moment.tm_year, &moment.tm_mon, &moment.tm_mday,
                  &moment.tm_hour, &moment.tm_min, &moment.tm_sec) != 6) {
    return RenderError("the time \"{}\" is not of the form YYYY-MM-DD HH:MM:SS", now);
  }
  moment.tm_year -= 1900;
  moment.tm_mon -= 1;
  moment.tm_isdst = -1;
  std::tm normal = moment;
  // timegm derives the day of the week and of the year without any time zone.
  if (timegm(&normal) == -1 || normal.tm_mday != moment.tm_mday || normal.tm_hour != moment.tm_hour) {
    return RenderError("there is no time \"{}\"", now);
  }
  return normal;
}

}  // namespace

Result<std::string> FormatNow(std::string_view format, std::string_view now) {
  QUIRE_TRY(const std::tm moment, Moment(now));
  if (format.find('\0') != std::string_view::npos) return RenderError("embedded null character");
  // strftime tells an empty result from a short buffer only by a character that is always there.
  const std::string marked = std::string(format) + "|";
  if (marked.size() > 4096) return RenderError("the format of strftime_now is longer than 4096 bytes");
  std::string text(marked.size() * 16 + 256, '\0');
  const std::size_t size = std::strftime(text.data(), text.size(), marked.c_str(), &moment);
  if (size == 0) return RenderError("strftime_now cannot use the format \"{}\"", format);
  text.resize(size - 1);
  return SanitizeUtf8(text);  // a "%" before a character that is not ASCII takes its first byte
}

}  // namespace quire::text::jinja
