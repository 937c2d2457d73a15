#include <algorithm>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"

namespace quire::text::jinja {

Result<Value> Interpreter::Evaluate(const Expr& node) {
  budget_.SpendSteps(1);
  QUIRE_TRY_VOID(CheckBudget());
  if (depth_ >= limits_.depth_max) return Fail(ErrorCode::kOutOfRange, "the chat template calls itself too deeply");
  ++depth_;
  auto value = EvaluateKnown(node);
  --depth_;
  if (!value) return Located(std::move(value).error(), node.line);
  return value;
}

Result<Value> Interpreter::EvaluateKnown(const Expr& node) {
  switch (node.kind) {
    case ExprKind::kConstant:
      return static_cast<const ConstantExpr&>(node).value;
    case ExprKind::kName:
      return EvaluateName(static_cast<const NameExpr&>(node));
    case ExprKind::kTuple: {
      QUIRE_TRY(std::vector<Value> items, EvaluateAll(static_cast<const SequenceExpr&>(node).items));
      return Built(Value::Tuple(std::move(items)));
    }
    case ExprKind::kList: {
      QUIRE_TRY(std::vector<Value> items, EvaluateAll(static_cast<const SequenceExpr&>(node).items));
      return Built(Value::List(std::move(items)));
    }
    case ExprKind::kDict:
      return EvaluateDict(static_cast<const DictExpr&>(node));
    case ExprKind::kConditional:
      return EvaluateConditional(static_cast<const ConditionalExpr&>(node));
    case ExprKind::kLogical:
      return EvaluateLogical(static_cast<const LogicalExpr&>(node));
    case ExprKind::kNot: {
      QUIRE_TRY(const Value operand, Evaluate(*static_cast<const UnaryExpr&>(node).operand));
      return Value::Bool(!Truth(operand));
    }
    case ExprKind::kComparison:
      return EvaluateComparison(static_cast<const ChainExpr&>(node));
    case ExprKind::kArithmetic:
      return EvaluateArithmetic(static_cast<const ChainExpr&>(node));
    case ExprKind::kConcat:
      return EvaluateConcat(static_cast<const SequenceExpr&>(node));
    case ExprKind::kSign: {
      const auto& sign = static_cast<const UnaryExpr&>(node);
      QUIRE_TRY(const Value operand, Evaluate(*sign.operand));
      return Signed(operand, sign.negative);
    }
    case ExprKind::kAttribute: {
      const auto& attribute = static_cast<const AttributeExpr&>(node);
      QUIRE_TRY(const Value object, Evaluate(*attribute.object));
      return Attribute(object, attribute.name);
    }
    case ExprKind::kSubscript: {
      const auto& subscript = static_cast<const SubscriptExpr&>(node);
      QUIRE_TRY(const Value object, Evaluate(*subscript.object));
      QUIRE_TRY(const Value key, Evaluate(*subscript.index));
      return Item(object, key);
    }
    case ExprKind::kSlice:
      return EvaluateSlice(static_cast<const SliceExpr&>(node));
    case ExprKind::kCall:
      return EvaluateCall(static_cast<const CallExpr&>(node), nullptr);
    case ExprKind::kFilter:
      return EvaluateFilter(static_cast<const FilterExpr&>(node), nullptr);
    case ExprKind::kTest:
      return EvaluateTest(static_cast<const FilterExpr&>(node));
  }
  return Value::None();
}

Result<Value> Interpreter::EvaluateName(const NameExpr& node) {
  const Value& value = Slot(node.variable);
  return value.is_missing() ? Value::Undefined(node.name) : value;
}

Result<std::vector<Value>> Interpreter::EvaluateAll(const std::vector<ExprPtr>& nodes) {
  std::vector<Value> values;
  values.reserve(nodes.size());
  for (const ExprPtr& node : nodes) {
    QUIRE_TRY(Value value, Evaluate(*node));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Interpreter::EvaluateDict(const DictExpr& node) {
  DictObject dict;
  for (const auto& [key_node, value_node] : node.entries) {
    QUIRE_TRY(const Value key, Evaluate(*key_node));
    QUIRE_TRY(Value value, Evaluate(*value_node));
    if (!dict.Set(key, std::move(value))) return RenderError("unhashable type: '{}'", key.type_name());
  }
  return Built(Value::Dict(std::move(dict)));
}

Result<Value> Interpreter::EvaluateConditional(const ConditionalExpr& node) {
  QUIRE_TRY(const Value test, Evaluate(*node.test));
  if (Truth(test)) return Evaluate(*node.then);
  if (node.otherwise) return Evaluate(*node.otherwise);
  return Value::UndefinedHint(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.", node.line));
}

Result<Value> Interpreter::EvaluateLogical(const LogicalExpr& node) {
  Value value;
  for (const ExprPtr& item : node.items) {
    QUIRE_TRY(value, Evaluate(*item));
    if (Truth(value) == node.is_or) break;
  }
  return value;
}

Result<Value> Interpreter::EvaluateComparison(const ChainExpr& node) {
  QUIRE_TRY(Value left, Evaluate(*node.first));
  for (const auto& [operation, operand] : node.rest) {
    QUIRE_TRY(Value right, Evaluate(*operand));
    QUIRE_TRY(const bool holds, Relation(operation, left, right, *this));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<Value> Interpreter::EvaluateArithmetic(const ChainExpr& node) {
  QUIRE_TRY(Value left, Evaluate(*node.first));
  for (const auto& [operation, operand] : node.rest) {
    QUIRE_TRY(const Value right, Evaluate(*operand));
    QUIRE_TRY(left, Arithmetic(operation, left, right, *this));
  }
  return left;
}

Result<Value> Interpreter::EvaluateConcat(const SequenceExpr& node) {
  std::string text;
  for (const ExprPtr& item : node.items) {
    QUIRE_TRY(const Value value, Evaluate(*item));
    QUIRE_TRY(const std::string part, Text(value));
    text += part;
    QUIRE_TRY_VOID(CheckAffordable(static_cast<Int>(text.size())));
  }
  return Built(std::move(text));
}

Result<Value> Interpreter::EvaluateSlice(const SliceExpr& node) {
  QUIRE_TRY(const Value object, Evaluate(*node.object));
  Value bounds[3] = {Value::None(), Value::None(), Value::None()};
  const ExprPtr* const nodes[3] = {&node.start, &node.stop, &node.step};
  for (int i = 0; i < 3; ++i) {
    if (*nodes[i]) {
      QUIRE_TRY(bounds[i], Evaluate(**nodes[i]));
    }
  }
  return Slice(object, bounds[0], bounds[1], bounds[2], *this);
}

Result<Arguments> Interpreter::EvaluateArguments(const CallArguments& node) {
  Arguments arguments;
  QUIRE_TRY(arguments.positional, EvaluateAll(node.positional));
  for (const auto& [name, expression] : node.keyword) {
    QUIRE_TRY(Value value, Evaluate(*expression));
    arguments.keyword.emplace_back(name, std::move(value));
  }
  if (node.star) {
    QUIRE_TRY(const Value iterable, Evaluate(*node.star));
    QUIRE_TRY(std::vector<Value> items, Items(iterable));
    std::ranges::move(items, std::back_inserter(arguments.positional));
  }
  if (node.double_star) {
    QUIRE_TRY(const Value mapping, Evaluate(*node.double_star));
    QUIRE_TRY_VOID(AddDoubleStar(mapping, &arguments));
  }
  return arguments;
}

Result<> Interpreter::AddDoubleStar(const Value& mapping, Arguments* arguments) {
  if (mapping.kind() != Kind::kDict) {
    return RenderError("argument after ** must be a mapping, not {}", mapping.type_name());
  }
  for (const auto& [key, value] : mapping.dict().entries) {
    if (!key.is_string()) return RenderError("keywords must be strings");
    const bool repeated =
        std::ranges::any_of(arguments->keyword, [&](auto& other) { return other.first == key.text(); });
    if (repeated) return RenderError("got multiple values for keyword argument '{}'", key.text());
    arguments->keyword.emplace_back(key.text(), value);
  }
  return {};
}

// `caller`: the body of the call block that makes the call.
Result<Value> Interpreter::EvaluateCall(const CallExpr& node, const Value* caller) {
  QUIRE_TRY(const Value function, Evaluate(*node.function));
  QUIRE_TRY(Arguments arguments, EvaluateArguments(node.arguments));
  if (caller) arguments.keyword.emplace_back("caller", *caller);
  return Call(function, arguments);
}

Result<Value> Interpreter::Call(const Value& function, const Arguments& arguments) {
  if (function.kind() == Kind::kCallable) return function.callable().call(*this, arguments);
  if (function.is_undefined()) return UndefinedError(function);
  if (function.kind() == Kind::kLoop) {
    if (arguments.positional.size() != 1 || !arguments.keyword.empty()) return RenderError("loop() takes one argument");
    return CallLoop(function, arguments.positional.front());
  }
  return RenderError("'{}' object is not callable", function.type_name());
}

// `block_text`: what the innermost filter of a {% filter %} chain works on.
Result<Value> Interpreter::EvaluateFilter(const FilterExpr& node, const Value* block_text) {
  Value operand;
  if (!node.operand) {
    CHECK(block_text);
    operand = *block_text;
  } else if (block_text) {
    QUIRE_TRY(operand, EvaluateFilter(static_cast<const FilterExpr&>(*node.operand), block_text));
  } else {
    QUIRE_TRY(operand, Evaluate(*node.operand));
  }
  QUIRE_TRY(const Arguments arguments, EvaluateArguments(node.arguments));
  return CallFilter(node.name, operand, arguments);
}

Result<Value> Interpreter::EvaluateTest(const FilterExpr& node) {
  QUIRE_TRY(const Value operand, Evaluate(*node.operand));
  QUIRE_TRY(const Arguments arguments, EvaluateArguments(node.arguments));
  QUIRE_TRY(const bool passed, CallTest(node.name, operand, arguments));
  return Value::Bool(passed);
}

namespace {
Result<Value> CallBuiltin(Interpreter& interpreter, const Builtin& builtin, const Value& operand,
                          const Arguments& arguments) {
  if (builtin.signature == "*") return builtin.call(interpreter, std::span(&operand, 1), arguments);
  QUIRE_TRY(std::vector<Value> bound, Bind(builtin.name, builtin.signature, arguments));
  bound.insert(bound.begin(), operand);
  return builtin.call(interpreter, bound, arguments);
}
}  // namespace

Result<Value> Interpreter::CallFilter(const std::string& name, const Value& operand, const Arguments& arguments) {
  const Builtin* filter = FindFilter(name);
  if (!filter) return RenderError("No filter named '{}'.", name);
  return CallBuiltin(*this, *filter, operand, arguments);
}

Result<bool> Interpreter::CallTest(const std::string& name, const Value& operand, const Arguments& arguments) {
  const Builtin* test = FindTest(name);
  if (!test) return RenderError("No test named '{}'.", name);
  QUIRE_TRY(const Value passed, CallBuiltin(*this, *test, operand, arguments));
  return Truth(passed);
}

}  // namespace quire::text::jinja
