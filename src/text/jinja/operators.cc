#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/python_str.h"

namespace quire::text::jinja {
namespace {

std::string_view Symbol(Operator operation) {
  switch (operation) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "** or pow()";
    case Operator::kEqual:
      return "==";
    case Operator::kNotEqual:
      return "!=";
    case Operator::kLess:
      return "<";
    case Operator::kLessEqual:
      return "<=";
    case Operator::kGreater:
      return ">";
    case Operator::kGreaterEqual:
      return ">=";
    case Operator::kIn:
      return "in";
    case Operator::kNotIn:
      return "not in";
  }
  return "";
}

std::unexpected<Error> Unsupported(Operator operation, const Value& left, const Value& right) {
  return RenderError("unsupported operand type(s) for {}: '{}' and '{}'", Symbol(operation), left.type_name(),
                     right.type_name());
}

std::unexpected<Error> TooLarge() {
  return RenderError("the integer result is too large");
}

Result<Value> IntegerPower(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) return RenderError("0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return TooLarge();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return TooLarge();
  }
  return Value::Integer(result);
}

Int FloorDivide(Int a, Int b) {
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}

Result<Value> IntegerArithmetic(Operator operation, Int a, Int b) {
  Int result = 0;
  switch (operation) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return TooLarge();
      return Value::Integer(result);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return TooLarge();
      return Value::Integer(result);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return TooLarge();
      return Value::Integer(result);
    case Operator::kDivide:
      if (b == 0) return RenderError("division by zero");
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDivide:
    case Operator::kModulo:
      if (b == 0) return RenderError("integer division or modulo by zero");
      if (b == -1) {  // the one quotient that can overflow
        if (operation == Operator::kModulo) return Value::Integer(0);
        return __builtin_sub_overflow(Int{0}, a, &result) ? Result<Value>(TooLarge()) : Value::Integer(result);
      }
      if (operation == Operator::kFloorDivide) return Value::Integer(FloorDivide(a, b));
      return Value::Integer(a - FloorDivide(a, b) * b);
    case Operator::kPower:
      return IntegerPower(a, b);
    case Operator::kEqual:
    case Operator::kNotEqual:
    case Operator::kLess:
    case Operator::kLessEqual:
    case Operator::kGreater:
    case Operator::kGreaterEqual:
    case Operator::kIn:
    case Operator::kNotIn:
      break;
  }
  return Value::None();
}

double FloatModulo(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

Result<Value> FloatArithmetic(Operator operation, double a, double b) {
  switch (operation) {
    case Operator::kAdd:
      return Value::Float(a + b);
    case Operator::kSubtract:
      return Value::Float(a - b);
    case Operator::kMultiply:
      return Value::Float(a * b);
    case Operator::kDivide:
      if (b == 0) return RenderError("float division by zero");
      return Value::Float(a / b);
    case Operator::kFloorDivide: {
      if (b == 0) return RenderError("float floor division by zero");
      const double quotient = (a - FloatModulo(a, b)) / b;
      const double floored = std::floor(quotient);
      return Value::Float(quotient == 0 ? std::copysign(0.0, a / b) : quotient - floored > 0.5 ? floored + 1 : floored);
    }
    case Operator::kModulo:
      if (b == 0) return RenderError("float modulo");
      return Value::Float(FloatModulo(a, b));
    case Operator::kPower:
      if (a == 0 && b < 0) return RenderError("0.0 cannot be raised to a negative power");
      if (a < 0 && std::trunc(b) != b) return RenderError("complex numbers are not supported");
      if (std::isinf(std::pow(a, b)) && std::isfinite(a) && std::isfinite(b)) {
        return RenderError("(34, 'Numerical result out of range')");
      }
      return Value::Float(std::pow(a, b));
    case Operator::kEqual:
    case Operator::kNotEqual:
    case Operator::kLess:
    case Operator::kLessEqual:
    case Operator::kGreater:
    case Operator::kGreaterEqual:
    case Operator::kIn:
    case Operator::kNotIn:
      break;
  }
  return Value::None();
}

Result<Value> Repeat(const Value& value, Int count, Interpreter& interpreter) {
  count = std::max(count, Int{0});
  const std::size_t unit = value.is_string() ? value.text().size() : value.items().size() * sizeof(Value);
  Int bytes = 0;
  if (__builtin_mul_overflow(static_cast<Int>(unit), count, &bytes)) return TooLarge();
  QUIRE_TRY_VOID(interpreter.CheckAffordable(bytes));
  if (unit == 0) count = 0;  // nothing, however often
  if (value.is_string()) {
    std::string text;
    text.reserve(static_cast<std::size_t>(bytes));
    for (Int i = 0; i < count; ++i) text += value.text();
    return interpreter.Built(std::move(text), value.is_markup());
  }
  std::vector<Value> items;
  items.reserve(value.items().size() * static_cast<std::size_t>(count));
  for (Int i = 0; i < count; ++i) items.insert(items.end(), value.items().begin(), value.items().end());
  return interpreter.Built(value.kind() == Kind::kList ? Value::List(std::move(items))
                                                       : Value::Tuple(std::move(items)));
}

Result<Value> Add(const Value& left, const Value& right, Interpreter& interpreter) {
  if (left.is_string() && right.is_string()) {
    if (!left.is_markup() && !right.is_markup()) return interpreter.Built(left.text() + right.text());
    // markupsafe: the side that is not markup gets escaped.
    const auto escaped = [](const Value& side) { return side.is_markup() ? side.text() : EscapeHtml(side.text()); };
    return interpreter.Built(escaped(left) + escaped(right), /*markup=*/true);
  }
  if (left.is_sequence() && left.kind() == right.kind()) {
    std::vector<Value> items = left.items();
    items.insert(items.end(), right.items().begin(), right.items().end());
    return interpreter.Built(left.kind() == Kind::kList ? Value::List(std::move(items))
                                                        : Value::Tuple(std::move(items)));
  }
  if (left.is_string()) return RenderError("can only concatenate str (not \"{}\") to str", right.type_name());
  if (left.is_sequence()) {
    return RenderError("can only concatenate {0} (not \"{1}\") to {0}", left.type_name(), right.type_name());
  }
  return Unsupported(Operator::kAdd, left, right);
}

}  // namespace

Result<Value> Arithmetic(Operator operation, const Value& left, const Value& right, Interpreter& interpreter) {
  if (left.is_string() && operation == Operator::kModulo) return FormatPercent(left, right, interpreter);
  if (left.is_undefined()) return UndefinedError(left);
  if (right.is_undefined()) return UndefinedError(right);
  if (left.is_integral() && right.is_integral()) return IntegerArithmetic(operation, left.integer(), right.integer());
  if (left.is_number() && right.is_number()) return FloatArithmetic(operation, left.real(), right.real());
  if (operation == Operator::kAdd) return Add(left, right, interpreter);
  if (operation == Operator::kMultiply) {
    if ((left.is_string() || left.is_sequence()) && right.is_integral())
      return Repeat(left, right.integer(), interpreter);
    if ((right.is_string() || right.is_sequence()) && left.is_integral())
      return Repeat(right, left.integer(), interpreter);
  }
  return Unsupported(operation, left, right);
}

Result<bool> Relation(Operator operation, const Value& left, const Value& right, Interpreter& interpreter) {
  Budget* const budget = interpreter.budget();
  switch (operation) {
    case Operator::kEqual:
      return Equal(left, right, budget);
    case Operator::kNotEqual:
      return !Equal(left, right, budget);
    case Operator::kIn:
      return Contains(right, left, interpreter);
    case Operator::kNotIn: {
      QUIRE_TRY(const bool contains, Contains(right, left, interpreter));
      return !contains;
    }
    case Operator::kLess:
    case Operator::kLessEqual:
    case Operator::kGreater:
    case Operator::kGreaterEqual: {
      QUIRE_TRY(const int order, Compare(left, right, Symbol(operation), budget));
      if (left.is_number() && right.is_number() && (std::isnan(left.real()) || std::isnan(right.real()))) return false;
      if (operation == Operator::kLess) return order < 0;
      if (operation == Operator::kLessEqual) return order <= 0;
      if (operation == Operator::kGreater) return order > 0;
      return order >= 0;
    }
    case Operator::kAdd:
    case Operator::kSubtract:
    case Operator::kMultiply:
    case Operator::kDivide:
    case Operator::kFloorDivide:
    case Operator::kModulo:
    case Operator::kPower:
      break;
  }
  return false;
}

Result<bool> Contains(const Value& container, const Value& item, Interpreter& interpreter) {
  Budget* const budget = interpreter.budget();
  if (container.is_string()) {
    if (!item.is_string()) {
      return RenderError("'in <string>' requires string as left operand, not {}", item.type_name());
    }
    budget->SpendSteps(container.text().size() / 256);
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.kind() == Kind::kDict) {
    if (!HashKey(item)) return RenderError("unhashable type: '{}'", item.type_name());
    return container.dict().Find(item) != nullptr;
  }
  auto cursor = Cursor::Over(container);
  if (!cursor) return RenderError("argument of type '{}' is not iterable", container.type_name());
  while (true) {
    QUIRE_TRY(const std::optional<Value> candidate, cursor->Next());
    QUIRE_TRY_VOID(interpreter.CheckBudget());
    if (!candidate) return false;
    if (Equal(*candidate, item, budget)) return true;
  }
}

Result<Value> Signed(const Value& operand, bool negative) {
  if (operand.is_undefined()) return UndefinedError(operand);
  if (operand.is_integral()) {
    Int result = operand.integer();
    if (negative && __builtin_sub_overflow(Int{0}, result, &result)) return TooLarge();
    return Value::Integer(result);
  }
  if (operand.kind() == Kind::kFloat) return Value::Float(negative ? -operand.real() : operand.real());
  return RenderError("bad operand type for unary {}: '{}'", negative ? "-" : "+", operand.type_name());
}

Value Subscript(const Value& object, const Value& key) {
  if (object.kind() == Kind::kDict) {
    const Value* found = object.dict().Find(key);
    return found ? *found : Value();
  }
  if (!key.is_integral()) return {};
  const bool has_items = object.is_sequence() || object.is_string() || object.kind() == Kind::kRange;
  if (!has_items) return {};
  const Int length = *LengthOf(object);
  const Int index = key.integer() < 0 ? key.integer() + length : key.integer();
  if (index < 0 || index >= length) return {};
  if (object.is_sequence()) return object.items()[static_cast<std::size_t>(index)];
  if (object.kind() == Kind::kRange) return object.range().at(index);
  const std::string_view text = object.text();
  const std::size_t begin = ByteOffset(text, static_cast<std::size_t>(index));
  const std::size_t size = ByteOffset(text.substr(begin), 1);
  return Value::String(std::string(text.substr(begin, size)), object.is_markup());
}

namespace {

struct SliceBounds {
  Int start, step, count;
};

Result<Int> Bound(const Value& bound, Int absent, Int length, Int lowest, Int highest) {
  if (bound.is_none()) return absent;
  if (bound.is_undefined() || !bound.is_integral()) {
    return RenderError("slice indices must be integers or None or have an __index__ method");
  }
  const Int index = bound.integer() < 0 ? bound.integer() + length : bound.integer();
  return std::clamp(index, lowest, highest);
}

Result<SliceBounds> ResolveSlice(Int length, const Value& start, const Value& stop, const Value& step) {
  Int stride = 1;
  if (!step.is_none()) {
    if (!step.is_integral()) return RenderError("slice indices must be integers or None or have an __index__ method");
    stride = step.integer();
  }
  if (stride == 0) return RenderError("slice step cannot be zero");
  stride = std::clamp(stride, -(Int{1} << 62), Int{1} << 62);
  const Int lowest = stride > 0 ? 0 : -1;
  const Int highest = stride > 0 ? length : length - 1;
  QUIRE_TRY(const Int first, Bound(start, stride > 0 ? 0 : length - 1, length, lowest, highest));
  QUIRE_TRY(const Int end, Bound(stop, stride > 0 ? length : -1, length, lowest, highest));
  const Int distance = stride > 0 ? end - first : first - end;
  const Int magnitude = stride > 0 ? stride : -stride;
  return SliceBounds{first, stride, distance > 0 ? (distance - 1) / magnitude + 1 : 0};
}

std::string SliceText(std::string_view text, const SliceBounds& bounds) {
  if (bounds.step == 1) {
    const std::size_t begin = ByteOffset(text, static_cast<std::size_t>(bounds.start));
    const std::string_view rest = text.substr(begin);
    return std::string(rest.substr(0, ByteOffset(rest, static_cast<std::size_t>(bounds.count))));
  }
  const std::vector<std::string_view> characters = Characters(text);
  std::string out;
  for (Int i = 0; i < bounds.count; ++i) out += characters[static_cast<std::size_t>(bounds.start + i * bounds.step)];
  return out;
}

}  // namespace

Result<Value> Slice(const Value& object, const Value& start, const Value& stop, const Value& step,
                    Interpreter& interpreter) {
  if (object.is_undefined()) return UndefinedError(object);
  const bool has_items = object.is_sequence() || object.is_string() || object.kind() == Kind::kRange;
  if (!has_items) {
    if (object.kind() == Kind::kDict) return RenderError("unhashable type: 'slice'");
    return RenderError("'{}' object is not subscriptable", object.type_name());
  }
  QUIRE_TRY(const SliceBounds bounds, ResolveSlice(*LengthOf(object), start, stop, step));
  if (object.is_string()) {
    interpreter.budget()->SpendSteps(object.text().size() / 64);
    if (bounds.step != 1) QUIRE_TRY_VOID(interpreter.CheckPartsAffordable(object.text()));
    return interpreter.Built(SliceText(object.text(), bounds), object.is_markup());
  }
  if (object.kind() == Kind::kRange) {
    const RangeObject& range = object.range();
    const Int first = range.start + bounds.start * range.step;
    const Int stride = range.step * bounds.step;
    return Value::Range(first, first + bounds.count * stride, stride);
  }
  std::vector<Value> items;
  items.reserve(static_cast<std::size_t>(bounds.count));
  for (Int i = 0; i < bounds.count; ++i) {
    items.push_back(object.items()[static_cast<std::size_t>(bounds.start + i * bounds.step)]);
  }
  return interpreter.Built(object.kind() == Kind::kList ? Value::List(std::move(items))
                                                        : Value::Tuple(std::move(items)));
}

double RoundDecimal(double value, Int digits) {
  if (!std::isfinite(value)) return value;
  if (digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits >= 0) {
    // printf rounds the exact binary value half to even, which is what Python's round() does.
    return std::strtod(fmt::format("{:.{}f}", value, static_cast<int>(digits)).c_str(), nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

}  // namespace quire::text::jinja
