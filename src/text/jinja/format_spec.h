// The mini-language of Python's format specifications, and the pieces that % formatting shares with it.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace quire::text::jinja {

inline constexpr int kWidthMax = 100'000;

// [[fill]align][sign][#][0][width][grouping][.precision][type]; a precision below 0 and a type of '\0' are not given.
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  int width = 0;
  char grouping = '\0';
  int precision = -1;
  char type = '\0';
};

// The digits at the beginning of *text, which are taken off; 0 when there are none.
Result<int> ReadNumber(std::string_view* text);
// `prefix` (sign, 0x) stays in front of the padding of '='.
std::string Pad(std::string_view prefix, std::string_view body, const FormatSpec& spec, char default_align);
std::string SignOf(bool negative, char sign);
std::string DigitsIn(Int magnitude, unsigned base, bool upper);
std::string FormatFloat(double value, const FormatSpec& spec);

}  // namespace quire::text::jinja
