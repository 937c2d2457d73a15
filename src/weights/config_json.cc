// config.json and generation_config.json → ModelConfig and GenerationConfig, with the defaults of Hugging
// Face's configuration classes where a file leaves a field out.
#include "weights/config_json.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "weights/config_limits.h"
#include "weights/json_fields.h"
#include "weights/model_config.h"

namespace quire::weights {
namespace {

// What differs between the families, as data.
struct Family {
  Architecture architecture;
  std::string_view class_name;  // in "architectures"
  std::string_view model_type;
  bool always_qkv_bias = false;
  bool attention_bias_field = false;       // "attention_bias" is a field, and gives q, k and v a bias
  bool attention_bias_has_output = false;  // … and the output projection
  bool mlp_bias_field = false;
  bool qk_norm = false;
  int head_dim_default = 0;  // 0: hidden_size / num_attention_heads
  int sliding_window_default = 0;
};

constexpr std::array<Family, 4> kFamilies = {{
    {.architecture = Architecture::kLlama,
     .class_name = "LlamaForCausalLM",
     .model_type = "llama",
     .attention_bias_field = true,
     .attention_bias_has_output = true,
     .mlp_bias_field = true},
    {.architecture = Architecture::kMistral,
     .class_name = "MistralForCausalLM",
     .model_type = "mistral",
     .attention_bias_field = true,
     .sliding_window_default = 4096},
    {.architecture = Architecture::kQwen2,
     .class_name = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .always_qkv_bias = true,
     .sliding_window_default = 4096},
    {.architecture = Architecture::kQwen3,
     .class_name = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .attention_bias_field = true,
     .attention_bias_has_output = true,
     .qk_norm = true,
     .head_dim_default = 128,
     .sliding_window_default = 4096},
}};

Result<const Family*> FindFamily(const JsonFields& fields, std::string* name) {
  QUIRE_TRY(const auto model_type, fields.OptionalString("model_type"));
  if (const json::value* list = fields.Find("architectures")) {
    const json::array* array = list->if_array();
    if (!array || array->size() != 1 || !array->front().is_string()) {
      return Fail(ErrorCode::kCorrupt, "{}: \"architectures\" is {}; a list of one name is wanted", fields.name(),
                  ToJson(*list));
    }
    *name = array->front().get_string();
    const auto found = std::ranges::find(kFamilies, *name, &Family::class_name);
    if (found != kFamilies.end()) return &*found;
  } else if (model_type) {
    *name = *model_type;
    const auto found = std::ranges::find(kFamilies, *name, &Family::model_type);
    if (found != kFamilies.end()) return &*found;
  } else {
    return Fail(ErrorCode::kCorrupt, "{}: neither \"architectures\" nor \"model_type\" is given", fields.name());
  }
  return Fail(ErrorCode::kUnsupported,
              "{}: the architecture {} is not supported; LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and "
              "Qwen3ForCausalLM are",
              fields.name(), *name);
}

// Fields that change the computation in a way that is not built.
Result<> RefuseUnsupported(const JsonFields& fields) {
  QUIRE_TRY(const auto activation, fields.OptionalString("hidden_act"));
  if (activation && *activation != "silu" && *activation != "swish") {
    return Fail(ErrorCode::kUnsupported, "{}: the activation \"{}\" is not supported; silu is", fields.name(),
                *activation);
  }
  return {};
}

Result<> ParseSizes(const JsonFields& fields, const Family& family, ModelConfig* config) {
  const auto size = [&](std::string_view key, std::int64_t high) -> Result<int> {
    QUIRE_TRY(const std::int64_t value, fields.Int(key, 1, high));
    return static_cast<int>(value);
  };
  QUIRE_TRY(config->vocab_size, size("vocab_size", kVocabSizeMax));
  QUIRE_TRY(config->hidden_size, size("hidden_size", kHiddenSizeMax));
  QUIRE_TRY(config->intermediate_size, size("intermediate_size", kHiddenSizeMax));
  QUIRE_TRY(config->num_layers, size("num_hidden_layers", kLayersMax));
  QUIRE_TRY(config->num_heads, size("num_attention_heads", kHeadsMax));
  QUIRE_TRY(config->max_position_embeddings, size("max_position_embeddings", kPositionsMax));
  if (family.architecture == Architecture::kLlama && !fields.Has("num_key_value_heads")) {
    config->num_kv_heads = config->num_heads;  // written before grouped-query attention
  } else {
    QUIRE_TRY(config->num_kv_heads, size("num_key_value_heads", kHeadsMax));
  }

  QUIRE_TRY(config->head_dim, fields.IntOr("head_dim", 1, kHeadDimMax, family.head_dim_default));
  if (config->head_dim == 0) {
    if (config->hidden_size % config->num_heads != 0) {
      return Fail(ErrorCode::kCorrupt,
                  "{}: hidden_size {} is not divisible by num_attention_heads {}, and there is no "
                  "head_dim",
                  fields.name(), config->hidden_size, config->num_heads);
    }
    config->head_dim = config->hidden_size / config->num_heads;
  }
  QUIRE_TRY(const auto rope, fields.OptionalObject("rope_parameters"));
  QUIRE_TRY(double rotated, fields.DoubleOr("partial_rotary_factor", 0, 1, 1));
  if (rope) {
    QUIRE_TRY(rotated, rope->DoubleOr("partial_rotary_factor", 0, 1, rotated));
  }
  config->rotary_dim = static_cast<int>(config->head_dim * rotated);
  return {};
}

Result<> ParseLayerTypes(const JsonFields& fields, const json::value& value, ModelConfig* config) {
  const json::array* types = value.if_array();
  if (!types || types->size() != static_cast<std::size_t>(config->num_layers)) {
    return Fail(ErrorCode::kCorrupt, "{}: \"layer_types\" must be a list of {} names, one for each layer",
                fields.name(), config->num_layers);
  }
  for (int layer = 0; layer < config->num_layers; ++layer) {
    const json::value& type = (*types)[static_cast<std::size_t>(layer)];
    const bool sliding = type == "sliding_attention";
    if (!sliding && type != "full_attention") {
      return Fail(ErrorCode::kUnsupported,
                  "{}: layer_types[{}] is {}; full_attention and sliding_attention are supported", fields.name(), layer,
                  ToJson(type));
    }
    config->layer_uses_sliding_window[static_cast<std::size_t>(layer)] = sliding;
  }
  return {};
}

// Which layers see only the last `sliding_window` positions. Llama has no windows, whatever its file says.
// Mistral's default is 4096 and null means none. Qwen has one only with use_sliding_window, from layer
// max_window_layers on.
Result<> ParseSlidingWindow(const JsonFields& fields, const json::object& raw, const Family& family,
                            ModelConfig* config) {
  config->layer_uses_sliding_window.assign(static_cast<std::size_t>(config->num_layers), false);
  if (family.sliding_window_default == 0) return {};
  const bool is_mistral = family.architecture == Architecture::kMistral;
  QUIRE_TRY(const bool enabled, fields.BoolOr("use_sliding_window", is_mistral));
  const bool is_null = raw.contains("sliding_window") && !fields.Has("sliding_window");
  if (!enabled || is_null) return {};
  QUIRE_TRY(config->sliding_window, fields.IntOr("sliding_window", 1, kPositionsMax, family.sliding_window_default));
  if (const json::value* types = fields.Find("layer_types")) {
    QUIRE_TRY_VOID(ParseLayerTypes(fields, *types, config));
  } else {
    int first = 0;
    if (!is_mistral) {
      QUIRE_TRY(first, fields.IntOr("max_window_layers", 0, kLayersMax, 28));
    }
    for (int layer = first; layer < config->num_layers; ++layer) {
      config->layer_uses_sliding_window[static_cast<std::size_t>(layer)] = true;
    }
  }
  if (std::ranges::find(config->layer_uses_sliding_window, true) == config->layer_uses_sliding_window.end()) {
    config->sliding_window = 0;
  }
  return {};
}

}  // namespace

Result<ModelConfig> ParseConfigJson(const json::value& root, std::string_view name) {
  const json::object* object = root.if_object();
  if (!object) return Fail(ErrorCode::kCorrupt, "{}: not a JSON object", name);
  const JsonFields fields(*object, std::string(name));
  ModelConfig config;
  QUIRE_TRY(const Family* family, FindFamily(fields, &config.architecture_name));
  config.architecture = family->architecture;
  QUIRE_TRY_VOID(RefuseUnsupported(fields));
  QUIRE_TRY(config.quantization, ParseQuantizationConfig(fields));
  QUIRE_TRY_VOID(ParseSizes(fields, *family, &config));
  QUIRE_TRY(const double eps, fields.DoubleOr("rms_norm_eps", 1e-12, 1, 1e-6));
  config.rms_norm_eps = static_cast<float>(eps);
  QUIRE_TRY(config.rope, ParseRopeJson(fields, config.max_position_embeddings));
  QUIRE_TRY(config.tie_word_embeddings, fields.BoolOr("tie_word_embeddings", false));

  QUIRE_TRY(const bool attention_bias, fields.BoolOr("attention_bias", false));
  config.qkv_bias = family->always_qkv_bias || (family->attention_bias_field && attention_bias);
  config.o_bias = family->attention_bias_has_output && attention_bias;
  QUIRE_TRY(const bool mlp_bias, fields.BoolOr("mlp_bias", false));
  config.mlp_bias = family->mlp_bias_field && mlp_bias;
  config.qk_norm = family->qk_norm;

  QUIRE_TRY_VOID(ParseSlidingWindow(fields, *object, *family, &config));
  QUIRE_TRY(config.eos_token_ids, fields.TokenIds("eos_token_id"));
  QUIRE_TRY(const std::vector<TokenId> bos, fields.TokenIds("bos_token_id"));
  if (!bos.empty()) config.bos_token_id = bos.front();
  QUIRE_TRY_VOID(CheckModelConfig(config, name));
  return config;
}

Result<GenerationConfig> ParseGenerationConfigJson(const json::value& root, std::string_view name) {
  const json::object* object = root.if_object();
  if (!object) return Fail(ErrorCode::kCorrupt, "{}: not a JSON object", name);
  const JsonFields fields(*object, std::string(name));
  GenerationConfig config;
  QUIRE_TRY(config.temperature, fields.OptionalDouble("temperature", 0, 1e3));
  QUIRE_TRY(config.top_p, fields.OptionalDouble("top_p", 0, 1));
  QUIRE_TRY(config.min_p, fields.OptionalDouble("min_p", 0, 1));
  QUIRE_TRY(config.repetition_penalty, fields.OptionalDouble("repetition_penalty", 1e-3, 1e3));
  QUIRE_TRY(const auto top_k, fields.OptionalInt("top_k", -1, kVocabSizeMax));
  if (top_k) config.top_k = static_cast<int>(*top_k);
  QUIRE_TRY(config.eos_token_ids, fields.TokenIds("eos_token_id"));
  return config;
}

}  // namespace quire::weights
