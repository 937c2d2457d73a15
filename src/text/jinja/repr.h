// Values as text: Python's str() and repr(), and JSON as Hugging Face's tojson filter writes it.
// All stop early when the budget is spent; the caller checks it.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace quire::text::jinja {

std::string Str(const Value& value, Budget* budget);
std::string Repr(const Value& value, Budget* budget);
std::string IntText(Int value);
std::string FloatText(double value);
std::string ReprText(std::string_view text);
// repr() with everything outside of ASCII escaped.
std::string Ascii(const Value& value, Budget* budget);

struct JsonStyle {
  bool ensure_ascii = false;
  std::string indent = {};  // of one level; used when `pretty`
  bool pretty = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// Python's json.dumps.
Result<std::string> DumpJson(const Value& value, const JsonStyle& style, Budget* budget);

}  // namespace quire::text::jinja
