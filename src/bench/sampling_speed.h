// What choosing tokens costs beside computing logits: steps of the whole engine in which many sequences generate, and
// the share of a step that its sampler takes. Large vocabularies are where that matters.
#pragma once

#include <string>
#include <vector>

#include "api/sampling_params.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "models/model.h"

namespace quire::bench {

struct SamplingSpeedOptions {
  int num_sequences = 32;  // that generate together
  int num_steps = 16;      // of each measurement
  int repeats = 5;         // measurements; medians are reported

  Result<> Validate() const;
};

// One way to sample.
struct SamplingSpeedRow {
  std::string params;  // "temperature 1, top-k 40, top-p 0.95"
  double step_seconds = 0;
  double sampling_seconds = 0;  // of a step: from when the logits are there until every sequence has its token
  double share = 0, share_min = 0, share_max = 0;
};

struct SamplingSpeedReport {
  int num_sequences = 0, vocab_size = 0, num_threads = 0;
  std::string isa;
  std::vector<SamplingSpeedRow> rows;

  std::string ToText() const;
  std::string ToJson() const;  // one object
};

// Greedy, and with temperature, alone and with the usual filters; in turn. Prompts are one token each. `options` are
// valid.
Result<SamplingSpeedReport> MeasureSamplingSpeed(const models::Model& model, const kernels::KernelTable* kernels,
                                                 ThreadPool* pool, const SamplingSpeedOptions& options);

}  // namespace quire::bench
