// Python's two ways to format text: "%s" % values and "{}".format(values), with the mini-language of {:>10.2f}.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace quire::text::jinja {

// format % values: a tuple gives the values in turn, a dict those of %(name)s, anything else is the only one.
Result<Value> FormatPercent(const Value& format, const Value& values, Interpreter& interpreter);
// format.format(...); attributes and items in fields are looked up as the template would.
Result<Value> FormatFields(const Value& format, const Arguments& arguments, Interpreter& interpreter);
// format(value, specification).
Result<std::string> FormatValue(const Value& value, std::string_view specification, Interpreter& interpreter);

}  // namespace quire::text::jinja
