#include "text/jinja/resolver.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "text/jinja/builtins.h"
#include "text/jinja/lexer.h"
#include "text/jinja/visit.h"

namespace quire::text::jinja {
namespace {

struct FunctionContext {
  int depth = 0;  // functions around it
  int num_slots = 0;
};

// A variable of a scope: its slot, and the depth of the function that holds it.
struct Variable {
  int function_depth = 0;
  int slot = 0;
};

struct Load {
  enum class Kind { kParameter, kMissing, kOuter, kContext };
  Kind kind = Kind::kMissing;
  Variable outer = {};
};

// The names of one scope. The branches of an if work on copies, which are merged afterwards.
class Scope {
 public:
  Scope(const Scope* parent, FunctionContext* function) : parent_(parent), function_(function) {}

  FunctionContext* function() const { return function_; }

  std::optional<Variable> Find(const std::string& name) const {
    if (const auto found = names_.find(name); found != names_.end()) return slots_->at(found->first);
    return parent_ ? parent_->Find(name) : std::nullopt;
  }

  Variable Declare(const std::string& name) {
    stores_.insert(name);
    return Define(name, {.kind = Load::Kind::kParameter});
  }

  void Store(const std::string& name) {
    stores_.insert(name);
    if (names_.contains(name)) return;
    const auto outer = parent_ ? parent_->Find(name) : std::nullopt;
    Define(name, outer ? Load{.kind = Load::Kind::kOuter, .outer = *outer} : Load{.kind = Load::Kind::kMissing});
  }

  void Use(const std::string& name) {
    if (!Find(name)) Define(name, {.kind = Load::Kind::kContext});
  }

  // After an if: what some branch stores, but not every branch (if, elif and else count, absent ones too), keeps
  // its value from outside when it is not stored.
  void Merge(const std::vector<Scope>& branches) {
    std::map<std::string, std::size_t> stored_in;
    for (const Scope& branch : branches) {
      for (const std::string& name : branch.stores_) stored_in[name] += !stores_.contains(name);
    }
    for (const Scope& branch : branches) {
      for (const auto& [name, load] : branch.names_) names_[name] = load;
      stores_.insert(branch.stores_.begin(), branch.stores_.end());
    }
    for (const auto& [name, count] : stored_in) {
      if (count == 0 || count == branches.size()) continue;
      const auto outer = parent_ ? parent_->Find(name) : std::nullopt;
      names_[name] = outer ? Load{.kind = Load::Kind::kOuter, .outer = *outer} : Load{.kind = Load::Kind::kContext};
    }
  }

  VariableRef Reference(const Variable& variable) const {
    return {.depth = function_->depth - variable.function_depth, .slot = variable.slot};
  }

  ScopeLoads Loads() const {
    ScopeLoads loads;
    for (const auto& [name, load] : names_) {
      ScopeLoad out{.slot = slots_->at(name).slot};
      switch (load.kind) {
        case Load::Kind::kParameter:
          continue;
        case Load::Kind::kMissing:
          break;
        case Load::Kind::kOuter:
          out.source = ScopeLoad::Source::kOuter;
          out.outer = Reference(load.outer);
          break;
        case Load::Kind::kContext:
          out.source = ScopeLoad::Source::kContext;
          out.context_name = name;
          break;
      }
      loads.push_back(std::move(out));
    }
    return loads;
  }

 private:
  // One name is one variable in all copies of the scope.
  Variable Define(const std::string& name, Load load) {
    names_[name] = load;
    const auto [slot, is_new] = slots_->try_emplace(name, Variable{function_->depth, function_->num_slots});
    if (is_new) ++function_->num_slots;
    return slot->second;
  }

  const Scope* parent_;
  FunctionContext* function_;
  std::map<std::string, Load> names_;
  std::set<std::string> stores_;
  // Shared by the copies that the branches of an if work on.
  std::shared_ptr<std::map<std::string, Variable>> slots_ = std::make_shared<std::map<std::string, Variable>>();
};

// -- First pass over a scope: which names it uses and stores, in textual order, without going into inner scopes.

void Collect(const Expr& node, Scope* scope) {
  if (node.kind == ExprKind::kName) scope->Use(static_cast<const NameExpr&>(node).name);
  VisitChildren(node, [&](const Expr& child) { Collect(child, scope); });
}

void CollectTarget(const Target& target, bool as_parameter, Scope* scope) {
  if (target.is_tuple) {
    for (const Target& item : target.items) CollectTarget(item, as_parameter, scope);
  } else if (!target.attribute.empty()) {
    scope->Use(target.name);
  } else if (as_parameter) {
    scope->Declare(target.name);
  } else {
    scope->Store(target.name);
  }
}

void CollectBody(const Body& body, Scope* scope);

void CollectIf(const IfStatement& statement, Scope* scope) {
  Collect(*statement.branches.front().test, scope);
  std::vector<Scope> branches(3, *scope);
  CollectBody(statement.branches.front().body, &branches[0]);
  // Each elif is an if of its own without further branches, all in one copy.
  for (std::size_t i = 1; i < statement.branches.size(); ++i) {
    Collect(*statement.branches[i].test, &branches[1]);
    std::vector<Scope> inner(3, branches[1]);
    CollectBody(statement.branches[i].body, &inner[0]);
    branches[1].Merge(inner);
  }
  CollectBody(statement.otherwise, &branches[2]);
  scope->Merge(branches);
}

void CollectStatement(const Statement& node, Scope* scope) {
  switch (node.kind) {
    case StatementKind::kOutput:
      for (const ExprPtr& part : static_cast<const OutputStatement&>(node).parts) Collect(*part, scope);
      return;
    case StatementKind::kIf:
      return CollectIf(static_cast<const IfStatement&>(node), scope);
    case StatementKind::kFor:
      return Collect(*static_cast<const ForStatement&>(node).iterable, scope);
    case StatementKind::kSet: {
      const auto& set = static_cast<const SetStatement&>(node);
      Collect(*set.value, scope);
      CollectTarget(set.target, /*as_parameter=*/false, scope);
      return;
    }
    case StatementKind::kSetBlock:
      return CollectTarget(static_cast<const SetBlockStatement&>(node).target, /*as_parameter=*/false, scope);
    case StatementKind::kMacro:
      return scope->Store(static_cast<const MacroStatement&>(node).function.name);
    case StatementKind::kCallBlock:
      if (const auto& call = static_cast<const CallBlockStatement&>(node).call) Collect(*call, scope);
      return;
    case StatementKind::kFilterBlock:
      return Collect(*static_cast<const FilterBlockStatement&>(node).filter, scope);
    case StatementKind::kWith:
      for (const auto& [target, value] : static_cast<const WithStatement&>(node).assignments) Collect(*value, scope);
      return;
    case StatementKind::kBreak:
    case StatementKind::kContinue:
      return;
  }
}

void CollectBody(const Body& body, Scope* scope) {
  for (const StatementPtr& statement : body) CollectStatement(*statement, scope);
}

// -- Whether a body mentions a name anywhere, inner scopes included.

bool Mentions(const Expr& node, std::string_view name) {
  if (node.kind == ExprKind::kName) return static_cast<const NameExpr&>(node).name == name;
  bool found = false;
  VisitChildren(node, [&](const Expr& child) { found = found || Mentions(child, name); });
  return found;
}

bool Mentions(const Body& body, std::string_view name);

bool Mentions(const Function& function, std::string_view name) {
  const auto in_default = [&](const auto& p) { return p.default_value && Mentions(*p.default_value, name); };
  return std::ranges::any_of(function.parameters, in_default) || Mentions(function.body, name);
}

bool Mentions(const Statement& node, std::string_view name) {
  const auto in = [&](const ExprPtr& expression) { return expression && Mentions(*expression, name); };
  switch (node.kind) {
    case StatementKind::kOutput:
      return std::ranges::any_of(static_cast<const OutputStatement&>(node).parts, in);
    case StatementKind::kIf: {
      const auto& statement = static_cast<const IfStatement&>(node);
      return std::ranges::any_of(statement.branches, [&](auto& b) { return in(b.test) || Mentions(b.body, name); }) ||
             Mentions(statement.otherwise, name);
    }
    case StatementKind::kFor: {
      const auto& loop = static_cast<const ForStatement&>(node);
      return in(loop.iterable) || in(loop.test) || Mentions(loop.body, name) || Mentions(loop.otherwise, name);
    }
    case StatementKind::kSet:
      return in(static_cast<const SetStatement&>(node).value);
    case StatementKind::kSetBlock: {
      const auto& block = static_cast<const SetBlockStatement&>(node);
      return in(block.filter) || Mentions(block.body, name);
    }
    case StatementKind::kMacro:
      return Mentions(static_cast<const MacroStatement&>(node).function, name);
    case StatementKind::kCallBlock: {
      const auto& block = static_cast<const CallBlockStatement&>(node);
      return in(block.call) || Mentions(block.function, name);
    }
    case StatementKind::kFilterBlock: {
      const auto& block = static_cast<const FilterBlockStatement&>(node);
      return in(block.filter) || Mentions(block.body, name);
    }
    case StatementKind::kWith: {
      const auto& with = static_cast<const WithStatement&>(node);
      return std::ranges::any_of(with.assignments, [&](auto& a) { return in(a.second); }) || Mentions(with.body, name);
    }
    case StatementKind::kBreak:
    case StatementKind::kContinue:
      return false;
  }
  return false;
}

bool Mentions(const Body& body, std::string_view name) {
  return std::ranges::any_of(body, [&](const StatementPtr& statement) { return Mentions(*statement, name); });
}

// -- Second pass: writes the variables into the tree, and goes into the inner scopes.

class Binder {
 public:
  // `in_condition`: inside an if of this scope, or a conditional expression.
  Result<> BindExpr(Expr& node, const Scope& scope, bool in_condition) {
    if (node.kind == ExprKind::kName) {
      auto& name = static_cast<NameExpr&>(node);
      name.variable = Lookup(name.name, scope);
    } else if (node.kind == ExprKind::kFilter || node.kind == ExprKind::kTest) {
      QUIRE_TRY_VOID(CheckKnown(static_cast<const FilterExpr&>(node), in_condition));
    } else if (node.kind == ExprKind::kConditional) {
      in_condition = true;
    }
    Result<> outcome;
    VisitChildren(node, [&](const Expr& child) {
      if (outcome) outcome = BindExpr(const_cast<Expr&>(child), scope, in_condition);
    });
    return outcome;
  }

  Result<> BindBody(Body& body, const Scope& scope, bool in_condition) {
    for (const StatementPtr& statement : body) QUIRE_TRY_VOID(BindStatement(*statement, scope, in_condition));
    return {};
  }

 private:
  static VariableRef Lookup(const std::string& name, const Scope& scope) {
    const auto variable = scope.Find(name);
    CHECK(variable.has_value());  // the first pass has seen every name of the scope
    return scope.Reference(*variable);
  }

  static Result<> CheckKnown(const FilterExpr& node, bool in_condition) {
    const bool is_filter = node.kind == ExprKind::kFilter;
    if (in_condition || (is_filter ? FindFilter(node.name) != nullptr : FindTest(node.name) != nullptr)) return {};
    return SyntaxError(node.line, "No {} named '{}'.", is_filter ? "filter" : "test", node.name);
  }

  static void BindTarget(Target* target, const Scope& scope) {
    if (target->is_tuple) {
      for (Target& item : target->items) BindTarget(&item, scope);
    } else {
      target->variable = Lookup(target->name, scope);
    }
  }

  static Result<> RefuseLoopTarget(const Target& target) {
    if (!target.is_tuple && target.attribute.empty() && target.name == "loop") {
      return SyntaxError(target.line, "Can't assign to special loop variable in for-loop target");
    }
    for (const Target& item : target.items) QUIRE_TRY_VOID(RefuseLoopTarget(item));
    return {};
  }

  Result<> BindStatement(Statement& node, const Scope& scope, bool in_condition) {
    switch (node.kind) {
      case StatementKind::kOutput:
        for (ExprPtr& part : static_cast<OutputStatement&>(node).parts) {
          QUIRE_TRY_VOID(BindExpr(*part, scope, in_condition));
        }
        return {};
      case StatementKind::kIf: {
        auto& statement = static_cast<IfStatement&>(node);
        for (IfStatement::Branch& branch : statement.branches) {
          QUIRE_TRY_VOID(BindExpr(*branch.test, scope, /*in_condition=*/true));
          QUIRE_TRY_VOID(BindBody(branch.body, scope, /*in_condition=*/true));
        }
        return BindBody(statement.otherwise, scope, /*in_condition=*/true);
      }
      case StatementKind::kFor:
        return BindFor(static_cast<ForStatement&>(node), scope, in_condition);
      case StatementKind::kSet: {
        auto& set = static_cast<SetStatement&>(node);
        if (loops_ > 0) QUIRE_TRY_VOID(RefuseLoopTarget(set.target));
        BindTarget(&set.target, scope);
        return BindExpr(*set.value, scope, in_condition);
      }
      case StatementKind::kSetBlock: {
        auto& block = static_cast<SetBlockStatement&>(node);
        if (loops_ > 0) QUIRE_TRY_VOID(RefuseLoopTarget(block.target));
        BindTarget(&block.target, scope);
        return BindTextBlock(block.body, block.filter.get(), &block.loads, scope);
      }
      case StatementKind::kMacro: {
        auto& macro = static_cast<MacroStatement&>(node);
        macro.variable = Lookup(macro.function.name, scope);
        return BindFunction(&macro.function, scope);
      }
      case StatementKind::kCallBlock: {
        auto& block = static_cast<CallBlockStatement&>(node);
        if (block.call) QUIRE_TRY_VOID(BindExpr(*block.call, scope, in_condition));
        return BindFunction(&block.function, scope);
      }
      case StatementKind::kFilterBlock: {
        auto& block = static_cast<FilterBlockStatement&>(node);
        return BindTextBlock(block.body, block.filter.get(), &block.loads, scope);
      }
      case StatementKind::kWith:
        return BindWith(static_cast<WithStatement&>(node), scope, in_condition);
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        return {};
    }
    return {};
  }

  // The body of {% set x %}…{% endset %} or {% filter f %}…{% endfilter %}, and the filters over its text.
  Result<> BindTextBlock(Body& body, Expr* filter, ScopeLoads* loads, const Scope& outer) {
    Scope scope(&outer, outer.function());
    CollectBody(body, &scope);
    if (filter) Collect(*filter, &scope);
    *loads = scope.Loads();
    if (filter) QUIRE_TRY_VOID(BindExpr(*filter, scope, /*in_condition=*/false));
    return BindBody(body, scope, /*in_condition=*/false);
  }

  Result<> BindWith(WithStatement& with, const Scope& outer, bool in_condition) {
    Scope scope(&outer, outer.function());
    for (auto& [target, value] : with.assignments) {
      QUIRE_TRY_VOID(BindExpr(*value, outer, in_condition));
      CollectTarget(target, /*as_parameter=*/true, &scope);
    }
    CollectBody(with.body, &scope);
    with.loads = scope.Loads();
    for (auto& [target, value] : with.assignments) BindTarget(&target, scope);
    return BindBody(with.body, scope, /*in_condition=*/false);
  }

  Result<> BindFor(ForStatement& loop, const Scope& outer, bool in_condition) {
    QUIRE_TRY_VOID(BindExpr(*loop.iterable, outer, in_condition));
    QUIRE_TRY_VOID(RefuseLoopTarget(loop.target));
    // A recursive loop is a function: each level has its own variables.
    FunctionContext own{.depth = outer.function()->depth + 1};
    FunctionContext* function = loop.recursive ? &own : outer.function();

    Scope test_scope(&outer, function);
    loop.test_target = loop.target;
    if (loop.test) {
      CollectTarget(loop.test_target, /*as_parameter=*/true, &test_scope);
      Collect(*loop.test, &test_scope);
      loop.test_loads = test_scope.Loads();
      BindTarget(&loop.test_target, test_scope);
      QUIRE_TRY_VOID(BindExpr(*loop.test, test_scope, /*in_condition=*/false));
    }

    Scope else_scope(&outer, function);
    CollectBody(loop.otherwise, &else_scope);
    loop.otherwise_loads = else_scope.Loads();

    Scope scope(&outer, function);
    loop.loop = scope.Reference(scope.Declare("loop"));
    CollectTarget(loop.target, /*as_parameter=*/true, &scope);
    CollectBody(loop.body, &scope);
    loop.body_loads = scope.Loads();
    BindTarget(&loop.target, scope);
    ++loops_;
    auto outcome = BindBody(loop.body, scope, /*in_condition=*/false);
    if (outcome) outcome = BindBody(loop.otherwise, else_scope, /*in_condition=*/false);
    --loops_;
    loop.num_slots = own.num_slots;
    return outcome;
  }

  Result<> BindFunction(Function* function, const Scope& outer) {
    FunctionContext own{.depth = outer.function()->depth + 1};
    Scope scope(&outer, &own);
    for (Function::Parameter& parameter : function->parameters) parameter.slot = scope.Declare(parameter.name).slot;
    QUIRE_TRY(function->caller_slot, BindSpecial("caller", *function, &scope));
    QUIRE_TRY(function->kwargs_slot, BindSpecial("kwargs", *function, &scope));
    QUIRE_TRY(function->varargs_slot, BindSpecial("varargs", *function, &scope));
    for (Function::Parameter& parameter : function->parameters) {
      if (parameter.default_value) Collect(*parameter.default_value, &scope);
    }
    CollectBody(function->body, &scope);
    function->loads = scope.Loads();
    for (Function::Parameter& parameter : function->parameters) {
      if (parameter.default_value) QUIRE_TRY_VOID(BindExpr(*parameter.default_value, scope, /*in_condition=*/false));
    }
    QUIRE_TRY_VOID(BindBody(function->body, scope, /*in_condition=*/false));
    function->num_slots = own.num_slots;
    return {};
  }

  // The slot of a name that every macro may use without declaring it; -1: not used, or an ordinary parameter.
  static Result<int> BindSpecial(const std::string& name, const Function& function, Scope* scope) {
    if (!Mentions(function.body, name)) return -1;
    const auto is_name = [&](const auto& parameter) { return parameter.name == name; };
    const auto declared = std::ranges::find_if(function.parameters, is_name);
    if (declared == function.parameters.end()) return scope->Declare(name).slot;
    if (name == "caller" && !declared->default_value) {
      return SyntaxError(function.line,
                         "When defining macros or call blocks the special \"caller\" argument must be omitted or be "
                         "given a default.");
    }
    return -1;
  }

  int loops_ = 0;  // for statements around: inside of them `loop` cannot be assigned
};

}  // namespace

Result<> Resolve(TemplateTree* tree) {
  FunctionContext function;
  Scope scope(nullptr, &function);
  CollectBody(tree->body, &scope);
  tree->loads = scope.Loads();
  QUIRE_TRY_VOID(Binder().BindBody(tree->body, scope, /*in_condition=*/false));
  tree->num_slots = function.num_slots;
  return {};
}

}  // namespace quire::text::jinja
