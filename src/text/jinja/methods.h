// Parts of the library of methods that FindMethod puts together.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "text/jinja/builtins.h"
#include "text/jinja/value.h"

namespace quire::text::jinja {

std::span<const Builtin> TextMethods();
// .grouper and .list of what the filter groupby gives.
std::optional<Value> GroupField(const Value& tuple, std::string_view name);

// text.replace(from, to, count), paid for before it is built. A negative count means all.
Result<Value> ReplaceText(std::string_view text, std::string_view from, std::string_view to, Int count, bool markup,
                          Interpreter& interpreter);
// ljust ('<'), rjust ('>'), center ('^') and zfill ('0').
Result<Value> PadText(const Value& value, Int width, std::string_view fill, char align, Interpreter& interpreter);

}  // namespace quire::text::jinja
