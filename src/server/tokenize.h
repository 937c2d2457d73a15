// POST /tokenize and POST /detokenize.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "server/prepare.h"

namespace quire::server {

// {prompt | messages, add_special_tokens, return_token_strs} → {count, max_model_len, tokens, token_strs}
Result<std::string> Tokenize(const json::value& body, const ModelContext& model);
// {tokens} → {prompt}
Result<std::string> Detokenize(const json::value& body, const ModelContext& model);

}  // namespace quire::server
