#include "text/jinja/interpreter.h"

#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"

namespace quire::text::jinja {

Interpreter::Interpreter(const Limits& limits, DictObject variables, std::string now)
    : limits_(limits), budget_(limits), variables_(std::move(variables)), now_(std::move(now)) {}

Interpreter::~Interpreter() {
  // Cycles run through these only.
  for (const auto& name_space : namespaces_) name_space->attributes = {};
  for (const auto& loop : loops_) loop->last_changed.reset();
}

Result<std::string> Interpreter::Render(const TemplateTree& tree) {
  std::string text;
  kept_frames_.push_back(std::make_unique<Frame>());
  frame_ = kept_frames_.back().get();
  frame_->captured = true;
  frame_->slots.resize(static_cast<std::size_t>(tree.num_slots));
  out_ = &text;
  Enter(tree.loads);
  QUIRE_TRY_VOID(ExecuteBody(tree.body));
  return text;
}

// -- services

Result<> Interpreter::CheckBudget() const {
  if (!budget_.exhausted()) return {};
  return Fail(ErrorCode::kOutOfRange,
              "the chat template does too much work: more than {} steps, or {} bytes of text and lists",
              limits_.steps_max, limits_.bytes_max);
}

Result<> Interpreter::CheckAffordable(Int bytes) const {
  if (bytes > Int{limits_.value_bytes_max}) {
    return Fail(ErrorCode::kOutOfRange, "the chat template builds a text or list of more than {} bytes",
                limits_.value_bytes_max);
  }
  if (bytes > 0 && !budget_.CanAfford(static_cast<std::size_t>(bytes))) {
    return Fail(ErrorCode::kOutOfRange, "the chat template builds more than {} bytes of text and lists",
                limits_.bytes_max);
  }
  return {};
}

Result<Value> Interpreter::Built(std::string text, bool markup) {
  QUIRE_TRY_VOID(CheckAffordable(static_cast<Int>(text.size())));
  budget_.SpendBytes(text.size());
  QUIRE_TRY_VOID(CheckBudget());
  return Value::String(std::move(text), markup);
}

Result<Value> Interpreter::Built(Value container) {
  std::size_t bytes = 0;
  if (container.is_sequence()) bytes = container.items().size() * sizeof(Value);
  if (container.kind() == Kind::kDict) bytes = container.dict().entries.size() * 2 * sizeof(Value);
  QUIRE_TRY_VOID(CheckAffordable(static_cast<Int>(bytes)));
  budget_.SpendBytes(bytes);
  QUIRE_TRY_VOID(CheckBudget());
  if (container.height() > limits_.value_height_max) {
    return Fail(ErrorCode::kOutOfRange, "the chat template nests lists more than {} deep", limits_.value_height_max);
  }
  return container;
}

Value Interpreter::NewNamespace(DictObject attributes) {
  auto object = std::make_shared<NamespaceObject>();
  object->attributes = std::move(attributes);
  budget_.SpendBytes(sizeof(NamespaceObject));
  namespaces_.push_back(object);
  return Value::Namespace(std::move(object));
}

std::unexpected<Error> Interpreter::Raise(std::string message) {
  raised_ = true;
  return std::unexpected(Error{ErrorCode::kInvalidArgument, std::move(message)});
}

std::unexpected<Error> Interpreter::Located(Error error, int line) {
  if (!raised_ && !located_) {
    located_ = true;
    error.message = fmt::format("chat template, line {}: {}", line, error.message);
  }
  return std::unexpected(std::move(error));
}

Result<std::vector<Value>> Interpreter::Items(const Value& iterable) {
  QUIRE_TRY(Cursor cursor, Cursor::Over(iterable));
  std::vector<Value> items;
  while (true) {
    QUIRE_TRY(std::optional<Value> item, cursor.Next());
    if (!item) return items;
    budget_.SpendSteps(1);
    budget_.SpendBytes(sizeof(Value));
    QUIRE_TRY_VOID(CheckBudget());
    items.push_back(*std::move(item));
  }
}

Result<std::string> Interpreter::Text(const Value& value) {
  if (value.is_string()) return value.text();
  std::string text = Str(value, &budget_);
  QUIRE_TRY_VOID(CheckBudget());
  return text;
}

Result<Value> Interpreter::Attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) return UndefinedError(object);
  if (object.kind() == Kind::kNamespace) {
    if (const Value* found = object.name_space().attributes.Find(name)) return *found;
    return Value::UndefinedAttribute(object, name);
  }
  if (Value method = FindMethod(object, name); !method.is_missing()) return method;
  if (object.kind() == Kind::kLoop) {
    QUIRE_TRY(Value value, LoopAttribute(object, name));
    if (!value.is_missing()) return value;
  }
  if (object.kind() == Kind::kDict) {
    if (const Value* found = object.dict().Find(name)) return *found;
  }
  return Value::UndefinedAttribute(object, name);
}

Result<Value> Interpreter::Item(const Value& object, const Value& key) {
  if (object.is_undefined()) return UndefinedError(object);
  if (Value found = Subscript(object, key); !found.is_missing()) return found;
  if (key.is_string()) {
    // The order of the two is the reverse of Attribute's: a dict's own key has just been looked for.
    return Attribute(object, key.text());
  }
  return Value::UndefinedHint(fmt::format("{} has no element {}",
                                          object.is_none() ? "None" : fmt::format("{} object", object.type_name()),
                                          Repr(key, &budget_)));
}

Value& Interpreter::Slot(const VariableRef& variable) {
  Frame* frame = frame_;
  for (int depth = variable.depth; depth > 0; --depth) frame = frame->outer;
  return frame->slots[static_cast<std::size_t>(variable.slot)];
}

void Interpreter::Enter(const ScopeLoads& loads) {
  for (const ScopeLoad& load : loads) {
    Value value;
    switch (load.source) {
      case ScopeLoad::Source::kMissing:
        break;
      case ScopeLoad::Source::kOuter:
        value = Slot(load.outer);
        break;
      case ScopeLoad::Source::kContext:
        if (const Value* found = variables_.Find(load.context_name)) {
          value = *found;
        } else {
          value = FindGlobal(load.context_name);
        }
        break;
    }
    frame_->slots[static_cast<std::size_t>(load.slot)] = std::move(value);
  }
}

Result<> Interpreter::Write(std::string_view text) {
  budget_.SpendBytes(text.size());
  QUIRE_TRY_VOID(CheckBudget());
  if (out_->size() + text.size() > limits_.output_bytes_max) {
    return Fail(ErrorCode::kOutOfRange, "the chat template writes more than {} bytes", limits_.output_bytes_max);
  }
  out_->append(text);
  return {};
}

// -- statements

Result<Interpreter::Flow> Interpreter::ExecuteBody(const Body& body) {
  for (const StatementPtr& statement : body) {
    QUIRE_TRY(const Flow flow, Execute(*statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::Execute(const Statement& node) {
  budget_.SpendSteps(1);
  if (auto within = CheckBudget(); !within) return Located(std::move(within).error(), node.line);
  if (depth_ >= limits_.depth_max) {
    return Located({ErrorCode::kOutOfRange, "the chat template calls itself too deeply"}, node.line);
  }
  ++depth_;
  auto flow = ExecuteKnown(node);
  --depth_;
  if (!flow) return Located(std::move(flow).error(), node.line);
  return flow;
}

Result<Interpreter::Flow> Interpreter::ExecuteKnown(const Statement& node) {
  const auto next = [](Result<> outcome) -> Result<Flow> {
    if (!outcome) return std::unexpected(std::move(outcome).error());
    return Flow::kNext;
  };
  switch (node.kind) {
    case StatementKind::kOutput:
      return next(ExecuteOutput(static_cast<const OutputStatement&>(node)));
    case StatementKind::kIf:
      return ExecuteIf(static_cast<const IfStatement&>(node));
    case StatementKind::kFor:
      return ExecuteFor(static_cast<const ForStatement&>(node));
    case StatementKind::kSet: {
      const auto& set = static_cast<const SetStatement&>(node);
      QUIRE_TRY(const Value value, Evaluate(*set.value));
      return next(Assign(set.target, value));
    }
    case StatementKind::kSetBlock:
      return ExecuteSetBlock(static_cast<const SetBlockStatement&>(node));
    case StatementKind::kMacro: {
      const auto& macro = static_cast<const MacroStatement&>(node);
      Slot(macro.variable) = MakeMacro(macro.function);
      return Flow::kNext;
    }
    case StatementKind::kCallBlock:
      return next(ExecuteCallBlock(static_cast<const CallBlockStatement&>(node)));
    case StatementKind::kFilterBlock:
      return ExecuteFilterBlock(static_cast<const FilterBlockStatement&>(node));
    case StatementKind::kWith:
      return ExecuteWith(static_cast<const WithStatement&>(node));
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Result<> Interpreter::ExecuteOutput(const OutputStatement& node) {
  for (const ExprPtr& part : node.parts) {
    if (part->kind == ExprKind::kConstant && static_cast<const ConstantExpr&>(*part).value.is_string()) {
      QUIRE_TRY_VOID(Write(static_cast<const ConstantExpr&>(*part).value.text()));
      continue;
    }
    QUIRE_TRY(const Value value, Evaluate(*part));
    if (value.is_string()) {
      QUIRE_TRY_VOID(Write(value.text()));
    } else {
      QUIRE_TRY(const std::string text, Text(value));
      QUIRE_TRY_VOID(Write(text));
    }
  }
  return {};
}

Result<Interpreter::Flow> Interpreter::ExecuteIf(const IfStatement& node) {
  for (const IfStatement::Branch& branch : node.branches) {
    QUIRE_TRY(const Value test, Evaluate(*branch.test));
    if (Truth(test)) return ExecuteBody(branch.body);
  }
  return ExecuteBody(node.otherwise);
}

Result<Interpreter::Flow> Interpreter::ExecuteFor(const ForStatement& node) {
  if (node.recursive) {
    QUIRE_TRY_VOID(ExecuteRecursiveFor(node));
    return Flow::kNext;
  }
  QUIRE_TRY(const Value iterable, Evaluate(*node.iterable));
  return RunLoop(node, iterable, nullptr, 0);
}

// The sequence of a loop with an `if`: lazy, as in jinja2.
Result<Value> Interpreter::Filtered(const ForStatement& node, const Value& iterable) {
  QUIRE_TRY(Cursor cursor, Cursor::Over(iterable));
  auto shared = std::make_shared<Cursor>(std::move(cursor));  // owned by the closure, which is copyable
  Enter(node.test_loads);
  // `loop` reads the sequence wherever it is passed to, so that the frame of the test's variables has to stay.
  KeepFrames();
  return Value::Iterator(iterable, [this, &node, shared, frame = frame_]() -> Result<std::optional<Value>> {
    Frame* const saved = std::exchange(frame_, frame);
    auto item = NextPassing(node, shared.get());
    frame_ = saved;
    return item;
  });
}

Result<std::optional<Value>> Interpreter::NextPassing(const ForStatement& node, Cursor* cursor) {
  while (true) {
    QUIRE_TRY(std::optional<Value> item, cursor->Next());
    if (!item) return std::nullopt;
    QUIRE_TRY_VOID(Assign(node.test_target, *item));
    QUIRE_TRY(const Value test, Evaluate(*node.test));
    if (Truth(test)) return item;
  }
}

Result<Interpreter::Flow> Interpreter::RunLoop(const ForStatement& node, const Value& iterable, Frame* outer,
                                               int depth0) {
  Value sequence = iterable;
  if (node.test) {
    QUIRE_TRY(sequence, Filtered(node, iterable));
  }
  QUIRE_TRY(Cursor cursor, Cursor::Over(sequence));
  auto loop = std::make_shared<LoopObject>(sequence, std::move(cursor));
  loop->recursive = node.recursive ? &node : nullptr;
  loop->outer = outer;
  loop->depth0 = depth0;
  QUIRE_TRY(const Value loop_value, Built(Value::Loop(loop)));
  bool completed = false;  // some iteration ran to its end: then there is no else
  while (true) {
    QUIRE_TRY(const bool more, loop->Advance());
    if (!more) break;
    budget_.SpendSteps(1);
    Enter(node.body_loads);
    Slot(node.loop) = loop_value;
    QUIRE_TRY_VOID(Assign(node.target, *loop->current));
    QUIRE_TRY(const Flow flow, ExecuteBody(node.body));
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) completed = true;
  }
  if (completed || node.otherwise.empty()) return Flow::kNext;
  Enter(node.otherwise_loads);
  return ExecuteBody(node.otherwise);
}

Result<Interpreter::Flow> Interpreter::Capture(const Body& body, std::string* text) {
  std::string* const saved = std::exchange(out_, text);
  auto flow = ExecuteBody(body);
  out_ = saved;
  return flow;
}

Result<Interpreter::Flow> Interpreter::ExecuteSetBlock(const SetBlockStatement& node) {
  Enter(node.loads);
  std::string text;
  QUIRE_TRY(const Flow flow, Capture(node.body, &text));
  if (flow != Flow::kNext) return flow;
  Value value = Value::String(std::move(text));
  if (node.filter) {
    QUIRE_TRY(value, EvaluateFilter(static_cast<const FilterExpr&>(*node.filter), &value));
  }
  QUIRE_TRY_VOID(Assign(node.target, value));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::ExecuteFilterBlock(const FilterBlockStatement& node) {
  Enter(node.loads);
  std::string text;
  QUIRE_TRY(const Flow flow, Capture(node.body, &text));
  if (flow != Flow::kNext) return flow;
  Value value = Value::String(std::move(text));
  QUIRE_TRY(value, EvaluateFilter(static_cast<const FilterExpr&>(*node.filter), &value));
  QUIRE_TRY(text, Text(value));
  QUIRE_TRY_VOID(Write(text));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::ExecuteWith(const WithStatement& node) {
  Enter(node.loads);
  for (const auto& [target, expression] : node.assignments) {
    QUIRE_TRY(const Value value, Evaluate(*expression));
    QUIRE_TRY_VOID(Assign(target, value));
  }
  return ExecuteBody(node.body);
}

Result<> Interpreter::Assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    QUIRE_TRY(const std::vector<Value> items, Items(value));
    if (items.size() != target.items.size()) {
      return RenderError("{} values to unpack (expected {}, got {})",
                         items.size() < target.items.size() ? "not enough" : "too many", target.items.size(),
                         items.size());
    }
    for (std::size_t i = 0; i < items.size(); ++i) QUIRE_TRY_VOID(Assign(target.items[i], items[i]));
    return {};
  }
  if (target.attribute.empty()) {
    Slot(target.variable) = value;
    return {};
  }
  const Value& object = Slot(target.variable);
  if (object.kind() != Kind::kNamespace) return RenderError("cannot assign attribute on non-namespace object");
  object.name_space().attributes.Set(Value::String(target.attribute), value);
  budget_.SpendBytes(sizeof(Value));
  return CheckBudget();
}

}  // namespace quire::text::jinja
