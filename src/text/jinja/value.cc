#include "text/jinja/value.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/loop.h"

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

}  // namespace quire::text::jinja
