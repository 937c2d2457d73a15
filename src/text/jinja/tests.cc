// The tests of `x is …`.
#include <algorithm>
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_str.h"

namespace quire::text::jinja {
namespace {

using Bound = std::span<const Value>;

template <Operator kOperation>
Result<Value> TestRelation(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const bool holds, Relation(kOperation, a[0], a[1], interpreter));
  return Value::Bool(holds);
}

template <Kind kKind>
Result<Value> TestKind(Interpreter&, Bound a, const Arguments&) {
  return Value::Bool(a[0].kind() == kKind);
}

template <bool kValue>
Result<Value> TestBool(Interpreter&, Bound a, const Arguments&) {
  return Value::Bool(a[0].kind() == Kind::kBool && a[0].boolean() == kValue);
}

// value % divisor == remainder
Result<Value> Remainder(Interpreter& interpreter, const Value& value, const Value& divisor, Int remainder) {
  QUIRE_TRY(const Value rest, Arithmetic(Operator::kModulo, value, divisor, interpreter));
  return Value::Bool(Equal(rest, Value::Integer(remainder), interpreter.budget()));
}

Result<Value> TestOdd(Interpreter& interpreter, Bound a, const Arguments&) {
  return Remainder(interpreter, a[0], Value::Integer(2), 1);
}
Result<Value> TestEven(Interpreter& interpreter, Bound a, const Arguments&) {
  return Remainder(interpreter, a[0], Value::Integer(2), 0);
}
Result<Value> TestDivisibleBy(Interpreter& interpreter, Bound a, const Arguments&) {
  return Remainder(interpreter, a[0], a[1], 0);
}

Result<Value> TestDefined(Interpreter&, Bound a, const Arguments&) {
  return Value::Bool(!a[0].is_undefined());
}
Result<Value> TestNumber(Interpreter&, Bound a, const Arguments&) {
  return Value::Bool(a[0].is_number());
}
Result<Value> TestFilter(Interpreter&, Bound a, const Arguments&) {
  return Value::Bool(a[0].is_string() && FindFilter(a[0].text()) != nullptr);
}
Result<Value> TestTest(Interpreter&, Bound a, const Arguments&) {
  return Value::Bool(a[0].is_string() && FindTest(a[0].text()) != nullptr);
}

Result<Value> TestLower(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const std::string text, interpreter.Text(a[0]));
  return Value::Bool(IsLower(text));
}
Result<Value> TestUpper(Interpreter& interpreter, Bound a, const Arguments&) {
  QUIRE_TRY(const std::string text, interpreter.Text(a[0]));
  return Value::Bool(IsUpper(text));
}

// What has a length and can be subscripted.
Result<Value> TestSequence(Interpreter&, Bound a, const Arguments&) {
  return Value::Bool(a[0].is_sequence() || a[0].is_string() || a[0].kind() == Kind::kDict ||
                     a[0].kind() == Kind::kRange || a[0].is_undefined());
}

Result<Value> TestIterable(Interpreter&, Bound a, const Arguments&) {
  return Value::Bool(a[0].kind() == Kind::kLoop || Cursor::Over(a[0]).has_value());
}

Result<Value> TestCallable(Interpreter&, Bound a, const Arguments&) {
  // jinja2's Undefined and its loop have a __call__.
  return Value::Bool(a[0].kind() == Kind::kCallable || a[0].kind() == Kind::kLoop || a[0].is_undefined());
}

Result<Value> TestSameAs(Interpreter&, Bound a, const Arguments&) {
  return Value::Bool(Same(a[0], a[1]));
}
Result<Value> TestEscaped(Interpreter&, Bound a, const Arguments&) {
  return Value::Bool(a[0].is_markup());
}

constexpr auto kTests = std::to_array<Builtin>({
    {"odd", "", TestOdd},
    {"even", "", TestEven},
    {"divisibleby", "num", TestDivisibleBy},
    {"defined", "", TestDefined},
    {"undefined", "", TestKind<Kind::kUndefined>},
    {"filter", "", TestFilter},
    {"test", "", TestTest},
    {"none", "", TestKind<Kind::kNone>},
    {"boolean", "", TestKind<Kind::kBool>},
    {"false", "", TestBool<false>},
    {"true", "", TestBool<true>},
    {"integer", "", TestKind<Kind::kInt>},
    {"float", "", TestKind<Kind::kFloat>},
    {"lower", "", TestLower},
    {"upper", "", TestUpper},
    {"string", "", TestKind<Kind::kString>},
    {"mapping", "", TestKind<Kind::kDict>},
    {"number", "", TestNumber},
    {"sequence", "", TestSequence},
    {"iterable", "", TestIterable},
    {"callable", "", TestCallable},
    {"sameas", "other", TestSameAs},
    {"escaped", "", TestEscaped},
    {"in", "seq", TestRelation<Operator::kIn>},
    {"==", "other", TestRelation<Operator::kEqual>},
    {"eq", "other", TestRelation<Operator::kEqual>},
    {"equalto", "other", TestRelation<Operator::kEqual>},
    {"!=", "other", TestRelation<Operator::kNotEqual>},
    {"ne", "other", TestRelation<Operator::kNotEqual>},
    {">", "other", TestRelation<Operator::kGreater>},
    {"gt", "other", TestRelation<Operator::kGreater>},
    {"greaterthan", "other", TestRelation<Operator::kGreater>},
    {">=", "other", TestRelation<Operator::kGreaterEqual>},
    {"ge", "other", TestRelation<Operator::kGreaterEqual>},
    {"<", "other", TestRelation<Operator::kLess>},
    {"lt", "other", TestRelation<Operator::kLess>},
    {"lessthan", "other", TestRelation<Operator::kLess>},
    {"<=", "other", TestRelation<Operator::kLessEqual>},
    {"le", "other", TestRelation<Operator::kLessEqual>},
});

}  // namespace

const Builtin* FindTest(std::string_view name) {
  const auto found = std::ranges::find(kTests, name, &Builtin::name);
  return found == kTests.end() ? nullptr : &*found;
}

}  // namespace quire::text::jinja
