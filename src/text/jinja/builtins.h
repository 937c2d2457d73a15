// Filters, tests, global functions and methods by name.
//
// A filter or test gets its operand first and then its arguments, bound to the parameters of its signature as Python
// binds them. In a signature each word is a parameter; "name?" may be left out and is then a missing value; a "/" at
// the end means that all must be given by position; "*" alone means that the function takes what comes.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/value.h"

namespace quire::text::jinja {

struct Builtin {
  std::string_view name;
  std::string_view signature;
  // `bound`: the operand, then one value for each parameter. `raw`: the arguments as they were given, for "*".
  Result<Value> (*call)(Interpreter& interpreter, std::span<const Value> bound, const Arguments& raw);
};

// nullptr: there is none of this name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);

// A global function or constant (range, namespace, …); missing: none of this name.
Value FindGlobal(std::string_view name);

// A method of the value's type, bound to it; missing: the type has none of this name. Methods that exist in Python but
// change their object (or that quire does not have) are found, and fail when they are called.
Value FindMethod(const Value& object, std::string_view name);

// The values of a signature's parameters. `function` names it in the errors.
Result<std::vector<Value>> Bind(std::string_view function, std::string_view signature, const Arguments& arguments);

// The tables that the parts of the library of filters contribute.
std::span<const Builtin> TextFilters();
std::span<const Builtin> SequenceFilters();
std::span<const Builtin> ValueFilters();

}  // namespace quire::text::jinja
