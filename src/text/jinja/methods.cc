// Methods of lists, dicts and tuples, and the way to a method by name. Those of str are in methods_text.cc.
#include "text/jinja/methods.h"

#include <algorithm>
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"

namespace quire::text::jinja {
namespace {

using Bound = std::span<const Value>;

Result<Value> DictGet(Interpreter&, Bound a, const Arguments&) {
  if (!HashKey(a[1])) return RenderError("unhashable type: '{}'", a[1].type_name());
  if (const Value* found = a[0].dict().Find(a[1])) return *found;
  return a[2].is_missing() ? Value::None() : a[2];
}
Result<Value> DictKeys(Interpreter&, Bound a, const Arguments&) {
  return Value::DictView(a[0], DictViewObject::kKeys);
}
Result<Value> DictValues(Interpreter&, Bound a, const Arguments&) {
  return Value::DictView(a[0], DictViewObject::kValues);
}
Result<Value> DictItems(Interpreter&, Bound a, const Arguments&) {
  return Value::DictView(a[0], DictViewObject::kItems);
}
Result<Value> DictCopy(Interpreter& interpreter, Bound a, const Arguments&) {
  return interpreter.Built(Value::Dict(a[0].dict()));
}

Result<Value> ListCount(Interpreter& interpreter, Bound a, const Arguments&) {
  const auto equal = [&](const Value& item) { return Equal(item, a[1], interpreter.budget()); };
  return Value::Integer(std::ranges::count_if(a[0].items(), equal));
}

Result<Value> ListIndex(Interpreter& interpreter, Bound a, const Arguments&) {
  const auto& items = a[0].items();
  const auto size = static_cast<Int>(items.size());
  Int bounds[2] = {0, size};
  for (std::size_t i = 0; i < 2; ++i) {
    const Value& given = a[i + 2];
    if (given.is_missing()) continue;
    if (!given.is_integral()) return RenderError("slice indices must be integers or have an __index__ method");
    bounds[i] = std::clamp(given.integer() < 0 ? given.integer() + size : given.integer(), Int{0}, size);
  }
  for (Int i = bounds[0]; i < bounds[1]; ++i) {
    if (Equal(items[static_cast<std::size_t>(i)], a[1], interpreter.budget())) return Value::Integer(i);
  }
  return RenderError("the value is not in the {}", a[0].type_name());
}

Result<Value> ListCopy(Interpreter& interpreter, Bound a, const Arguments&) {
  return interpreter.Built(Value::List(a[0].items()));
}

Result<Value> RangeIndex(Interpreter& interpreter, Bound a, const Arguments&) {
  const RangeObject& range = a[0].range();
  interpreter.budget()->SpendSteps(static_cast<std::size_t>(range.size));
  for (Int i = 0; i < range.size; ++i) {
    if (Equal(range.at(i), a[1], nullptr)) return Value::Integer(i);
  }
  return RenderError("the value is not in the range");
}

Result<Value> RangeCount(Interpreter& interpreter, Bound a, const Arguments& arguments) {
  return Value::Integer(RangeIndex(interpreter, a, arguments) ? 1 : 0);
}

// The sandbox of jinja2 forbids append, insert and the like, but lets these two through; templates use pop(0).
Result<Value> ListPop(Interpreter& interpreter, Bound a, const Arguments&) {
  std::vector<Value>& items = a[0].items();
  const auto size = static_cast<Int>(items.size());
  if (!a[1].is_missing() && !a[1].is_integral()) {
    return RenderError("'{}' object cannot be interpreted as an integer", a[1].type_name());
  }
  Int index = a[1].is_missing() ? -1 : a[1].integer();
  if (size == 0) return RenderError("pop from empty list");
  if (index < 0) index += size;
  if (index < 0 || index >= size) return RenderError("pop index out of range");
  interpreter.budget()->SpendSteps(static_cast<std::size_t>(size - index) / 16);
  Value item = items[static_cast<std::size_t>(index)];
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(index));
  return item;
}

Result<Value> ListClear(Interpreter&, Bound a, const Arguments&) {
  a[0].items().clear();
  return Value::None();
}

// What jinja2's sandbox hides: access gives an undefined value, and calling that fails with this.
Value Unsafe(const Value& object, std::string_view name) {
  return Value::UndefinedHint(
      fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, object.type_name()));
}

constexpr auto kDictMethods = std::to_array<Builtin>({
    {"get", "key default? /", DictGet},
    {"keys", "", DictKeys},
    {"values", "", DictValues},
    {"items", "", DictItems},
    {"copy", "", DictCopy},
});
constexpr std::string_view kUnsafeDictMethods[] = {"clear", "pop /", "popitem", "setdefault", "update"};

constexpr auto kListMethods = std::to_array<Builtin>({
    {"count", "value /", ListCount},
    {"index", "value start? stop? /", ListIndex},
    {"copy", "", ListCopy},
    {"pop", "index? /", ListPop},
    {"clear", "", ListClear},
});
constexpr std::string_view kUnsafeListMethods[] = {"append", "reverse /", "insert", "sort", "extend", "remove"};

constexpr auto kTupleMethods = std::to_array<Builtin>({
    {"count", "value /", ListCount},
    {"index", "value start? stop? /", ListIndex},
});

constexpr auto kRangeMethods = std::to_array<Builtin>({
    {"count", "value /", RangeCount},
    {"index", "value /", RangeIndex},
});

const Builtin* FindIn(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Builtin::name);
  return found == table.end() ? nullptr : &*found;
}

Value BindMethod(const Value& object, const Builtin& method) {
  return Value::Callable(
      fmt::format("<built-in method {} of {} object>", method.name, object.type_name()),
      [object, &method](Interpreter& interpreter, const Arguments& arguments) -> Result<Value> {
        if (method.signature == "*") return method.call(interpreter, std::span(&object, 1), arguments);
        QUIRE_TRY(std::vector<Value> bound, Bind(method.name, method.signature, arguments));
        bound.insert(bound.begin(), object);
        return method.call(interpreter, bound, arguments);
      },
      object.height() + 1);
}

Value FindNumberAttribute(const Value& number, std::string_view name) {
  if (name == "real") return number.is_integral() ? Value::Integer(number.integer()) : number;
  if (name == "imag") return number.is_integral() ? Value::Integer(0) : Value::Float(0);
  if (number.is_integral() && name == "numerator") return Value::Integer(number.integer());
  if (number.is_integral() && name == "denominator") return Value::Integer(1);
  return {};
}

}  // namespace

Value FindMethod(const Value& object, std::string_view name) {
  if (name.size() > 4 && name.starts_with("__") && name.ends_with("__")) return Unsafe(object, name);
  std::span<const Builtin> methods;
  std::span<const std::string_view> unsafe;
  switch (object.kind()) {
    case Kind::kString:
      methods = TextMethods();
      break;
    case Kind::kDict:
      methods = kDictMethods, unsafe = kUnsafeDictMethods;
      break;
    case Kind::kList:
      methods = kListMethods, unsafe = kUnsafeListMethods;
      break;
    case Kind::kTuple:
      methods = kTupleMethods;
      if (const auto field = GroupField(object, name)) return *field;
      break;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return FindNumberAttribute(object, name);
    case Kind::kRange:
      if (name == "start") return Value::Integer(object.range().start);
      if (name == "stop") return Value::Integer(object.range().stop);
      if (name == "step") return Value::Integer(object.range().step);
      methods = kRangeMethods;
      break;
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
    case Kind::kDictView:
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return {};
  }
  if (const Builtin* method = FindIn(methods, name)) return BindMethod(object, *method);
  return std::ranges::find(unsafe, name) != unsafe.end() ? Unsafe(object, name) : Value();
}

}  // namespace quire::text::jinja
