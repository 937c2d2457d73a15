// Expressions, one function per level of precedence, loosest first. Chains of one level are kept flat, so that only
// brackets and postfixes make a tree high.
#include <algorithm>
#include <span>
#include <utility>

#include "text/jinja/parser.h"

namespace quire::text::jinja {
namespace {

struct BinaryOperator {
  std::string_view symbol;
  Operator operation;
};
constexpr BinaryOperator kSumOperators[] = {{"+", Operator::kAdd}, {"-", Operator::kSubtract}};
constexpr BinaryOperator kProductOperators[] = {
    {"*", Operator::kMultiply}, {"/", Operator::kDivide}, {"//", Operator::kFloorDivide}, {"%", Operator::kModulo}};
constexpr BinaryOperator kPowerOperators[] = {{"**", Operator::kPower}};
constexpr BinaryOperator kComparisonOperators[] = {{"==", Operator::kEqual},  {"!=", Operator::kNotEqual},
                                                   {"<", Operator::kLess},    {"<=", Operator::kLessEqual},
                                                   {">", Operator::kGreater}, {">=", Operator::kGreaterEqual}};

const BinaryOperator* FindOperator(const Token& token, std::span<const BinaryOperator> operators) {
  const auto found = std::ranges::find_if(operators, [&](auto& o) { return token.IsOperator(o.symbol); });
  return found == operators.end() ? nullptr : &*found;
}

void Raise(const ExprPtr& child, Expr* node) {
  if (child) node->height = std::max(node->height, child->height + 1);
}

void Raise(const CallArguments& arguments, Expr* node) {
  for (const ExprPtr& argument : arguments.positional) Raise(argument, node);
  for (const auto& [name, argument] : arguments.keyword) Raise(argument, node);
  Raise(arguments.star, node);
  Raise(arguments.double_star, node);
}

void Append(Operator operation, ExprPtr operand, ChainExpr* chain) {
  Raise(operand, chain);
  chain->rest.emplace_back(operation, std::move(operand));
}

}  // namespace

Result<ExprPtr> Parser::Finish(ExprPtr node) const {
  if (node->height > kExpressionHeightMax) return SyntaxError(node->line, "the expression is nested too deeply");
  return node;
}

Result<ExprPtr> Parser::ParseExpression() {
  if (nesting_ >= kNestingMax) return SyntaxError(current().line, "the expression is nested too deeply");
  ++nesting_;
  auto expression = ParseConditional();
  --nesting_;
  return expression;
}

Result<ExprPtr> Parser::ParseConditional() {
  QUIRE_TRY(ExprPtr expression, ParseLogical(/*is_or=*/true));
  while (SkipName("if")) {
    auto node = std::make_unique<ConditionalExpr>(expression->line);
    node->then = std::move(expression);
    QUIRE_TRY(node->test, ParseLogical(/*is_or=*/true));
    if (SkipName("else")) {
      QUIRE_TRY(node->otherwise, ParseExpression());
    }
    Raise(node->test, node.get());
    Raise(node->then, node.get());
    Raise(node->otherwise, node.get());
    QUIRE_TRY(expression, Finish(std::move(node)));
  }
  return expression;
}

Result<ExprPtr> Parser::ParseTuple(TupleMode mode, std::string_view end_name, bool parenthesised) {
  const auto at_end = [&] {
    const Token& token = current();
    return token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd || token.IsOperator(")") ||
           (!end_name.empty() && token.IsName(end_name));
  };
  auto tuple = std::make_unique<SequenceExpr>(ExprKind::kTuple, current().line);
  bool has_comma = false;
  while (!at_end()) {
    ExprPtr item;
    switch (mode) {
      case TupleMode::kFull: {
        QUIRE_TRY(item, ParseExpression());
        break;
      }
      case TupleMode::kNoConditional: {
        QUIRE_TRY(item, ParseLogical(/*is_or=*/true));
        break;
      }
      case TupleMode::kPrimary: {
        QUIRE_TRY(item, ParsePrimary());
        break;
      }
    }
    Raise(item, tuple.get());
    tuple->items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
    has_comma = true;
  }
  if (!has_comma && !tuple->items.empty()) return std::move(tuple->items.front());
  if (!has_comma && !parenthesised) {
    return SyntaxError(current().line, "Expected an expression, got '{}'", Describe(current()));
  }
  return Finish(std::move(tuple));
}

Result<ExprPtr> Parser::ParseLogical(bool is_or) {
  const auto operand = [&] { return is_or ? ParseLogical(/*is_or=*/false) : ParseNot(); };
  const std::string_view word = is_or ? "or" : "and";
  QUIRE_TRY(ExprPtr first, operand());
  if (!current().IsName(word)) return first;
  auto node = std::make_unique<LogicalExpr>(first->line, is_or);
  Raise(first, node.get());
  node->items.push_back(std::move(first));
  while (SkipName(word)) {
    QUIRE_TRY(ExprPtr item, operand());
    Raise(item, node.get());
    node->items.push_back(std::move(item));
  }
  return Finish(std::move(node));
}

Result<ExprPtr> Parser::ParseNot() {
  // "not not not …" in a loop: each is a level of the tree, but not of this parser's stack.
  std::vector<int> lines;
  while (current().IsName("not")) lines.push_back(Take().line);
  QUIRE_TRY(ExprPtr expression, ParseComparison());
  for (; !lines.empty(); lines.pop_back()) {
    auto node = std::make_unique<UnaryExpr>(ExprKind::kNot, lines.back());
    Raise(expression, node.get());
    node->operand = std::move(expression);
    QUIRE_TRY(expression, Finish(std::move(node)));
  }
  return expression;
}

Result<ExprPtr> Parser::ParseComparison() {
  QUIRE_TRY(ExprPtr first, ParseArithmetic(Precedence::kSum));
  std::unique_ptr<ChainExpr> chain;
  while (true) {
    Operator operation = Operator::kIn;
    if (const BinaryOperator* comparison = FindOperator(current(), kComparisonOperators)) {
      operation = comparison->operation;
      Take();
    } else if (current().IsName("not") && next_token().IsName("in")) {
      operation = Operator::kNotIn;
      Take();
      Take();
    } else if (!SkipName("in")) {
      break;
    }
    if (!chain) {
      chain = std::make_unique<ChainExpr>(ExprKind::kComparison, first->line);
      Raise(first, chain.get());
      chain->first = std::move(first);
    }
    QUIRE_TRY(ExprPtr operand, ParseArithmetic(Precedence::kSum));
    Append(operation, std::move(operand), chain.get());
  }
  if (!chain) return first;
  return Finish(std::move(chain));
}

Result<ExprPtr> Parser::ParseOperand(Precedence level) {
  switch (level) {
    case Precedence::kSum:
      return ParseConcat();
    case Precedence::kProduct:
      return ParseArithmetic(Precedence::kPower);
    case Precedence::kPower:
      return ParseUnary(/*with_filters=*/true);
  }
  return ParseConcat();
}

namespace {
std::span<const BinaryOperator> OperatorsOf(Precedence level) {
  switch (level) {
    case Precedence::kSum:
      return kSumOperators;
    case Precedence::kProduct:
      return kProductOperators;
    case Precedence::kPower:
      return kPowerOperators;
  }
  return {};
}
}  // namespace

// The left-associative levels; ** is one of them in Jinja, unlike in Python.
Result<ExprPtr> Parser::ParseArithmetic(Precedence level) {
  const auto operators = OperatorsOf(level);
  QUIRE_TRY(ExprPtr first, ParseOperand(level));
  if (!FindOperator(current(), operators)) return first;
  auto chain = std::make_unique<ChainExpr>(ExprKind::kArithmetic, first->line);
  Raise(first, chain.get());
  chain->first = std::move(first);
  while (const BinaryOperator* found = FindOperator(current(), operators)) {
    Take();
    QUIRE_TRY(ExprPtr operand, ParseOperand(level));
    Append(found->operation, std::move(operand), chain.get());
  }
  return Finish(std::move(chain));
}

Result<ExprPtr> Parser::ParseConcat() {
  QUIRE_TRY(ExprPtr first, ParseArithmetic(Precedence::kProduct));
  if (!current().IsOperator("~")) return first;
  auto node = std::make_unique<SequenceExpr>(ExprKind::kConcat, first->line);
  Raise(first, node.get());
  node->items.push_back(std::move(first));
  while (SkipOperator("~")) {
    QUIRE_TRY(ExprPtr item, ParseArithmetic(Precedence::kProduct));
    Raise(item, node.get());
    node->items.push_back(std::move(item));
  }
  return Finish(std::move(node));
}

Result<ExprPtr> Parser::ParseUnary(bool with_filters) {
  ExprPtr node;
  if (current().IsOperator("-") || current().IsOperator("+")) {
    if (nesting_ >= kNestingMax) return SyntaxError(current().line, "the expression is nested too deeply");
    const Token sign = Take();
    auto unary = std::make_unique<UnaryExpr>(ExprKind::kSign, sign.line);
    unary->negative = sign.text == "-";
    ++nesting_;
    auto operand = ParseUnary(/*with_filters=*/false);
    --nesting_;
    QUIRE_TRY(unary->operand, std::move(operand));
    Raise(unary->operand, unary.get());
    QUIRE_TRY(node, Finish(std::move(unary)));
  } else {
    QUIRE_TRY(node, ParsePrimary());
  }
  QUIRE_TRY(node, ParsePostfix(std::move(node)));
  if (with_filters) {
    QUIRE_TRY(node, ParseFiltersAndTests(std::move(node)));
  }
  return node;
}

Result<ExprPtr> Parser::ParsePrimary() {
  const Token token = current();
  const auto constant = [&](Value value) { return std::make_unique<ConstantExpr>(token.line, std::move(value)); };
  switch (token.kind) {
    case TokenKind::kName:
      Take();
      if (token.text == "true" || token.text == "True") return constant(Value::Bool(true));
      if (token.text == "false" || token.text == "False") return constant(Value::Bool(false));
      if (token.text == "none" || token.text == "None") return constant(Value::None());
      return std::make_unique<NameExpr>(token.line, token.text);
    case TokenKind::kString: {
      std::string text;
      while (current().kind == TokenKind::kString) text += Take().text;  // adjacent literals are one
      return constant(Value::String(std::move(text)));
    }
    case TokenKind::kInteger:
      Take();
      return constant(Value::Integer(token.integer));
    case TokenKind::kFloat:
      Take();
      return constant(Value::Float(token.real));
    case TokenKind::kOperator: {
      if (nesting_ >= kNestingMax) return SyntaxError(token.line, "the expression is nested too deeply");
      if (token.text == "[") return ParseList();
      if (token.text == "{") return ParseDict();
      if (token.text != "(") break;
      Take();
      ++nesting_;
      auto tuple = ParseTuple(TupleMode::kFull, "", /*parenthesised=*/true);
      --nesting_;
      if (tuple) QUIRE_TRY_VOID(ExpectOperator(")"));
      return tuple;
    }
    case TokenKind::kData:
    case TokenKind::kVariableBegin:
    case TokenKind::kVariableEnd:
    case TokenKind::kBlockBegin:
    case TokenKind::kBlockEnd:
    case TokenKind::kEnd:
      break;
  }
  return SyntaxError(token.line, "unexpected '{}'", Describe(token));
}

Result<ExprPtr> Parser::ParseList() {
  auto list = std::make_unique<SequenceExpr>(ExprKind::kList, Take().line);
  while (!current().IsOperator("]")) {
    if (!list->items.empty()) QUIRE_TRY_VOID(ExpectOperator(","));
    if (current().IsOperator("]")) break;
    QUIRE_TRY(ExprPtr item, ParseExpression());
    Raise(item, list.get());
    list->items.push_back(std::move(item));
  }
  QUIRE_TRY_VOID(ExpectOperator("]"));
  return Finish(std::move(list));
}

Result<ExprPtr> Parser::ParseDict() {
  auto dict = std::make_unique<DictExpr>(Take().line);
  while (!current().IsOperator("}")) {
    if (!dict->entries.empty()) QUIRE_TRY_VOID(ExpectOperator(","));
    if (current().IsOperator("}")) break;
    QUIRE_TRY(ExprPtr key, ParseExpression());
    QUIRE_TRY_VOID(ExpectOperator(":"));
    QUIRE_TRY(ExprPtr value, ParseExpression());
    Raise(key, dict.get());
    Raise(value, dict.get());
    dict->entries.emplace_back(std::move(key), std::move(value));
  }
  QUIRE_TRY_VOID(ExpectOperator("}"));
  return Finish(std::move(dict));
}

Result<ExprPtr> Parser::ParsePostfix(ExprPtr operand) {
  while (true) {
    if (current().IsOperator(".") || current().IsOperator("[")) {
      QUIRE_TRY(operand, ParseSubscript(std::move(operand)));
    } else if (current().IsOperator("(")) {
      QUIRE_TRY(operand, ParseCall(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Result<ExprPtr> Parser::ParseFiltersAndTests(ExprPtr operand) {
  while (true) {
    if (current().IsOperator("|")) {
      Take();
      QUIRE_TRY(operand, ParseFilter(std::move(operand)));
    } else if (current().IsName("is")) {
      QUIRE_TRY(operand, ParseTest(std::move(operand)));
    } else if (current().IsOperator("(")) {
      QUIRE_TRY(operand, ParseCall(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Result<ExprPtr> Parser::ParseSubscript(ExprPtr operand) {
  const Token token = Take();
  if (token.text == ".") {
    const Token name = Take();
    if (name.kind == TokenKind::kName) {
      auto node = std::make_unique<AttributeExpr>(token.line);
      Raise(operand, node.get());
      node->object = std::move(operand);
      node->name = name.text;
      return Finish(std::move(node));
    }
    if (name.kind != TokenKind::kInteger) return SyntaxError(name.line, "expected name or number");
    auto node = std::make_unique<SubscriptExpr>(token.line);
    Raise(operand, node.get());
    node->object = std::move(operand);
    node->index = std::make_unique<ConstantExpr>(name.line, Value::Integer(name.integer));
    return Finish(std::move(node));
  }
  auto slice = std::make_unique<SliceExpr>(token.line);
  auto index = std::make_unique<SequenceExpr>(ExprKind::kTuple, token.line);
  bool is_slice = false;
  while (!current().IsOperator("]")) {
    if (!index->items.empty() || is_slice) QUIRE_TRY_VOID(ExpectOperator(","));
    if (is_slice) return SyntaxError(token.line, "a slice among several subscripts is not supported");
    QUIRE_TRY(is_slice, ParseSliceOrIndex(slice.get(), index.get()));
    if (is_slice && !index->items.empty()) {
      return SyntaxError(token.line, "a slice among several subscripts is not supported");
    }
  }
  Take();
  if (is_slice) {
    Raise(operand, slice.get());
    slice->object = std::move(operand);
    return Finish(std::move(slice));
  }
  auto node = std::make_unique<SubscriptExpr>(token.line);
  Raise(operand, node.get());
  node->object = std::move(operand);
  if (index->items.size() == 1) {
    node->index = std::move(index->items.front());
  } else {
    node->index = std::move(index);  // x[1, 2]: one subscript, a tuple
  }
  Raise(node->index, node.get());
  return Finish(std::move(node));
}

// One subscript: true when it is a slice, whose parts are then set; otherwise it is added to `index`.
Result<bool> Parser::ParseSliceOrIndex(SliceExpr* slice, SequenceExpr* index) {
  ExprPtr* const parts[] = {&slice->start, &slice->stop, &slice->step};
  for (std::size_t part = 0; part < 3; ++part) {
    const bool absent =
        current().IsOperator(":") || (part > 0 && (current().IsOperator("]") || current().IsOperator(",")));
    if (!absent) {
      QUIRE_TRY(*parts[part], ParseExpression());
      Raise(*parts[part], slice);
    }
    if (part == 0 && !current().IsOperator(":")) {
      Raise(slice->start, index);
      index->items.push_back(std::move(slice->start));
      return false;
    }
    if (part < 2 && !SkipOperator(":")) break;
  }
  return true;
}

Result<CallArguments> Parser::ParseArguments() {
  CallArguments arguments;
  const int line = Take().line;  // "("
  for (bool first = true; !current().IsOperator(")"); first = false) {
    if (!first) QUIRE_TRY_VOID(ExpectOperator(","));
    if (!first && current().IsOperator(")")) break;
    QUIRE_TRY_VOID(ParseArgument(&arguments, line));
  }
  Take();
  return arguments;
}

Result<> Parser::ParseArgument(CallArguments* arguments, int line) {
  const auto invalid = [&] { return SyntaxError(line, "invalid syntax for function call expression"); };
  if (arguments->double_star) return invalid();
  if (SkipOperator("**")) {
    QUIRE_TRY(arguments->double_star, ParseExpression());
  } else if (SkipOperator("*")) {
    if (arguments->star) return invalid();
    QUIRE_TRY(arguments->star, ParseExpression());
  } else if (current().kind == TokenKind::kName && next_token().IsOperator("=")) {
    const Token name = Take();
    Take();
    for (const auto& [other, value] : arguments->keyword) {
      if (other == name.text) return SyntaxError(name.line, "keyword argument repeated: {}", name.text);
    }
    QUIRE_TRY(ExprPtr value, ParseExpression());
    arguments->keyword.emplace_back(name.text, std::move(value));
  } else {
    if (arguments->star || !arguments->keyword.empty()) return invalid();
    QUIRE_TRY(ExprPtr value, ParseExpression());
    arguments->positional.push_back(std::move(value));
  }
  return {};
}

Result<ExprPtr> Parser::ParseCall(ExprPtr operand) {
  auto call = std::make_unique<CallExpr>(current().line);
  Raise(operand, call.get());
  call->function = std::move(operand);
  QUIRE_TRY(call->arguments, ParseArguments());
  Raise(call->arguments, call.get());
  return Finish(std::move(call));
}

Result<std::string> Parser::ParseDottedName() {
  QUIRE_TRY(std::string name, ExpectName());
  while (SkipOperator(".")) {
    QUIRE_TRY(const std::string part, ExpectName());
    name += "." + part;
  }
  return name;
}

// After the "|". `operand` is absent in {% filter %} and {% set x | … %}.
Result<ExprPtr> Parser::ParseFilter(ExprPtr operand) {
  auto filter = std::make_unique<FilterExpr>(ExprKind::kFilter, current().line);
  Raise(operand, filter.get());
  filter->operand = std::move(operand);
  QUIRE_TRY(filter->name, ParseDottedName());
  if (current().IsOperator("(")) {
    QUIRE_TRY(filter->arguments, ParseArguments());
  }
  Raise(filter->arguments, filter.get());
  return Finish(std::move(filter));
}

// name(…) | name(…)…, the first "|" already taken.
Result<ExprPtr> Parser::ParseFilterChain() {
  QUIRE_TRY(ExprPtr filter, ParseFilter(nullptr));
  while (SkipOperator("|")) {
    QUIRE_TRY(filter, ParseFilter(std::move(filter)));
  }
  return filter;
}

Result<ExprPtr> Parser::ParseTest(ExprPtr operand) {
  const int line = Take().line;  // "is"
  const bool negated = SkipName("not");
  auto test = std::make_unique<FilterExpr>(ExprKind::kTest, line);
  Raise(operand, test.get());
  test->operand = std::move(operand);
  QUIRE_TRY(test->name, ParseDottedName());
  const Token& token = current();
  const bool literal = token.kind == TokenKind::kName || token.kind == TokenKind::kString ||
                       token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat || token.IsOperator("[") ||
                       token.IsOperator("{");
  if (token.IsOperator("(")) {
    QUIRE_TRY(test->arguments, ParseArguments());
  } else if (token.IsName("is")) {
    return SyntaxError(token.line, "You cannot chain multiple tests with is");
  } else if (literal && !token.IsName("else") && !token.IsName("or") && !token.IsName("and")) {
    QUIRE_TRY(ExprPtr argument, ParsePrimary());
    QUIRE_TRY(argument, ParsePostfix(std::move(argument)));
    test->arguments.positional.push_back(std::move(argument));
  }
  Raise(test->arguments, test.get());
  if (!negated) return Finish(std::move(test));
  auto node = std::make_unique<UnaryExpr>(ExprKind::kNot, line);
  QUIRE_TRY(node->operand, Finish(std::move(test)));
  Raise(node->operand, node.get());
  return Finish(std::move(node));
}

}  // namespace quire::text::jinja
