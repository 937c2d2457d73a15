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

}  // namespace quire::text::jinja
