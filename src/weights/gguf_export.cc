#include "weights/gguf_export.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "weights/gguf_model.h"
#include "weights/rope.h"

namespace quire::weights {
namespace {

constexpr std::array<GgufFileType, 14> kFileTypes = {{
    {"F32", 0, "F32"},
    {"F16", 1, "F16"},
    {"BF16", 32, "BF16"},
    {"Q8_0", 7, "Q8_0"},
    {"Q4_0", 2, "Q4_0"},
    {"Q4_1", 3, "Q4_1"},
    {"Q5_0", 8, "Q5_0"},
    {"Q5_1", 9, "Q5_1"},
    {"Q2_K", 10, "Q2_K"},
    {"Q3_K_M", 12, "Q3_K"},
    {"Q4_K_M", 15, "Q4_K"},
    {"Q5_K_M", 17, "Q5_K"},
    {"Q6_K", 18, "Q6_K"},
    {"IQ4_NL", 25, "IQ4_NL"},
}};

Result<> PutRope(const ModelConfig& config, const std::string& prefix, GgufWriter* writer) {
  const RopeConfig& rope = config.rope;
  const auto key = [&](std::string_view name) { return prefix + "rope." + std::string(name); };
  writer->PutUint32(key("dimension_count"), static_cast<std::uint32_t>(config.rotary_dim));
  writer->PutFloat(key("freq_base"), static_cast<float>(rope.theta));
  switch (rope.type) {
    case RopeType::kDefault:
    case RopeType::kLlama3:
      return {};  // the latter is a tensor of divisors
    case RopeType::kLinear:
      writer->PutString(key("scaling.type"), "linear");
      writer->PutFloat(key("scaling.factor"), static_cast<float>(rope.factor));
      return {};
    case RopeType::kDynamic:
      return Fail(ErrorCode::kUnsupported, "GGUF has no key for dynamic RoPE scaling (factor {})", rope.factor);
    case RopeType::kYarn:
      break;
  }
  if (!rope.yarn_truncate) return Fail(ErrorCode::kUnsupported, "GGUF has no key for yarn scaling without truncation");
  writer->PutString(key("scaling.type"), "yarn");
  writer->PutFloat(key("scaling.factor"), static_cast<float>(rope.factor));
  writer->PutUint32(key("scaling.original_context_length"),
                    static_cast<std::uint32_t>(rope.original_max_position_embeddings));
  writer->PutFloat(key("scaling.yarn_beta_fast"), static_cast<float>(rope.beta_fast));
  writer->PutFloat(key("scaling.yarn_beta_slow"), static_cast<float>(rope.beta_slow));
  // Readers multiply by the usual factor themselves.
  const double multiplier = AttentionScaling(rope) / YarnMscale(rope.factor, 1.0);
  if (multiplier != 1.0) writer->PutFloat(key("scaling.attn_factor"), static_cast<float>(multiplier));
  return {};
}

void PutSlidingWindow(const ModelConfig& config, const std::string& prefix, GgufWriter* writer) {
  if (config.sliding_window == 0) return;
  writer->PutUint32(prefix + "attention.sliding_window", static_cast<std::uint32_t>(config.sliding_window));
  const auto& layers = config.layer_uses_sliding_window;
  if (std::ranges::find(layers, false) != layers.end()) {
    writer->PutBools(prefix + "attention.sliding_window_pattern", layers);
  }
}

void PutGeneration(const ModelConfig& config, const GenerationConfig& generation, GgufWriter* writer) {
  const auto put = [&](std::string_view key, const std::optional<double>& value) {
    if (value) writer->PutFloat(key, static_cast<float>(*value));
  };
  put("general.sampling.temp", generation.temperature);
  put("general.sampling.top_p", generation.top_p);
  put("general.sampling.min_p", generation.min_p);
  put("general.sampling.penalty_repeat", generation.repetition_penalty);
  if (generation.top_k) writer->PutInt32("general.sampling.top_k", *generation.top_k);
  std::vector<std::int32_t> ids;
  for (const TokenId id : config.eos_token_ids) ids.push_back(id.value());
  if (!ids.empty()) writer->PutInt32s(kEndOfTextIdsKey, ids);
}

}  // namespace

const GgufFileType* FindGgufFileType(std::string_view name) {
  const auto same = [](char a, char b) {
    return std::toupper(static_cast<unsigned char>(a)) == std::toupper(static_cast<unsigned char>(b));
  };
  for (const GgufFileType& type : kFileTypes) {
    if (std::ranges::equal(type.name, name, same)) return &type;
  }
  return nullptr;
}

std::string GgufFileTypeNames() {
  std::string names(kFileTypes.front().name);
  for (const GgufFileType& type : std::span(kFileTypes).subspan(1)) {
    names += &type == &kFileTypes.back() ? " and " : ", ";
    names += type.name;
  }
  return names;
}

std::string_view GgufArchitectureName(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:
    case Architecture::kMistral:
      return "llama";
    case Architecture::kQwen2:
      return "qwen2";
    case Architecture::kQwen3:
      return "qwen3";
  }
  return {};
}

std::int64_t InterleavedRow(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t head = row / head_dim, at = row % head_dim;
  return head * head_dim + at % 2 * (head_dim / 2) + at / 2;
}

void InterleaveVector(std::int64_t head_dim, std::span<float> bias) {
  const std::vector<float> before(bias.begin(), bias.end());
  for (std::size_t i = 0; i < bias.size(); ++i) {
    bias[i] = before[static_cast<std::size_t>(InterleavedRow(static_cast<std::int64_t>(i), head_dim))];
  }
}

Result<> PutConfig(const ModelConfig& config, const GenerationConfig& generation, std::string_view model_name,
                   GgufWriter* writer) {
  const std::string_view architecture = GgufArchitectureName(config.architecture);
  const std::string prefix = std::string(architecture) + ".";
  writer->PutString("general.architecture", architecture);
  writer->PutString("general.name", model_name);
  const auto put = [&](std::string_view key, int value) {
    writer->PutUint32(prefix + std::string(key), static_cast<std::uint32_t>(value));
  };
  put("context_length", config.max_position_embeddings);
  put("embedding_length", config.hidden_size);
  put("block_count", config.num_layers);
  put("feed_forward_length", config.intermediate_size);
  put("vocab_size", config.vocab_size);
  put("attention.head_count", config.num_heads);
  put("attention.head_count_kv", config.num_kv_heads);
  put("attention.key_length", config.head_dim);
  put("attention.value_length", config.head_dim);
  writer->PutFloat(prefix + "attention.layer_norm_rms_epsilon", config.rms_norm_eps);
  QUIRE_TRY_VOID(PutRope(config, prefix, writer));
  PutSlidingWindow(config, prefix, writer);
  PutGeneration(config, generation, writer);
  return {};
}

void PutFileType(const GgufFileType& type, GgufWriter* writer) {
  writer->PutUint32("general.file_type", type.id);
  writer->PutUint32("general.quantization_version", 2);
}

void PutVocabulary(const GgufVocabulary& vocabulary, std::string_view chat_template, GgufWriter* writer) {
  writer->PutString("tokenizer.ggml.model", vocabulary.model);
  if (!vocabulary.pre.empty()) writer->PutString("tokenizer.ggml.pre", vocabulary.pre);
  writer->PutStrings("tokenizer.ggml.tokens", vocabulary.tokens);
  if (!vocabulary.scores.empty()) writer->PutFloats("tokenizer.ggml.scores", vocabulary.scores);
  if (!vocabulary.token_types.empty()) writer->PutInt32s("tokenizer.ggml.token_type", vocabulary.token_types);
  if (!vocabulary.merges.empty()) writer->PutStrings("tokenizer.ggml.merges", vocabulary.merges);
  const auto put_id = [&](std::string_view key, const std::optional<std::int64_t>& id) {
    if (id) writer->PutUint32(key, static_cast<std::uint32_t>(*id));
  };
  put_id("tokenizer.ggml.bos_token_id", vocabulary.bos_id);
  put_id("tokenizer.ggml.eos_token_id", vocabulary.eos_id);
  put_id("tokenizer.ggml.unknown_token_id", vocabulary.unk_id);
  const auto put_flag = [&](std::string_view key, const std::optional<bool>& flag) {
    if (flag) writer->PutBool(key, *flag);
  };
  put_flag("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  put_flag("tokenizer.ggml.add_eos_token", vocabulary.add_eos);
  put_flag("tokenizer.ggml.add_space_prefix", vocabulary.add_space_prefix);
  if (!chat_template.empty()) writer->PutString("tokenizer.chat_template", chat_template);
}

std::vector<float> FrequencyDivisors(const ModelConfig& config) {
  if (config.rope.type != RopeType::kLlama3) return config.rope.frequency_divisors;
  RopeConfig plain = config.rope;
  plain.type = RopeType::kDefault;
  const std::vector<double> base = InverseFrequencies(plain, config.rotary_dim, 0);
  const std::vector<double> scaled = InverseFrequencies(config.rope, config.rotary_dim, 0);
  std::vector<float> divisors(base.size());
  for (std::size_t i = 0; i < base.size(); ++i) divisors[i] = static_cast<float>(base[i] / scaled[i]);
  return divisors;
}

}  // namespace quire::weights
