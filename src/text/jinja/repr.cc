#include "text/jinja/repr.h"

#include <cmath>

#include "base/utf8.h"
#include "text/jinja/python_str.h"
#include "text/jinja/stable_sort.h"

namespace quire::text::jinja {

std::string IntText(Int value) {
  return fmt::format("{}", value);
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text;
  AppendJsonDouble(value, &text);
  return text;
}

std::string ReprText(std::string_view text) {
  // Single quotes, unless the text has some and no double ones.
  const bool double_quotes = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  while (!text.empty()) {
    const Utf8Char character = DecodeUtf8(text);
    const std::uint32_t c = character.code_point;
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out.append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    } else if (IsPrintableCharacter(c)) {
      out.append(text.substr(0, character.size));
    } else {
      out.append(c < 0x100     ? fmt::format("\\x{:02x}", c)
                 : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                               : fmt::format("\\U{:08x}", c));
    }
    text.remove_prefix(character.size);
  }
  out.push_back(quote);
  return out;
}

namespace {

class ReprWriter {
 public:
  ReprWriter(std::string* out, Budget* budget) : out_(out), budget_(budget) {}

  void Write(const Value& value) {
    // Namespaces can hold themselves; nothing else nests deeper than its height.
    if (!budget_->SpendSteps(1) || depth_ > 300) return;
    ++depth_;
    WriteKnown(value);
    --depth_;
  }

 private:
  void Put(std::string_view text) {
    budget_->SpendBytes(text.size());
    out_->append(text);
  }

  void WriteKnown(const Value& value) {
    switch (value.kind()) {
      case Kind::kMissing:
        return;
      case Kind::kUndefined:
        return Put("Undefined");
      case Kind::kNone:
        return Put("None");
      case Kind::kBool:
        return Put(value.boolean() ? "True" : "False");
      case Kind::kInt:
        return Put(IntText(value.integer()));
      case Kind::kFloat:
        return Put(FloatText(value.real()));
      case Kind::kString:
        return Put(value.is_markup() ? fmt::format("Markup({})", ReprText(value.text())) : ReprText(value.text()));
      case Kind::kList:
        return Items(value.items(), "[", "]");
      case Kind::kTuple:
        return Items(value.items(), "(", value.items().size() == 1 ? ",)" : ")");
      case Kind::kDict:
        return Entries(value.dict());
      case Kind::kDictView:
        return View(value.view());
      case Kind::kRange: {
        const RangeObject& range = value.range();
        const std::string step = range.step == 1 ? "" : fmt::format(", {}", range.step);
        return Put(fmt::format("range({}, {}{})", range.start, range.stop, step));
      }
      case Kind::kIterator:
        return Put("<generator object>");
      case Kind::kNamespace:
        Put("<Namespace ");
        Entries(value.name_space().attributes);
        return Put(">");
      case Kind::kLoop:
        return Put("<LoopContext>");
      case Kind::kCallable:
        return Put(value.callable().repr);
    }
  }

  void Items(const std::vector<Value>& items, std::string_view open, std::string_view close) {
    Put(open);
    for (std::size_t i = 0; i < items.size() && !budget_->exhausted(); ++i) {
      if (i > 0) Put(", ");
      Write(items[i]);
    }
    Put(close);
  }

  void Entries(const DictObject& dict) {
    Put("{");
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
      if (budget_->exhausted()) return;
      if (!std::exchange(first, false)) Put(", ");
      Write(key);
      Put(": ");
      Write(value);
    }
    Put("}");
  }

  void View(const DictViewObject& view) {
    static constexpr std::string_view kNames[] = {"dict_keys([", "dict_values([", "dict_items(["};
    Put(kNames[view.part]);
    bool first = true;
    for (const auto& [key, value] : view.dict.dict().entries) {
      if (budget_->exhausted()) return;
      if (!std::exchange(first, false)) Put(", ");
      if (view.part == DictViewObject::kKeys) {
        Write(key);
      } else if (view.part == DictViewObject::kValues) {
        Write(value);
      } else {
        Put("(");
        Write(key);
        Put(", ");
        Write(value);
        Put(")");
      }
    }
    Put("])");
  }

  std::string* out_;
  Budget* budget_;
  int depth_ = 0;
};

class JsonDumper {
 public:
  JsonDumper(const JsonStyle& style, std::string* out, Budget* budget) : style_(style), out_(out), budget_(budget) {}

  Result<> Write(const Value& value) {
    budget_->SpendSteps(1);
    switch (value.kind()) {
      case Kind::kNone:
        return Put("null");
      case Kind::kBool:
        return Put(value.boolean() ? "true" : "false");
      case Kind::kInt:
        return Put(IntText(value.integer()));
      case Kind::kFloat:
        return Put(Number(value.real()));
      case Kind::kString:
        return PutString(value.text());
      case Kind::kList:
      case Kind::kTuple:
        return Array(value.items());
      case Kind::kDict:
        return Object(value.dict());
      case Kind::kMissing:
      case Kind::kUndefined:
      case Kind::kDictView:
      case Kind::kRange:
      case Kind::kIterator:
      case Kind::kNamespace:
      case Kind::kLoop:
      case Kind::kCallable:
        break;
    }
    return RenderError("Object of type {} is not JSON serializable", value.type_name());
  }

 private:
  static std::string Number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatText(value);
  }

  Result<> Put(std::string_view text) {
    budget_->SpendBytes(text.size());
    out_->append(text);
    return {};
  }

  Result<> PutString(std::string_view text) {
    budget_->SpendBytes(text.size());
    AppendJsonString(text, style_.ensure_ascii, out_);
    return {};
  }

  // Before the first item, between two, or (closing) after the last one.
  void Separate(bool first, bool closing) {
    if (!first && !closing) (void)Put(style_.item_separator);
    if (!style_.pretty) return;
    (void)Put("\n");
    for (int i = 0; i < depth_; ++i) (void)Put(style_.indent);
  }

  Result<> Array(const std::vector<Value>& items) {
    if (items.empty()) return Put("[]");
    (void)Put("[");
    ++depth_;
    for (std::size_t i = 0; i < items.size() && !budget_->exhausted(); ++i) {
      Separate(i == 0, /*closing=*/false);
      QUIRE_TRY_VOID(Write(items[i]));
    }
    --depth_;
    Separate(false, /*closing=*/true);
    return Put("]");
  }

  Result<std::string> KeyText(const Value& key) const {
    switch (key.kind()) {
      case Kind::kString:
        return key.text();
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.boolean() ? "true" : "false";
      case Kind::kInt:
        return IntText(key.integer());
      case Kind::kFloat:
        return Number(key.real());
      default:
        break;
    }
    return RenderError("keys must be str, int, float, bool or None, not {}", key.type_name());
  }

  Result<std::vector<const std::pair<Value, Value>*>> Ordered(const DictObject& dict) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (!style_.sort_keys) return entries;
    Result<> sortable;
    StableSort(&entries, [&](const auto* a, const auto* b) {
      const auto order = Compare(a->first, b->first, "<", budget_);
      if (!order && sortable) sortable = std::unexpected(order.error());
      return order && *order < 0;
    });
    if (!sortable) return std::unexpected(std::move(sortable).error());
    return entries;
  }

  Result<> Object(const DictObject& dict) {
    if (dict.entries.empty()) return Put("{}");
    QUIRE_TRY(const auto entries, Ordered(dict));
    (void)Put("{");
    ++depth_;
    for (std::size_t i = 0; i < entries.size() && !budget_->exhausted(); ++i) {
      Separate(i == 0, /*closing=*/false);
      QUIRE_TRY(const std::string key, KeyText(entries[i]->first));
      QUIRE_TRY_VOID(PutString(key));
      QUIRE_TRY_VOID(Put(style_.key_separator));
      QUIRE_TRY_VOID(Write(entries[i]->second));
    }
    --depth_;
    Separate(false, /*closing=*/true);
    return Put("}");
  }

  const JsonStyle& style_;
  std::string* out_;
  Budget* budget_;
  int depth_ = 0;
};

}  // namespace

std::string Repr(const Value& value, Budget* budget) {
  std::string text;
  ReprWriter(&text, budget).Write(value);
  return text;
}

std::string Str(const Value& value, Budget* budget) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return "";
  return Repr(value, budget);
}

std::string Ascii(const Value& value, Budget* budget) {
  std::string out;
  const std::string text = Repr(value, budget);
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Char character = DecodeUtf8(rest);
    const std::uint32_t c = character.code_point;
    out.append(c < 0x80      ? std::string(rest.substr(0, 1))
               : c < 0x100   ? fmt::format("\\x{:02x}", c)
               : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                             : fmt::format("\\U{:08x}", c));
    rest.remove_prefix(character.size);
  }
  return out;
}

Result<std::string> DumpJson(const Value& value, const JsonStyle& style, Budget* budget) {
  std::string text;
  QUIRE_TRY_VOID(JsonDumper(style, &text, budget).Write(value));
  return text;
}

}  // namespace quire::text::jinja
