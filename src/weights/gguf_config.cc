// GGUF metadata → ModelConfig and GenerationConfig.
#include <algorithm>
#include <array>

#include "weights/config_limits.h"
#include "weights/gguf_model.h"
#include "weights/rope.h"

namespace quire::weights {
namespace {

struct GgufFamily {
  std::string_view name;  // general.architecture; keys begin with it
  Architecture architecture;
  bool qk_norm;
};
// Files made from Mistral models say "llama".
constexpr std::array<GgufFamily, 3> kFamilies = {{
    {"llama", Architecture::kLlama, false},
    {"qwen2", Architecture::kQwen2, false},
    {"qwen3", Architecture::kQwen3, true},
}};

// Control tokens that end a turn although the file's eos_token_id is another: files say one id, chat models
// have several. llama.cpp goes by these texts too.
constexpr std::array<std::string_view, 8> kTurnEndTexts = {
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>"};
constexpr std::int32_t kControlToken = 3;

// Keys with the architecture in front.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const GgufFile& file, std::string_view architecture) : file_(file), architecture_(architecture) {}

  std::string Key(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }
  Result<int> Int(std::string_view key, std::int64_t high) const {
    QUIRE_TRY(const std::int64_t value, file_.Int(Key(key), 1, high));
    return static_cast<int>(value);
  }
  Result<std::optional<std::int64_t>> OptionalInt(std::string_view key, std::int64_t low, std::int64_t high) const {
    return file_.OptionalInt(Key(key), low, high);
  }
  Result<std::optional<std::int64_t>> ForEachLayer(std::string_view key, int layers, std::int64_t high) const {
    return file_.OptionalIntForEach(Key(key), layers, 1, high);
  }
  Result<std::optional<double>> OptionalReal(std::string_view key, double low, double high) const {
    return file_.OptionalReal(Key(key), low, high);
  }
  Result<std::optional<std::string>> OptionalString(std::string_view key) const {
    return file_.OptionalString(Key(key));
  }
  const GgufFile& file() const { return file_; }

 private:
  const GgufFile& file_;
  std::string_view architecture_;
};

Result<const GgufFamily*> FindFamily(const GgufFile& file) {
  QUIRE_TRY(const auto name, file.OptionalString("general.architecture"));
  if (!name) return Fail(ErrorCode::kCorrupt, "{}: the key general.architecture is missing", file.name());
  const auto found = std::ranges::find(kFamilies, *name, &GgufFamily::name);
  if (found != kFamilies.end()) return &*found;
  return Fail(ErrorCode::kUnsupported, "{}: the architecture {} is not supported; llama, qwen2 and qwen3 are",
              file.name(), *name);
}

Result<> ParseHeads(const ArchitectureKeys& keys, ModelConfig* config) {
  QUIRE_TRY(const auto heads, keys.ForEachLayer("attention.head_count", config->num_layers, kHeadsMax));
  if (!heads) {
    return Fail(ErrorCode::kCorrupt, "{}: the key {} is missing", keys.file().name(), keys.Key("attention.head_count"));
  }
  config->num_heads = static_cast<int>(*heads);
  QUIRE_TRY(const auto kv_heads, keys.ForEachLayer("attention.head_count_kv", config->num_layers, kHeadsMax));
  config->num_kv_heads = static_cast<int>(kv_heads.value_or(*heads));

  QUIRE_TRY(const auto key_length, keys.OptionalInt("attention.key_length", 1, kHeadDimMax));
  if (!key_length && config->hidden_size % config->num_heads != 0) {
    return Fail(ErrorCode::kCorrupt,
                "{}: embedding_length {} is not divisible by head_count {}, and there is no "
                "key_length",
                keys.file().name(), config->hidden_size, config->num_heads);
  }
  config->head_dim = static_cast<int>(key_length.value_or(config->hidden_size / config->num_heads));
  QUIRE_TRY(const auto value_length, keys.OptionalInt("attention.value_length", 1, kHeadDimMax));
  if (value_length && *value_length != config->head_dim) {
    return Fail(ErrorCode::kUnsupported, "{}: keys of {} and values of {} elements; they must be as long as each other",
                keys.file().name(), config->head_dim, *value_length);
  }
  QUIRE_TRY(const auto rotary, keys.OptionalInt("rope.dimension_count", 1, kHeadDimMax));
  config->rotary_dim = static_cast<int>(rotary.value_or(config->head_dim));
  return {};
}

Result<> ParseSizes(const ArchitectureKeys& keys, ModelConfig* config) {
  QUIRE_TRY(config->num_layers, keys.Int("block_count", kLayersMax));
  QUIRE_TRY(config->hidden_size, keys.Int("embedding_length", kHiddenSizeMax));
  QUIRE_TRY(config->max_position_embeddings, keys.Int("context_length", kPositionsMax));
  QUIRE_TRY(const auto feed_forward, keys.ForEachLayer("feed_forward_length", config->num_layers, kHiddenSizeMax));
  if (!feed_forward) {
    return Fail(ErrorCode::kCorrupt, "{}: the key {} is missing", keys.file().name(), keys.Key("feed_forward_length"));
  }
  config->intermediate_size = static_cast<int>(*feed_forward);
  QUIRE_TRY(const auto eps, keys.OptionalReal("attention.layer_norm_rms_epsilon", 1e-12, 1));
  if (!eps) {
    return Fail(ErrorCode::kCorrupt, "{}: the key {} is missing", keys.file().name(),
                keys.Key("attention.layer_norm_rms_epsilon"));
  }
  config->rms_norm_eps = static_cast<float>(*eps);
  QUIRE_TRY(const auto experts, keys.OptionalInt("expert_count", 0, kPositionsMax));
  if (experts.value_or(0) > 0) {
    return Fail(ErrorCode::kUnsupported, "{}: a mixture of {} experts is not supported", keys.file().name(), *experts);
  }
  return ParseHeads(keys, config);
}

Result<> ParseYarn(const ArchitectureKeys& keys, int max_positions, RopeConfig* rope) {
  QUIRE_TRY(const auto original, keys.OptionalInt("rope.scaling.original_context_length", 1, kPositionsMax));
  rope->original_max_position_embeddings = original.value_or(max_positions);
  QUIRE_TRY(const auto fast, keys.OptionalReal("rope.scaling.yarn_beta_fast", 1e-3, 1e6));
  rope->beta_fast = fast.value_or(rope->beta_fast);
  QUIRE_TRY(const auto slow, keys.OptionalReal("rope.scaling.yarn_beta_slow", 1e-3, 1e6));
  rope->beta_slow = slow.value_or(rope->beta_slow);
  // llama.cpp multiplies its own 0.1 ln(factor) + 1 by this one; ours is the whole product.
  QUIRE_TRY(const auto multiplier, keys.OptionalReal("rope.scaling.attn_factor", 1e-6, 1e6));
  if (multiplier) rope->attention_factor = *multiplier * YarnMscale(rope->factor, 1.0);
  for (const auto& [key, neutral] :
       {std::pair{"rope.scaling.yarn_log_multiplier", 0.0}, std::pair{"rope.scaling.yarn_ext_factor", 1.0},
        std::pair{"rope.scaling.yarn_attn_factor", 1.0}}) {
    QUIRE_TRY(const auto value, keys.OptionalReal(key, -1e6, 1e6));
    if (value && *value != neutral) {
      return Fail(ErrorCode::kUnsupported, "{}: {} is {}; only {} is supported", keys.file().name(), keys.Key(key),
                  *value, neutral);
    }
  }
  return {};
}

Result<> ParseFrequencyDivisors(const GgufFile& file, RopeConfig* rope) {
  const TensorSource* tensor = file.FindTensor(kRopeFrequenciesTensor);
  if (!tensor) return {};
  if (tensor->type->name != "F32" || tensor->shape.size() != 1 || tensor->columns() > kHeadDimMax / 2) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} must be an F32 vector of at most {} elements", file.name(),
                tensor->name, kHeadDimMax / 2);
  }
  rope->frequency_divisors.resize(static_cast<std::size_t>(tensor->columns()));
  tensor->type->dequantize_row(tensor->data.data(), tensor->columns(), rope->frequency_divisors.data());
  return {};
}

Result<> ParseRope(const ArchitectureKeys& keys, int max_positions, RopeConfig* rope) {
  QUIRE_TRY(const auto theta, keys.OptionalReal("rope.freq_base", 1.0, kRopeThetaMax));
  rope->theta = theta.value_or(rope->theta);
  QUIRE_TRY_VOID(ParseFrequencyDivisors(keys.file(), rope));
  QUIRE_TRY(const auto type, keys.OptionalString("rope.scaling.type"));
  QUIRE_TRY(const auto factor, keys.OptionalReal("rope.scaling.factor", 0, kRopeFactorMax));
  QUIRE_TRY(const auto legacy, keys.OptionalReal("rope.scale_linear", 0, kRopeFactorMax));
  // A factor of 0 means none to llama.cpp.
  rope->factor = factor.value_or(legacy.value_or(1.0));
  if (rope->factor == 0) rope->factor = 1;
  const std::string name = type.value_or(rope->factor != 1 ? "linear" : "none");
  if (name == "none") {
    rope->factor = 1;
    return {};
  }
  if (name == "linear") {
    rope->type = RopeType::kLinear;
    return {};
  }
  if (name == "yarn") {
    rope->type = RopeType::kYarn;
    return ParseYarn(keys, max_positions, rope);
  }
  return Fail(ErrorCode::kUnsupported, "{}: {} is \"{}\"; none, linear and yarn are supported", keys.file().name(),
              keys.Key("rope.scaling.type"), name);
}

// One window for all layers, or for those that a pattern of booleans names.
Result<> ParseSlidingWindow(const ArchitectureKeys& keys, ModelConfig* config) {
  const auto layers = static_cast<std::size_t>(config->num_layers);
  config->layer_uses_sliding_window.assign(layers, false);
  QUIRE_TRY(const auto window, keys.OptionalInt("attention.sliding_window", 0, kPositionsMax));
  if (window.value_or(0) == 0) return {};
  config->sliding_window = *window;
  const std::string pattern_key = keys.Key("attention.sliding_window_pattern");
  if (!keys.file().Find(pattern_key)) {
    config->layer_uses_sliding_window.assign(layers, true);
    return {};
  }
  QUIRE_TRY(config->layer_uses_sliding_window, keys.file().Bools(pattern_key));
  return {};
}

Result<> ParseEndOfText(const GgufFile& file, ModelConfig* config) {
  const auto add = [&](std::int64_t id) {
    const TokenId token(static_cast<std::int32_t>(id));
    if (std::ranges::find(config->eos_token_ids, token) == config->eos_token_ids.end()) {
      config->eos_token_ids.push_back(token);
    }
  };
  QUIRE_TRY(const auto bos, file.OptionalInt("tokenizer.ggml.bos_token_id", 0, config->vocab_size - 1));
  if (bos) config->bos_token_id = TokenId(static_cast<std::int32_t>(*bos));
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    QUIRE_TRY(const auto id, file.OptionalInt(key, 0, config->vocab_size - 1));
    if (id) add(*id);
  }
  QUIRE_TRY(const std::vector<std::int32_t> all, file.Int32s(kEndOfTextIdsKey));
  for (const std::int32_t id : all) add(id);
  if (!all.empty()) return {};
  QUIRE_TRY(const auto tokens, file.Strings("tokenizer.ggml.tokens"));
  QUIRE_TRY(const auto types, file.Int32s("tokenizer.ggml.token_type"));
  for (std::size_t i = 0; i < std::min(tokens.size(), types.size()); ++i) {
    if (types[i] == kControlToken && std::ranges::find(kTurnEndTexts, tokens[i]) != kTurnEndTexts.end()) {
      add(static_cast<std::int64_t>(i));
    }
  }
  return {};
}

// The rows of the embedding, which a vocabulary may not fill but must not exceed.
Result<> ParseVocabularySize(const GgufFile& file, ModelConfig* config) {
  const TensorSource* embedding = file.FindTensor("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2) {
    return Fail(ErrorCode::kCorrupt, "{}: there is no matrix token_embd.weight", file.name());
  }
  const GgufValue* tokens = file.Find("tokenizer.ggml.tokens");
  if (embedding->rows() > kVocabSizeMax || (tokens && tokens->count > static_cast<std::uint64_t>(embedding->rows()))) {
    return Fail(ErrorCode::kCorrupt,
                "{}: an embedding of {} rows for a vocabulary of {} tokens (at most {} are allowed)", file.name(),
                embedding->rows(), tokens ? tokens->count : 0, kVocabSizeMax);
  }
  config->vocab_size = static_cast<int>(embedding->rows());
  return {};
}

}  // namespace

Result<ModelConfig> ParseGgufConfig(const GgufFile& file) {
  ModelConfig config;
  QUIRE_TRY(const GgufFamily* family, FindFamily(file));
  config.architecture = family->architecture;
  config.architecture_name = family->name;
  config.qk_norm = family->qk_norm;
  const ArchitectureKeys keys(file, family->name);
  QUIRE_TRY_VOID(ParseSizes(keys, &config));
  QUIRE_TRY_VOID(ParseRope(keys, config.max_position_embeddings, &config.rope));
  QUIRE_TRY_VOID(ParseSlidingWindow(keys, &config));
  QUIRE_TRY_VOID(ParseVocabularySize(file, &config));
  QUIRE_TRY_VOID(ParseEndOfText(file, &config));
  // GGUF has no keys for these: a tensor is there or it is not.
  config.tie_word_embeddings = file.FindTensor("output.weight") == nullptr;
  config.qkv_bias = family->architecture == Architecture::kQwen2 || file.FindTensor("blk.0.attn_q.bias") != nullptr;
  config.o_bias = file.FindTensor("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = file.FindTensor("blk.0.ffn_down.bias") != nullptr;
  QUIRE_TRY_VOID(CheckModelConfig(config, file.name()));
  return config;
}

Result<GenerationConfig> ParseGgufGenerationConfig(const GgufFile& file) {
  GenerationConfig config;
  QUIRE_TRY(config.temperature, file.OptionalReal("general.sampling.temp", 0, 1e3));
  QUIRE_TRY(config.top_p, file.OptionalReal("general.sampling.top_p", 0, 1));
  QUIRE_TRY(config.min_p, file.OptionalReal("general.sampling.min_p", 0, 1));
  QUIRE_TRY(config.repetition_penalty, file.OptionalReal("general.sampling.penalty_repeat", 1e-3, 1e3));
  QUIRE_TRY(const auto top_k, file.OptionalInt("general.sampling.top_k", -1, kVocabSizeMax));
  if (top_k) config.top_k = static_cast<int>(*top_k);
  return config;
}

}  // namespace quire::weights
