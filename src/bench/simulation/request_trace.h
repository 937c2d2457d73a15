// Who asks for how much and when: logs of real services, and made-up ones. They say nothing of the texts, so a token is a
// function of what its segment is called and of its place there: prompts that begin with equal segments begin alike.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "api/request.h"
#include "base/result.h"
#include "base/strong_id.h"

namespace quire::bench {

struct PromptSegment {
  std::uint64_t content = 0;
  int num_tokens = 0;
};

struct TraceRequest {
  double arrival_seconds = 0;
  std::vector<PromptSegment> segments;
  int num_output_tokens = 1;  // exactly as many are generated
  int num_choices = 1;
  int beam_width = 0;  // of a beam search for the best answer; 0: none. Not together with several choices

  int num_prompt_tokens() const;
};

struct RequestTrace {
  std::string description;
  std::vector<TraceRequest> requests;  // by arrival; the first arrives at 0

  // Requests a second, from the first arrival to the last; 0 when all arrive at once.
  double rate() const;
  // Stretches the time between arrivals; 0: all arrive at once. A trace that does so already stays as it is.
  void SetRate(double requests_per_second);
  // The first `count`; when there are fewer, they come again, later and with other contents.
  void SetCount(int count);
};

// A trace of Azure or of Mooncake, as load::ParseTrace() reads it. Errors name the file and the line.
Result<RequestTrace> ReadTrace(const std::filesystem::path& path);

struct SyntheticTraceConfig {
  int num_prompts = 1000;
  int input_len = 512;    // tokens of a prompt on average, the shared prefix among them
  int output_len = 128;   // generated for it, on average
  double length_cv = 0;   // standard deviation over mean of both lengths, log-normal; 0: all are alike
  int prefix_len = 0;     // tokens that prompts begin with and share
  int num_prefixes = 1;   // of which there are so many; who has which is drawn
  double burstiness = 1;  // shape of the gamma distribution of gaps: 1 is Poisson, less comes in bursts
  int seed = 1;

  // kInvalidArgument names the field.
  Result<> Validate() const;
};
// One request a second on average; SetRate() makes it another.
RequestTrace MakeTrace(const SyntheticTraceConfig& config);

// The prompt and what is asked for; `index` becomes the id. Greedy unless there are several choices.
GenerateRequest MakeRequest(const TraceRequest& request, std::uint64_t index, int vocab_size);

}  // namespace quire::bench
