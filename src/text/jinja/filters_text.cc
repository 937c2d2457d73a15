// Filters over text.
#include <algorithm>
#include <array>
#include <charconv>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_str.h"

namespace quire::text::jinja {
namespace {

using Bound = std::span<const Value>;

// Text stays what it is, markup too; anything else becomes its str().
Result<Value> SoftText(Interpreter& interpreter, const Value& value) {
  if (value.is_string()) return value;
  QUIRE_TRY(std::string text, interpreter.Text(value));
  return interpreter.Built(std::move(text));
}

Result<Value> CallMethod(Interpreter& interpreter, const Value& object, std::string_view method, Arguments arguments) {
  QUIRE_TRY(const Value text, SoftText(interpreter, object));
  return interpreter.Call(FindMethod(text, method), arguments);
}

Result<Value> Upper(Interpreter& interpreter, Bound a, const Arguments&) {
  return CallMethod(interpreter, a[0], "upper", {});
}
Result<Value> Lower(Interpreter& interpreter, Bound a, const Arguments&) {
  return CallMethod(interpreter, a[0], "lower", {});
}
Result<Value> Capitalize(Interpreter& interpreter, Bound a, const Arguments&) {
  return CallMethod(interpreter, a[0], "capitalize", {});
}
Result<Value> Trim(Interpreter& interpreter, Bound a, const Arguments&) {
  return CallMethod(interpreter, a[0], "strip", {.positional = {a[1].is_missing() ? Value::None() : a[1]}});
}
Result<Value> Center(Interpreter& interpreter, Bound a, const Arguments&) {
  return CallMethod(interpreter, a[0], "center", {.positional = {a[1].is_missing() ? Value::Integer(80) : a[1]}});
}

// Words begin after blanks and opening brackets, unlike in str.title().
Result<Value> TitleFilter(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const std::string text, interpreter.Text(a[0]));
  interpreter.budget()->SpendSteps(text.size() / 16);
  const auto separates = [](std::string_view character) {
    return IsSpaceCharacter(DecodeUtf8(character).code_point) ||
           std::string_view("-({[<").find(character) != std::string_view::npos;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    const std::string_view view = text;
    const bool separator = separates(view.substr(i, ByteOffset(view.substr(i), 1)));
    while (end < text.size() && separates(view.substr(end, ByteOffset(view.substr(end), 1))) == separator) {
      end += ByteOffset(view.substr(end), 1);
    }
    const std::size_t first = ByteOffset(view.substr(i), 1);
    out += jinja::Upper(view.substr(i, first));
    out += jinja::Lower(view.substr(i + first, end - i - first));
    i = end;
  }
  return interpreter.Built(std::move(out));
}

Result<Value> ReplaceFilter(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const std::string text, interpreter.Text(a[0]));
  QUIRE_TRY(const std::string from, interpreter.Text(a[1]));
  QUIRE_TRY(const std::string to, interpreter.Text(a[2]));
  if (!a[3].is_missing() && !a[3].is_none() && !a[3].is_integral()) {
    return RenderError("'{}' object cannot be interpreted as an integer", a[3].type_name());
  }
  const Int count = a[3].is_missing() || a[3].is_none() ? -1 : a[3].integer();
  return ReplaceText(text, from, to, count, /*markup=*/false, interpreter);
}

Result<Value> Indent(Interpreter& interpreter, Bound a, const Arguments&) {
  std::string indention(4, ' ');
  if (a[1].is_string()) {
    indention = a[1].text();
  } else if (a[1].is_integral()) {
    QUIRE_TRY_VOID(interpreter.CheckAffordable(a[1].integer()));
    indention.assign(static_cast<std::size_t>(std::max(a[1].integer(), Int{0})), ' ');
  } else if (!a[1].is_missing()) {
    return RenderError("can't multiply sequence by non-int of type '{}'", a[1].type_name());
  }
  QUIRE_TRY(const Value text, Arithmetic(Operator::kAdd, a[0], Value::String("\n"), interpreter));
  QUIRE_TRY_VOID(interpreter.CheckPartsAffordable(text.text()));
  const bool first = Truth(a[2]), blank = Truth(a[3]);
  std::string out;
  bool is_first = true;
  for (const std::string_view line : SplitLines(text.text(), /*keep_ends=*/false)) {
    if (!is_first) out += '\n';
    const bool indented = is_first ? first : blank || !line.empty();
    if (indented) out += indention;
    out += line;
    is_first = false;
    QUIRE_TRY_VOID(interpreter.CheckAffordable(static_cast<Int>(out.size())));
  }
  return interpreter.Built(std::move(out), a[0].is_markup());
}

Result<Value> Truncate(Interpreter& interpreter, Bound a, const Arguments&) {
  const Value end = a[3].is_missing() ? Value::String("...") : a[3];
  const Value length_value = a[1].is_missing() ? Value::Integer(255) : a[1];
  const Value leeway_value = a[4].is_missing() || a[4].is_none() ? Value::Integer(5) : a[4];
  if (!end.is_string() || !length_value.is_integral() || !leeway_value.is_integral()) {
    return RenderError("truncate takes an integer length, a text for its end, and an integer leeway");
  }
  const Int length = length_value.integer(), end_length = *LengthOf(end);
  if (length < end_length) return RenderError("expected length >= {}, got {}", end_length, length);
  if (leeway_value.integer() < 0) return RenderError("expected leeway >= 0, got {}", leeway_value.integer());
  const std::optional<Int> size = LengthOf(a[0]);
  if (!size) return RenderError("object of type '{}' has no len()", a[0].type_name());
  if (*size <= length + leeway_value.integer()) return a[0];
  if (!a[0].is_string()) return RenderError("truncate needs a text, not {}", a[0].type_name());
  std::string_view kept =
      std::string_view(a[0].text()).substr(0, ByteOffset(a[0].text(), static_cast<std::size_t>(length - end_length)));
  if (!Truth(a[2])) kept = kept.substr(0, kept.rfind(' '));  // back to the last blank, if there is one
  return Arithmetic(Operator::kAdd, Value::String(std::string(kept), a[0].is_markup()), end, interpreter);
}

Result<Value> WordCount(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const std::string text, interpreter.Text(a[0]));
  interpreter.budget()->SpendSteps(text.size() / 16);
  QUIRE_TRY_VOID(interpreter.CheckPartsAffordable(text));
  Int words = 0;
  bool inside = false;
  for (const std::string_view character : Characters(text)) {
    const bool word = character == "_" || IsAlnum(character);
    words += word && !inside;
    inside = word;
  }
  return Value::Integer(words);
}

Result<Value> StringFilter(Interpreter& interpreter, Bound a, const Arguments&) {
  return SoftText(interpreter, a[0]);
}

Result<Value> Safe(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(std::string text, interpreter.Text(a[0]));
  return interpreter.Built(std::move(text), /*markup=*/true);
}

Result<Value> Escape(Interpreter& interpreter, Bound a, const Arguments&) {
  if (a[0].is_markup()) return a[0];
  QUIRE_TRY(const std::string text, interpreter.Text(a[0]));
  return interpreter.Built(EscapeHtml(text), /*markup=*/true);
}

Result<Value> ForceEscape(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const std::string text, interpreter.Text(a[0]));
  return interpreter.Built(EscapeHtml(text), /*markup=*/true);
}

// Removes what stands between `open` and the next `close`.
std::string RemoveBetween(std::string_view text, std::string_view open, std::string_view close) {
  std::string out;
  while (true) {
    const std::size_t begin = text.find(open);
    const std::size_t end = begin == std::string_view::npos ? begin : text.find(close, begin + open.size());
    if (end == std::string_view::npos) return out.append(text);
    out.append(text.substr(0, begin));
    text.remove_prefix(end + close.size());
  }
}

// &#65; &#x41; and the names below; HTML's two thousand other names stay as they are.
std::string UnescapeHtml(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}, {"nbsp", "\xC2\xA0"}};
  std::string out;
  while (!text.empty()) {
    const std::size_t begin = std::min(text.find('&'), text.size());
    out.append(text.substr(0, begin));
    text.remove_prefix(begin);
    if (text.empty()) break;
    const std::size_t end = text.find(';');
    const std::string_view name = end == std::string_view::npos || end > 12 ? "" : text.substr(1, end - 1);
    const auto known = std::ranges::find(kNames, name, &std::pair<std::string_view, std::string_view>::first);
    std::uint32_t code = 0;
    const bool hexadecimal = name.starts_with("#x") || name.starts_with("#X");
    const std::string_view digits = name.substr(std::min<std::size_t>(hexadecimal ? 2 : 1, name.size()));
    const auto [rest, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, hexadecimal ? 16 : 10);
    const bool numeric =
        name.starts_with('#') && !digits.empty() && error == std::errc() && rest == digits.data() + digits.size();
    if (known != std::end(kNames)) {
      out.append(known->second);
    } else if (numeric) {
      AppendUtf8(code == 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? kReplacementCharacter : code,
                 &out);
    } else {
      out.push_back('&');
      text.remove_prefix(1);
      continue;
    }
    text.remove_prefix(end + 1);
  }
  return out;
}

Result<Value> StripTags(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(std::string text, interpreter.Text(a[0]));
  interpreter.budget()->SpendSteps(text.size() / 16);
  QUIRE_TRY_VOID(interpreter.CheckPartsAffordable(text));
  text = RemoveBetween(RemoveBetween(text, "<!--", "-->"), "<", ">");
  std::string out;
  for (const std::string_view word : SplitSpace(text, -1, /*from_right=*/false)) {
    if (!out.empty()) out.push_back(' ');
    out.append(word);
  }
  return interpreter.Built(UnescapeHtml(out));
}

std::string QuoteUrl(std::string_view text, bool for_query) {
  static constexpr std::string_view kUnreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~";
  std::string out;
  for (const char c : text) {
    if (kUnreserved.find(c) != std::string_view::npos || (c == '/' && !for_query)) {
      out.push_back(c);
    } else if (c == ' ' && for_query) {
      out.push_back('+');
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Result<Value> UrlEncode(Interpreter& interpreter, Bound a, const Arguments&) {
  if (a[0].is_string() || !Cursor::Over(a[0])) {
    QUIRE_TRY(const std::string text, interpreter.Text(a[0]));
    return interpreter.Built(QuoteUrl(text, /*for_query=*/false));
  }
  const Value pairs = a[0].kind() == Kind::kDict ? Value::DictView(a[0], DictViewObject::kItems) : a[0];
  QUIRE_TRY(const std::vector<Value> items, interpreter.Items(pairs));
  std::string out;
  for (const Value& item : items) {
    QUIRE_TRY(const std::vector<Value> pair, interpreter.Items(item));
    if (pair.size() != 2) return RenderError("urlencode needs pairs of a name and a value");
    QUIRE_TRY(const std::string name, interpreter.Text(pair[0]));
    QUIRE_TRY(const std::string value, interpreter.Text(pair[1]));
    if (!out.empty()) out.push_back('&');
    out += QuoteUrl(name, /*for_query=*/true) + "=" + QuoteUrl(value, /*for_query=*/true);
  }
  return interpreter.Built(std::move(out));
}

Result<Value> XmlAttributes(Interpreter& interpreter, Bound a, const Arguments&) {
  if (a[0].kind() != Kind::kDict) return RenderError("xmlattr needs a mapping, not {}", a[0].type_name());
  std::string out;
  for (const auto& [key, value] : a[0].dict().entries) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string()) return RenderError("expected string or bytes-like object, got '{}'", key.type_name());
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      return RenderError("Invalid character in attribute name: '{}'", key.text());
    }
    QUIRE_TRY(const std::string text, interpreter.Text(value));
    if (!out.empty()) out.push_back(' ');
    out += fmt::format("{}=\"{}\"", EscapeHtml(key.text()), value.is_markup() ? text : EscapeHtml(text));
  }
  const bool space = (a[1].is_missing() || Truth(a[1])) && !out.empty();
  return interpreter.Built(space ? " " + out : out);
}

Result<Value> FormatFilter(Interpreter& interpreter, Bound a, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keyword.empty()) {
    return RenderError("can't handle positional and keyword arguments at the same time");
  }
  QUIRE_TRY(const Value format, SoftText(interpreter, a[0]));
  if (arguments.keyword.empty()) return FormatPercent(format, Value::Tuple(arguments.positional), interpreter);
  DictObject values;
  for (const auto& [name, value] : arguments.keyword) values.Set(Value::String(name), value);
  return FormatPercent(format, Value::Dict(std::move(values)), interpreter);
}

template <int kName>
Result<Value> Refused(Interpreter&, Bound, const Arguments&) {
  static constexpr std::string_view kNames[] = {"urlize", "wordwrap"};
  return RenderError("the filter '{}' is not supported in chat templates", kNames[kName]);
}

constexpr auto kFilters = std::to_array<Builtin>({
    {"upper", "", Upper},
    {"lower", "", Lower},
    {"capitalize", "", Capitalize},
    {"title", "", TitleFilter},
    {"trim", "chars?", Trim},
    {"center", "width?", Center},
    {"replace", "old new count?", ReplaceFilter},
    {"indent", "width? first? blank?", Indent},
    {"truncate", "length? killwords? end? leeway?", Truncate},
    {"wordcount", "", WordCount},
    {"string", "", StringFilter},
    {"safe", "", Safe},
    {"e", "", Escape},
    {"escape", "", Escape},
    {"forceescape", "", ForceEscape},
    {"striptags", "", StripTags},
    {"urlencode", "", UrlEncode},
    {"xmlattr", "autospace?", XmlAttributes},
    {"format", "*", FormatFilter},
    {"urlize", "*", Refused<0>},
    {"wordwrap", "*", Refused<1>},
});

}  // namespace

std::span<const Builtin> TextFilters() {
  return kFilters;
}

}  // namespace quire::text::jinja
