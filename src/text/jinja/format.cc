#include "text/jinja/format.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/python_str.h"
#include "text/jinja/repr.h"

namespace quire::text::jinja {

// -- "…" % values

namespace {

class PercentFormatter {
 public:
  PercentFormatter(std::string_view format, bool markup, const Value& values, Interpreter& interpreter)
      : rest_(format), markup_(markup), values_(values), interpreter_(interpreter) {}

  Result<std::string> Run() {
    std::string out;
    while (!rest_.empty()) {
      const std::size_t percent = std::min(rest_.find('%'), rest_.size());
      out += rest_.substr(0, percent);
      rest_.remove_prefix(percent);
      if (rest_.empty()) break;
      rest_.remove_prefix(1);
      QUIRE_TRY(const std::string piece, Directive());
      out += piece;
      QUIRE_TRY_VOID(interpreter_.CheckAffordable(static_cast<Int>(out.size())));
    }
    // Python takes whatever can be subscripted for a mapping, which need not be used; Undefined is such an object.
    const bool ignorable = values_.kind() == Kind::kDict || values_.kind() == Kind::kList ||
                           values_.kind() == Kind::kRange || values_.is_undefined();
    const std::size_t available = values_.kind() == Kind::kTuple ? values_.items().size() : 1;
    if (used_ < available && !ignorable && !(values_.kind() != Kind::kTuple && used_ > 0)) {
      return RenderError("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  Result<Value> NextValue() {
    if (values_.kind() == Kind::kTuple) {
      if (used_ >= values_.items().size()) return RenderError("not enough arguments for format string");
      return values_.items()[used_++];
    }
    if (used_ > 0) return RenderError("not enough arguments for format string");
    ++used_;
    return values_;
  }

  Result<int> WidthOrStar() {
    if (rest_.empty() || rest_[0] != '*') return ReadNumber(&rest_);
    rest_.remove_prefix(1);
    QUIRE_TRY(const Value value, NextValue());
    if (!value.is_integral()) return RenderError("* wants int");
    if (value.integer() < -kWidthMax || value.integer() > kWidthMax) return RenderError("width too big");
    return static_cast<int>(value.integer());
  }

  Result<std::string> Directive() {
    std::optional<Value> named;
    if (rest_.starts_with('(')) {
      const std::size_t end = rest_.find(')');
      if (end == std::string_view::npos) return RenderError("incomplete format key");
      if (values_.kind() != Kind::kDict) return RenderError("format requires a mapping");
      const std::string key(rest_.substr(1, end - 1));
      const Value* found = values_.dict().Find(key);
      if (!found) return RenderError("{}", ReprText(key));
      named = *found;
      used_ = 1;
      rest_.remove_prefix(end + 1);
    }
    FormatSpec spec;
    bool left = false, zero = false;
    for (; !rest_.empty() && std::string_view("-+ #0").find(rest_[0]) != std::string_view::npos;
         rest_.remove_prefix(1)) {
      if (rest_[0] == '-') left = true;
      if (rest_[0] == '+' || (rest_[0] == ' ' && spec.sign != '+')) spec.sign = rest_[0];
      if (rest_[0] == '#') spec.alternate = true;
      if (rest_[0] == '0') zero = true;
    }
    QUIRE_TRY(spec.width, WidthOrStar());
    if (spec.width < 0) left = true, spec.width = -spec.width;
    if (rest_.starts_with('.')) {
      rest_.remove_prefix(1);
      QUIRE_TRY(spec.precision, WidthOrStar());
      spec.precision = std::max(spec.precision, 0);
    }
    while (!rest_.empty() && std::string_view("hlL").find(rest_[0]) != std::string_view::npos) rest_.remove_prefix(1);
    if (rest_.empty()) return RenderError("incomplete format");
    spec.type = rest_[0];
    rest_.remove_prefix(1);
    if (spec.type == '%') return "%";
    interpreter_.budget()->SpendBytes(static_cast<std::size_t>(spec.width) +
                                      static_cast<std::size_t>(std::max(spec.precision, 0)));
    QUIRE_TRY_VOID(interpreter_.CheckBudget());
    if (!named) {
      QUIRE_TRY(named, NextValue());
    }
    spec.align = left ? '<' : '>';
    return Convert(*named, spec, zero && !left);
  }

  Result<std::string> Convert(const Value& value, FormatSpec spec, bool zero) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        QUIRE_TRY(std::string text, TextOf(value, spec.type));
        const std::size_t keep =
            spec.precision < 0 ? text.size() : ByteOffset(text, static_cast<std::size_t>(spec.precision));
        return Pad("", std::string_view(text).substr(0, keep), spec, '>');
      }
      case 'c':
        return Character(value, spec);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return Integer(value, spec, zero);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) return RenderError("must be real number, not {}", value.type_name());
        if (zero) spec.fill = "0", spec.align = '=';
        return FormatFloat(value.real(), spec);
      default:
        return RenderError("unsupported format character '{}'", spec.type);
    }
  }

  Result<std::string> TextOf(const Value& value, char type) {
    std::string text;
    if (type == 's') {
      QUIRE_TRY(text, interpreter_.Text(value));
    } else {
      text = type == 'r' ? Repr(value, interpreter_.budget()) : Ascii(value, interpreter_.budget());
    }
    return markup_ && !(type == 's' && value.is_markup()) ? EscapeHtml(text) : text;
  }

  static Result<std::string> Character(const Value& value, const FormatSpec& spec) {
    std::string text;
    if (value.is_string() && CharacterCount(value.text()) == 1) {
      text = value.text();
    } else if (value.is_integral() && value.integer() >= 0 && value.integer() <= 0x10FFFF) {
      AppendUtf8(static_cast<std::uint32_t>(value.integer()), &text);
    } else {
      return RenderError("%c requires int or char");
    }
    return Pad("", text, spec, '>');
  }

  static Result<std::string> Integer(const Value& value, FormatSpec spec, bool zero) {
    if (!value.is_number()) {
      return RenderError("%{} format: a real number is required, not {}", spec.type, value.type_name());
    }
    if (value.kind() == Kind::kFloat) {
      const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
      if (!decimal) return RenderError("%{} format: an integer is required, not float", spec.type);
      if (!std::isfinite(value.real()) || std::fabs(value.real()) > 1e37)
        return RenderError("cannot convert float to integer");
    }
    const Int number = value.is_integral() ? value.integer() : static_cast<Int>(value.real());
    std::string digits = DigitsIn(number < 0 ? -number : number,
                                  spec.type == 'o'            ? 8
                                  : (spec.type | 0x20) == 'x' ? 16
                                                              : 10,
                                  spec.type == 'X');
    if (spec.precision > static_cast<int>(digits.size())) {
      digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
    }
    std::string prefix = SignOf(number < 0, spec.sign);
    if (spec.alternate && (spec.type == 'o' || (spec.type | 0x20) == 'x')) prefix += {'0', spec.type};
    if (zero) spec.fill = "0", spec.align = '=';
    return Pad(prefix, digits, spec, '>');
  }

  std::string_view rest_;
  bool markup_;
  const Value& values_;
  Interpreter& interpreter_;
  std::size_t used_ = 0;
};

// -- "…".format(values)

class FieldFormatter {
 public:
  FieldFormatter(const Arguments& arguments, bool markup, Interpreter& interpreter)
      : arguments_(arguments), markup_(markup), interpreter_(interpreter) {}

  Result<std::string> Run(std::string_view format, int depth) {
    if (depth > 2) return RenderError("Max string recursion exceeded");
    std::string out;
    while (!format.empty()) {
      const std::size_t brace = std::min(format.find_first_of("{}"), format.size());
      out += format.substr(0, brace);
      format.remove_prefix(brace);
      if (format.empty()) break;
      if (format.size() > 1 && format[1] == format[0]) {
        out.push_back(format[0]);
        format.remove_prefix(2);
        continue;
      }
      if (format[0] == '}') return RenderError("Single '}}' encountered in format string");
      const std::size_t end = FieldEnd(format);
      if (end == std::string_view::npos) return RenderError("expected '}}' before end of string");
      QUIRE_TRY(const std::string piece, Field(format.substr(1, end - 1), depth));
      out += piece;
      interpreter_.budget()->SpendBytes(piece.size());
      QUIRE_TRY_VOID(interpreter_.CheckBudget());
      format.remove_prefix(end + 1);
    }
    return out;
  }

 private:
  // The brace that closes the one that `format` begins with.
  static std::size_t FieldEnd(std::string_view format) {
    int open = 0;
    for (std::size_t i = 0; i < format.size(); ++i) {
      open += format[i] == '{' ? 1 : format[i] == '}' ? -1 : 0;
      if (open == 0) return i;
    }
    return std::string_view::npos;
  }

  Result<std::string> Field(std::string_view field, int depth) {
    const std::size_t split = std::min(field.find_first_of("!:"), field.size());
    const std::string_view name = field.substr(0, split);
    std::string_view rest = field.substr(split);
    char conversion = '\0';
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':'))
        return RenderError("expected ':' after conversion specifier");
      conversion = rest[1];
      rest.remove_prefix(2);
    }
    QUIRE_TRY(Value value, Lookup(name));
    QUIRE_TRY(const std::string specification, Run(rest.empty() ? rest : rest.substr(1), depth + 1));
    Budget* const budget = interpreter_.budget();
    if (conversion == 's') {
      QUIRE_TRY(std::string text, interpreter_.Text(value));
      value = Value::String(std::move(text));
    } else if (conversion == 'r' || conversion == 'a') {
      value = Value::String(conversion == 'r' ? Repr(value, budget) : Ascii(value, budget));
    } else if (conversion != '\0') {
      return RenderError("Unknown conversion specifier {}", conversion);
    }
    QUIRE_TRY(std::string text, FormatValue(value, specification, interpreter_));
    return markup_ && !value.is_markup() ? EscapeHtml(text) : text;
  }

  Result<Value> Lookup(std::string_view name) {
    const std::size_t split = std::min(name.find_first_of(".["), name.size());
    QUIRE_TRY(Value value, First(name.substr(0, split)));
    name.remove_prefix(split);
    while (!name.empty()) {
      if (name[0] == '.') {
        name.remove_prefix(1);
        const std::size_t end = std::min(name.find_first_of(".["), name.size());
        QUIRE_TRY(value, interpreter_.Attribute(value, std::string(name.substr(0, end))));
        name.remove_prefix(end);
        continue;
      }
      const std::size_t end = name[0] == '[' ? name.find(']') : std::string_view::npos;
      if (end == std::string_view::npos) return RenderError("Missing ']' in format string");
      const std::string key(name.substr(1, end - 1));
      const std::optional<Int> index = Number(key);
      QUIRE_TRY(value, interpreter_.Item(value, index ? Value::Integer(*index) : Value::String(key)));
      name.remove_prefix(end + 1);
    }
    return value;
  }

  static std::optional<Int> Number(std::string_view text) {
    if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string_view::npos)
      return std::nullopt;
    Int number = 0;
    for (const char c : text) number = number * 10 + (c - '0');
    return number;
  }

  Result<Value> First(std::string_view name) {
    if (const auto index = name.empty() ? Int{next_automatic_++} : Number(name)) {
      if (*index >= static_cast<Int>(arguments_.positional.size())) {
        return RenderError("Replacement index {} out of range for positional args tuple", *index);
      }
      return arguments_.positional[static_cast<std::size_t>(*index)];
    }
    for (const auto& [key, value] : arguments_.keyword) {
      if (key == name) return value;
    }
    return RenderError("{}", ReprText(name));
  }

  const Arguments& arguments_;
  bool markup_;
  Interpreter& interpreter_;
  int next_automatic_ = 0;
};

}  // namespace

Result<Value> FormatPercent(const Value& format, const Value& values, Interpreter& interpreter) {
  QUIRE_TRY(std::string text, PercentFormatter(format.text(), format.is_markup(), values, interpreter).Run());
  return interpreter.Built(std::move(text), format.is_markup());
}

Result<Value> FormatFields(const Value& format, const Arguments& arguments, Interpreter& interpreter) {
  QUIRE_TRY(std::string text, FieldFormatter(arguments, format.is_markup(), interpreter).Run(format.text(), 0));
  return interpreter.Built(std::move(text), format.is_markup());
}

}  // namespace quire::text::jinja
