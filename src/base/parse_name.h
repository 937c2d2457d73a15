// Names of enumerations, as flags and fields have them.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

// The one of `values` whose name is `name`; kInvalidArgument lists the names. `what` is what they name: "router".
template <typename Enum, typename NameOf>
Result<Enum> ParseName(std::string_view what, std::string_view name, std::span<const Enum> values, NameOf name_of) {
  std::string known;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (name == name_of(values[i])) return values[i];
    known += fmt::format("{}{}", i == 0 ? "" : i + 1 == values.size() ? " and " : ", ", name_of(values[i]));
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown {} \"{}\"; known are {}", what, name, known);
}

}  // namespace quire
