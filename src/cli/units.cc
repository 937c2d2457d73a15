#include "cli/units.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <span>
#include <utility>

#include "base/utf8.h"

namespace quire::cli {
namespace {

struct Unit {
  std::string_view suffix;  // lower case
  double factor;
};

constexpr double kKibi = 1024, kKilo = 1000;
constexpr Unit kByteUnits[] = {
    {"", 1},
    {"b", 1},
    {"k", kKibi},
    {"kib", kKibi},
    {"m", kKibi* kKibi},
    {"mib", kKibi* kKibi},
    {"g", kKibi* kKibi* kKibi},
    {"gib", kKibi* kKibi* kKibi},
    {"t", kKibi* kKibi* kKibi* kKibi},
    {"tib", kKibi* kKibi* kKibi* kKibi},
    {"kb", kKilo},
    {"mb", kKilo* kKilo},
    {"gb", kKilo* kKilo* kKilo},
    {"tb", kKilo* kKilo* kKilo* kKilo},
};
constexpr Unit kMillisecondUnits[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};

// A number that is not negative and one of the units behind it.
Result<std::int64_t> ParseWithUnit(std::string_view text, std::span<const Unit> units, std::string_view examples) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  std::string suffix(rest, end);
  suffix.erase(0, std::min(suffix.find_first_not_of(' '), suffix.size()));
  std::ranges::transform(suffix, suffix.begin(), [](unsigned char c) { return std::tolower(c); });
  const Unit* unit = std::ranges::find(units, suffix, &Unit::suffix).base();
  if (error != std::errc() || number < 0 || unit == units.data() + units.size()) {
    return Fail(ErrorCode::kInvalidArgument, "\"{}\" is not {}", text, examples);
  }
  const double value = number * unit->factor;
  if (!(value < 9.0e18)) return Fail(ErrorCode::kInvalidArgument, "\"{}\" is too large", text);
  return static_cast<std::int64_t>(std::llround(value));
}

}  // namespace

Result<std::int64_t> ParseBytes(std::string_view text) {
  return ParseWithUnit(text, kByteUnits, "a size such as 4GiB, 512MiB, 4GB or 1048576");
}

std::string FormatBytes(std::int64_t bytes) {
  constexpr std::string_view kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kNames)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kNames[unit]);
}

std::string ExactBytes(std::int64_t bytes) {
  constexpr std::pair<std::int64_t, std::string_view> kUnits[] = {
      {std::int64_t{1} << 30, "GiB"}, {std::int64_t{1} << 20, "MiB"}, {std::int64_t{1} << 10, "KiB"}};
  for (const auto& [factor, name] : kUnits) {
    if (bytes != 0 && bytes % factor == 0) return fmt::format("{}{}", bytes / factor, name);
  }
  return fmt::format("{}", bytes);
}

Result<std::chrono::milliseconds> ParseDuration(std::string_view text) {
  QUIRE_TRY(const std::int64_t milliseconds,
            ParseWithUnit(text, kMillisecondUnits, "a duration such as 250ms, 30s, 5m or 1h"));
  return std::chrono::milliseconds(milliseconds);
}

std::string ExactDuration(std::chrono::milliseconds duration) {
  const auto count = duration.count();
  if (count >= 60'000 && count % 60'000 == 0) return fmt::format("{}m", count / 60'000);
  if (count % 1000 == 0) return fmt::format("{}s", count / 1000);
  return fmt::format("{}ms", count);
}

std::string FormatSeconds(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 60) return fmt::format("{:.0f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

std::string FormatCount(std::int64_t count) {
  const auto scaled = [&](double divisor, std::string_view unit) {
    const double value = static_cast<double>(count) / divisor;
    return fmt::format("{:.{}f}{}", value, value < 10 ? 2 : value < 100 ? 1 : 0, unit);
  };
  if (count >= 1'000'000'000) return scaled(1e9, "B");
  if (count >= 1'000'000) return scaled(1e6, "M");
  if (count >= 10'000) return scaled(1e3, "K");
  return fmt::format("{}", count);
}

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Char next = DecodeUtf8(text);
    const bool is_control = next.code_point < 0x20 || (next.code_point >= 0x7F && next.code_point < 0xA0);
    if (is_control && next.code_point != '\n') {
      out += fmt::format("\\x{:02x}", next.code_point);
    } else {
      AppendUtf8(next.code_point, &out);
    }
    text.remove_prefix(next.size);
  }
  return out;
}

}  // namespace quire::cli
