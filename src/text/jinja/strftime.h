// Dates for the global function strftime_now.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace quire::text::jinja {

// `now`: "" is the current local time, else "YYYY-MM-DD HH:MM:SS". English names, as Python's default locale gives.
Result<std::string> FormatNow(std::string_view format, std::string_view now);

}  // namespace quire::text::jinja
