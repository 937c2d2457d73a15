#include "text/jinja/loop.h"

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"

namespace quire::text::jinja {

Result<const std::optional<Value>*> LoopObject::Peek() {
  if (!peeked) {
    QUIRE_TRY(after, cursor.Next());
    peeked = true;
  }
  return &after;
}

Result<bool> LoopObject::Advance() {
  QUIRE_TRY_VOID(Peek());
  if (!after) return false;
  previous = std::move(current);
  current = std::move(after);
  after.reset();
  peeked = false;
  ++index0;
  return true;
}

Result<Int> LoopObject::Length() {
  if (length) return *length;
  length = LengthOf(iterable);
  if (length) return *length;
  std::vector<Value> rest;
  while (true) {
    QUIRE_TRY(std::optional<Value> item, cursor.Next());
    if (!item) break;
    rest.push_back(*std::move(item));
  }
  length = static_cast<Int>(rest.size()) + index0 + 1 + (peeked && after ? 1 : 0);
  QUIRE_TRY(cursor, Cursor::Over(Value::List(std::move(rest))));
  if (peeked && !after) peeked = false;
  return *length;
}

namespace {

Result<Value> Cycle(const Value& loop, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.keyword.empty()) return RenderError("no items for cycling given");
  const auto size = static_cast<Int>(arguments.positional.size());
  return arguments.positional[static_cast<std::size_t>(loop.loop().index0 % size)];
}

Result<Value> Changed(Interpreter& interpreter, const Value& loop, const std::shared_ptr<LoopObject>& object,
                      const Arguments& arguments) {
  if (!arguments.keyword.empty()) return RenderError("changed() takes no keyword arguments");
  QUIRE_TRY(const Value values, interpreter.Built(Value::Tuple(arguments.positional)));
  std::optional<Value>& last = loop.loop().last_changed;
  if (last && Equal(*last, values, interpreter.budget())) return Value::Bool(false);
  if (!last) interpreter.NoteMutable(object);
  last = values;
  return Value::Bool(true);
}

}  // namespace

Result<Value> LoopAttribute(const Value& value, const std::string& name) {
  LoopObject& loop = value.loop();
  if (name == "index") return Value::Integer(loop.index0 + 1);
  if (name == "index0") return Value::Integer(loop.index0);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "depth") return Value::Integer(loop.depth0 + 1);
  if (name == "depth0") return Value::Integer(loop.depth0);
  if (name == "last") {
    QUIRE_TRY(const std::optional<Value>* after, loop.Peek());
    return Value::Bool(!after->has_value());
  }
  if (name == "nextitem") {
    QUIRE_TRY(const std::optional<Value>* after, loop.Peek());
    return after->has_value() ? **after : Value::UndefinedHint("there is no next item");
  }
  if (name == "previtem") {
    return loop.index0 > 0 ? *loop.previous : Value::UndefinedHint("there is no previous item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    QUIRE_TRY(const Int length, loop.Length());
    if (name == "length") return Value::Integer(length);
    return Value::Integer(length - loop.index0 - (name == "revindex0" ? 1 : 0));
  }
  if (name == "cycle") {
    return Value::Callable(
        "<bound method LoopContext.cycle>",
        [value](Interpreter&, const Arguments& arguments) { return Cycle(value, arguments); }, value.height() + 1);
  }
  if (name == "changed") {
    return Value::Callable(
        "<bound method LoopContext.changed>",
        [value](Interpreter& interpreter, const Arguments& arguments) {
          return Changed(interpreter, value, value.loop().shared_from_this(), arguments);
        },
        value.height() + 1);
  }
  return Value();
}

}  // namespace quire::text::jinja
