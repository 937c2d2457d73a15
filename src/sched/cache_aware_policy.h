// The policies that look at what the prefix cache has.
#pragma once

#include <memory>

#include "sched/policy.h"

namespace quire::sched {

// Whoever finds most of its prompt in the cache goes first: it costs least, and what it uses is used before it can be
// evicted.
std::unique_ptr<Policy> MakeLongestPrefixMatch(const SchedulerConfig& config);

// Walks the tree of the cached prefixes depth first and, at each branch, to where most requests wait first, so that
// requests of one branch follow each other and the branch is evicted only when it is done with (Zheng et al.,
// "SGLang: Efficient Execution of Structured Language Model Programs", 2024).
std::unique_ptr<Policy> MakeDfsWeight(const SchedulerConfig& config);

}  // namespace quire::sched
