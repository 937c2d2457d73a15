#include "text/jinja/format_spec.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/python_str.h"
#include "text/jinja/repr.h"

namespace quire::text::jinja {

namespace {

bool IsAlign(char c) {
  return c == '<' || c == '>' || c == '=' || c == '^';
}

}  // namespace

Result<int> ReadNumber(std::string_view* text) {
  int number = 0;
  while (!text->empty() && text->front() >= '0' && text->front() <= '9') {
    number = number * 10 + (text->front() - '0');
    if (number > kWidthMax) return RenderError("a width or precision above {} in a format", kWidthMax);
    text->remove_prefix(1);
  }
  return number;
}

namespace {

Result<FormatSpec> ParseSpec(std::string_view text) {
  FormatSpec spec;
  const std::size_t first = ByteOffset(text, 1);
  if (text.size() > first && IsAlign(text[first])) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && IsAlign(text[0])) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  const auto take = [&](std::string_view any) {
    if (text.empty() || any.find(text[0]) == std::string_view::npos) return '\0';
    const char c = text[0];
    text.remove_prefix(1);
    return c;
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != '\0';
  if (take("0") != '\0') {
    if (spec.fill == " " && spec.align == '\0') spec.fill = "0";
    if (spec.align == '\0') spec.align = '=';
  }
  QUIRE_TRY(spec.width, ReadNumber(&text));
  spec.grouping = take(",_");
  if (take(".") != '\0') {
    if (text.empty() || text[0] < '0' || text[0] > '9') return RenderError("Format specifier missing precision");
    QUIRE_TRY(spec.precision, ReadNumber(&text));
  }
  if (!text.empty()) {
    spec.type = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty()) return RenderError("Invalid format specifier");
  return spec;
}

std::string Repeated(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

}  // namespace

std::string Pad(std::string_view prefix, std::string_view body, const FormatSpec& spec, char default_align) {
  const std::size_t size = CharacterCount(prefix) + CharacterCount(body);
  const auto width = static_cast<std::size_t>(spec.width);
  const std::size_t padding = width > size ? width - size : 0;
  const char align = spec.align != '\0' ? spec.align : default_align;
  const std::size_t left = align == '<' ? 0 : align == '^' ? padding / 2 : padding;
  if (align == '=') return fmt::format("{}{}{}", prefix, Repeated(spec.fill, padding), body);
  return fmt::format("{}{}{}{}", Repeated(spec.fill, left), prefix, body, Repeated(spec.fill, padding - left));
}

namespace {

std::string Grouped(const std::string& digits, char separator, std::size_t group) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % group == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out;
}

}  // namespace

std::string SignOf(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

std::string DigitsIn(Int magnitude, unsigned base, bool upper) {
  std::string digits;
  do {
    const auto digit = static_cast<unsigned>(magnitude % static_cast<Int>(base));
    digits.push_back((upper ? "0123456789ABCDEF" : "0123456789abcdef")[digit]);
    magnitude /= static_cast<Int>(base);
  } while (magnitude > 0);
  std::ranges::reverse(digits);
  return digits;
}

namespace {

Result<std::string> FormatInteger(Int value, const FormatSpec& spec) {
  if (spec.precision >= 0) return RenderError("Precision not allowed in integer format specifier");
  const unsigned base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : spec.type == 'x' || spec.type == 'X' ? 16 : 10;
  std::string digits = DigitsIn(value < 0 ? -value : value, base, spec.type == 'X');
  if (spec.grouping != '\0') digits = Grouped(digits, spec.grouping, base == 10 ? 3 : 4);
  std::string prefix = SignOf(value < 0, spec.sign);
  if (spec.alternate && base != 10) prefix += {'0', spec.type};
  return Pad(prefix, digits, spec, '>');
}

// The digits of a finite magnitude, for the types e f g % and none.
std::string FloatDigits(double magnitude, const FormatSpec& spec) {
  const int precision = spec.precision >= 0 ? spec.precision : 6;
  switch (spec.type) {
    case 'e':
      return spec.alternate ? fmt::format("{:#.{}e}", magnitude, precision)
                            : fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return fmt::format("{:.{}E}", magnitude, precision);
    case 'f':
    case 'F':
      return spec.alternate ? fmt::format("{:#.{}f}", magnitude, precision)
                            : fmt::format("{:.{}f}", magnitude, precision);
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, precision);
    case 'G':
      return fmt::format("{:.{}G}", magnitude, std::max(precision, 1));
    case 'g':
    case 'n':
      return spec.alternate ? fmt::format("{:#.{}g}", magnitude, std::max(precision, 1))
                            : fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
    default:
      break;
  }
  if (spec.precision < 0) return FloatText(magnitude);
  std::string text = fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
  // Without a type the result always shows that it is a float.
  if (text.find_first_of(".e") == std::string::npos) {
    if (static_cast<int>(text.size()) >= std::max(precision, 1))
      return fmt::format("{:.{}e}", magnitude, std::max(precision, 1) - 1);
    text += ".0";
  }
  return text;
}

}  // namespace

std::string FormatFloat(double value, const FormatSpec& spec) {
  const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  std::string digits;
  if (std::isnan(value)) {
    digits = upper ? "NAN" : "nan";
  } else if (std::isinf(value)) {
    digits = upper ? "INF" : "inf";
  } else {
    digits = FloatDigits(std::fabs(value), spec);
    const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    if (spec.grouping != '\0') digits = Grouped(digits.substr(0, whole), spec.grouping, 3) + digits.substr(whole);
  }
  if (spec.type == '%' && !std::isfinite(value)) digits += '%';
  return Pad(SignOf(std::signbit(value) && !std::isnan(value), spec.sign), digits, spec, '>');
}

namespace {

Result<std::string> FormatText(std::string_view text, const FormatSpec& spec) {
  if (spec.type != '\0' && spec.type != 's')
    return RenderError("Unknown format code '{}' for object of type 'str'", spec.type);
  if (spec.sign != '-') return RenderError("Sign not allowed in string format specifier");
  if (spec.align == '=' && spec.fill != "0") return RenderError("'=' alignment not allowed in string format specifier");
  if (spec.precision >= 0) text = text.substr(0, ByteOffset(text, static_cast<std::size_t>(spec.precision)));
  FormatSpec padded = spec;
  if (padded.align == '=') padded.align = '<';
  return Pad("", text, padded, '<');
}

}  // namespace

Result<std::string> FormatValue(const Value& value, std::string_view specification, Interpreter& interpreter) {
  if (specification.empty()) return interpreter.Text(value);
  QUIRE_TRY(const FormatSpec spec, ParseSpec(specification));
  interpreter.budget()->SpendBytes(static_cast<std::size_t>(spec.width) +
                                   static_cast<std::size_t>(std::max(spec.precision, 0)));
  QUIRE_TRY_VOID(interpreter.CheckBudget());
  const bool integer_type = spec.type == '\0' || std::string_view("bodxXn").find(spec.type) != std::string_view::npos;
  const bool float_type = spec.type != '\0' && std::string_view("eEfFgGn%").find(spec.type) != std::string_view::npos;
  if (value.is_string()) return FormatText(value.text(), spec);
  if (value.is_integral()) {
    if (spec.type == 'c') {
      const Int code = value.integer();
      if (code < 0 || code > 0x10FFFF) return RenderError("%c arg not in range(0x110000)");
      std::string character;
      AppendUtf8(static_cast<std::uint32_t>(code), &character);
      return Pad("", character, spec, '<');
    }
    if (integer_type) return FormatInteger(value.integer(), spec);
    if (float_type) return FormatFloat(value.real(), spec);
  } else if (value.kind() == Kind::kFloat) {
    if (float_type || spec.type == '\0') return FormatFloat(value.real(), spec);
  } else {
    return RenderError("unsupported format string passed to {}.__format__", value.type_name());
  }
  return RenderError("Unknown format code '{}' for object of type '{}'", spec.type, value.type_name());
}

}  // namespace quire::text::jinja
