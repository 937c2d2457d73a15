// Macros, call blocks and recursive loops: whatever runs in a frame of its own.
#include <algorithm>
#include <utility>

#include "text/jinja/interpreter.h"

namespace quire::text::jinja {

template <typename Run>
Result<std::string> Interpreter::InNewFrame(int num_slots, Frame* outer, Run run) {
  auto frame = std::make_unique<Frame>();
  frame->slots.resize(static_cast<std::size_t>(num_slots));
  frame->outer = outer;
  budget_.SpendBytes(frame->slots.size() * sizeof(Value));
  std::string text;
  Frame* const saved_frame = std::exchange(frame_, frame.get());
  std::string* const saved_out = std::exchange(out_, &text);
  Result<> outcome = run();
  frame_ = saved_frame;
  out_ = saved_out;
  if (frame->captured) kept_frames_.push_back(std::move(frame));
  if (!outcome) return std::unexpected(std::move(outcome).error());
  return text;
}

void Interpreter::KeepFrames() {
  for (Frame* frame = frame_; frame && !frame->captured; frame = frame->outer) frame->captured = true;
}

Value Interpreter::MakeMacro(const Function& function) {
  Frame* const outer = frame_;
  KeepFrames();
  const std::string repr = function.name.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", function.name);
  return Value::Callable(repr, [&function, outer](Interpreter& interpreter, const Arguments& arguments) {
    return interpreter.CallMacro(function, outer, arguments);
  });
}

Result<Value> Interpreter::CallMacro(const Function& function, Frame* outer, const Arguments& arguments) {
  QUIRE_TRY(std::string text, InNewFrame(function.num_slots, outer, [&]() -> Result<> {
              Enter(function.loads);
              QUIRE_TRY_VOID(BindMacro(function, arguments));
              QUIRE_TRY_VOID(ExecuteBody(function.body));
              return {};
            }));
  return Built(std::move(text));
}

Result<> Interpreter::BindMacro(const Function& function, const Arguments& arguments) {
  const std::size_t num_parameters = function.parameters.size();
  const std::size_t num_positional = std::min(arguments.positional.size(), num_parameters);
  std::vector<bool> used(arguments.keyword.size());
  for (std::size_t i = 0; i < num_positional; ++i) {
    frame_->slots[static_cast<std::size_t>(function.parameters[i].slot)] = arguments.positional[i];
  }
  for (std::size_t i = num_positional; i < num_parameters; ++i) {
    for (std::size_t k = 0; k < used.size(); ++k) {
      if (arguments.keyword[k].first != function.parameters[i].name) continue;
      frame_->slots[static_cast<std::size_t>(function.parameters[i].slot)] = arguments.keyword[k].second;
      used[k] = true;
    }
  }
  QUIRE_TRY_VOID(BindMacroExtras(function, arguments, &used));
  // Defaults see the parameters before them.
  for (const Function::Parameter& parameter : function.parameters) {
    Value value = frame_->slots[static_cast<std::size_t>(parameter.slot)];
    if (!value.is_missing()) continue;
    if (parameter.default_value) {
      QUIRE_TRY(value, Evaluate(*parameter.default_value));
    } else {
      value = Value::UndefinedHint(fmt::format("parameter '{}' was not provided", parameter.name));
    }
    frame_->slots[static_cast<std::size_t>(parameter.slot)] = std::move(value);
  }
  return {};
}

// caller, kwargs and varargs, where the body uses them; errors for arguments that nothing takes.
Result<> Interpreter::BindMacroExtras(const Function& function, const Arguments& arguments, std::vector<bool>* used) {
  const std::string name = function.name.empty() ? "None" : fmt::format("'{}'", function.name);
  if (function.caller_slot >= 0) {
    Value caller = Value::UndefinedHint("No caller defined");
    for (std::size_t k = 0; k < used->size(); ++k) {
      if ((*used)[k] || arguments.keyword[k].first != "caller") continue;
      caller = arguments.keyword[k].second;
      (*used)[k] = true;
    }
    frame_->slots[static_cast<std::size_t>(function.caller_slot)] = std::move(caller);
  }
  DictObject rest;
  for (std::size_t k = 0; k < used->size(); ++k) {
    if ((*used)[k]) continue;
    if (function.kwargs_slot < 0) {
      return RenderError("macro {} takes no keyword argument '{}'", name, arguments.keyword[k].first);
    }
    rest.Set(Value::String(arguments.keyword[k].first), arguments.keyword[k].second);
  }
  if (function.kwargs_slot >= 0) {
    QUIRE_TRY(frame_->slots[static_cast<std::size_t>(function.kwargs_slot)], Built(Value::Dict(std::move(rest))));
  }
  const std::size_t num_parameters = function.parameters.size();
  if (function.varargs_slot >= 0) {
    const std::size_t skipped = std::min(num_parameters, arguments.positional.size());
    std::vector<Value> extra(arguments.positional.begin() + static_cast<std::ptrdiff_t>(skipped),
                             arguments.positional.end());
    QUIRE_TRY(frame_->slots[static_cast<std::size_t>(function.varargs_slot)], Built(Value::Tuple(std::move(extra))));
  } else if (arguments.positional.size() > num_parameters) {
    return RenderError("macro {} takes not more than {} argument(s)", name, num_parameters);
  }
  return {};
}

Result<> Interpreter::ExecuteCallBlock(const CallBlockStatement& node) {
  if (!node.call) {  // {% generation %}
    QUIRE_TRY(const Value text, CallMacro(node.function, frame_, {}));
    return Write(text.text());
  }
  const Value caller = MakeMacro(node.function);
  QUIRE_TRY(const Value value, EvaluateCall(static_cast<const CallExpr&>(*node.call), &caller));
  QUIRE_TRY(const std::string text, Text(value));
  return Write(text);
}

Result<> Interpreter::ExecuteRecursiveFor(const ForStatement& node) {
  Frame* const outer = frame_;
  KeepFrames();  // `loop` can be called wherever it is passed to
  QUIRE_TRY(const Value iterable, Evaluate(*node.iterable));
  QUIRE_TRY(const std::string text, InNewFrame(node.num_slots, outer, [&]() -> Result<> {
              QUIRE_TRY_VOID(RunLoop(node, iterable, outer, 0));
              return {};
            }));
  return Write(text);
}

Result<Value> Interpreter::CallLoop(const Value& loop_value, const Value& iterable) {
  const LoopObject& loop = loop_value.loop();
  if (!loop.recursive) return RenderError("The loop must have the 'recursive' marker to be called recursively.");
  const ForStatement& node = *loop.recursive;
  const int depth0 = loop.depth0 + 1;
  QUIRE_TRY(std::string text, InNewFrame(node.num_slots, loop.outer, [&]() -> Result<> {
              QUIRE_TRY_VOID(RunLoop(node, iterable, loop.outer, depth0));
              return {};
            }));
  return Built(std::move(text));
}

}  // namespace quire::text::jinja
