// Python's operators. Operands that have no such operation give Python's error.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace quire::text::jinja {

Result<Value> Arithmetic(Operator operation, const Value& left, const Value& right, Interpreter& interpreter);
// == != < <= > >= in, not in.
Result<bool> Relation(Operator operation, const Value& left, const Value& right, Interpreter& interpreter);
Result<bool> Contains(const Value& container, const Value& item, Interpreter& interpreter);
Result<Value> Signed(const Value& operand, bool negative);
// object[key]; missing when the object has none, or cannot be subscripted.
Value Subscript(const Value& object, const Value& key);
// object[start:stop:step]; None stands for an absent bound.
Result<Value> Slice(const Value& object, const Value& start, const Value& stop, const Value& step,
                    Interpreter& interpreter);
// Python's round() to `digits` decimals: the float that is nearest to the decimal result, ties by the exact value.
double RoundDecimal(double value, Int digits);

}  // namespace quire::text::jinja
