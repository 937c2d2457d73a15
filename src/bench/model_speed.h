// The two figures by which engines are compared on one machine: prompt processing and token generation, through the
// whole engine (scheduler, paged memory, sampler), without HTTP and without text.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/engine_client.h"

namespace quire::bench {

struct ModelBenchCase {
  enum class Kind { kPrefill, kDecode } kind = Kind::kPrefill;
  int num_tokens = 512;   // of the prompt; or steps of generation
  int num_sequences = 1;  // at the same time, for kDecode
  int context = 1;        // tokens of a prompt before the steps of kDecode, for one sequence
};

struct ModelBenchResult {
  ModelBenchCase measured;
  double seconds = 0;            // for all of it, by the engine's clock
  double prompt_seconds = 0;     // from when a prompt is scheduled to its first output token
  double tokens_per_second = 0;  // of all sequences together
  std::string ToJson() const;    // one line
};

// "prefill 512", "decode 128 1", "decode 64 8", "decode 16 1 4096". A context is of one sequence: the prompts of
// several would be computed between the steps of those that came first, and be counted.
Result<ModelBenchCase> ParseModelBenchCase(std::string_view text);

// Runs one case on an engine that is otherwise idle. Prompts are random ids that no cache has seen; generation is
// greedy and ignores the end of the text.
//   prefill  from when the prompt is first scheduled to its first output token
//   decode   num_sequences prompts of one token each, or one of `context` tokens; the time between a sequence's first
//            and last output token, in which all generate together
Result<ModelBenchResult> RunModelBench(EngineClient* engine, const ModelBenchCase& bench_case);

}  // namespace quire::bench
