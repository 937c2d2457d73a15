// What follows an operand: attributes, subscripts, calls, filters and tests.
#include <algorithm>
#include <utility>

#include "text/jinja/parser.h"
#include "text/jinja/visit.h"

namespace quire::text::jinja {
namespace {

void Raise(const CallArguments& arguments, Expr* node) {
  VisitArguments(arguments, [&](const Expr& argument) { node->height = std::max(node->height, argument.height + 1); });
}

}  // namespace

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
