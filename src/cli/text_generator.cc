#include "cli/text_generator.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "text/stop_matcher.h"
#include "text/stream_decoder.h"
#include "wire/limits.h"

namespace quire::cli {
namespace {

constexpr std::chrono::milliseconds kPollInterval{50};  // how soon an interrupt is seen

std::uint64_t RandomSeed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

Result<GenerateRequest> TextGenerator::MakeRequest(const Prompt& prompt, const SamplingFlags& flags) {
  if (flags.max_tokens < 0)
    return FailParam("max_tokens", "max_tokens is {}; it must not be negative", flags.max_tokens);
  QUIRE_TRY(const EngineInfo info, engine_->Info());
  GenerateRequest request;
  request.id = RequestId(++last_id_);
  QUIRE_TRY(request.prompt, tokenizer_->Encode(prompt.text, {.add_special_tokens = prompt.add_special_tokens}));
  SamplingParams& sampling = request.sampling;
  sampling.temperature = flags.temperature.value_or(defaults_.temperature.value_or(1));
  sampling.top_k = flags.top_k.value_or(defaults_.top_k.value_or(0));
  sampling.top_p = flags.top_p.value_or(defaults_.top_p.value_or(1));
  sampling.min_p = flags.min_p.value_or(defaults_.min_p.value_or(0));
  sampling.repetition_penalty = flags.repetition_penalty.value_or(defaults_.repetition_penalty.value_or(1));
  sampling.presence_penalty = flags.presence_penalty;
  sampling.frequency_penalty = flags.frequency_penalty;
  sampling.seed = flags.seed ? *flags.seed : RandomSeed();
  const int room = info.max_model_len - static_cast<int>(request.prompt.size());
  request.stop.max_tokens = flags.max_tokens > 0 ? std::min(flags.max_tokens, std::max(room, 1)) : std::max(room, 1);
  request.stop.ignore_eos = flags.ignore_eos;
  QUIRE_TRY_VOID(wire::CheckRequest(request, info));
  return request;
}

Result<Generation> TextGenerator::Generate(const Prompt& prompt, const SamplingFlags& flags,
                                           const std::function<void(std::string_view)>& on_text,
                                           const std::function<bool()>& interrupted) {
  QUIRE_TRY(GenerateRequest request, MakeRequest(prompt, flags));
  const RequestId id = request.id;
  Generation result{.num_prompt_tokens = static_cast<int>(request.prompt.size())};
  text::StreamDecoder decoder(tokenizer_, request.prompt, /*skip_special_tokens=*/true);
  text::StopMatcher stops(flags.stop, /*include_stop=*/false);
  const auto show = [&](const std::string& text) {
    if (text.empty()) return;
    result.text += text;
    on_text(text);
  };

  QUIRE_TRY_VOID(engine_->Submit(std::move(request)));
  bool aborted = false;
  while (result.finish_reason == FinishReason::kNone) {
    if (!aborted && interrupted()) {
      engine_->Abort(id, std::nullopt);
      aborted = true;
    }
    const auto events = engine_->Next(kPollInterval);
    if (!events) return Fail(ErrorCode::kUnavailable, "the engine has stopped");
    for (const EngineEvent& event : *events) {
      if (event.request != id) continue;
      if (HasFailed(event.finish_reason)) return Fail(ErrorCode::kInternal, "{}", event.error);
      if (!event.tokens.empty() && !stops.matched()) {
        result.num_tokens += static_cast<int>(event.tokens.size());
        for (const TokenId token : event.tokens) show(stops.Push(decoder.Push(token)));
      }
      result.num_cached_tokens = std::max(result.num_cached_tokens, event.num_cached_tokens);
      result.finish_reason = event.finish_reason;
      result.times = event.times;
    }
    if (stops.matched() && !aborted) {
      engine_->Abort(id, std::nullopt);
      aborted = true;
    }
  }
  if (stops.matched()) {
    result.finish_reason = FinishReason::kStop;
  } else {
    show(stops.Push(decoder.Finish()));
    show(stops.Finish());
  }
  return result;
}

}  // namespace quire::cli
