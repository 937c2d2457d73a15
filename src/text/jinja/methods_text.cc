// The methods of str. Of markup (text that |safe has marked) they give markup again, and escape their arguments, as
// markupsafe's do.
#include <algorithm>
#include <array>

#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/methods.h"
#include "text/jinja/python_str.h"

namespace quire::text::jinja {
namespace {

using Bound = std::span<const Value>;

std::string ArgumentText(const Value& self, const Value& argument) {
  return self.is_markup() && !argument.is_markup() ? EscapeHtml(argument.text()) : argument.text();
}

std::unexpected<Error> NotText(std::string_view method, const Value& value) {
  return RenderError("{}() argument must be str, not {}", method, value.type_name());
}

template <std::string (*kMap)(std::string_view)>
Result<Value> Mapped(Interpreter& interpreter, Bound a, const Arguments&) {
  interpreter.budget()->SpendSteps(a[0].text().size() / 16);
  return interpreter.Built(kMap(a[0].text()), a[0].is_markup());
}

template <bool (*kPredicate)(std::string_view)>
Result<Value> Predicate(Interpreter& interpreter, Bound a, const Arguments&) {
  interpreter.budget()->SpendSteps(a[0].text().size() / 16);
  return Value::Bool(kPredicate(a[0].text()));
}

bool IsAscii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

template <bool kLeft, bool kRight>
Result<Value> Stripped(Interpreter& interpreter, Bound a, const Arguments&) {
  if (a[1].is_missing() || a[1].is_none()) {
    return interpreter.Built(std::string(Strip(a[0].text(), std::nullopt, kLeft, kRight)), a[0].is_markup());
  }
  if (!a[1].is_string()) return RenderError("strip arg must be None or str");
  const std::string set = ArgumentText(a[0], a[1]);
  interpreter.budget()->SpendSteps(a[0].text().size() / 64);
  return interpreter.Built(std::string(Strip(a[0].text(), set, kLeft, kRight)), a[0].is_markup());
}

Result<Int> OptionalInteger(const Value& value, Int absent) {
  if (value.is_missing()) return absent;
  if (!value.is_integral()) return RenderError("'{}' object cannot be interpreted as an integer", value.type_name());
  return std::clamp(value.integer(), -(Int{1} << 62), Int{1} << 62);
}

Result<Value> TextList(Interpreter& interpreter, const std::vector<std::string_view>& parts, bool markup) {
  interpreter.budget()->SpendSteps(parts.size());
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    QUIRE_TRY(Value item, interpreter.Built(std::string(part), markup));
    items.push_back(std::move(item));
  }
  return interpreter.Built(Value::List(std::move(items)));
}

template <bool kFromRight>
Result<Value> Split(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const Int max_splits, OptionalInteger(a[2], -1));
  const auto limit = static_cast<std::int64_t>(max_splits);
  if (a[1].is_missing() || a[1].is_none()) {
    QUIRE_TRY_VOID(interpreter.CheckPartsAffordable(a[0].text()));
    return TextList(interpreter, SplitSpace(a[0].text(), limit, kFromRight), a[0].is_markup());
  }
  if (!a[1].is_string()) return RenderError("must be str or None, not {}", a[1].type_name());
  if (a[1].text().empty()) return RenderError("empty separator");
  interpreter.budget()->SpendSteps(a[0].text().size() / 64);
  const std::size_t num_parts = CountOccurrences(a[0].text(), a[1].text()) + 1;
  QUIRE_TRY_VOID(interpreter.CheckAffordable(static_cast<Int>(num_parts * sizeof(Value))));
  return TextList(interpreter, SplitAt(a[0].text(), a[1].text(), limit, kFromRight), a[0].is_markup());
}

Result<Value> TextSplitLines(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY_VOID(interpreter.CheckPartsAffordable(a[0].text()));
  return TextList(interpreter, SplitLines(a[0].text(), Truth(a[1])), a[0].is_markup());
}

template <bool kFromRight>
Result<Value> Partition(Interpreter& interpreter, Bound a, const Arguments&) {
  if (!a[1].is_string()) return NotText("partition", a[1]);
  const std::string separator = ArgumentText(a[0], a[1]);
  if (separator.empty()) return RenderError("empty separator");
  const std::string& text = a[0].text();
  const bool markup = a[0].is_markup();
  const std::size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  const auto part = [&](std::string piece) { return Value::String(std::move(piece), markup); };
  if (at == std::string::npos) {
    return kFromRight ? interpreter.Built(Value::Tuple({part(""), part(""), part(text)}))
                      : interpreter.Built(Value::Tuple({part(text), part(""), part("")}));
  }
  interpreter.budget()->SpendBytes(text.size());
  return interpreter.Built(
      Value::Tuple({part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))}));
}

// The part of the text that start and stop (in characters, as in a slice) leave.
struct Window {
  std::string_view text;
  std::size_t first_character;
  bool valid;  // start does not lie behind the end
};

Result<Window> WindowOf(const Value& self, const Value& start, const Value& stop) {
  if (start.is_missing() && stop.is_missing()) return Window{self.text(), 0, true};
  const Int length = *LengthOf(self);
  const auto bound = [&](const Value& value, Int absent) -> Result<Int> {
    if (value.is_none()) return absent;
    QUIRE_TRY(const Int index, OptionalInteger(value, absent));
    return index < 0 ? std::max(index + length, Int{0}) : index;
  };
  QUIRE_TRY(const Int first, bound(start, 0));
  QUIRE_TRY(Int last, bound(stop, length));
  last = std::min(last, length);
  if (first > last) return Window{"", static_cast<std::size_t>(std::min(first, length)), false};
  const std::string_view text = self.text();
  const std::size_t begin = ByteOffset(text, static_cast<std::size_t>(first));
  const std::size_t size = ByteOffset(text.substr(begin), static_cast<std::size_t>(last - first));
  return Window{text.substr(begin, size), static_cast<std::size_t>(first), true};
}

template <bool kAtEnd>
Result<Value> StartsOrEnds(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const Window window, WindowOf(a[0], a[2], a[3]));
  const auto fits = [&](const Value& affix) {
    return window.valid && (kAtEnd ? window.text.ends_with(affix.text()) : window.text.starts_with(affix.text()));
  };
  if (a[1].is_string()) return Value::Bool(fits(a[1]));
  if (a[1].kind() != Kind::kTuple) {
    return RenderError("{} first arg must be str or a tuple of str, not {}", kAtEnd ? "endswith" : "startswith",
                       a[1].type_name());
  }
  for (const Value& affix : a[1].items()) {
    interpreter.budget()->SpendSteps(1);
    if (!affix.is_string())
      return RenderError("tuple for startswith or endswith must only contain str, not {}", affix.type_name());
    if (fits(affix)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

enum class Missing { kMinusOne, kError };
template <bool kFromRight, Missing kMissing>
Result<Value> Find(Interpreter& interpreter, Bound a, const Arguments&) {
  if (!a[1].is_string()) return NotText("find", a[1]);
  QUIRE_TRY(const Window window, WindowOf(a[0], a[2], a[3]));
  interpreter.budget()->SpendSteps(a[0].text().size() / 64);
  const std::size_t at = !window.valid ? std::string_view::npos
                         : kFromRight  ? window.text.rfind(a[1].text())
                                       : window.text.find(a[1].text());
  if (at != std::string_view::npos) {
    return Value::Integer(static_cast<Int>(window.first_character + CharacterCount(window.text.substr(0, at))));
  }
  if (kMissing == Missing::kError) return RenderError("substring not found");
  return Value::Integer(-1);
}

Result<Value> Count(Interpreter& interpreter, Bound a, const Arguments&) {
  if (!a[1].is_string()) return NotText("count", a[1]);
  QUIRE_TRY(const Window window, WindowOf(a[0], a[2], a[3]));
  interpreter.budget()->SpendSteps(a[0].text().size() / 64);
  return Value::Integer(window.valid ? static_cast<Int>(CountOccurrences(window.text, a[1].text())) : 0);
}

Result<Value> TextReplace(Interpreter& interpreter, Bound a, const Arguments&) {
  if (!a[1].is_string()) return NotText("replace", a[1]);
  if (!a[2].is_string()) return NotText("replace", a[2]);
  QUIRE_TRY(const Int count, OptionalInteger(a[3], -1));
  return ReplaceText(a[0].text(), ArgumentText(a[0], a[1]), ArgumentText(a[0], a[2]), count, a[0].is_markup(),
                     interpreter);
}

Result<Value> Join(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const std::vector<Value> items, interpreter.Items(a[1]));
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string() && !a[0].is_markup()) {
      return RenderError("sequence item {}: expected str instance, {} found", i, items[i].type_name());
    }
    if (i > 0) text += a[0].text();
    QUIRE_TRY(const std::string item, interpreter.Text(items[i]));
    text += a[0].is_markup() && !items[i].is_markup() ? EscapeHtml(item) : item;
    QUIRE_TRY_VOID(interpreter.CheckAffordable(static_cast<Int>(text.size())));
  }
  return interpreter.Built(std::move(text), a[0].is_markup());
}

template <bool kLeft>
Result<Value> RemoveAffix(Interpreter& interpreter, Bound a, const Arguments&) {
  if (!a[1].is_string()) return NotText(kLeft ? "removeprefix" : "removesuffix", a[1]);
  std::string_view text = a[0].text();
  const std::string_view affix = a[1].text();
  if (kLeft && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kLeft && text.ends_with(affix)) text.remove_suffix(affix.size());
  return interpreter.Built(std::string(text));
}

enum class Align { kLeft, kRight, kCenter, kZeros };
template <Align kAlign>
Result<Value> Aligned(Interpreter& interpreter, Bound a, const Arguments&) {
  if (!a[1].is_integral()) return RenderError("'{}' object cannot be interpreted as an integer", a[1].type_name());
  std::string fill = kAlign == Align::kZeros ? "0" : " ";
  if (kAlign != Align::kZeros && !a[2].is_missing()) {
    if (!a[2].is_string() || *LengthOf(a[2]) != 1)
      return RenderError("The fill character must be exactly one character long");
    fill = ArgumentText(a[0], a[2]);
  }
  return PadText(a[0], a[1].integer(), fill,
                 kAlign == Align::kLeft     ? '<'
                 : kAlign == Align::kCenter ? '^'
                 : kAlign == Align::kRight  ? '>'
                                            : '0',
                 interpreter);
}

Result<Value> ExpandTabs(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const Int size, OptionalInteger(a[1], 8));
  QUIRE_TRY_VOID(interpreter.CheckPartsAffordable(a[0].text()));
  std::string text;
  Int column = 0;
  for (const std::string_view character : Characters(a[0].text())) {
    if (character == "\t") {
      const Int spaces = size > 0 ? size - column % size : 0;
      QUIRE_TRY_VOID(interpreter.CheckAffordable(spaces + static_cast<Int>(text.size())));
      text.append(static_cast<std::size_t>(spaces), ' ');
      column += spaces;
    } else {
      text += character;
      column = character == "\n" || character == "\r" ? 0 : column + 1;
    }
  }
  return interpreter.Built(std::move(text), a[0].is_markup());
}

Result<Value> Format(Interpreter& interpreter, Bound a, const Arguments& arguments) {
  return FormatFields(a[0], arguments, interpreter);
}

Result<Value> FormatMap(Interpreter& interpreter, Bound a, const Arguments&) {
  Arguments arguments;
  if (a[1].kind() != Kind::kDict) return RenderError("format_map() needs a mapping, not {}", a[1].type_name());
  for (const auto& [key, value] : a[1].dict().entries) {
    if (key.is_string()) arguments.keyword.emplace_back(key.text(), value);
  }
  return FormatFields(a[0], arguments, interpreter);
}

Result<Value> NotSupported(Interpreter&, Bound, const Arguments&) {
  return RenderError("str.encode, str.translate and str.maketrans are not supported in chat templates");
}

constexpr auto kTextMethods = std::to_array<Builtin>({
    {"upper", "", Mapped<Upper>},
    {"lower", "", Mapped<Lower>},
    {"casefold", "", Mapped<CaseFold>},
    {"capitalize", "", Mapped<Capitalize>},
    {"title", "", Mapped<Title>},
    {"swapcase", "", Mapped<SwapCase>},
    {"strip", "chars? /", Stripped<true, true>},
    {"lstrip", "chars? /", Stripped<true, false>},
    {"rstrip", "chars? /", Stripped<false, true>},
    {"split", "sep? maxsplit?", Split<false>},
    {"rsplit", "sep? maxsplit?", Split<true>},
    {"splitlines", "keepends?", TextSplitLines},
    {"partition", "sep /", Partition<false>},
    {"rpartition", "sep /", Partition<true>},
    {"startswith", "prefix start? end? /", StartsOrEnds<false>},
    {"endswith", "suffix start? end? /", StartsOrEnds<true>},
    {"find", "sub start? end? /", Find<false, Missing::kMinusOne>},
    {"rfind", "sub start? end? /", Find<true, Missing::kMinusOne>},
    {"index", "sub start? end? /", Find<false, Missing::kError>},
    {"rindex", "sub start? end? /", Find<true, Missing::kError>},
    {"count", "sub start? end? /", Count},
    {"replace", "old new count? /", TextReplace},
    {"join", "iterable /", Join},
    {"removeprefix", "prefix /", RemoveAffix<true>},
    {"removesuffix", "suffix /", RemoveAffix<false>},
    {"ljust", "width fillchar? /", Aligned<Align::kLeft>},
    {"rjust", "width fillchar? /", Aligned<Align::kRight>},
    {"center", "width fillchar? /", Aligned<Align::kCenter>},
    {"zfill", "width /", Aligned<Align::kZeros>},
    {"expandtabs", "tabsize?", ExpandTabs},
    {"format", "*", Format},
    {"format_map", "mapping /", FormatMap},
    {"isalpha", "", Predicate<IsAlpha>},
    {"isdecimal", "", Predicate<IsDecimal>},
    {"isdigit", "", Predicate<IsDigit>},
    {"isnumeric", "", Predicate<IsNumeric>},
    {"isalnum", "", Predicate<IsAlnum>},
    {"isspace", "", Predicate<IsSpace>},
    {"islower", "", Predicate<IsLower>},
    {"isupper", "", Predicate<IsUpper>},
    {"istitle", "", Predicate<IsTitle>},
    {"isidentifier", "", Predicate<IsIdentifier>},
    {"isprintable", "", Predicate<IsPrintable>},
    {"isascii", "", Predicate<IsAscii>},
    {"encode", "*", NotSupported},
    {"translate", "*", NotSupported},
    {"maketrans", "*", NotSupported},
});

}  // namespace

std::span<const Builtin> TextMethods() {
  return kTextMethods;
}

Result<Value> ReplaceText(std::string_view text, std::string_view from, std::string_view to, Int count, bool markup,
                          Interpreter& interpreter) {
  interpreter.budget()->SpendSteps(text.size() / 64);
  if (from.empty()) QUIRE_TRY_VOID(interpreter.CheckPartsAffordable(text));
  if (to.size() > from.size()) {
    const auto found = static_cast<Int>(CountOccurrences(text, from));
    const Int replaced = count < 0 ? found : std::min(found, count);
    QUIRE_TRY_VOID(interpreter.CheckAffordable(static_cast<Int>(text.size()) + replaced * static_cast<Int>(to.size())));
  }
  return interpreter.Built(Replace(text, from, to, static_cast<std::int64_t>(count)), markup);
}

Result<Value> PadText(const Value& value, Int width, std::string_view fill, char align, Interpreter& interpreter) {
  const std::string& text = value.text();
  const Int padding = std::max(width - *LengthOf(value), Int{0});
  Int bytes = 0;
  if (__builtin_mul_overflow(padding, static_cast<Int>(fill.size()), &bytes))
    return RenderError("the width is too large");
  QUIRE_TRY_VOID(interpreter.CheckAffordable(bytes));
  // str.center puts the odd blank on the left when the width is odd.
  const Int left = align == '<' ? 0 : align == '^' ? padding / 2 + (padding & width & 1) : padding;
  const bool sign_first = align == '0' && (text.starts_with('+') || text.starts_with('-'));
  std::string out(sign_first ? text.substr(0, 1) : "");
  for (Int i = 0; i < left; ++i) out += fill;
  out += std::string_view(text).substr(sign_first ? 1 : 0);
  for (Int i = left; i < padding; ++i) out += fill;
  return interpreter.Built(std::move(out), value.is_markup());
}

}  // namespace quire::text::jinja
