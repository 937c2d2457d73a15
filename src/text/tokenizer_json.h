// The components of a tokenizer.json, each from its JSON value (null where the file says null). `name` stands
// in errors. Components that are not known are an error that names them.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"

namespace quire::text {

// GPT-2's pattern, which a ByteLevel pre-tokenizer splits by.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Result<std::vector<NormalizerStep>> ParseNormalizer(const json::value& value, std::string_view name);
Result<std::vector<PreTokenizerStep>> ParsePreTokenizer(const json::value& value, std::string_view name);
Result<std::vector<TokenDecoderStep>> ParseTokenDecoder(const json::value& value, std::string_view name);

}  // namespace quire::text
