// The values that a template sees. They are Python's, because templates were written against Python: integers and
// floats differ, text is counted in characters, lists can be popped, lazy sequences run out.
//
// A Value is cheap to copy: scalars inside, everything else behind a shared_ptr that all copies share (as Python's
// references do). All live within one rendering and one thread, except constants of the compiled template, which
// nobody changes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/result.h"
#include "text/jinja/budget.h"

namespace quire::text::jinja {

// Wide enough for every integer of JSON and for what templates compute; overflow is an error, not a wrap.
__extension__ typedef __int128 Int;

class Interpreter;
class Value;

enum class Kind : std::uint8_t {
  kMissing,    // no value at all: a variable not set yet, an argument not given; never seen by a template
  kUndefined,  // jinja's Undefined: prints as nothing, is false, fails when it is used further
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,  // dict.keys(), .values(), .items()
  kRange,
  kIterator,  // a lazy sequence, consumed by reading
  kNamespace,
  kLoop,      // the `loop` of a for
  kCallable,  // macros, global functions, bound methods
};

struct Object {
  virtual ~Object() = default;
  int height = 0;  // nesting below; Limits::value_height_max
};

struct StringObject final : Object {
  std::string text;     // valid UTF-8
  bool markup = false;  // marked by |safe: what is added to it gets HTML-escaped, as markupsafe does
};

struct UndefinedObject final : Object {
  std::string name;
  std::string owner;  // the type of the object that lacks `name`; empty for a variable
  std::string hint;   // a whole message instead
  std::string Message() const;
};

// A call's arguments. Keywords are unique.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

struct ListObject;
struct DictObject;
struct DictViewObject;
struct RangeObject;
struct IteratorObject;
struct NamespaceObject;
struct LoopObject;
struct CallableObject;

class Value {
 public:
  Value() = default;  // kMissing

  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value);
  static Value Integer(Int value);
  static Value Float(double value);
  static Value String(std::string text, bool markup = false);
  static Value Undefined(std::string name);
  static Value UndefinedAttribute(const Value& owner, std::string name);
  static Value UndefinedHint(std::string hint);
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  static Value Group(const Value& grouper, Value list);
  static Value Dict(DictObject dict);
  static Value DictView(const Value& dict, int part);
  static Value Range(Int start, Int stop, Int step);
  static Value Iterator(const Value& source, std::function<Result<std::optional<Value>>()> next);
  static Value Namespace(std::shared_ptr<NamespaceObject> object);
  static Value Loop(std::shared_ptr<LoopObject> object);
  static Value Callable(std::string repr, std::function<Result<Value>(Interpreter&, const Arguments&)> call,
                        int height = 0);
  static Value FromJson(const json::value& value);

  Kind kind() const { return kind_; }
  bool is_missing() const { return kind_ == Kind::kMissing; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_markup() const { return is_string() && As<StringObject>(Kind::kString).markup; }
  // bool counts as an integer, as in Python.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  bool boolean() const { return CHECK(kind_ == Kind::kBool), scalar_.integer != 0; }
  Int integer() const { return CHECK(is_integral()), scalar_.integer; }
  double real() const {
    return CHECK(is_number()), is_integral() ? static_cast<double>(scalar_.integer) : scalar_.real;
  }
  const std::string& text() const { return As<StringObject>(Kind::kString).text; }
  const UndefinedObject& undefined() const { return As<UndefinedObject>(Kind::kUndefined); }
  std::vector<Value>& items() const;
  bool is_group() const;
  const DictObject& dict() const;
  const DictViewObject& view() const;
  const RangeObject& range() const;
  IteratorObject& iterator() const;
  NamespaceObject& name_space() const;
  LoopObject& loop() const;
  const CallableObject& callable() const;

  const Object* object() const { return object_.get(); }
  int height() const { return object_ ? object_->height : 0; }
  // The type's name in Python, for messages.
  std::string_view type_name() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}
  template <typename T>
  T& As(Kind kind) const {
    CHECK(kind_ == kind);
    return static_cast<T&>(*object_);
  }

  Kind kind_ = Kind::kMissing;
  union {
    Int integer;
    double real;
  } scalar_ = {.integer = 0};
  std::shared_ptr<Object> object_;
};

struct ListObject final : Object {  // lists and tuples
  std::vector<Value> items;
  bool is_group = false;  // a pair that the filter groupby gives, which has .grouper and .list too
};

// Insertion-ordered, as Python's. Keys are strings, numbers, None or tuples of them.
struct DictObject final : Object {
  std::vector<std::pair<Value, Value>> entries;

  const Value* Find(const Value& key) const;  // nullptr: not there, or a key that cannot be hashed
  const Value* Find(std::string_view key) const;
  // False: the key cannot be hashed.
  bool Set(const Value& key, Value value);

 private:
  std::unordered_map<std::string, std::size_t> index_;  // canonical key → entry
};

struct DictViewObject final : Object {
  enum Part { kKeys, kValues, kItems };
  Value dict;
  int part = kKeys;
};

struct RangeObject final : Object {
  Int start = 0, stop = 0, step = 1;
  Int size = 0;
  Value at(Int index) const { return Value::Integer(start + index * step); }
};

struct IteratorObject final : Object {
  std::function<Result<std::optional<Value>>()> next;
};

struct NamespaceObject final : Object {
  DictObject attributes;
};

struct CallableObject final : Object {
  std::string repr;
  std::function<Result<Value>(Interpreter&, const Arguments&)> call;
};

// Reads any iterable from its beginning. A list is read live, so that items popped meanwhile are not seen.
class Cursor {
 public:
  // Fails for what Python cannot iterate.
  static Result<Cursor> Over(const Value& iterable);
  Result<std::optional<Value>> Next();

 private:
  explicit Cursor(Value source) : source_(std::move(source)) {}
  Value source_;
  std::size_t position_ = 0;
};

// len() of what has one.
std::optional<Int> LengthOf(const Value& value);
bool Truth(const Value& value);
// Python's ==. Stops early (with false) when the budget is spent.
bool Equal(const Value& a, const Value& b, Budget* budget);
// Python's `is`, as far as templates can tell.
bool Same(const Value& a, const Value& b);
// Negative, zero, positive; fails as Python's < does for types that have no order.
Result<int> Compare(const Value& a, const Value& b, std::string_view operation, Budget* budget);
// A text that is equal for equal keys; nullopt: unhashable.
std::optional<std::string> HashKey(const Value& value);

// A rendering error; the interpreter adds the line.
template <typename... A>
[[nodiscard]] std::unexpected<Error> RenderError(fmt::format_string<A...> format, A&&... arguments) {
  return Fail(ErrorCode::kInvalidArgument, format, std::forward<A>(arguments)...);
}
[[nodiscard]] std::unexpected<Error> UndefinedError(const Value& undefined);

}  // namespace quire::text::jinja
