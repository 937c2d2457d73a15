#include "engine/memory_budget.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace quire::engine {
namespace {

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<std::int64_t> ParseNumber(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() || value < 0) return std::nullopt;
  return value;
}

// The number after `key` and blanks at the start of a line of "key number …" lines.
std::optional<std::int64_t> FindField(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.empty() || line.front() != ' ') continue;
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    return ParseNumber(line);
  }
  return std::nullopt;
}

std::optional<std::int64_t> GroupRoom(const std::filesystem::path& group) {
  const auto limit = ParseNumber(ReadText(group / "memory.max"));  // "max" is no number: no limit
  const auto used = ParseNumber(ReadText(group / "memory.current"));
  if (!limit || !used) return std::nullopt;
  const std::string stat = ReadText(group / "memory.stat");
  const std::int64_t droppable =
      FindField(stat, "inactive_file").value_or(0) + FindField(stat, "active_file").value_or(0);
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *used - droppable));
}

}  // namespace

std::optional<std::int64_t> ParseMemAvailable(std::string_view text) {
  const auto kibibytes = FindField(text, "MemAvailable:");
  if (!kibibytes || *kibibytes > INT64_MAX / 1024) return std::nullopt;
  return *kibibytes * 1024;
}

std::optional<std::int64_t> CgroupMemoryRoom(const std::filesystem::path& root, const std::string& proc_self_cgroup) {
  std::istringstream lines(proc_self_cgroup);
  std::optional<std::int64_t> smallest;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("0::/")) continue;  // version 2 has one hierarchy, number 0
    for (std::filesystem::path group = line.substr(4);; group = group.parent_path()) {
      if (const auto room = GroupRoom(root / group)) smallest = std::min(smallest.value_or(*room), *room);
      if (group.empty()) break;
    }
  }
  return smallest;
}

std::optional<std::int64_t> AvailableMemoryBytes() {
  auto available = ParseMemAvailable(ReadText("/proc/meminfo"));
  const auto room = CgroupMemoryRoom("/sys/fs/cgroup", ReadText("/proc/self/cgroup"));
  if (room) available = std::min(available.value_or(*room), *room);
  return available;
}

}  // namespace quire::engine
