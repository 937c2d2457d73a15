// Filters over sequences. As in jinja2, many of them are lazy: they give an iterator, which is always true, has no
// length, and is used up by reading it once.
#include <algorithm>
#include <array>
#include <memory>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_str.h"
#include "text/jinja/stable_sort.h"

namespace quire::text::jinja {
namespace {

using Bound = std::span<const Value>;

// The path of an attribute argument: "a.b.0" is a, then b, then item 0.
std::vector<Value> AttributePath(const Value& attribute) {
  if (attribute.is_missing() || attribute.is_none()) return {};
  if (!attribute.is_string()) return {attribute};
  std::vector<Value> path;
  for (const std::string_view part : SplitAt(attribute.text(), ".", -1, /*from_right=*/false)) {
    const bool digits =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string_view::npos;
    Int index = 0;
    for (const char c : part.substr(0, digits ? part.size() : 0)) index = index * 10 + (c - '0');
    path.push_back(digits ? Value::Integer(index) : Value::String(std::string(part)));
  }
  return path;
}

// What a filter looks at in each item: an attribute (the item itself without one), perhaps without its case.
struct Getter {
  std::vector<Value> path;
  bool ignore_case = false;
  Value default_value = {};  // missing or none: no default

  Result<Value> operator()(Interpreter& interpreter, const Value& item) const {
    Value value = item;
    for (const Value& part : path) {
      QUIRE_TRY(value, interpreter.Item(value, part));
      const bool has_default = !default_value.is_missing() && !default_value.is_none();
      if (has_default && value.is_undefined()) value = default_value;
    }
    if (ignore_case && value.is_string()) return interpreter.Built(Lower(value.text()));
    return value;
  }
};

Getter GetterOf(const Value& attribute, const Value& case_sensitive, Value default_value = {}) {
  return {AttributePath(attribute), !Truth(case_sensitive), std::move(default_value)};
}

// A lazy sequence over `source`: `step` turns an item into a value of the sequence, or nullopt to leave it out.
template <typename Step>
Value Lazy(Interpreter& interpreter, const Value& source, Step step) {
  auto cursor = std::make_shared<std::optional<Cursor>>();  // owned by the closure, which is copyable
  return Value::Iterator(source, [&interpreter, source, cursor, step]() -> Result<std::optional<Value>> {
    if (!*cursor) {
      // jinja2's generators start with `if value:`.
      if (!Truth(source)) return std::nullopt;
      QUIRE_TRY(*cursor, Cursor::Over(source));
    }
    while (true) {
      interpreter.budget()->SpendSteps(1);
      QUIRE_TRY_VOID(interpreter.CheckBudget());
      QUIRE_TRY(const std::optional<Value> item, (**cursor).Next());
      if (!item) return std::nullopt;
      QUIRE_TRY(std::optional<Value> value, step(*item));
      if (value) return value;
    }
  });
}

// The given items as a lazy sequence.
Result<Value> LazyList(Interpreter& interpreter, std::vector<Value> items) {
  QUIRE_TRY(const Value list, interpreter.Built(Value::List(std::move(items))));
  QUIRE_TRY(Cursor cursor, Cursor::Over(list));
  auto shared = std::make_shared<Cursor>(std::move(cursor));  // owned by the closure, which is copyable
  return interpreter.Built(Value::Iterator(list, [shared] { return shared->Next(); }));
}

Result<Value> Map(Interpreter& interpreter, Bound a, const Arguments& arguments) {
  Arguments rest = arguments;
  const auto keyword = [&](std::string_view name) {
    const auto found = std::ranges::find_if(rest.keyword, [&](const auto& k) { return k.first == name; });
    if (found == rest.keyword.end()) return Value();
    Value value = found->second;
    rest.keyword.erase(found);
    return value;
  };
  const auto has_attribute = std::ranges::any_of(rest.keyword, [](const auto& k) { return k.first == "attribute"; });
  if (rest.positional.empty() && has_attribute) {
    const Value attribute = keyword("attribute");
    const Getter getter{AttributePath(attribute), /*ignore_case=*/false, keyword("default")};
    if (!rest.keyword.empty()) return RenderError("Unexpected keyword argument '{}'", rest.keyword.front().first);
    return interpreter.Built(
        Lazy(interpreter, a[0], [&interpreter, getter](const Value& item) -> Result<std::optional<Value>> {
          QUIRE_TRY(Value value, getter(interpreter, item));
          return value;
        }));
  }
  if (rest.positional.empty() || !rest.positional.front().is_string())
    return RenderError("map requires a filter argument");
  const std::string name = rest.positional.front().text();
  rest.positional.erase(rest.positional.begin());
  return interpreter.Built(
      Lazy(interpreter, a[0], [&interpreter, name, rest](const Value& item) -> Result<std::optional<Value>> {
        QUIRE_TRY(Value value, interpreter.CallFilter(name, item, rest));
        return value;
      }));
}

// select, reject, selectattr, rejectattr: items whose value (or attribute) passes a test, or is true without one.
template <bool kAttribute, bool kKeep>
Result<Value> Select(Interpreter& interpreter, Bound a, const Arguments& arguments) {
  Arguments rest = arguments;
  const auto take = [&]() -> Value {
    if (rest.positional.empty()) return {};
    Value value = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return value;
  };
  Getter getter;
  if (kAttribute) {
    if (rest.positional.empty()) return RenderError("Missing parameter for attribute name");
    getter.path = AttributePath(take());
  }
  const Value test = take();
  if (!test.is_missing() && !test.is_string())
    return RenderError("the name of a test must be a text, not {}", test.type_name());
  return interpreter.Built(
      Lazy(interpreter, a[0], [&interpreter, getter, test, rest](const Value& item) -> Result<std::optional<Value>> {
        QUIRE_TRY(const Value value, getter(interpreter, item));
        bool passed = Truth(value);
        if (!test.is_missing()) {
          QUIRE_TRY(passed, interpreter.CallTest(test.text(), value, rest));
        }
        if (passed != kKeep) return std::nullopt;
        return item;
      }));
}

Result<Value> First(Interpreter&, Bound a, const Arguments&) {
  QUIRE_TRY(Cursor cursor, Cursor::Over(a[0]));
  QUIRE_TRY(std::optional<Value> item, cursor.Next());
  return item ? *std::move(item) : Value::UndefinedHint("No first item, sequence was empty.");
}

bool IsReversible(const Value& value) {
  return value.kind() != Kind::kIterator && LengthOf(value).has_value();
}

Result<Value> Last(Interpreter& interpreter, Bound a, const Arguments&) {
  if (!IsReversible(a[0])) return RenderError("'{}' object is not reversible", a[0].type_name());
  if (a[0].is_sequence() || a[0].is_string() || a[0].kind() == Kind::kRange) {
    Value last = Subscript(a[0], Value::Integer(-1));
    return last.is_missing() ? Value::UndefinedHint("No last item, sequence was empty.") : last;
  }
  QUIRE_TRY(const std::vector<Value> items, interpreter.Items(a[0]));
  return items.empty() ? Value::UndefinedHint("No last item, sequence was empty.") : items.back();
}

Result<Value> ListFilter(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(std::vector<Value> items, interpreter.Items(a[0]));
  return interpreter.Built(Value::List(std::move(items)));
}

Result<Value> Length(Interpreter& interpreter, Bound a, const Arguments&) {
  if (a[0].kind() == Kind::kLoop) return interpreter.Attribute(a[0], "length");
  if (const auto length = LengthOf(a[0])) return Value::Integer(*length);
  return RenderError("object of type '{}' has no len()", a[0].type_name());
}

Result<Value> JoinFilter(Interpreter& interpreter, Bound a, const Arguments&) {
  const Getter getter{AttributePath(a[2])};
  const Value separator_value = a[1].is_missing() ? Value::String("") : a[1];
  QUIRE_TRY(const std::string separator, interpreter.Text(separator_value));
  QUIRE_TRY(const std::vector<Value> items, interpreter.Items(a[0]));
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    QUIRE_TRY(const Value value, getter(interpreter, items[i]));
    QUIRE_TRY(const std::string part, interpreter.Text(value));
    if (i > 0) text += separator;
    text += part;
    QUIRE_TRY_VOID(interpreter.CheckAffordable(static_cast<Int>(text.size())));
  }
  return interpreter.Built(std::move(text));
}

// Stable; with `reverse`, equal items keep their order too, as in Python.
Result<std::vector<Value>> Sorted(Interpreter& interpreter, std::vector<Value> items, const std::vector<Value>& keys,
                                  bool reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  Result<> comparable;
  // After an error everything counts as equal, which ends the sorting soon.
  StableSort(&order, [&](std::size_t x, std::size_t y) {
    if (!comparable) return false;
    const auto outcome = Compare(keys[x], keys[y], "<", interpreter.budget());
    if (!outcome) comparable = std::unexpected(outcome.error());
    return outcome && (reverse ? *outcome > 0 : *outcome < 0);
  });
  if (!comparable) return std::unexpected(std::move(comparable).error());
  QUIRE_TRY_VOID(interpreter.CheckBudget());
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const std::size_t i : order) sorted.push_back(std::move(items[i]));
  return sorted;
}

Result<Value> Sort(Interpreter& interpreter, Bound a, const Arguments&) {
  // "a,b" sorts by a, then by b.
  std::vector<Getter> getters;
  if (a[3].is_string()) {
    for (const std::string_view part : SplitAt(a[3].text(), ",", -1, /*from_right=*/false)) {
      getters.push_back(GetterOf(Value::String(std::string(part)), a[2]));
    }
  } else {
    getters.push_back(GetterOf(a[3], a[2]));
  }
  QUIRE_TRY(std::vector<Value> items, interpreter.Items(a[0]));
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const Getter& getter : getters) {
      QUIRE_TRY(Value part, getter(interpreter, item));
      parts.push_back(std::move(part));
    }
    keys.push_back(Value::List(std::move(parts)));
  }
  QUIRE_TRY(std::vector<Value> sorted, Sorted(interpreter, std::move(items), keys, Truth(a[1])));
  return interpreter.Built(Value::List(std::move(sorted)));
}

Result<Value> DictSort(Interpreter& interpreter, Bound a, const Arguments&) {
  const std::string by = a[2].is_missing() ? "key" : a[2].is_string() ? a[2].text() : "";
  if (by != "key" && by != "value") return RenderError("You can only sort by either \"key\" or \"value\"");
  if (a[0].is_undefined()) return UndefinedError(a[0]);
  if (a[0].kind() != Kind::kDict) return RenderError("'{}' object has no attribute 'items'", a[0].type_name());
  std::vector<Value> items, keys;
  const Getter getter{{}, /*ignore_case=*/!Truth(a[1])};
  for (const auto& [key, value] : a[0].dict().entries) {
    items.push_back(Value::Tuple({key, value}));
    QUIRE_TRY(Value sort_key, getter(interpreter, by == "key" ? key : value));
    keys.push_back(std::move(sort_key));
  }
  QUIRE_TRY(std::vector<Value> sorted, Sorted(interpreter, std::move(items), keys, Truth(a[3])));
  return interpreter.Built(Value::List(std::move(sorted)));
}

Result<Value> Unique(Interpreter& interpreter, Bound a, const Arguments&) {
  const Getter getter = GetterOf(a[2], a[1]);
  QUIRE_TRY(const std::vector<Value> items, interpreter.Items(a[0]));
  DictObject seen;
  std::vector<Value> unique;
  for (const Value& item : items) {
    QUIRE_TRY(const Value key, getter(interpreter, item));
    if (!HashKey(key)) return RenderError("unhashable type: '{}'", key.type_name());
    if (seen.Find(key)) continue;
    seen.Set(key, Value::None());
    unique.push_back(item);
  }
  return LazyList(interpreter, std::move(unique));
}

Result<Value> GroupBy(Interpreter& interpreter, Bound a, const Arguments&) {
  const Getter key_of = GetterOf(a[1], a[3], a[2]);
  const Getter shown{AttributePath(a[1]), /*ignore_case=*/false, a[2]};
  QUIRE_TRY(std::vector<Value> items, interpreter.Items(a[0]));
  std::vector<Value> keys;
  for (const Value& item : items) {
    QUIRE_TRY(Value key, key_of(interpreter, item));
    keys.push_back(std::move(key));
  }
  QUIRE_TRY(std::vector<Value> sorted, Sorted(interpreter, std::move(items), keys, /*reverse=*/false));
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < sorted.size();) {
    QUIRE_TRY(const Value key, key_of(interpreter, sorted[begin]));
    std::vector<Value> members;
    std::size_t end = begin;
    for (; end < sorted.size(); ++end) {
      QUIRE_TRY(const Value other, key_of(interpreter, sorted[end]));
      if (!Equal(key, other, interpreter.budget())) break;
      members.push_back(sorted[end]);
    }
    QUIRE_TRY(const Value grouper, shown(interpreter, sorted[begin]));
    QUIRE_TRY(Value list, interpreter.Built(Value::List(std::move(members))));
    groups.push_back(Value::Group(grouper, std::move(list)));
    begin = std::max(end, begin + 1);
  }
  return interpreter.Built(Value::List(std::move(groups)));
}

Result<Int> Count(const Value& value) {
  if (!value.is_integral()) return RenderError("'{}' object cannot be interpreted as an integer", value.type_name());
  return value.integer();
}

Result<Value> Batch(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const Int size, Count(a[1]));
  const bool fill = !a[2].is_missing() && !a[2].is_none();
  QUIRE_TRY(const std::vector<Value> items, interpreter.Items(a[0]));
  std::vector<Value> batches, batch;
  const auto finish = [&] { batches.push_back(Value::List(std::exchange(batch, {}))); };
  for (const Value& item : items) {
    if (static_cast<Int>(batch.size()) == size) finish();
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (fill && static_cast<Int>(batch.size()) < size) {
      QUIRE_TRY_VOID(interpreter.CheckAffordable(std::min(size, Int{1} << 40) * static_cast<Int>(sizeof(Value))));
      batch.resize(static_cast<std::size_t>(size), a[2]);
    }
    finish();
  }
  return LazyList(interpreter, std::move(batches));
}

Result<Value> SliceFilter(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const Int slices, Count(a[1]));
  QUIRE_TRY(const std::vector<Value> items, interpreter.Items(a[0]));
  if (slices == 0) return RenderError("integer division or modulo by zero");
  QUIRE_TRY_VOID(
      interpreter.CheckAffordable(std::clamp(slices, Int{0}, Int{1} << 40) * static_cast<Int>(sizeof(Value))));
  const auto length = static_cast<Int>(items.size());
  std::vector<Value> out;
  Int begin = 0;
  for (Int i = 0; i < slices; ++i) {
    const bool extra = i < length % slices;
    const Int end = begin + length / slices + (extra ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(begin),
                            items.begin() + static_cast<std::ptrdiff_t>(end));
    if (!a[2].is_missing() && !a[2].is_none() && !extra) part.push_back(a[2]);
    out.push_back(Value::List(std::move(part)));
    begin = end;
  }
  return LazyList(interpreter, std::move(out));
}

Result<Value> Reverse(Interpreter& interpreter, Bound a, const Arguments&) {
  if (a[0].is_string()) {
    return Slice(a[0], Value::None(), Value::None(), Value::Integer(-1), interpreter);
  }
  if (!Cursor::Over(a[0])) return RenderError("argument must be iterable");
  QUIRE_TRY(std::vector<Value> items, interpreter.Items(a[0]));
  std::ranges::reverse(items);
  if (IsReversible(a[0])) return LazyList(interpreter, std::move(items));
  return interpreter.Built(Value::List(std::move(items)));
}

Result<Value> Sum(Interpreter& interpreter, Bound a, const Arguments&) {
  const Getter getter{AttributePath(a[1])};
  Value sum = a[2].is_missing() ? Value::Integer(0) : a[2];
  if (sum.is_string()) return RenderError("sum() can't sum strings [use ''.join(seq) instead]");
  QUIRE_TRY(const std::vector<Value> items, interpreter.Items(a[0]));
  for (const Value& item : items) {
    QUIRE_TRY(const Value value, getter(interpreter, item));
    QUIRE_TRY(sum, Arithmetic(Operator::kAdd, sum, value, interpreter));
  }
  return sum;
}

template <bool kMax>
Result<Value> Extreme(Interpreter& interpreter, Bound a, const Arguments&) {
  const Getter getter = GetterOf(a[2], a[1]);
  QUIRE_TRY(const std::vector<Value> items, interpreter.Items(a[0]));
  if (items.empty()) return Value::UndefinedHint("No aggregated item, sequence was empty.");
  Value best = items.front();
  QUIRE_TRY(Value best_key, getter(interpreter, best));
  for (std::size_t i = 1; i < items.size(); ++i) {
    QUIRE_TRY(Value key, getter(interpreter, items[i]));
    QUIRE_TRY(const int order, Compare(key, best_key, kMax ? ">" : "<", interpreter.budget()));
    if (kMax ? order <= 0 : order >= 0) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

Result<Value> ItemsFilter(Interpreter& interpreter, Bound a, const Arguments&) {
  if (a[0].is_undefined()) return LazyList(interpreter, {});
  if (a[0].kind() != Kind::kDict) return RenderError("Can only get item pairs from a mapping.");
  QUIRE_TRY(std::vector<Value> items, interpreter.Items(Value::DictView(a[0], DictViewObject::kItems)));
  return LazyList(interpreter, std::move(items));
}

Result<Value> Random(Interpreter&, Bound, const Arguments&) {
  return RenderError("the filter 'random' is not supported in chat templates: a prompt must not depend on chance");
}

constexpr auto kFilters = std::to_array<Builtin>({
    {"map", "*", Map},
    {"select", "*", Select<false, true>},
    {"reject", "*", Select<false, false>},
    {"selectattr", "*", Select<true, true>},
    {"rejectattr", "*", Select<true, false>},
    {"first", "", First},
    {"last", "", Last},
    {"list", "", ListFilter},
    {"length", "", Length},
    {"count", "", Length},
    {"join", "d? attribute?", JoinFilter},
    {"sort", "reverse? case_sensitive? attribute?", Sort},
    {"dictsort", "case_sensitive? by? reverse?", DictSort},
    {"unique", "case_sensitive? attribute?", Unique},
    {"groupby", "attribute default? case_sensitive?", GroupBy},
    {"batch", "linecount fill_with?", Batch},
    {"slice", "slices fill_with?", SliceFilter},
    {"reverse", "", Reverse},
    {"sum", "attribute? start?", Sum},
    {"min", "case_sensitive? attribute?", Extreme<false>},
    {"max", "case_sensitive? attribute?", Extreme<true>},
    {"items", "", ItemsFilter},
    {"random", "*", Random},
});

}  // namespace

std::span<const Builtin> SequenceFilters() {
  return kFilters;
}

std::optional<Value> GroupField(const Value& tuple, std::string_view name) {
  if (!tuple.is_group()) return std::nullopt;
  if (name == "grouper") return tuple.items()[0];
  if (name == "list") return tuple.items()[1];
  return std::nullopt;
}

}  // namespace quire::text::jinja
