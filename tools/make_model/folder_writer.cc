#include "folder_writer.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "random_weights.h"
#include "weights/atomic_file.h"
#include "weights/row_pipeline.h"

namespace quire::make_model {
namespace {

using weights::AtomicFile;
using weights::ModelConfig;
using weights::RopeType;

std::string_view ModelType(weights::Architecture architecture) {
  switch (architecture) {
    case weights::Architecture::kLlama:
      return "llama";
    case weights::Architecture::kMistral:
      return "mistral";
    case weights::Architecture::kQwen2:
      return "qwen2";
    case weights::Architecture::kQwen3:
      return "qwen3";
  }
  return {};
}

void WriteRope(const weights::RopeConfig& rope, JsonWriter* json) {
  json->Key("rope_theta").Double(rope.theta).Key("rope_scaling");
  if (rope.type == RopeType::kDefault) {
    json->Null();
    return;
  }
  const auto type = [&](std::string_view name) {
    json->BeginObject().Key("rope_type").String(name).Key("factor").Double(rope.factor);
  };
  switch (rope.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
      type("linear");
      break;
    case RopeType::kDynamic:
      type("dynamic");
      break;
    case RopeType::kLlama3:
      type("llama3");
      json->Key("low_freq_factor").Double(rope.low_freq_factor).Key("high_freq_factor").Double(rope.high_freq_factor);
      json->Key("original_max_position_embeddings").Int(rope.original_max_position_embeddings);
      break;
    case RopeType::kYarn:
      type("yarn");
      json->Key("original_max_position_embeddings").Int(rope.original_max_position_embeddings);
      break;
  }
  json->EndObject();
}

void WriteSlidingWindow(const ModelConfig& config, JsonWriter* json) {
  json->Key("sliding_window");
  config.sliding_window > 0 ? json->Int(config.sliding_window) : json->Null();
  if (config.architecture == weights::Architecture::kMistral) return;
  json->Key("use_sliding_window").Bool(config.sliding_window > 0).Key("layer_types").BeginArray();
  for (const bool sliding : config.layer_uses_sliding_window) {
    json->String(sliding ? "sliding_attention" : "full_attention");
  }
  json->EndArray();
}

void WriteIds(std::string_view key, const std::vector<TokenId>& ids, JsonWriter* json) {
  json->Key(key);
  if (ids.empty()) json->Null();
  if (ids.size() == 1) json->Int(ids.front().value());
  if (ids.size() < 2) return;
  json->BeginArray();
  for (const TokenId id : ids) json->Int(id.value());
  json->EndArray();
}

std::string ConfigJson(const ModelConfig& config, const SyntheticTokenizer& tokenizer, std::string_view dtype) {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Key("architectures").BeginArray().String(config.architecture_name).EndArray();
  json.Key("model_type").String(ModelType(config.architecture)).Key("hidden_act").String("silu");
  json.Key("vocab_size").Int(config.vocab_size).Key("hidden_size").Int(config.hidden_size);
  json.Key("intermediate_size").Int(config.intermediate_size).Key("num_hidden_layers").Int(config.num_layers);
  json.Key("num_attention_heads").Int(config.num_heads).Key("num_key_value_heads").Int(config.num_kv_heads);
  json.Key("head_dim").Int(config.head_dim).Key("max_position_embeddings").Int(config.max_position_embeddings);
  json.Key("rms_norm_eps").Float(config.rms_norm_eps).Key("tie_word_embeddings").Bool(config.tie_word_embeddings);
  json.Key("attention_bias").Bool(config.o_bias).Key("mlp_bias").Bool(config.mlp_bias);
  WriteRope(config.rope, &json);
  if (config.architecture != weights::Architecture::kLlama) WriteSlidingWindow(config, &json);
  WriteIds("bos_token_id", tokenizer.bos_ids, &json);
  WriteIds("eos_token_id", tokenizer.eos_ids, &json);
  json.Key("torch_dtype").String(dtype == "F32" ? "float32" : dtype == "F16" ? "float16" : "bfloat16");
  json.EndObject();
  return text;
}

Result<> WriteText(const std::filesystem::path& path, std::string_view text) {
  QUIRE_TRY(AtomicFile file, AtomicFile::Create(path));
  QUIRE_TRY_VOID(file.Write(text));
  return file.Commit();
}

std::int64_t ElementsOf(const TensorSpec& tensor) {
  std::int64_t elements = 1;
  for (const std::int64_t dimension : tensor.shape) elements *= dimension;
  return elements;
}

std::string SafetensorsHeader(std::span<const TensorSpec> tensors, const weights::TypeTraits& type) {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Key("__metadata__").BeginObject().Key("format").String("pt").EndObject();
  std::int64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    json.Key(tensor.name).BeginObject().Key("dtype").String(type.safetensors_name).Key("shape").BeginArray();
    for (const std::int64_t dimension : tensor.shape) json.Int(dimension);
    const std::int64_t end = offset + ElementsOf(tensor) * type.block_bytes;
    json.EndArray().Key("data_offsets").BeginArray().Int(offset).Int(end).EndArray().EndObject();
    offset = end;
  }
  json.EndObject();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data is aligned
  return text;
}

class FolderWriter {
 public:
  FolderWriter(const std::filesystem::path& folder, const weights::TypeTraits& type, const WriteOptions& options,
               ThreadPool* pool, std::int64_t elements)
      : folder_(folder), type_(type), options_(options), pool_(pool), elements_(elements) {}

  Result<> WriteSafetensors(const std::string& name, std::span<const TensorSpec> tensors) {
    QUIRE_TRY(AtomicFile file, AtomicFile::Create(folder_ / name));
    const std::string header = SafetensorsHeader(tensors, type_);
    const std::uint64_t header_bytes = header.size();
    QUIRE_TRY_VOID(file.Write(std::as_bytes(std::span(&header_bytes, 1))));
    QUIRE_TRY_VOID(file.Write(header));
    for (const TensorSpec& tensor : tensors) {
      const std::int64_t elements = ElementsOf(tensor), columns = tensor.shape.back();
      QUIRE_TRY_VOID(weights::EncodeRows(
          pool_, tensor.name, type_, elements / columns, columns,
          [&](std::int64_t row, float* out) { RandomRow(options_.seed, tensor, row, out); },
          [&](std::span<const std::byte> rows) { return file.Write(rows); }));
      done_ += elements;
      if (options_.progress) options_.progress(done_, elements_, tensor.name);
    }
    return file.Commit();
  }

  // Shards of about the same number of elements, and the index over them.
  Result<> WriteShards(std::span<const TensorSpec> tensors) {
    std::string index;
    JsonWriter json(&index);
    json.BeginObject().Key("metadata").BeginObject().Key("total_size").Int(elements_ * type_.block_bytes).EndObject();
    json.Key("weight_map").BeginObject();
    std::size_t begin = 0;
    std::int64_t taken = 0;
    for (int shard = 1; shard <= options_.num_shards; ++shard) {
      const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", shard, options_.num_shards);
      std::size_t end = begin;
      const std::size_t end_max = tensors.size() - static_cast<std::size_t>(options_.num_shards - shard);
      while (end < end_max &&
             (end == begin || shard == options_.num_shards || taken < elements_ / options_.num_shards * shard)) {
        taken += ElementsOf(tensors[end]);
        json.Key(tensors[end].name).String(name);
        ++end;
      }
      QUIRE_TRY_VOID(WriteSafetensors(name, tensors.subspan(begin, end - begin)));
      begin = end;
    }
    json.EndObject().EndObject();
    return WriteText(folder_ / "model.safetensors.index.json", index);
  }

 private:
  const std::filesystem::path& folder_;
  const weights::TypeTraits& type_;
  const WriteOptions& options_;
  ThreadPool* pool_;
  std::int64_t elements_, done_ = 0;
};

}  // namespace

Result<> WriteFolder(const std::filesystem::path& folder, const Shape& shape, const SyntheticTokenizer& tokenizer,
                     const weights::TypeTraits& type, const WriteOptions& options, ThreadPool* pool) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Fail(ErrorCode::kIo, "cannot create {}: {}", folder.string(), error.message());
  // An index of an earlier run would hide the new file.
  std::filesystem::remove(folder / "model.safetensors.index.json", error);
  const std::vector<TensorSpec> tensors = TensorsOf(shape.config);
  if (options.num_shards < 1 || static_cast<std::size_t>(options.num_shards) > tensors.size()) {
    return Fail(ErrorCode::kInvalidArgument, "{} shards for {} tensors", options.num_shards, tensors.size());
  }
  QUIRE_TRY_VOID(WriteText(folder / "config.json", ConfigJson(shape.config, tokenizer, type.name)));
  QUIRE_TRY_VOID(WriteText(folder / "tokenizer.json", tokenizer.tokenizer_json));
  QUIRE_TRY_VOID(WriteText(folder / "tokenizer_config.json", tokenizer.tokenizer_config_json));
  std::string generation;
  JsonWriter json(&generation);
  json.BeginObject();
  WriteIds("eos_token_id", tokenizer.eos_ids, &json);
  json.EndObject();
  QUIRE_TRY_VOID(WriteText(folder / "generation_config.json", generation));
  std::int64_t elements = 0;
  for (const TensorSpec& tensor : tensors) elements += ElementsOf(tensor);
  FolderWriter writer(folder, type, options, pool, elements);
  return options.num_shards == 1 ? writer.WriteSafetensors("model.safetensors", tensors) : writer.WriteShards(tensors);
}

}  // namespace quire::make_model
