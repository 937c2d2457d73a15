// Who may share cached blocks with whom: the key of a namespace of the prefix cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::kv {

// Blocks are shared within one namespace only. Every component is tagged with its type and its length, so
// that no two different sets of components give the same key: a salt "X" never meets an adapter "X".
// `adapter_generation` counts the loads of adapters, so that an adapter that is replaced under its name
// starts anew.
std::string MakeCacheNamespace(std::string_view salt, std::optional<std::uint64_t> adapter_generation = std::nullopt);

}  // namespace quire::kv
