// Sizes and durations as people write them and read them, and text that is safe to show them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire::cli {

// "4GiB", "4GB", "512M", "1.5G", "1048576". KiB, MiB, GiB, TiB and the bare letters are powers of 1024; KB, MB, GB, TB
// powers of 1000. Upper and lower case are the same.
Result<std::int64_t> ParseBytes(std::string_view text);
// "1.50 GiB", "12 B": three digits and a unit.
std::string FormatBytes(std::int64_t bytes);
// Text that ParseBytes reads back as the same number: "4GiB", or plain bytes where no unit divides them.
std::string ExactBytes(std::int64_t bytes);

// "250ms", "30s", "5m", "1h"; a bare number means seconds.
Result<std::chrono::milliseconds> ParseDuration(std::string_view text);
// "250ms", "1.5s", "75s", "5m".
std::string ExactDuration(std::chrono::milliseconds duration);
// "0.4 s", "12 s", "3 min 05 s".
std::string FormatSeconds(double seconds);

// "4.6M", "494M", "1.24B": parameters and tokens.
std::string FormatCount(std::int64_t count);

// Text that may come from a model file, for a terminal that it must not steer: control characters but the line feed
// become "\x1b", what is not UTF-8 becomes U+FFFD.
std::string Printable(std::string_view text);

}  // namespace quire::cli
