#include "text/jinja/parser.h"

#include <algorithm>
#include <utility>

namespace quire::text::jinja {

namespace {

// Puts a value back when the parser leaves a scope.
class Restore {
 public:
  explicit Restore(int* variable) : variable_(variable), value_(*variable) {}
  ~Restore() { *variable_ = value_; }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  int* variable_;
  int value_;
};

std::string JoinTags(std::initializer_list<std::string_view> tags) {
  std::string text;
  for (const std::string_view tag : tags) text += fmt::format("{}'{}'", text.empty() ? "" : " or ", tag);
  return text;
}

}  // namespace

Result<TemplateTree> Parse(std::string_view source) {
  QUIRE_TRY(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).ParseTemplate();
}

Result<TemplateTree> Parser::ParseTemplate() {
  TemplateTree tree;
  QUIRE_TRY(tree.body, ParseBody({}, ""));
  return tree;
}

Token Parser::Take() {
  Token token = current();
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool Parser::SkipName(std::string_view name) {
  if (!current().IsName(name)) return false;
  Take();
  return true;
}

bool Parser::SkipOperator(std::string_view symbol) {
  if (!current().IsOperator(symbol)) return false;
  Take();
  return true;
}

Result<> Parser::Expect(TokenKind kind) {
  if (current().kind != kind) {
    return SyntaxError(current().line, "expected token '{}', got '{}'", Describe({.kind = kind}), Describe(current()));
  }
  Take();
  return {};
}

Result<> Parser::ExpectOperator(std::string_view symbol) {
  if (!SkipOperator(symbol)) {
    return SyntaxError(current().line, "expected token '{}', got '{}'", symbol, Describe(current()));
  }
  return {};
}

Result<std::string> Parser::ExpectName() {
  if (current().kind != TokenKind::kName) {
    return SyntaxError(current().line, "expected token 'name', got '{}'", Describe(current()));
  }
  return Take().text;
}

// Statements up to one of `end_tags`, whose name is then the current token; up to the end of the template when there
// are none.
Result<Body> Parser::ParseBody(EndTags end_tags, std::string_view tag) {
  const Restore restore(&nesting_);
  if (++nesting_ > kNestingMax) return SyntaxError(current().line, "tags are nested too deeply");
  Body body;
  std::unique_ptr<OutputStatement> output;
  const auto flush = [&] {
    if (output) body.push_back(std::move(output));
  };
  while (current().kind != TokenKind::kEnd) {
    const Token token = Take();
    if (token.kind == TokenKind::kBlockBegin) {
      flush();
      const bool is_end = std::ranges::any_of(end_tags, [&](auto name) { return current().IsName(name); });
      if (is_end) return body;
      QUIRE_TRY(StatementPtr statement, ParseStatement());
      body.push_back(std::move(statement));
      QUIRE_TRY_VOID(Expect(TokenKind::kBlockEnd));
      continue;
    }
    if (!output) output = std::make_unique<OutputStatement>(token.line);
    if (token.kind == TokenKind::kData) {
      output->parts.push_back(std::make_unique<ConstantExpr>(token.line, Value::String(token.text)));
    } else {
      CHECK(token.kind == TokenKind::kVariableBegin);  // the lexer puts nothing else between tags
      QUIRE_TRY(ExprPtr expression, ParseTuple(TupleMode::kFull));
      output->parts.push_back(std::move(expression));
      QUIRE_TRY_VOID(Expect(TokenKind::kVariableEnd));
    }
  }
  flush();
  if (end_tags.size() > 0) {
    return SyntaxError(current().line,
                       "Unexpected end of template. Jinja was looking for the following tags: {}. The innermost "
                       "block that needs to be closed is '{}'.",
                       JoinTags(end_tags), tag);
  }
  return body;
}

// The same, after the head of a tag: its end first.
Result<Body> Parser::ParseBlock(EndTags end_tags, std::string_view tag) {
  SkipOperator(":");
  QUIRE_TRY_VOID(Expect(TokenKind::kBlockEnd));
  return ParseBody(end_tags, tag);
}

Result<StatementPtr> Parser::ParseStatement() {
  const Token token = current();
  if (token.kind != TokenKind::kName) return SyntaxError(token.line, "tag name expected");
  Take();
  return ParseKnownStatement(token.text, token.line);
}

Result<StatementPtr> Parser::ParseKnownStatement(const std::string& tag, int line) {
  if (tag == "if") return ParseIf(line);
  if (tag == "for") return ParseFor(line);
  if (tag == "set") return ParseSet(line);
  if (tag == "macro") return ParseMacro(line);
  if (tag == "call") return ParseCallBlock(line);
  if (tag == "generation") return ParseGeneration(line);
  if (tag == "filter") return ParseFilterBlock(line);
  if (tag == "with") return ParseWith(line);
  if (tag == "print") return ParsePrint(line);
  if (tag == "break") return ParseLoopControl(StatementKind::kBreak, line);
  if (tag == "continue") return ParseLoopControl(StatementKind::kContinue, line);
  for (const std::string_view refused : {"include", "import", "from", "extends", "block", "autoescape"}) {
    if (tag == refused) {
      return SyntaxError(line, "the tag '{}' is not supported: a chat template is one file without inheritance", tag);
    }
  }
  return SyntaxError(line, "Encountered unknown tag '{}'.", tag);
}

Result<StatementPtr> Parser::ParseIf(int line) {
  auto statement = std::make_unique<IfStatement>(line);
  while (true) {
    IfStatement::Branch& branch = statement->branches.emplace_back();
    QUIRE_TRY(branch.test, ParseTuple(TupleMode::kNoConditional));
    QUIRE_TRY(branch.body, ParseBlock({"elif", "else", "endif"}, "if"));
    const std::string end = Take().text;
    if (end == "elif") continue;
    if (end == "else") {
      QUIRE_TRY(statement->otherwise, ParseBlock({"endif"}, "if"));
      Take();
    }
    return statement;
  }
}

Result<StatementPtr> Parser::ParseFor(int line) {
  auto statement = std::make_unique<ForStatement>(line);
  {
    QUIRE_TRY(const ExprPtr target, ParseTuple(TupleMode::kPrimary, "in"));
    QUIRE_TRY(statement->target, ToTarget(*target));
  }
  if (!SkipName("in")) return SyntaxError(current().line, "expected token 'in', got '{}'", Describe(current()));
  QUIRE_TRY(statement->iterable, ParseTuple(TupleMode::kNoConditional, "recursive"));
  if (SkipName("if")) {
    QUIRE_TRY(statement->test, ParseExpression());
  }
  statement->recursive = SkipName("recursive");
  const Restore restore(&loop_depth_);
  ++loop_depth_;
  QUIRE_TRY(statement->body, ParseBlock({"endfor", "else"}, "for"));
  --loop_depth_;
  if (Take().text == "else") {
    // In a recursive loop the else belongs to the loop's own function, where no outer loop can be left.
    if (statement->recursive) loop_depth_ = 0;
    QUIRE_TRY(statement->otherwise, ParseBlock({"endfor"}, "for"));
    Take();
  }
  return statement;
}

Result<StatementPtr> Parser::ParseSet(int line) {
  QUIRE_TRY(Target target, ParseTarget(/*allow_attribute=*/true));
  if (SkipOperator("=")) {
    auto statement = std::make_unique<SetStatement>(line);
    statement->target = std::move(target);
    QUIRE_TRY(statement->value, ParseTuple(TupleMode::kFull));
    return statement;
  }
  auto statement = std::make_unique<SetBlockStatement>(line);
  statement->target = std::move(target);
  if (SkipOperator("|")) {
    QUIRE_TRY(statement->filter, ParseFilterChain());
  }
  QUIRE_TRY(statement->body, ParseBlock({"endset"}, "set"));
  Take();
  return statement;
}

Result<StatementPtr> Parser::ParseMacro(int line) {
  auto statement = std::make_unique<MacroStatement>(line);
  statement->function.line = line;
  QUIRE_TRY(statement->function.name, ExpectName());
  QUIRE_TRY_VOID(ParseParameters(&statement->function));
  QUIRE_TRY_VOID(ParseFunctionBody("macro", "endmacro", &statement->function));
  return statement;
}

Result<StatementPtr> Parser::ParseCallBlock(int line) {
  auto statement = std::make_unique<CallBlockStatement>(line);
  statement->function.line = line;
  if (current().IsOperator("(")) QUIRE_TRY_VOID(ParseParameters(&statement->function));
  QUIRE_TRY(statement->call, ParseExpression());
  if (statement->call->kind != ExprKind::kCall) return SyntaxError(line, "expected call");
  QUIRE_TRY_VOID(ParseFunctionBody("call", "endcall", &statement->function));
  return statement;
}

Result<StatementPtr> Parser::ParseGeneration(int line) {
  auto statement = std::make_unique<CallBlockStatement>(line);
  statement->function.line = line;
  QUIRE_TRY_VOID(ParseFunctionBody("generation", "endgeneration", &statement->function));
  return statement;
}

Result<> Parser::ParseParameters(Function* function) {
  QUIRE_TRY_VOID(ExpectOperator("("));
  while (!current().IsOperator(")")) {
    if (!function->parameters.empty()) QUIRE_TRY_VOID(ExpectOperator(","));
    Function::Parameter parameter;
    const int line = current().line;
    QUIRE_TRY(parameter.name, ExpectName());
    const bool repeated = std::ranges::any_of(function->parameters, [&](auto& p) { return p.name == parameter.name; });
    if (repeated) return SyntaxError(line, "duplicate argument '{}'", parameter.name);
    if (SkipOperator("=")) {
      QUIRE_TRY(parameter.default_value, ParseExpression());
    } else if (!function->parameters.empty() && function->parameters.back().default_value) {
      return SyntaxError(line, "non-default argument follows default argument");
    }
    function->parameters.push_back(std::move(parameter));
  }
  return ExpectOperator(")");
}

Result<> Parser::ParseFunctionBody(std::string_view tag, std::string_view end_tag, Function* function) {
  const Restore restore(&loop_depth_);
  loop_depth_ = 0;
  QUIRE_TRY(function->body, ParseBlock({end_tag}, tag));
  Take();
  return {};
}

Result<StatementPtr> Parser::ParseFilterBlock(int line) {
  auto statement = std::make_unique<FilterBlockStatement>(line);
  QUIRE_TRY(statement->filter, ParseFilterChain());
  QUIRE_TRY(statement->body, ParseBlock({"endfilter"}, "filter"));
  Take();
  return statement;
}

Result<StatementPtr> Parser::ParseWith(int line) {
  auto statement = std::make_unique<WithStatement>(line);
  while (current().kind != TokenKind::kBlockEnd) {
    if (!statement->assignments.empty()) QUIRE_TRY_VOID(ExpectOperator(","));
    QUIRE_TRY(Target target, ParseTarget(/*allow_attribute=*/false));
    QUIRE_TRY_VOID(ExpectOperator("="));
    QUIRE_TRY(ExprPtr value, ParseExpression());
    statement->assignments.emplace_back(std::move(target), std::move(value));
  }
  QUIRE_TRY(statement->body, ParseBlock({"endwith"}, "with"));
  Take();
  return statement;
}

Result<StatementPtr> Parser::ParsePrint(int line) {
  auto statement = std::make_unique<OutputStatement>(line);
  while (current().kind != TokenKind::kBlockEnd) {
    if (!statement->parts.empty()) QUIRE_TRY_VOID(ExpectOperator(","));
    QUIRE_TRY(ExprPtr part, ParseExpression());
    statement->parts.push_back(std::move(part));
  }
  return statement;
}

Result<StatementPtr> Parser::ParseLoopControl(StatementKind kind, int line) {
  if (loop_depth_ == 0) {
    return SyntaxError(line, "'{}' outside loop", kind == StatementKind::kBreak ? "break" : "continue");
  }
  return std::make_unique<LoopControlStatement>(kind, line);
}

Result<Target> Parser::ParseTarget(bool allow_attribute) {
  if (allow_attribute && next_token().IsOperator(".")) {
    Target target{.line = current().line};
    QUIRE_TRY(target.name, ExpectName());
    Take();
    QUIRE_TRY(target.attribute, ExpectName());
    return target;
  }
  QUIRE_TRY(const ExprPtr expression, ParseTuple(TupleMode::kPrimary));
  return ToTarget(*expression);
}

Result<Target> Parser::ToTarget(const Expr& expression) const {
  Target target{.line = expression.line};
  if (expression.kind == ExprKind::kName) {
    target.name = static_cast<const NameExpr&>(expression).name;
    return target;
  }
  if (expression.kind != ExprKind::kTuple) return SyntaxError(expression.line, "can't assign to this expression");
  target.is_tuple = true;
  for (const ExprPtr& item : static_cast<const SequenceExpr&>(expression).items) {
    QUIRE_TRY(Target part, ToTarget(*item));
    target.items.push_back(std::move(part));
  }
  return target;
}

}  // namespace quire::text::jinja
