// Log probabilities in the three layouts that clients know.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "api/events.h"
#include "base/json.h"
#include "server/choice_output.h"
#include "text/tokenizer.h"

namespace quire::server {

struct LogprobStyle {
  const text::Tokenizer* tokenizer = nullptr;
  int num_top = 0;
  bool tokens_as_ids = false;  // "token_id:17" instead of the token's text
};

// The exact bytes of a token, and the same as text.
std::string TokenBytesOf(const text::Tokenizer& tokenizer, TokenId id);
std::string TokenString(const LogprobStyle& style, TokenId id);
// JSON has no infinity: −9999 stands for it, and for whatever is no number.
float FloorLogprob(float logprob);

// {"content":[{"token","logprob","bytes","top_logprobs"}],"refusal":null}
void WriteChatLogprobs(std::span<const OutputToken> tokens, const LogprobStyle& style, JsonWriter* writer);
// {"text_offset","token_logprobs","tokens","top_logprobs"}; tokens without logprobs (the first of a prompt)
// get null.
void WriteCompletionLogprobs(std::span<const OutputToken> tokens, const LogprobStyle& style, JsonWriter* writer);
// [null,{"17":{"logprob","rank","decoded_token"}},…]
void WritePromptLogprobs(std::span<const std::optional<PositionLogprobs>> positions, const LogprobStyle& style,
                         JsonWriter* writer);

}  // namespace quire::server
