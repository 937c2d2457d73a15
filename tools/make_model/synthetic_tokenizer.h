// A tokenizer that works, of any size: its vocabulary is made, not learnt, but its merges are valid and it encodes and
// decodes every text.
#pragma once

#include <string>
#include <vector>

#include "base/strong_id.h"
#include "shapes.h"

namespace quire::make_model {

struct SyntheticTokenizer {
  std::string tokenizer_json, tokenizer_config_json, chat_template;
  std::string bos_token, eos_token;  // "" where there is none
  std::vector<TokenId> eos_ids;      // the token that ends a turn first
  std::vector<TokenId> bos_ids;      // one or none
};

// Exactly `num_tokens` tokens, special ones included (at least 300).
SyntheticTokenizer MakeTokenizer(TokenizerKind kind, int num_tokens);

}  // namespace quire::make_model
