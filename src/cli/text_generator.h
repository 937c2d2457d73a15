// Text in, text out: one request at a time on an engine, for the commands of the terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/config_visitor.h"
#include "text/tokenizer.h"
#include "weights/model_config.h"
#include "wire/engine_client.h"

namespace quire::cli {

// How the user wants tokens to be chosen; what is left open is as the model's authors recommend.
struct SamplingFlags {
  int max_tokens = 0;  // 0: as many as the context has room for
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
  double presence_penalty = 0, frequency_penalty = 0;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

template <typename Visitor>
void VisitFields(SamplingFlags& config, Visitor& visitor) {
  visitor.Field("max-tokens", config.max_tokens, "tokens to generate; 0: as many as the context has room for");
  visitor.Field("temperature", config.temperature, "0: always the most likely token. Default: the model's, or 1");
  visitor.Field("top-k", config.top_k, "only the k most likely tokens; 0: all. Default: the model's, or 0");
  visitor.Field("top-p", config.top_p, "only the most likely tokens that sum up to p. Default: the model's, or 1");
  visitor.Field("min-p", config.min_p,
                "only tokens at least p times as likely as the first. Default: the model's, or 0");
  visitor.Field("repetition-penalty", config.repetition_penalty,
                "above 1: less likely what was there before. Default: the model's, or 1");
  visitor.Field("presence-penalty", config.presence_penalty, "-2 to 2, once for tokens in the output");
  visitor.Field("frequency-penalty", config.frequency_penalty, "-2 to 2, for each time a token is in the output");
  visitor.Field("seed", config.seed, "makes the choice repeatable. Default: random");
  visitor.Field("stop", config.stop, "end before this text; several, separated by commas");
  visitor.Field("ignore-eos", config.ignore_eos, "go on after the model's end of text");
}

struct Generation {
  std::string text;
  FinishReason finish_reason = FinishReason::kNone;  // kStop for a stop text too, kAbort when interrupted
  int num_prompt_tokens = 0;
  int num_cached_tokens = 0;
  int num_tokens = 0;
  RequestTimes times;  // by the engine's clock: what this process is late with does not count

  double ttft_seconds() const { return std::chrono::duration<double>(times.first_token - times.queued).count(); }
  // Of generation, after the first token.
  double tokens_per_second() const {
    const double seconds = std::chrono::duration<double>(times.last_token - times.first_token).count();
    return num_tokens > 1 && seconds > 0 ? (num_tokens - 1) / seconds : 0;
  }
};

class TextGenerator {
 public:
  // Everything outlives the generator. The engine serves nobody else.
  TextGenerator(EngineClient* engine, const text::Tokenizer* tokenizer, const weights::GenerationConfig& defaults)
      : engine_(engine), tokenizer_(tokenizer), defaults_(defaults) {}

  struct Prompt {
    std::string text;
    bool add_special_tokens = true;  // false for rendered templates, which bring theirs
  };

  // Calls on_text with each piece of text as it comes. Stops early when `interrupted` says so.
  Result<Generation> Generate(const Prompt& prompt, const SamplingFlags& flags,
                              const std::function<void(std::string_view)>& on_text,
                              const std::function<bool()>& interrupted);

 private:
  Result<GenerateRequest> MakeRequest(const Prompt& prompt, const SamplingFlags& flags);

  EngineClient* engine_;
  const text::Tokenizer* tokenizer_;
  const weights::GenerationConfig defaults_;
  std::uint64_t last_id_ = 0;
};

}  // namespace quire::cli
