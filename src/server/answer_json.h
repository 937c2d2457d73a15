// The JSON objects of answers: chat completions and completions, whole or as stream chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/choice_output.h"
#include "server/prepare.h"
#include "server/timings.h"

namespace quire::server {

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt
};

using PromptLogprobs = std::vector<std::optional<PositionLogprobs>>;

// A choice, or what is new of it, as it is written.
struct ChoiceView {
  int index = 0;
  std::string_view text;
  std::span<const OutputToken> tokens;  // for logprobs and token ids
  // kNone in the middle of a stream.
  FinishReason finish_reason = FinishReason::kNone;
  const StopReason* stop_reason = nullptr;
  std::span<const TokenId> prompt_ids;              // with return_token_ids, where the prompt belongs
  const PromptLogprobs* prompt_logprobs = nullptr;  // with prompt_logprobs, never in streams
  const ChoiceTimings* timings = nullptr;           // with return_timings, when the choice has ended
};

class AnswerJson {
 public:
  AnswerJson(const GenerationSpec* spec, const text::Tokenizer* tokenizer, const Arrival* arrival)
      : spec_(spec), tokenizer_(tokenizer), arrival_(arrival) {}

  // The first chunk of a choice of a chat: role and no text.
  std::string RoleChunk(const ChoiceView& choice, const std::optional<Usage>& usage) const;
  std::string Chunk(const ChoiceView& choice, const std::optional<Usage>& usage) const;
  std::string UsageChunk(const Usage& usage) const;
  std::string Body(std::span<const ChoiceView> choices, const Usage& usage) const;

 private:
  void BeginObject(JsonWriter* writer, std::string_view object) const;
  void WriteChunkUsage(JsonWriter* writer, const std::optional<Usage>& usage) const;
  void WriteChoice(JsonWriter* writer, const ChoiceView& choice, bool is_chunk) const;
  void WriteFinish(JsonWriter* writer, const ChoiceView& choice) const;
  void WriteTokenIds(JsonWriter* writer, std::string_view key, std::span<const TokenId> ids) const;

  const GenerationSpec* spec_;
  const text::Tokenizer* tokenizer_;
  const Arrival* arrival_;
};

}  // namespace quire::server
