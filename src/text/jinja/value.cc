#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/loop.h"
#include "text/jinja/python_str.h"

namespace quire::text::jinja {
namespace {

int HeightOf(const std::vector<Value>& items) {
  int height = 0;
  for (const Value& item : items) height = std::max(height, item.height());
  return height + 1;
}

std::shared_ptr<ListObject> MakeList(std::vector<Value> items) {
  auto object = std::make_shared<ListObject>();
  object->height = HeightOf(items);
  object->items = std::move(items);
  return object;
}

}  // namespace

std::string UndefinedObject::Message() const {
  if (!hint.empty()) return hint;
  if (owner.empty()) return fmt::format("'{}' is undefined", name);
  return fmt::format("'{}' has no attribute '{}'", owner, name);
}

Value Value::Bool(bool value) {
  Value result(Kind::kBool);
  result.scalar_.integer = value;
  return result;
}

Value Value::Integer(Int value) {
  Value result(Kind::kInt);
  result.scalar_.integer = value;
  return result;
}

Value Value::Float(double value) {
  Value result(Kind::kFloat);
  result.scalar_.real = value;
  return result;
}

Value Value::String(std::string text, bool markup) {
  auto object = std::make_shared<StringObject>();
  object->text = std::move(text);
  object->markup = markup;
  return Value(Kind::kString, std::move(object));
}

Value Value::Undefined(std::string name) {
  auto object = std::make_shared<UndefinedObject>();
  object->name = std::move(name);
  return Value(Kind::kUndefined, std::move(object));
}

Value Value::UndefinedAttribute(const Value& owner, std::string name) {
  auto object = std::make_shared<UndefinedObject>();
  object->owner = owner.is_none() ? "None" : fmt::format("{} object", owner.type_name());
  object->name = std::move(name);
  return Value(Kind::kUndefined, std::move(object));
}

Value Value::UndefinedHint(std::string hint) {
  auto object = std::make_shared<UndefinedObject>();
  object->hint = std::move(hint);
  return Value(Kind::kUndefined, std::move(object));
}

Value Value::List(std::vector<Value> items) {
  return Value(Kind::kList, MakeList(std::move(items)));
}
Value Value::Tuple(std::vector<Value> items) {
  return Value(Kind::kTuple, MakeList(std::move(items)));
}

Value Value::Group(const Value& grouper, Value list) {
  auto object = MakeList({grouper, std::move(list)});
  object->is_group = true;
  return Value(Kind::kTuple, std::move(object));
}

Value Value::Dict(DictObject dict) {
  auto object = std::make_shared<DictObject>(std::move(dict));
  for (const auto& [key, value] : object->entries)
    object->height = std::max({object->height, key.height(), value.height()});
  ++object->height;
  return Value(Kind::kDict, std::move(object));
}

Value Value::DictView(const Value& dict, int part) {
  auto object = std::make_shared<DictViewObject>();
  object->dict = dict;
  object->part = part;
  object->height = dict.height() + 1;
  return Value(Kind::kDictView, std::move(object));
}

Value Value::Range(Int start, Int stop, Int step) {
  auto object = std::make_shared<RangeObject>();
  object->start = start;
  object->stop = stop;
  object->step = step;
  const Int distance = step > 0 ? stop - start : start - stop;
  const Int stride = step > 0 ? step : -step;
  object->size = distance > 0 ? (distance - 1) / stride + 1 : 0;
  return Value(Kind::kRange, std::move(object));
}

Value Value::Iterator(const Value& source, std::function<Result<std::optional<Value>>()> next) {
  auto object = std::make_shared<IteratorObject>();
  object->next = std::move(next);
  object->height = source.height() + 1;
  return Value(Kind::kIterator, std::move(object));
}

Value Value::Namespace(std::shared_ptr<NamespaceObject> object) {
  return Value(Kind::kNamespace, std::move(object));
}
Value Value::Loop(std::shared_ptr<LoopObject> object) {
  return Value(Kind::kLoop, std::move(object));
}

Value Value::Callable(std::string repr, std::function<Result<Value>(Interpreter&, const Arguments&)> call, int height) {
  auto object = std::make_shared<CallableObject>();
  object->repr = std::move(repr);
  object->call = std::move(call);
  object->height = height;
  return Value(Kind::kCallable, std::move(object));
}

Value Value::FromJson(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return None();
    case json::kind::bool_:
      return Bool(value.get_bool());
    case json::kind::int64:
      return Integer(value.get_int64());
    case json::kind::uint64:
      return Integer(value.get_uint64());
    case json::kind::double_:
      return Float(value.get_double());
    case json::kind::string:
      return String(SanitizeUtf8(std::string_view(value.get_string())));
    case json::kind::array: {
      std::vector<Value> items;
      items.reserve(value.get_array().size());
      for (const json::value& item : value.get_array()) items.push_back(FromJson(item));
      return List(std::move(items));
    }
    case json::kind::object: {
      DictObject dict;
      dict.entries.reserve(value.get_object().size());
      for (const auto& [key, item] : value.get_object()) {
        dict.Set(String(SanitizeUtf8(std::string_view(key))), FromJson(item));
      }
      return Dict(std::move(dict));
    }
  }
  return None();
}

std::vector<Value>& Value::items() const {
  CHECK(is_sequence());
  return static_cast<ListObject&>(*object_).items;
}
bool Value::is_group() const {
  return kind_ == Kind::kTuple && static_cast<const ListObject&>(*object_).is_group;
}
const DictObject& Value::dict() const {
  return As<DictObject>(Kind::kDict);
}
const DictViewObject& Value::view() const {
  return As<DictViewObject>(Kind::kDictView);
}
const RangeObject& Value::range() const {
  return As<RangeObject>(Kind::kRange);
}
IteratorObject& Value::iterator() const {
  return As<IteratorObject>(Kind::kIterator);
}
NamespaceObject& Value::name_space() const {
  return As<NamespaceObject>(Kind::kNamespace);
}
LoopObject& Value::loop() const {
  return As<LoopObject>(Kind::kLoop);
}
const CallableObject& Value::callable() const {
  return As<CallableObject>(Kind::kCallable);
}

std::string_view Value::type_name() const {
  switch (kind_) {
    case Kind::kMissing:
      return "missing";
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return is_markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView:
      return view().part == DictViewObject::kKeys     ? "dict_keys"
             : view().part == DictViewObject::kValues ? "dict_values"
                                                      : "dict_items";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCallable:
      return "function";
  }
  return "";
}

// -- dicts

namespace {
// Below this many entries a dict is searched from its beginning, which is faster than hashing.
constexpr std::size_t kIndexedFrom = 12;

bool KeyEqual(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return a.text() == b.text();
  if (a.is_string() || b.is_string()) return false;
  return HashKey(a) == HashKey(b);
}
}  // namespace

std::optional<std::string> HashKey(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return "n";
    case Kind::kString:
      return "s" + value.text();
    case Kind::kBool:
    case Kind::kInt:
      return fmt::format("i{}", value.integer());
    case Kind::kFloat: {
      // 1.0 and 1 are one key.
      const double real = value.real();
      if (std::trunc(real) == real && std::fabs(real) < 1e30) return fmt::format("i{}", static_cast<Int>(real));
      return fmt::format("f{}", real);
    }
    case Kind::kTuple: {
      std::string key = "t";
      for (const Value& item : value.items()) {
        const auto part = HashKey(item);
        if (!part) return std::nullopt;
        key += fmt::format("{}:{}", part->size(), *part);
      }
      return key;
    }
    case Kind::kUndefined:
      return "u";
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return fmt::format("o{}", static_cast<const void*>(value.object()));
    case Kind::kMissing:
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      return std::nullopt;
  }
  return std::nullopt;
}

const Value* DictObject::Find(const Value& key) const {
  if (key.is_string() && entries.size() < kIndexedFrom) return Find(key.text());
  const auto hash = HashKey(key);
  if (!hash) return nullptr;
  if (!index_.empty()) {
    const auto found = index_.find(*hash);
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  const auto found = std::ranges::find_if(entries, [&](const auto& entry) { return KeyEqual(entry.first, key); });
  return found == entries.end() ? nullptr : &found->second;
}

const Value* DictObject::Find(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(fmt::format("s{}", key));
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

bool DictObject::Set(const Value& key, Value value) {
  const auto hash = HashKey(key);
  if (!hash) return false;
  if (const Value* found = Find(key)) {
    *const_cast<Value*>(found) = std::move(value);
    return true;
  }
  entries.emplace_back(key, std::move(value));
  if (entries.size() == kIndexedFrom) {
    for (std::size_t i = 0; i < entries.size(); ++i) index_.emplace(*HashKey(entries[i].first), i);
  } else if (entries.size() > kIndexedFrom) {
    index_.emplace(*hash, entries.size() - 1);
  }
  return true;
}

// -- iteration

Result<Cursor> Cursor::Over(const Value& iterable) {
  switch (iterable.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kIterator:
      return Cursor(iterable);
    case Kind::kMissing:
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      break;
  }
  return RenderError("'{}' object is not iterable", iterable.type_name());
}

namespace {
Value ViewItem(const DictViewObject& view, const std::pair<Value, Value>& entry) {
  if (view.part == DictViewObject::kKeys) return entry.first;
  if (view.part == DictViewObject::kValues) return entry.second;
  return Value::Tuple({entry.first, entry.second});
}
}  // namespace

Result<std::optional<Value>> Cursor::Next() {
  const auto at = [&](const auto& items) -> std::optional<Value> {
    if (position_ >= items.size()) return std::nullopt;
    return items[position_++];
  };
  switch (source_.kind()) {
    case Kind::kList:
    case Kind::kTuple:
      return at(source_.items());
    case Kind::kString: {
      const std::string_view rest = std::string_view(source_.text()).substr(position_);
      if (rest.empty()) return std::nullopt;
      const std::size_t size = ByteOffset(rest, 1);
      position_ += size;
      return Value::String(std::string(rest.substr(0, size)));
    }
    case Kind::kDict: {
      const auto& entries = source_.dict().entries;
      if (position_ >= entries.size()) return std::nullopt;
      return entries[position_++].first;
    }
    case Kind::kDictView: {
      const auto& entries = source_.view().dict.dict().entries;
      if (position_ >= entries.size()) return std::nullopt;
      return ViewItem(source_.view(), entries[position_++]);
    }
    case Kind::kRange:
      if (static_cast<Int>(position_) >= source_.range().size) return std::nullopt;
      return source_.range().at(static_cast<Int>(position_++));
    case Kind::kIterator:
      return source_.iterator().next();
    case Kind::kUndefined:
    case Kind::kMissing:
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return std::nullopt;
  }
  return std::nullopt;
}

// -- properties and comparisons

std::optional<Int> LengthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<Int>(CharacterCount(value.text()));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<Int>(value.items().size());
    case Kind::kDict:
      return static_cast<Int>(value.dict().entries.size());
    case Kind::kDictView:
      return static_cast<Int>(value.view().dict.dict().entries.size());
    case Kind::kRange:
      return value.range().size;
    case Kind::kMissing:
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return std::nullopt;
  }
  return std::nullopt;
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kDictView:
      return !value.view().dict.dict().entries.empty();
    case Kind::kRange:
      return value.range().size > 0;
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return true;
  }
  return false;
}

bool Same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.object() || b.object()) {
    if (a.object() == b.object()) return true;
    return a.is_string() && a.text() == b.text() && a.text().size() <= 1;  // Python keeps one of each of these
  }
  return Equal(a, b, nullptr);
}

namespace {

bool EqualNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  return a.real() == b.real();
}

bool EqualDicts(const DictObject& a, const DictObject& b, Budget* budget) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::ranges::all_of(a.entries, [&](const auto& entry) {
    const Value* other = b.Find(entry.first);
    return other && Equal(entry.second, *other, budget);
  });
}

}  // namespace

bool Equal(const Value& a, const Value& b, Budget* budget) {
  if (budget && !budget->SpendSteps(1)) return false;
  if (a.is_number() && b.is_number()) return EqualNumbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return a.items().size() == b.items().size() &&
             std::ranges::equal(a.items(), b.items(), [&](auto& x, auto& y) { return Equal(x, y, budget); });
    case Kind::kDict:
      return EqualDicts(a.dict(), b.dict(), budget);
    case Kind::kRange: {
      const RangeObject &x = a.range(), &y = b.range();
      return x.size == y.size && (x.size == 0 || (x.start == y.start && (x.size == 1 || x.step == y.step)));
    }
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kDictView:
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return a.object() == b.object();
  }
  return false;
}

Result<int> Compare(const Value& a, const Value& b, std::string_view operation, Budget* budget) {
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (!budget->SpendSteps(1)) return 0;
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  if (a.is_integral() && b.is_integral()) return order(a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return order(a.real(), b.real());
  if (a.is_string() && b.is_string()) return order(a.text(), b.text());  // UTF-8 sorts as its characters do
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto &x = a.items(), &y = b.items();
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (Equal(x[i], y[i], budget)) continue;
      return Compare(x[i], y[i], operation, budget);
    }
    return order(x.size(), y.size());
  }
  return RenderError("'{}' not supported between instances of '{}' and '{}'", operation, a.type_name(), b.type_name());
}

std::unexpected<Error> UndefinedError(const Value& undefined) {
  return RenderError("{}", undefined.undefined().Message());
}

}  // namespace quire::text::jinja
