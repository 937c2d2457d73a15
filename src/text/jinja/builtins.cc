#include "text/jinja/builtins.h"

#include <algorithm>

namespace quire::text::jinja {
namespace {

const Builtin* FindIn(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Builtin::name);
  return found == table.end() ? nullptr : &*found;
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

}  // namespace

const Builtin* FindFilter(std::string_view name) {
  for (const auto table : {TextFilters(), SequenceFilters(), ValueFilters()}) {
    if (const Builtin* found = FindIn(table, name)) return found;
  }
  return nullptr;
}

Result<std::vector<Value>> Bind(std::string_view function, std::string_view signature, const Arguments& arguments) {
  std::vector<std::string_view> parameters = Words(signature);
  const bool positional_only = !parameters.empty() && parameters.back() == "/";
  if (positional_only) parameters.pop_back();
  if (positional_only && !arguments.keyword.empty()) return RenderError("{}() takes no keyword arguments", function);
  std::vector<Value> bound(parameters.size());
  if (arguments.positional.size() > parameters.size()) {
    return RenderError("{}() takes {} arguments but {} were given", function, parameters.size(),
                       arguments.positional.size());
  }
  std::ranges::copy(arguments.positional, bound.begin());
  for (const auto& [name, value] : arguments.keyword) {
    const auto parameter = std::ranges::find_if(parameters, [&](std::string_view p) {
      return p == name || (p.ends_with('?') && p.substr(0, p.size() - 1) == name);
    });
    if (parameter == parameters.end())
      return RenderError("{}() got an unexpected keyword argument '{}'", function, name);
    Value& slot = bound[static_cast<std::size_t>(parameter - parameters.begin())];
    if (!slot.is_missing()) return RenderError("{}() got multiple values for argument '{}'", function, name);
    slot = value;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (bound[i].is_missing() && !parameters[i].ends_with('?')) {
      return RenderError("{}() missing 1 required positional argument: '{}'", function, parameters[i]);
    }
  }
  return bound;
}

}  // namespace quire::text::jinja
