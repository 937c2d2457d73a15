#include "weights/quantize.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <memory>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "weights/gguf_file.h"
#include "weights/gguf_model.h"
#include "weights/outlier_columns.h"
#include "weights/quantizing_matrix.h"
#include "weights/row_pipeline.h"
#include "weights/tensor_names.h"
#include "weights/vocabulary_export.h"

namespace quire::weights {
namespace {

struct PlannedTensor {
  std::unique_ptr<MatrixSource> source;  // of one tensor, or of those of a quantised layout
  std::vector<std::int64_t> shape;
  std::string name;  // in the output
  const TypeTraits* type = nullptr;
  int interleaved_heads = 0;  // > 0: rows of this many heads change places, see GgufInterleavesRotaryRows
};

// The layers whose attn_v and ffn_down get more bits: the first and the last eighth, and every third between.
bool UsesMoreBits(int layer, int layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// "blk.12.…" → 12; −1 for a tensor outside the layers.
int LayerOf(std::string_view name) {
  int layer = -1;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

// By the number of layers, whatever the width. Several query heads share a key-value head there, so that attn_v is small
// and gets at least Q5_K of the K types.
bool IsCalled70B(const ModelConfig& config) {
  if (config.num_layers != 80) return false;
  if (config.architecture == Architecture::kQwen2) return true;
  return config.architecture != Architecture::kQwen3 && config.num_heads != config.num_kv_heads;  // else 65B
}

std::string_view ValueType(const GgufFileType& mix, const ModelConfig& config, int layer) {
  const bool few_kv_heads = config.num_heads / config.num_kv_heads >= 4;
  const bool is_mix = mix.name == "Q4_K_M" || mix.name == "Q5_K_M";
  if (is_mix && UsesMoreBits(layer, config.num_layers)) return "Q6_K";
  if (mix.name == "IQ4_NL" && few_kv_heads) return "Q5_K";
  std::string_view type = mix.matrix;
  if (mix.name == "Q2_K") type = few_kv_heads ? "Q4_K" : "Q3_K";
  if (mix.name == "Q3_K_M") type = layer < 2 ? "Q5_K" : "Q4_K";
  return IsCalled70B(config) && (type == "Q3_K" || type == "Q4_K") ? "Q5_K" : type;
}

std::string_view DownType(const GgufFileType& mix, const ModelConfig& config, int layer) {
  const int layers = config.num_layers;
  if (mix.name == "Q2_K") return "Q3_K";
  if (mix.name == "Q3_K_M") return layer < layers / 16 ? "Q5_K" : "Q4_K";
  if (mix.name == "IQ4_NL" && layer < layers / 8) return "Q5_K";
  const bool is_mix = mix.name == "Q4_K_M" || mix.name == "Q5_K_M";
  return is_mix && UsesMoreBits(layer, layers) ? "Q6_K" : mix.matrix;
}

// llama.cpp's mixes (without an importance matrix), as far as the tensors of our architectures go.
std::string_view WantedType(const GgufFileType& mix, const ModelConfig& config, std::string_view name) {
  if (FindTypeByName(mix.matrix)->block_elements == 1) return mix.matrix;
  const bool is_output = name == "output.weight" || (config.tie_word_embeddings && name == "token_embd.weight");
  if (is_output) return mix.matrix == "Q8_0" ? "Q8_0" : "Q6_K";
  if (name.ends_with("attn_v.weight")) return ValueType(mix, config, LayerOf(name));
  if (name.ends_with("ffn_down.weight")) return DownType(mix, config, LayerOf(name));
  if (name.ends_with("attn_output.weight"))
    return mix.name == "Q2_K" ? "Q3_K" : mix.name == "Q3_K_M" ? "Q4_K" : mix.matrix;
  return mix.matrix;
}

// For rows that blocks of 256 do not divide; F16 for those that blocks of 32 do not divide either.
std::string_view FallbackType(std::string_view type) {
  if (type == "Q2_K" || type == "Q3_K") return "Q4_0";
  if (type == "Q4_K") return "Q5_0";
  if (type == "Q5_K") return "Q5_1";
  if (type == "Q6_K") return "Q8_0";
  return "F16";
}

// The matrix of a quantised layout that a tensor belongs to; null for one that stands for itself.
Result<std::unique_ptr<MatrixSource>> QuantizedMatrixOf(const ModelSource& source, const TensorSource& tensor) {
  std::string_view stem = tensor.name;
  while (source.config().quantization && stem.contains('.')) {
    stem = stem.substr(0, stem.rfind('.'));
    if (GgufTensorName(fmt::format("{}.weight", stem)).empty()) continue;
    QUIRE_TRY(auto matrix, source.FindMatrix(stem));
    const bool is_part = matrix != nullptr && std::ranges::count(matrix->info().tensors, &tensor) > 0;
    if (is_part && matrix->info().quantized_layout) return matrix;
    break;
  }
  return nullptr;
}

// One tensor, or a matrix of several, under its name in GGUF.
Result<PlannedTensor> PlanTensor(const ModelSource& source, const TensorSource& tensor) {
  PlannedTensor planned;
  QUIRE_TRY(planned.source, QuantizedMatrixOf(source, tensor));
  std::string name = tensor.name;
  planned.shape = tensor.shape;
  if (planned.source != nullptr) {
    const MatrixInfo& info = planned.source->info();
    name = fmt::format("{}.weight", info.stem);
    planned.shape = {info.rows, info.columns};
  } else {
    QUIRE_TRY(planned.source, OpenPlainMatrix(tensor));
  }
  planned.name = source.is_gguf() ? name : GgufTensorName(name);
  if (planned.name.empty()) return Fail(ErrorCode::kUnsupported, "the tensor {} has no name in GGUF", tensor.name);
  return planned;
}

Result<std::vector<PlannedTensor>> PlanTensors(const ModelSource& source, const GgufFileType& mix,
                                               std::vector<std::string>* notes) {
  const ModelConfig& config = source.config();
  const bool interleave = !source.is_gguf() && GgufInterleavesRotaryRows(config.architecture);
  if (interleave && config.rotary_dim != config.head_dim) {
    return Fail(ErrorCode::kUnsupported, "a Llama that rotates {} of {} dimensions cannot be written to GGUF",
                config.rotary_dim, config.head_dim);
  }
  std::vector<PlannedTensor> plan;
  std::unordered_set<const TensorSource*> planned_already;
  for (const TensorSource& tensor : source.tensors()) {
    // Tables that follow from the configuration, and the second copy of a tied matrix, are not part of the model.
    if (!source.is_gguf() && IsHarmlessTensor(false, tensor.name)) continue;
    if (planned_already.contains(&tensor)) continue;
    QUIRE_TRY(PlannedTensor planned, PlanTensor(source, tensor));
    const MatrixInfo& info = planned.source->info();
    planned_already.insert(info.tensors.begin(), info.tensors.end());
    if (config.tie_word_embeddings && planned.name == "output.weight") continue;
    std::string note;
    planned.type = &TypeInMix(mix, config, planned.name, planned.shape.size(), info.columns, &note);
    if (!note.empty()) notes->push_back(std::move(note));
    if (interleave) {
      const bool is_query = planned.name.find(".attn_q.") != std::string::npos;
      const bool is_key = planned.name.find(".attn_k.") != std::string::npos;
      planned.interleaved_heads = is_query ? config.num_heads : is_key ? config.num_kv_heads : 0;
    }
    plan.push_back(std::move(planned));
  }
  return plan;
}

Result<> WriteTensor(const PlannedTensor& planned, int head_dim, ThreadPool* pool, GgufWriter* writer) {
  const MatrixInfo& info = planned.source->info();
  const auto sink = [&](std::span<const std::byte> rows) { return writer->Append(rows); };
  // A bias is a vector, but its elements are rows of the projection.
  const bool is_vector = planned.shape.size() == 1;
  const std::int64_t heads_rows = is_vector ? info.columns : info.rows;
  if (planned.interleaved_heads > 0 && heads_rows != std::int64_t{planned.interleaved_heads} * head_dim) {
    return Fail(ErrorCode::kCorrupt, "the tensor {} has {} rows; {} heads of {} are wanted", info.name, heads_rows,
                planned.interleaved_heads, head_dim);
  }
  const TensorSource& first = *info.tensors.front();
  const bool same_type = !info.quantized_layout && planned.type == first.type;
  if (same_type && planned.interleaved_heads == 0) return sink(first.data);
  const auto fill = [&](std::int64_t row, float* out) {
    const bool move_row = planned.interleaved_heads > 0 && !is_vector;
    const std::int64_t from = move_row ? InterleavedRow(row, head_dim) : row;
    // What is no weight becomes NaN, which is refused with the name of the tensor.
    if (!planned.source->Dequantize(from, out)) std::fill_n(out, info.columns, std::numeric_limits<float>::quiet_NaN());
    if (planned.interleaved_heads > 0 && is_vector) {
      InterleaveVector(head_dim, {out, static_cast<std::size_t>(info.columns)});
    }
  };
  return EncodeRows(pool, planned.name, *planned.type, info.rows, info.columns, fill, sink);
}

// The metadata of a GGUF source goes over as it is, but for what describes the file itself.
Result<> CopyMetadata(const std::filesystem::path& path, GgufWriter* writer) {
  QUIRE_TRY(const MappedFile mapped, MappedFile::Open(path));
  QUIRE_TRY(const GgufFile file, GgufFile::Parse(mapped.bytes(), path.string()));
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : file.metadata()) keys.push_back(key);
  std::ranges::sort(keys);  // a hash table has no order; files should not differ from run to run
  for (const std::string_view key : keys) {
    if (key != "general.alignment") writer->Put(key, *file.Find(key));
  }
  return {};
}

Result<> PutHuggingFaceMetadata(const ModelSource& source, const std::filesystem::path& path, GgufWriter* writer) {
  QUIRE_TRY(const TextAssets assets, source.ReadTextAssets());
  if (assets.tokenizer_json.empty()) {
    return Fail(ErrorCode::kUnsupported, "{} has no tokenizer.json; a tokenizer.model alone cannot be written to GGUF",
                path.string());
  }
  const std::string name = (path / "tokenizer.json").string();
  QUIRE_TRY(const auto vocabulary, VocabularyFromTokenizerJson(assets, name, source.config()));
  const std::filesystem::path folder = std::filesystem::absolute(path).lexically_normal();
  const std::string model_name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  QUIRE_TRY_VOID(PutConfig(source.config(), source.generation_config(), model_name, writer));
  PutVocabulary(vocabulary, assets.chat_template, writer);
  return {};
}

// The file that a path means: itself, or the only .gguf of the folder.
std::filesystem::path GgufFileOf(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.path().extension() == ".gguf") return entry.path();
  }
  return path;
}

Result<> CheckNotTheSameFile(const std::filesystem::path& source, const std::filesystem::path& output) {
  std::error_code error;
  if (std::filesystem::is_directory(output, error)) {
    return Fail(ErrorCode::kInvalidArgument, "{} is a folder; the name of a .gguf file is wanted", output.string());
  }
  if (std::filesystem::exists(output, error) && std::filesystem::equivalent(source, output, error)) {
    return Fail(ErrorCode::kInvalidArgument, "{} would be read and replaced at once", output.string());
  }
  return {};
}

}  // namespace

const TypeTraits& TypeInMix(const GgufFileType& mix, const ModelConfig& config, std::string_view gguf_name,
                            std::size_t dimensions, std::int64_t columns, std::string* note) {
  if (dimensions < 2) return *FindTypeByName("F32");
  const TypeTraits* type = FindTypeByName(WantedType(mix, config, gguf_name));
  const TypeTraits* wanted = type;
  while (columns % type->block_elements != 0) type = FindTypeByName(FallbackType(type->name));
  if (type != wanted) {
    *note = fmt::format("{} is {} instead of {}, whose blocks of {} do not divide its rows of {}", gguf_name,
                        type->name, wanted->name, wanted->block_elements, columns);
  }
  return *type;
}

Result<QuantizeSummary> QuantizeModel(const std::filesystem::path& source_path, const std::filesystem::path& output,
                                      const QuantizeOptions& options, ThreadPool* pool) {
  const Result<Quantization> name = ParseQuantization(options.type);
  const GgufFileType* mix = name && GgufMixOf(*name) != nullptr ? GgufMixOf(*name) : FindGgufFileType(options.type);
  if (!mix) {
    return FailParam("type", "unknown type \"{}\"; {} are known", options.type, GgufFileTypeNames());
  }
  QUIRE_TRY_VOID(CheckNotTheSameFile(GgufFileOf(source_path), output));
  QUIRE_TRY(const auto source, ModelSource::Open(source_path));
  QuantizeSummary summary{.source_bytes = source->total_bytes()};
  QUIRE_TRY(const std::vector<PlannedTensor> plan, PlanTensors(*source, *mix, &summary.notes));

  QUIRE_TRY(GgufWriter writer, GgufWriter::Create(output));
  PutFileType(*mix, &writer);
  QUIRE_TRY_VOID(source->is_gguf() ? CopyMetadata(GgufFileOf(source_path), &writer)
                                   : PutHuggingFaceMetadata(*source, source_path, &writer));
  const std::vector<float> divisors = FrequencyDivisors(source->config());
  if (!divisors.empty()) {
    const auto size = static_cast<std::int64_t>(divisors.size());
    QUIRE_TRY_VOID(writer.AddTensor(kRopeFrequenciesTensor, *FindTypeByName("F32"), {&size, 1}));
  }
  for (const PlannedTensor& planned : plan) {
    QUIRE_TRY_VOID(writer.AddTensor(planned.name, *planned.type, planned.shape));
  }
  QUIRE_TRY_VOID(writer.WriteHeader());
  QUIRE_TRY_VOID(writer.Append(std::as_bytes(std::span(divisors))));
  std::int64_t done = 0;
  std::size_t num_outlier_columns = 0;
  for (const PlannedTensor& planned : plan) {
    if (planned.shape.size() == 2 && planned.type->block_elements > 1) {
      QUIRE_TRY(const auto columns, FindOutlierColumns(std::array<const MatrixSource*, 1>{planned.source.get()}));
      num_outlier_columns += columns.size();
    }
    QUIRE_TRY_VOID(WriteTensor(planned, source->config().head_dim, pool, &writer));
    for (const TensorSource* tensor : planned.source->info().tensors) {
      source->Release(*tensor);
      done += static_cast<std::int64_t>(tensor->data.size());
    }
    if (options.progress) options.progress(done, summary.source_bytes, planned.name);
  }
  if (num_outlier_columns > 0) {
    summary.notes.push_back(fmt::format(
        "{} column{} with weights that spoil the scales of {} neighbours, and GGUF can keep none apart; "
        "--quantization int8 and int4 keep them in BF16, while loading or in a file of quire pack",
        num_outlier_columns, num_outlier_columns == 1 ? "" : "s", num_outlier_columns == 1 ? "its" : "their"));
  }
  summary.output_bytes = static_cast<std::int64_t>(writer.size());
  QUIRE_TRY_VOID(writer.Commit());
  return summary;
}

}  // namespace quire::weights
