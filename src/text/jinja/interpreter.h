// Executes a resolved template against one set of variables. One interpreter is one rendering, on one thread.
//
// Errors: a limit is kOutOfRange; everything else that goes wrong is kInvalidArgument, with the line, or with nothing
// but its own words when the template raised it itself (raise_exception).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/loop.h"
#include "text/jinja/value.h"

namespace quire::text::jinja {

// The variables of one activation of a function, and of the function around it.
struct Frame {
  std::vector<Value> slots;
  Frame* outer = nullptr;
  bool captured = false;  // something refers to it that may be used after the function has returned
};

class Interpreter {
 public:
  // `variables` are what the template is given. `now` as in ChatTemplateInput.
  Interpreter(const Limits& limits, DictObject variables, std::string now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Result<std::string> Render(const TemplateTree& tree);

  // -- for the library of filters, tests, functions and methods
  Budget* budget() { return &budget_; }
  const Limits& limits() const { return limits_; }
  const std::string& now() const { return now_; }
  Result<Value> Call(const Value& function, const Arguments& arguments);
  Result<Value> CallFilter(const std::string& name, const Value& operand, const Arguments& arguments);
  Result<bool> CallTest(const std::string& name, const Value& operand, const Arguments& arguments);
  // object.name and object[key], which try the other one when theirs fails.
  Result<Value> Attribute(const Value& object, const std::string& name);
  Result<Value> Item(const Value& object, const Value& key);
  // All items of an iterable; pays for them.
  Result<std::vector<Value>> Items(const Value& iterable);
  // str(value).
  Result<std::string> Text(const Value& value);
  // Pay for what was built, and refuse what is nested too deeply.
  Result<Value> Built(std::string text, bool markup = false);
  Result<Value> Built(Value container);
  // The error of an exhausted budget, if it is.
  Result<> CheckBudget() const;
  // Whether `bytes` more can be built: asked before something large is allocated.
  Result<> CheckAffordable(Int bytes) const;
  // The same for work on the text's single characters or parts, each of which is remembered meanwhile.
  Result<> CheckPartsAffordable(std::string_view text) const {
    return CheckAffordable(static_cast<Int>(text.size() * sizeof(std::string_view)));
  }
  Value NewNamespace(DictObject attributes);
  // Loops and namespaces change, so that values can come to hold themselves; what is noted here is emptied at the end.
  void NoteMutable(const std::shared_ptr<LoopObject>& loop) { loops_.push_back(loop); }
  // The error that ends the rendering with the template's own words.
  std::unexpected<Error> Raise(std::string message);
  // loop(items) inside a recursive for.
  Result<Value> CallLoop(const Value& loop, const Value& iterable);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // -- statements (interpreter.cc)
  Result<Flow> ExecuteBody(const Body& body);
  Result<Flow> Execute(const Statement& node);
  Result<Flow> ExecuteKnown(const Statement& node);
  Result<> ExecuteOutput(const OutputStatement& node);
  Result<Flow> ExecuteIf(const IfStatement& node);
  Result<Flow> ExecuteFor(const ForStatement& node);
  Result<> ExecuteRecursiveFor(const ForStatement& node);
  Result<Flow> RunLoop(const ForStatement& node, const Value& iterable, Frame* outer, int depth0);
  Result<Value> Filtered(const ForStatement& node, const Value& iterable);
  Result<std::optional<Value>> NextPassing(const ForStatement& node, Cursor* cursor);
  Result<Flow> ExecuteSetBlock(const SetBlockStatement& node);
  Result<> ExecuteCallBlock(const CallBlockStatement& node);
  Result<Flow> ExecuteFilterBlock(const FilterBlockStatement& node);
  Result<Flow> ExecuteWith(const WithStatement& node);
  Result<> Assign(const Target& target, const Value& value);
  void Enter(const ScopeLoads& loads);
  Result<> Write(std::string_view text);
  // Runs `body` with its output going to *text.
  Result<Flow> Capture(const Body& body, std::string* text);

  // -- functions (interpreter_calls.cc)
  // Lets the current frame and those around it live until the end: something that can outlive them refers to them.
  void KeepFrames();
  Value MakeMacro(const Function& function);
  Result<Value> CallMacro(const Function& function, Frame* outer, const Arguments& arguments);
  Result<> BindMacro(const Function& function, const Arguments& arguments);
  Result<> BindMacroExtras(const Function& function, const Arguments& arguments, std::vector<bool>* used);
  // Runs `run` in a new frame with its output captured; the frame outlives the call when it was captured.
  template <typename Run>
  Result<std::string> InNewFrame(int num_slots, Frame* outer, Run run);

  // -- expressions (interpreter_expressions.cc)
  Result<Value> Evaluate(const Expr& node);
  Result<Value> EvaluateKnown(const Expr& node);
  Result<Value> EvaluateName(const NameExpr& node);
  Result<std::vector<Value>> EvaluateAll(const std::vector<ExprPtr>& nodes);
  Result<Value> EvaluateDict(const DictExpr& node);
  Result<Value> EvaluateConditional(const ConditionalExpr& node);
  Result<Value> EvaluateLogical(const LogicalExpr& node);
  Result<Value> EvaluateComparison(const ChainExpr& node);
  Result<Value> EvaluateArithmetic(const ChainExpr& node);
  Result<Value> EvaluateConcat(const SequenceExpr& node);
  Result<Value> EvaluateSlice(const SliceExpr& node);
  Result<Value> EvaluateCall(const CallExpr& node, const Value* caller);
  Result<Value> EvaluateFilter(const FilterExpr& node, const Value* block_text);
  Result<Value> EvaluateTest(const FilterExpr& node);
  Result<Arguments> EvaluateArguments(const CallArguments& node);
  Result<> AddDoubleStar(const Value& mapping, Arguments* arguments);

  Value& Slot(const VariableRef& variable);
  std::unexpected<Error> Located(Error error, int line);

  const Limits limits_;
  Budget budget_;
  DictObject variables_;
  std::string now_;
  std::vector<std::unique_ptr<Frame>> kept_frames_;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  std::vector<std::shared_ptr<LoopObject>> loops_;
  Frame* frame_ = nullptr;
  std::string* out_ = nullptr;
  int depth_ = 0;
  bool raised_ = false;   // the error is the template's own
  bool located_ = false;  // the error says its line already
};

}  // namespace quire::text::jinja
