// Requests of a given shape against an engine, and what a client sees of them: time to first token, time per output
// token, latency, throughput. In process: without HTTP and without text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "wire/engine_client.h"

namespace quire::bench {

struct WorkloadConfig {
  int input_len = 128;       // tokens of each prompt, the shared prefix among them
  int output_len = 128;      // tokens generated for each
  int prefix_len = 0;        // tokens that all prompts begin with: what a prefix cache can save
  int num_prompts = 32;      // measured requests
  int num_warmup = 2;        // requests before them that are not measured
  int max_concurrency = 32;  // requests at a time
  int seed = 1;              // of the prompts

  // kInvalidArgument names the field; `info` bounds the lengths.
  Result<> Validate(const EngineInfo& info) const;
};

// One request, by the clock of whoever waits for it.
struct RequestSample {
  double ttft_seconds = 0;          // from Submit to the first token
  double latency_seconds = 0;       // from Submit to the last token
  std::vector<double> itl_seconds;  // between events of consecutive tokens
  int num_output_tokens = 0;
  int num_cached_tokens = 0;
  // Mean time per output token after the first; 0 for a single token.
  double tpot_seconds() const {
    return num_output_tokens > 1 ? (latency_seconds - ttft_seconds) / (num_output_tokens - 1) : 0;
  }
};

struct Summary {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
  // Of values that need not be in order; the nearest-rank percentiles.
  static Summary Of(std::vector<double> values);
};

struct WorkloadReport {
  WorkloadConfig config;
  double duration_seconds = 0;  // from the first Submit to the last token
  std::int64_t num_input_tokens = 0;
  std::int64_t num_output_tokens = 0;
  std::int64_t num_cached_tokens = 0;
  Summary ttft, tpot, itl, latency;  // seconds

  double requests_per_second() const { return config.num_prompts / duration_seconds; }
  double output_tokens_per_second() const { return static_cast<double>(num_output_tokens) / duration_seconds; }
  double total_tokens_per_second() const {
    return static_cast<double>(num_input_tokens + num_output_tokens) / duration_seconds;
  }

  std::string ToJson() const;   // one line; the keys end in their units
  std::string ToTable() const;  // for people; times in milliseconds
};

// Keeps max_concurrency requests in flight until all have ended. Prompts are random ids from the seed; generation is
// greedy and ignores the end of the text, so that every request has the same size. The engine is otherwise idle.
Result<WorkloadReport> RunWorkload(EngineClient* engine, const WorkloadConfig& config, const Clock& clock);

}  // namespace quire::bench
