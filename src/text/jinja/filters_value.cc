// Filters over single values: numbers, defaults, JSON.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_str.h"
#include "text/jinja/repr.h"

namespace quire::text::jinja {
namespace {

using Bound = std::span<const Value>;

Result<Value> Default(Interpreter&, Bound a, const Arguments&) {
  const bool replace = a[0].is_undefined() || (Truth(a[2]) && !Truth(a[0]));
  if (!replace) return a[0];
  return a[1].is_missing() ? Value::String("") : a[1];
}

// A Python literal's digits: blanks around, a sign, single underscores between digits. nullopt: not a number.
std::optional<std::string> NumberText(std::string_view text) {
  text = Strip(text, std::nullopt, true, true);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    const auto alnum = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at]));
    };
    if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) return std::nullopt;
  }
  if (out.empty()) return std::nullopt;
  return out;
}

enum class Parse { kOk, kInvalid, kTooLarge };
Parse ParseInteger(std::string_view source, int base, Int* value) {
  const auto cleaned = NumberText(source);
  if (!cleaned) return Parse::kInvalid;
  std::string_view digits = *cleaned;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  const auto prefix = [&](char letter) {
    return digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == letter;
  };
  for (const auto& [letter, prefixed_base] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if (!prefix(letter) || (base != 0 && base != prefixed_base)) continue;
    base = prefixed_base;
    digits.remove_prefix(2);
    break;
  }
  if (base == 0) {
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string_view::npos)
      return Parse::kInvalid;
    base = 10;
  }
  if (digits.empty()) return Parse::kInvalid;
  *value = 0;
  for (const char c : digits) {
    const int lower = c | 0x20;
    const int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
    if (digit >= base) return Parse::kInvalid;
    if (__builtin_mul_overflow(*value, Int{base}, value) || __builtin_add_overflow(*value, Int{digit}, value))
      return Parse::kTooLarge;
  }
  if (negative) *value = -*value;
  return Parse::kOk;
}

bool ParseFloat(std::string_view source, double* value) {
  const auto cleaned = NumberText(source);
  if (!cleaned) return false;
  std::string text = Lower(*cleaned);
  const std::size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const std::string_view body = std::string_view(text).substr(sign);
  const bool word = body == "inf" || body == "infinity" || body == "nan";
  if (!word && (body.empty() || body.find_first_not_of("0123456789.e+-") != std::string_view::npos)) return false;
  char* end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size();
}

Result<Value> FloatToInteger(double value, const Value& fallback) {
  if (std::isnan(value)) return fallback;
  if (std::isinf(value)) return RenderError("cannot convert float infinity to integer");
  if (std::fabs(value) > 1.6e38) return RenderError("the integer result is too large");
  return Value::Integer(static_cast<Int>(value));
}

Result<Value> IntFilter(Interpreter&, Bound a, const Arguments&) {
  const Value fallback = a[1].is_missing() ? Value::Integer(0) : a[1];
  if (a[0].is_undefined()) return UndefinedError(a[0]);
  if (a[0].is_integral()) return Value::Integer(a[0].integer());
  if (a[0].kind() == Kind::kFloat) return FloatToInteger(a[0].real(), fallback);
  if (!a[0].is_string()) return fallback;
  int base = 10;
  if (!a[2].is_missing()) {
    if (!a[2].is_integral()) return fallback;
    if (a[2].integer() < 0 || a[2].integer() == 1 || a[2].integer() > 36) return fallback;
    base = static_cast<int>(a[2].integer());
  }
  Int value = 0;
  switch (ParseInteger(a[0].text(), base, &value)) {
    case Parse::kOk:
      return Value::Integer(value);
    case Parse::kTooLarge:
      return RenderError("the integer result is too large");
    case Parse::kInvalid:
      break;
  }
  double real = 0;
  return ParseFloat(a[0].text(), &real) ? FloatToInteger(real, fallback) : fallback;
}

Result<Value> FloatFilter(Interpreter&, Bound a, const Arguments&) {
  if (a[0].is_undefined()) return UndefinedError(a[0]);
  if (a[0].is_number()) return Value::Float(a[0].real());
  double real = 0;
  if (a[0].is_string() && ParseFloat(a[0].text(), &real)) return Value::Float(real);
  return a[1].is_missing() ? Value::Float(0) : a[1];
}

Result<Value> Abs(Interpreter&, Bound a, const Arguments&) {
  if (a[0].is_undefined()) return UndefinedError(a[0]);
  if (a[0].is_integral())
    return a[0].integer() < 0 ? Signed(a[0], /*negative=*/true) : Signed(a[0], /*negative=*/false);
  if (a[0].kind() == Kind::kFloat) return Value::Float(std::fabs(a[0].real()));
  return RenderError("bad operand type for abs(): '{}'", a[0].type_name());
}

// Half to even, as Python rounds integers to tens, hundreds…
Int RoundInteger(Int value, Int digits) {
  if (digits >= 0) return value;
  if (digits < -38) return 0;
  Int unit = 1;
  for (Int i = 0; i < -digits; ++i) unit *= 10;
  Int rest = value % unit;
  if (rest < 0) rest += unit;
  const Int down = value - rest;
  const bool down_is_odd = (down / unit) % 2 != 0;
  return rest > unit - rest || (rest == unit - rest && down_is_odd) ? down + unit : down;
}

Result<Value> Round(Interpreter& interpreter, Bound a, const Arguments&) {
  const Value method = a[2].is_missing() ? Value::String("common") : a[2];
  const Value precision = a[1].is_missing() ? Value::Integer(0) : a[1];
  if (a[0].is_undefined()) return UndefinedError(a[0]);
  if (!method.is_string() || (method.text() != "common" && method.text() != "ceil" && method.text() != "floor")) {
    return RenderError("method must be common, ceil or floor");
  }
  if (!a[0].is_number()) return RenderError("type {} doesn't define __round__ method", a[0].type_name());
  if (!precision.is_integral())
    return RenderError("'{}' object cannot be interpreted as an integer", precision.type_name());
  if (method.text() == "common") {
    if (a[0].is_integral()) return Value::Integer(RoundInteger(a[0].integer(), precision.integer()));
    return Value::Float(RoundDecimal(a[0].real(), std::clamp(precision.integer(), Int{-400}, Int{400})));
  }
  // func(value * 10 ** precision) / 10 ** precision
  QUIRE_TRY(const Value scale, Arithmetic(Operator::kPower, Value::Integer(10), precision, interpreter));
  QUIRE_TRY(const Value scaled, Arithmetic(Operator::kMultiply, a[0], scale, interpreter));
  if (!std::isfinite(scaled.real())) return RenderError("cannot convert float {} to integer", FloatText(scaled.real()));
  const double whole = method.text() == "ceil" ? std::ceil(scaled.real()) : std::floor(scaled.real());
  return Arithmetic(Operator::kDivide, Value::Float(whole), scale, interpreter);
}

Result<JsonStyle> JsonStyleOf(Bound a) {
  JsonStyle style;
  style.ensure_ascii = Truth(a[1]);
  style.sort_keys = Truth(a[4]);
  if (!a[2].is_missing() && !a[2].is_none()) {
    style.pretty = true;
    style.item_separator = ",";
    if (a[2].is_string()) {
      style.indent = a[2].text();
    } else if (a[2].is_integral()) {
      if (a[2].integer() > 1000) return RenderError("tojson: an indent of {} is too large", a[2].integer());
      style.indent.assign(static_cast<std::size_t>(std::max(a[2].integer(), Int{0})), ' ');
    } else {
      return RenderError("tojson: indent must be a number or a text, not {}", a[2].type_name());
    }
  }
  if (!a[3].is_missing() && !a[3].is_none()) {
    const bool pair = a[3].is_sequence() && a[3].items().size() == 2;
    if (!pair || !a[3].items()[0].is_string() || !a[3].items()[1].is_string()) {
      return RenderError("tojson: separators must be two texts");
    }
    style.item_separator = a[3].items()[0].text();
    style.key_separator = a[3].items()[1].text();
  }
  return style;
}

// Hugging Face's, not jinja2's: nothing is escaped for HTML.
Result<Value> ToJson(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const JsonStyle style, JsonStyleOf(a));
  QUIRE_TRY(std::string text, DumpJson(a[0], style, interpreter.budget()));
  return interpreter.Built(std::move(text));
}

Result<Value> Attr(Interpreter& interpreter, Bound a, const Arguments&) {
  if (!a[1].is_string()) return RenderError("attribute name must be string, not '{}'", a[1].type_name());
  // Attributes only: the keys of a dict are none.
  if (a[0].kind() == Kind::kDict) {
    Value method = FindMethod(a[0], a[1].text());
    return method.is_missing() ? Value::UndefinedAttribute(a[0], a[1].text()) : method;
  }
  return interpreter.Attribute(a[0], a[1].text());
}

Result<Value> FileSizeFormat(Interpreter& interpreter, Bound a, const Arguments&) {
  double bytes = 0;
  if (a[0].is_number()) {
    bytes = a[0].real();
  } else if (!a[0].is_string() || !ParseFloat(a[0].text(), &bytes)) {
    return RenderError("could not convert {} to float", Repr(a[0], interpreter.budget()));
  }
  const bool binary = Truth(a[1]);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::String("1 Byte");
  if (bytes < base) return Value::String(fmt::format("{:.0f} Bytes", std::trunc(bytes)));
  static constexpr std::string_view kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static constexpr std::string_view kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  double unit = base;
  for (std::size_t i = 0;; ++i) {
    unit *= base;
    if (bytes < unit || i == 7)
      return Value::String(fmt::format("{:.1f} {}", base * bytes / unit, binary ? kBinary[i] : kDecimal[i]));
  }
}

Result<Value> PrettyPrint(Interpreter&, Bound, const Arguments&) {
  return RenderError("the filter 'pprint' is not supported in chat templates");
}

constexpr auto kFilters = std::to_array<Builtin>({
    {"default", "default_value? boolean?", Default},
    {"d", "default_value? boolean?", Default},
    {"int", "default? base?", IntFilter},
    {"float", "default?", FloatFilter},
    {"abs", "", Abs},
    {"round", "precision? method?", Round},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", ToJson},
    {"attr", "name", Attr},
    {"filesizeformat", "binary?", FileSizeFormat},
    {"pprint", "*", PrettyPrint},
});

}  // namespace

std::span<const Builtin> ValueFilters() {
  return kFilters;
}

}  // namespace quire::text::jinja
