// What the keys of a GGUF file mean: hyper-parameters, vocabulary, chat template.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "weights/gguf_file.h"
#include "weights/model_config.h"
#include "weights/model_source.h"

namespace quire::weights {

// The tensor of RoPE frequency divisors; its values are part of the config, and it is not listed as a tensor.
inline constexpr std::string_view kRopeFrequenciesTensor = "rope_freqs.weight";
// Quire's own key, which files of other writers do not have: every id that ends a turn.
inline constexpr std::string_view kEndOfTextIdsKey = "quire.eos_token_ids";

Result<ModelConfig> ParseGgufConfig(const GgufFile& file);
Result<GenerationConfig> ParseGgufGenerationConfig(const GgufFile& file);

// The vocabulary, its arrays of equal length (GGUF-03) and its ids in range, and the chat template.
Result<TextAssets> ReadGgufTextAssets(const GgufFile& file);
// The same of a file that need not hold a model: vocabularies come without tensors too.
Result<TextAssets> ReadGgufTextAssets(const std::filesystem::path& path);

Result<std::unique_ptr<ModelSource>> OpenGgufFile(const std::filesystem::path& path);

}  // namespace quire::weights
