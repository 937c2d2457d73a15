// The functions that every template can call.
#include <memory>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/strftime.h"

namespace quire::text::jinja {
namespace {

constexpr Int kRangeBoundMax = Int{1} << 62;

Result<Value> Range(Interpreter& interpreter, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (!arguments.keyword.empty()) return RenderError("range() takes no keyword arguments");
  if (given.empty() || given.size() > 3) return RenderError("range expected 1 to 3 arguments, got {}", given.size());
  for (const Value& value : given) {
    if (value.is_undefined()) return RenderError("'Undefined' object cannot be interpreted as an integer");
    if (!value.is_integral()) return RenderError("'{}' object cannot be interpreted as an integer", value.type_name());
    if (value.integer() < -kRangeBoundMax || value.integer() > kRangeBoundMax) {
      return RenderError("range() bounds are at most {}", kRangeBoundMax);
    }
  }
  const Int start = given.size() == 1 ? 0 : given[0].integer();
  const Int stop = given.size() == 1 ? given[0].integer() : given[1].integer();
  const Int step = given.size() == 3 ? given[2].integer() : 1;
  if (step == 0) return RenderError("range() arg 3 must not be zero");
  Value range = Value::Range(start, stop, step);
  if (range.range().size > interpreter.limits().range_items_max) {
    return Fail(ErrorCode::kOutOfRange, "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).",
                interpreter.limits().range_items_max);
  }
  return range;
}

// dict(mapping or pairs, name=value, …)
Result<DictObject> MakeDict(Interpreter& interpreter, std::string_view function, const Arguments& arguments) {
  DictObject dict;
  if (arguments.positional.size() > 1) {
    return RenderError("{} expected at most 1 argument, got {}", function, arguments.positional.size());
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional.front();
    if (source.kind() == Kind::kDict) {
      dict = source.dict();
    } else {
      QUIRE_TRY(const std::vector<Value> pairs, interpreter.Items(source));
      for (const Value& pair : pairs) {
        QUIRE_TRY(const std::vector<Value> parts, interpreter.Items(pair));
        if (parts.size() != 2)
          return RenderError("dictionary update sequence element has length {}; 2 is required", parts.size());
        if (!dict.Set(parts[0], parts[1])) return RenderError("unhashable type: '{}'", parts[0].type_name());
      }
    }
  }
  for (const auto& [name, value] : arguments.keyword) dict.Set(Value::String(name), value);
  return dict;
}

Result<Value> Dict(Interpreter& interpreter, const Arguments& arguments) {
  QUIRE_TRY(DictObject dict, MakeDict(interpreter, "dict", arguments));
  return interpreter.Built(Value::Dict(std::move(dict)));
}

Result<Value> Namespace(Interpreter& interpreter, const Arguments& arguments) {
  QUIRE_TRY(DictObject attributes, MakeDict(interpreter, "namespace", arguments));
  return interpreter.NewNamespace(std::move(attributes));
}

Result<Value> RaiseException(Interpreter& interpreter, const Arguments& arguments) {
  QUIRE_TRY(const std::vector<Value> bound, Bind("raise_exception", "message", arguments));
  QUIRE_TRY(std::string message, interpreter.Text(bound[0]));
  return interpreter.Raise(std::move(message));
}

Result<Value> StrftimeNow(Interpreter& interpreter, const Arguments& arguments) {
  QUIRE_TRY(const std::vector<Value> bound, Bind("strftime_now", "format", arguments));
  if (!bound[0].is_string()) return RenderError("strftime() argument 1 must be str, not {}", bound[0].type_name());
  QUIRE_TRY(std::string text, FormatNow(bound[0].text(), interpreter.now()));
  return interpreter.Built(std::move(text));
}

// A function that gives "" the first time and the separator from then on.
Result<Value> Joiner(Interpreter&, const Arguments& arguments) {
  QUIRE_TRY(const std::vector<Value> bound, Bind("joiner", "sep?", arguments));
  const Value separator = bound[0].is_missing() ? Value::String(", ") : bound[0];
  auto used = std::make_shared<bool>(false);  // shared by the copies of the closure
  return Value::Callable(
      "<jinja2.utils.Joiner object>",
      [separator, used](Interpreter&, const Arguments& none) -> Result<Value> {
        QUIRE_TRY_VOID(Bind("joiner", "", none));
        if (*used) return separator;
        *used = true;
        return Value::String("");
      },
      separator.height() + 1);
}

Value Refused(std::string name) {
  std::string repr = "<" + name + ">";
  return Value::Callable(std::move(repr), [name = std::move(name)](Interpreter&, const Arguments&) -> Result<Value> {
    return RenderError("the global '{}' is not supported in chat templates", name);
  });
}

}  // namespace

Value FindGlobal(std::string_view name) {
  if (name == "range") return Value::Callable("<function range>", Range);
  if (name == "namespace") return Value::Callable("<class 'jinja2.utils.Namespace'>", Namespace);
  if (name == "dict") return Value::Callable("<class 'dict'>", Dict);
  if (name == "raise_exception") return Value::Callable("<function raise_exception>", RaiseException);
  if (name == "strftime_now") return Value::Callable("<function strftime_now>", StrftimeNow);
  if (name == "joiner") return Value::Callable("<class 'jinja2.utils.Joiner'>", Joiner);
  if (name == "cycler" || name == "lipsum") return Refused(std::string(name));
  return {};
}

}  // namespace quire::text::jinja
