#include "base/cpu_topology.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <sstream>

namespace quire {
namespace {

std::vector<int> AffinityMask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus.empty() ? std::vector<int>{0} : cpus;
}

// The first allowed CPU of every core; on hybrid machines only the cores of the most efficient kind at computing,
// which hwloc ranks last. Falls back to the mask when hwloc cannot look.
std::vector<int> PhysicalCores(const std::vector<int>& allowed) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return allowed;
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(raw, hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) return allowed;
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> fastest(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  hwloc_bitmap_fill(fastest.get());
  if (const int kinds = hwloc_cpukinds_get_nr(raw, 0); kinds > 1) {
    int efficiency = -1;
    hwloc_cpukinds_get_info(raw, static_cast<unsigned>(kinds - 1), fastest.get(), &efficiency, nullptr, nullptr, 0);
    if (efficiency < 0) hwloc_bitmap_fill(fastest.get());  // kinds are not ranked: treat all alike
  }
  std::vector<int> cores;
  for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_CORE, core)) != nullptr;) {
    for (const int cpu : allowed) {
      if (hwloc_bitmap_isset(core->cpuset, static_cast<unsigned>(cpu)) &&
          hwloc_bitmap_isset(fastest.get(), static_cast<unsigned>(cpu))) {
        cores.push_back(cpu);
        break;
      }
    }
  }
  return cores.empty() ? allowed : cores;
}

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::optional<double> ParseCpuMax(const std::string& text) {
  std::istringstream in(text);
  std::string quota;
  double period = 0;
  if (!(in >> quota >> period) || quota == "max" || period <= 0) return std::nullopt;
  try {
    const double value = std::stod(quota) / period;
    return value > 0 ? std::optional(value) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::optional<double> CgroupCpuQuota(const std::filesystem::path& root, const std::string& proc_self_cgroup) {
  std::istringstream lines(proc_self_cgroup);
  std::optional<double> smallest;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("0::/", 0) != 0) continue;  // version 2 has one hierarchy, number 0
    for (std::filesystem::path group = line.substr(4);; group = group.parent_path()) {
      if (const auto quota = ParseCpuMax(ReadText(root / group / "cpu.max"))) {
        smallest = std::min(smallest.value_or(*quota), *quota);
      }
      if (group.empty()) break;
    }
  }
  return smallest;
}

CpuTopology DetectCpuTopology() {
  CpuTopology topology;
  topology.allowed_cpus = AffinityMask();
  topology.core_cpus = PhysicalCores(topology.allowed_cpus);
  topology.cgroup_cpu_quota = CgroupCpuQuota("/sys/fs/cgroup", ReadText("/proc/self/cgroup"));
  const int cores = static_cast<int>(topology.core_cpus.size());
  topology.num_threads = cores;
  if (topology.cgroup_cpu_quota) {
    topology.num_threads = std::clamp(static_cast<int>(std::floor(*topology.cgroup_cpu_quota)), 1, cores);
  }
  // With a quota below the cores, other containers share them: leave the placement to the kernel.
  if (topology.num_threads == cores) topology.thread_cpus = topology.core_cpus;
  return topology;
}

std::string CpuTopology::Describe() const {
  return fmt::format("{} thread{} ({} physical core{} allowed, {})", num_threads, num_threads == 1 ? "" : "s",
                     core_cpus.size(), core_cpus.size() == 1 ? "" : "s",
                     cgroup_cpu_quota ? fmt::format("CPU quota {:.1f}", *cgroup_cpu_quota) : "no CPU quota");
}

}  // namespace quire
