// How many threads this process should compute with, and where. In a container the answer is neither the number of
// CPUs of the host nor a constant: it is the smallest of the affinity mask, the CPU quota of the cgroup, and the
// physical cores (of the fastest kind) among them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace quire {

struct CpuTopology {
  std::vector<int> allowed_cpus;           // the affinity mask
  std::vector<int> core_cpus;              // one allowed CPU for each physical core of the fastest kind
  std::optional<double> cgroup_cpu_quota;  // CPUs' worth of time that the cgroup grants, if limited
  int num_threads = 1;                     // the choice
  std::vector<int> thread_cpus;            // the CPU of each of them; empty where a quota is below the cores
  std::string Describe() const;            // "2 threads (2 physical cores allowed, no CPU quota)"
};

CpuTopology DetectCpuTopology();

// The quota in a cgroup v2 `cpu.max` ("max 100000", "200000 100000") or nothing. Exposed for tests.
std::optional<double> ParseCpuMax(const std::string& text);
// The smallest quota from the group of this process up to the root of the cgroup v2 tree at `root`.
std::optional<double> CgroupCpuQuota(const std::filesystem::path& root, const std::string& proc_self_cgroup);

}  // namespace quire
