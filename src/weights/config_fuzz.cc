// Arbitrary text as config.json, generation_config.json, tokenizer.json and tokenizer_config.json: an error, or a
// config that passes every check and whose rotary frequencies are finite.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "weights/config_limits.h"
#include "weights/model_config.h"
#include "weights/rope.h"
#include "weights/text_assets.h"
#include "weights/vocabulary_export.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quire;
  using namespace quire::weights;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto root = ParseJson(text, "fuzz.json", {.refuse_duplicate_keys = true});
  if (!root.has_value()) return 0;
  (void)ParseGenerationConfigJson(*root, "fuzz.json");
  (void)ChatTemplateOf(*root, "fuzz.json");
  (void)SpecialTokenOf(*root, "bos_token", "fuzz.json");
  ModelConfig small;
  small.vocab_size = 64;
  (void)VocabularyFromTokenizerJson({.tokenizer_json = std::string(text)}, "fuzz.json", small);

  const auto config = ParseConfigJson(*root, "fuzz.json");
  if (!config.has_value()) {
    if (config.error().message.empty()) std::abort();
    return 0;
  }
  if (!CheckModelConfig(*config, "fuzz.json").has_value()) std::abort();
  for (const double frequency : InverseFrequencies(config->rope, config->rotary_dim, 4096)) {
    if (!std::isfinite(frequency)) std::abort();
  }
  if (!std::isfinite(AttentionScaling(config->rope))) std::abort();
  return 0;
}
