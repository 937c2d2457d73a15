// How much memory this process may still take: what the kernel calls available, and what its control groups allow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace quire::engine {

// Bytes that can be taken without swapping or being killed: the smallest of MemAvailable and the room left in every
// control group (version 2) from this process's up to the root. nullopt when the system does not say.
std::optional<std::int64_t> AvailableMemoryBytes();

// The parts of it, for tests. `text` is /proc/meminfo.
std::optional<std::int64_t> ParseMemAvailable(std::string_view text);
// Room left below memory.max in the groups of `proc_self_cgroup` under `root`; page cache counts as room, because the
// kernel drops it first.
std::optional<std::int64_t> CgroupMemoryRoom(const std::filesystem::path& root, const std::string& proc_self_cgroup);

}  // namespace quire::engine
