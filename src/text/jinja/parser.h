// Tokens → syntax tree, by jinja2's grammar. Statements are in parser.cc, expressions in parser_expressions.cc.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace quire::text::jinja {

// Names are not resolved yet (resolver.h). Errors say the line.
Result<TemplateTree> Parse(std::string_view source);

// Levels of arithmetic, loosest first.
enum class Precedence { kSum, kProduct, kPower };

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Result<TemplateTree> ParseTemplate();

 private:
  using EndTags = std::initializer_list<std::string_view>;

  // -- tokens
  const Token& current() const { return tokens_[position_]; }
  const Token& next_token() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  Token Take();
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view symbol);
  Result<> Expect(TokenKind kind);
  Result<> ExpectOperator(std::string_view symbol);
  Result<std::string> ExpectName();

  // -- statements
  Result<Body> ParseBody(EndTags end_tags, std::string_view tag);
  Result<Body> ParseBlock(EndTags end_tags, std::string_view tag);
  Result<StatementPtr> ParseStatement();
  Result<StatementPtr> ParseKnownStatement(const std::string& tag, int line);
  Result<StatementPtr> ParseIf(int line);
  Result<StatementPtr> ParseFor(int line);
  Result<StatementPtr> ParseSet(int line);
  Result<StatementPtr> ParseMacro(int line);
  Result<StatementPtr> ParseCallBlock(int line);
  Result<StatementPtr> ParseGeneration(int line);
  Result<StatementPtr> ParseFilterBlock(int line);
  Result<StatementPtr> ParseWith(int line);
  Result<StatementPtr> ParsePrint(int line);
  Result<StatementPtr> ParseLoopControl(StatementKind kind, int line);
  Result<> ParseParameters(Function* function);
  Result<> ParseFunctionBody(std::string_view tag, std::string_view end_tag, Function* function);
  Result<Target> ParseTarget(bool allow_attribute);
  Result<Target> ToTarget(const Expr& expression) const;

  // -- expressions
  Result<ExprPtr> ParseExpression();
  enum class TupleMode { kFull, kNoConditional, kPrimary };
  // Expressions separated by commas; `end_name` ends the list ("in", "recursive"), `parenthesised` allows an empty one.
  Result<ExprPtr> ParseTuple(TupleMode mode, std::string_view end_name = "", bool parenthesised = false);
  Result<ExprPtr> ParseConditional();
  Result<ExprPtr> ParseLogical(bool is_or);
  Result<ExprPtr> ParseNot();
  Result<ExprPtr> ParseComparison();
  Result<ExprPtr> ParseArithmetic(Precedence level);
  Result<ExprPtr> ParseOperand(Precedence level);
  Result<ExprPtr> ParseConcat();  // a ~ b binds tighter than a sum, looser than a product
  Result<ExprPtr> ParseUnary(bool with_filters);
  Result<ExprPtr> ParsePrimary();
  Result<ExprPtr> ParseList();
  Result<ExprPtr> ParseDict();
  Result<ExprPtr> ParsePostfix(ExprPtr operand);
  Result<ExprPtr> ParseFiltersAndTests(ExprPtr operand);
  Result<ExprPtr> ParseSubscript(ExprPtr operand);
  Result<ExprPtr> ParseCall(ExprPtr operand);
  Result<ExprPtr> ParseFilter(ExprPtr operand);
  Result<ExprPtr> ParseFilterChain();
  Result<ExprPtr> ParseTest(ExprPtr operand);
  Result<bool> ParseSliceOrIndex(SliceExpr* slice, SequenceExpr* index);
  Result<CallArguments> ParseArguments();
  Result<> ParseArgument(CallArguments* arguments, int line);
  Result<std::string> ParseDottedName();

  // Refuses a tree that is too high.
  Result<ExprPtr> Finish(ExprPtr node) const;

  static constexpr int kExpressionHeightMax = 200;
  static constexpr int kNestingMax = 150;

  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  int nesting_ = 0;     // of tags and of expressions: bounds the recursion of the parser itself
  int loop_depth_ = 0;  // loops around, within the function: whether break is allowed
};

}  // namespace quire::text::jinja
