// Reading the text side of a Hugging Face folder.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "weights/model_source.h"

namespace quire::weights {

// tokenizer.json, or else tokenizer.model; tokenizer_config.json, special_tokens_map.json,
// chat_template.jinja.
Result<TextAssets> ReadTextAssetsOfFolder(const std::filesystem::path& folder);

// The template in a tokenizer_config.json: a string, or the one named "default" of a list of named templates.
// "" when there is none.
Result<std::string> ChatTemplateOf(const json::value& tokenizer_config, std::string_view name);

// A special token ("bos_token") of a tokenizer_config.json or special_tokens_map.json: a string, or an object
// with its "content". "" when there is none.
Result<std::string> SpecialTokenOf(const json::value& config, std::string_view key, std::string_view name);

}  // namespace quire::weights
