// `quire verify`: holds a model against the promise that a request's output is a pure function of model and request.
// A mixed set of requests runs under many schedules (batch, chunk, cache, memory, threads, policy, arrival), and ids,
// logprobs and finish reasons are compared bit for bit with the baseline: one request at a time, whole prompts, no
// cache, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/kernel_table.h"
#include "models/model.h"

namespace quire::engine {

// One schedule on one tier.
struct VerifyRow {
  std::string isa;
  std::string schedule;  // "32 at a time, chunks of 7, cache warm, 2 threads"
  int num_requests = 0;
  std::int64_t num_tokens = 0;           // generated
  std::int64_t num_cached_tokens = 0;    // prompt tokens that the prefix cache had
  std::int64_t num_restored_tokens = 0;  // that it had not, and that came from a lower tier
  std::int64_t num_preemptions = 0;
  std::int64_t num_swaps = 0;  // of the preemptions, those that saved keys and values
  std::int64_t num_steps = 0;
  double seconds = 0;
  // What the schedule is for did not happen (nothing was preempted, nothing found in the cache): it proves nothing.
  bool exercised = true;
  std::string difference;  // the first one, or why it could not run; "" when all is equal

  bool ok() const { return difference.empty() && exercised; }
};

struct VerifyReport {
  std::vector<VerifyRow> rows;

  bool ok() const;
  std::string ToTable() const;
};

struct VerifyOptions {
  // Each is compared within itself; empty: all that this CPU runs. The reference tier, which is hundreds of times
  // slower than the others, gets three requests and three schedules.
  std::vector<const kernels::KernelTable*> tiers;
  int num_requests = 32;  // of a schedule
  int max_tokens = 24;    // of a choice, ≥ 1
  int max_threads = 2;    // the schedules with several threads use so many, ≥ 2
  std::uint64_t seed = 1;
  std::function<void(const VerifyRow&)> on_row;  // called when a row is done, for progress

  Result<> Validate() const;
};

// Takes a KV pool of a few hundred blocks and a thread pool. The calling thread is bound to a CPU meanwhile.
// `options` are valid.
VerifyReport RunVerify(const models::Model& model, const VerifyOptions& options);

}  // namespace quire::engine
