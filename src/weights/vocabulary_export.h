// tokenizer.json → the vocabulary of a GGUF file.
#pragma once

#include <string_view>

#include "base/result.h"
#include "weights/model_config.h"
#include "weights/model_source.h"

namespace quire::weights {

// Byte-level BPE becomes the model "gpt2" with the `pre` that stands for its pre-tokenizer; BPE with byte fallback
// becomes "llama" with scores in the order of its merges. A pre-tokenizer or a normalizer that GGUF has no name for
// is an error: another one would cut texts differently. The vocabulary is padded with unused tokens to the rows of
// the model's embedding.
// The begin and end of a text are the tokens that the assets name, else those of the post-processor and the config.
Result<GgufVocabulary> VocabularyFromTokenizerJson(const TextAssets& assets, std::string_view name,
                                                   const ModelConfig& config);

}  // namespace quire::weights
