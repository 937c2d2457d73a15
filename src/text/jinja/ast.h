// The syntax tree of a template. Built by the parser, completed by the resolver (which variable a name means), then
// never changed: one tree is shared by all renderings.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace quire::text::jinja {

// A variable: `depth` functions (macro, call block, recursive loop) further out, slot `slot` of that function's frame.
struct VariableRef {
  int depth = 0;
  int slot = -1;
};

// What a scope does when it is entered, for each of its variables that is not a parameter.
struct ScopeLoad {
  enum class Source { kMissing, kOuter, kContext };
  int slot = 0;
  Source source = Source::kMissing;
  VariableRef outer = {};    // kOuter: starts with the value of the same name further out
  std::string context_name;  // kContext: starts with what the caller passed under this name
};
using ScopeLoads = std::vector<ScopeLoad>;

enum class ExprKind {
  kConstant,
  kName,
  kTuple,
  kList,
  kDict,
  kConditional,
  kLogical,
  kNot,
  kComparison,
  kArithmetic,
  kConcat,
  kSign,
  kAttribute,
  kSubscript,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

struct Expr {
  Expr(ExprKind k, int l) : kind(k), line(l) {}
  virtual ~Expr() = default;
  ExprKind kind;
  int line;
  int height = 1;  // 1 + the highest child: the parser bounds it, and with it every recursion over trees
};
using ExprPtr = std::unique_ptr<Expr>;

// A new child, which may be absent, makes `node` higher.
inline void Raise(const ExprPtr& child, Expr* node) {
  if (child && child->height >= node->height) node->height = child->height + 1;
}

struct ConstantExpr final : Expr {
  ConstantExpr(int l, Value v) : Expr(ExprKind::kConstant, l), value(std::move(v)) {}
  Value value;
};

struct NameExpr final : Expr {
  NameExpr(int l, std::string n) : Expr(ExprKind::kName, l), name(std::move(n)) {}
  std::string name;
  VariableRef variable;
};

struct SequenceExpr final : Expr {  // kTuple, kList, kConcat
  using Expr::Expr;
  std::vector<ExprPtr> items;
};

struct DictExpr final : Expr {
  explicit DictExpr(int l) : Expr(ExprKind::kDict, l) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};

struct ConditionalExpr final : Expr {
  explicit ConditionalExpr(int l) : Expr(ExprKind::kConditional, l) {}
  ExprPtr test, then, otherwise;  // `otherwise` may be absent: undefined
};

struct LogicalExpr final : Expr {  // a or b or c; a and b and c
  LogicalExpr(int l, bool o) : Expr(ExprKind::kLogical, l), is_or(o) {}
  bool is_or;
  std::vector<ExprPtr> items;
};

enum class Operator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

// kArithmetic: first op second op third…, one level of precedence, from the left; a chain instead of a left-deep tree,
// so that long sums cost no depth. kComparison: a < b < c, as Python chains it.
struct ChainExpr final : Expr {
  using Expr::Expr;
  ExprPtr first;
  std::vector<std::pair<Operator, ExprPtr>> rest;
};

struct UnaryExpr final : Expr {  // kNot, kSign
  using Expr::Expr;
  bool negative = false;  // kSign
  ExprPtr operand;
};

struct AttributeExpr final : Expr {
  explicit AttributeExpr(int l) : Expr(ExprKind::kAttribute, l) {}
  ExprPtr object;
  std::string name;
};

struct SubscriptExpr final : Expr {
  explicit SubscriptExpr(int l) : Expr(ExprKind::kSubscript, l) {}
  ExprPtr object, index;
};

struct SliceExpr final : Expr {  // object[start:stop:step]
  explicit SliceExpr(int l) : Expr(ExprKind::kSlice, l) {}
  ExprPtr object, start, stop, step;  // the last three may be absent
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star, double_star;  // may be absent
};

struct CallExpr final : Expr {
  explicit CallExpr(int l) : Expr(ExprKind::kCall, l) {}
  ExprPtr function;
  CallArguments arguments;
};

struct FilterExpr final : Expr {  // kFilter, kTest
  using Expr::Expr;
  ExprPtr operand;  // absent in {% filter %}: the block's text
  std::string name;
  CallArguments arguments;
};

enum class StatementKind {
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kBreak,
  kContinue,
};

struct Statement {
  Statement(StatementKind k, int l) : kind(k), line(l) {}
  virtual ~Statement() = default;
  StatementKind kind;
  int line;
};
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

struct OutputStatement final : Statement {
  explicit OutputStatement(int l) : Statement(StatementKind::kOutput, l) {}
  std::vector<ExprPtr> parts;  // template text is a constant
};

struct IfStatement final : Statement {
  explicit IfStatement(int l) : Statement(StatementKind::kIf, l) {}
  struct Branch {
    ExprPtr test;
    Body body;
  };
  std::vector<Branch> branches;  // if, elif, elif…
  Body otherwise;
};

// What is assigned to: a name, a tuple of targets, or an attribute of a namespace.
struct Target {
  int line = 0;
  std::string name;
  std::string attribute;      // not empty: namespace attribute
  std::vector<Target> items;  // a tuple when `is_tuple`
  bool is_tuple = false;
  VariableRef variable;
};

struct ForStatement final : Statement {
  explicit ForStatement(int l) : Statement(StatementKind::kFor, l) {}
  Target target;
  ExprPtr iterable;
  ExprPtr test;  // may be absent
  bool recursive = false;
  Body body, otherwise;
  // By the resolver:
  ScopeLoads body_loads, test_loads, otherwise_loads;
  VariableRef loop;    // the body's `loop`
  Target test_target;  // the target again, in the scope of `test`
  int num_slots = 0;   // of the function that a recursive loop is
};

struct SetStatement final : Statement {
  explicit SetStatement(int l) : Statement(StatementKind::kSet, l) {}
  Target target;
  ExprPtr value;
};

struct SetBlockStatement final : Statement {
  explicit SetBlockStatement(int l) : Statement(StatementKind::kSetBlock, l) {}
  Target target;
  ExprPtr filter;  // a chain of filters over the block's text, or absent
  Body body;
  ScopeLoads loads;
};

// The function that a macro or the body of a call block is.
struct Function {
  std::string name;  // empty: a call block
  int line = 0;
  struct Parameter {
    std::string name;
    ExprPtr default_value;  // may be absent
    int slot = -1;
  };
  std::vector<Parameter> parameters;
  Body body;
  // By the resolver. Slots of the special names are -1 when the body does not use them.
  ScopeLoads loads;
  int num_slots = 0;
  int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;
};

struct MacroStatement final : Statement {
  explicit MacroStatement(int l) : Statement(StatementKind::kMacro, l) {}
  Function function;
  VariableRef variable;
};

// {% call f() %}…{% endcall %}; without `call`, {% generation %}…{% endgeneration %}, which only renders its body.
struct CallBlockStatement final : Statement {
  explicit CallBlockStatement(int l) : Statement(StatementKind::kCallBlock, l) {}
  Function function;
  ExprPtr call;  // a CallExpr
};

struct FilterBlockStatement final : Statement {
  explicit FilterBlockStatement(int l) : Statement(StatementKind::kFilterBlock, l) {}
  ExprPtr filter;
  Body body;
  ScopeLoads loads;
};

struct WithStatement final : Statement {
  explicit WithStatement(int l) : Statement(StatementKind::kWith, l) {}
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Body body;
  ScopeLoads loads;
};

struct LoopControlStatement final : Statement {  // kBreak, kContinue
  using Statement::Statement;
};

struct TemplateTree {
  Body body;
  ScopeLoads loads;
  int num_slots = 0;
};

}  // namespace quire::text::jinja
