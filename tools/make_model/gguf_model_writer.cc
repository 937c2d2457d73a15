#include "gguf_model_writer.h"

#include <utility>

#include "random_weights.h"
#include "weights/gguf_model.h"
#include "weights/gguf_writer.h"
#include "weights/quantize.h"
#include "weights/row_pipeline.h"
#include "weights/tensor_names.h"
#include "weights/vocabulary_export.h"

namespace quire::make_model {
namespace {

struct Planned {
  TensorSpec tensor;
  const weights::TypeTraits* type = nullptr;
  int interleaved_heads = 0;
};

std::vector<Planned> PlanTensors(const weights::ModelConfig& config, const weights::GgufFileType& mix,
                                 std::vector<std::string>* notes) {
  std::vector<Planned> plan;
  const bool interleave = weights::GgufInterleavesRotaryRows(config.architecture);
  for (TensorSpec& tensor : TensorsOf(config)) {
    Planned planned{.tensor = std::move(tensor)};
    const std::string name = weights::GgufTensorName(planned.tensor.name);
    std::string note;
    planned.type =
        &weights::TypeInMix(mix, config, name, planned.tensor.shape.size(), planned.tensor.shape.back(), &note);
    if (!note.empty()) notes->push_back(std::move(note));
    if (interleave && planned.tensor.name.find(".q_proj.") != std::string::npos)
      planned.interleaved_heads = config.num_heads;
    if (interleave && planned.tensor.name.find(".k_proj.") != std::string::npos)
      planned.interleaved_heads = config.num_kv_heads;
    plan.push_back(std::move(planned));
  }
  return plan;
}

}  // namespace

Result<> WriteGguf(const std::filesystem::path& path, const Shape& shape, const SyntheticTokenizer& tokenizer,
                   const weights::GgufFileType& type, const WriteOptions& options, ThreadPool* pool,
                   std::vector<std::string>* notes) {
  weights::ModelConfig config = shape.config;
  config.eos_token_ids = tokenizer.eos_ids;
  if (!tokenizer.bos_ids.empty()) config.bos_token_id = tokenizer.bos_ids.front();
  const weights::TextAssets assets{.tokenizer_json = tokenizer.tokenizer_json,
                                   .chat_template = tokenizer.chat_template,
                                   .bos_token = tokenizer.bos_token,
                                   .eos_token = tokenizer.eos_token};
  QUIRE_TRY(const auto vocabulary, weights::VocabularyFromTokenizerJson(assets, "tokenizer.json", config));
  const std::vector<Planned> plan = PlanTensors(config, type, notes);

  QUIRE_TRY(auto writer, weights::GgufWriter::Create(path));
  weights::PutFileType(type, &writer);
  QUIRE_TRY_VOID(weights::PutConfig(config, {}, "random-" + shape.name, &writer));
  weights::PutVocabulary(vocabulary, tokenizer.chat_template, &writer);
  const std::vector<float> divisors = weights::FrequencyDivisors(config);
  if (!divisors.empty()) {
    const auto size = static_cast<std::int64_t>(divisors.size());
    QUIRE_TRY_VOID(writer.AddTensor(weights::kRopeFrequenciesTensor, *weights::FindTypeByName("F32"), {&size, 1}));
  }
  std::int64_t elements = 0, done = 0;
  for (const Planned& planned : plan) {
    const TensorSpec& tensor = planned.tensor;
    QUIRE_TRY_VOID(writer.AddTensor(weights::GgufTensorName(tensor.name), *planned.type, tensor.shape));
    elements += tensor.shape.size() == 1 ? tensor.shape[0] : tensor.shape[0] * tensor.shape[1];
  }
  QUIRE_TRY_VOID(writer.WriteHeader());
  QUIRE_TRY_VOID(writer.Append(std::as_bytes(std::span(divisors))));
  for (const Planned& planned : plan) {
    const TensorSpec& tensor = planned.tensor;
    const std::int64_t columns = tensor.shape.back(), rows = tensor.shape.size() == 1 ? 1 : tensor.shape[0];
    const auto fill = [&](std::int64_t row, float* out) {
      const bool is_vector = tensor.shape.size() == 1;
      const bool move_row = planned.interleaved_heads > 0 && !is_vector;
      RandomRow(options.seed, tensor, move_row ? weights::InterleavedRow(row, config.head_dim) : row, out);
      if (planned.interleaved_heads > 0 && is_vector)
        weights::InterleaveVector(config.head_dim, {out, static_cast<std::size_t>(columns)});
    };
    QUIRE_TRY_VOID(weights::EncodeRows(pool, tensor.name, *planned.type, rows, columns, fill,
                                       [&](std::span<const std::byte> bytes) { return writer.Append(bytes); }));
    done += rows * columns;
    if (options.progress) options.progress(done, elements, tensor.name);
  }
  return writer.Commit();
}

}  // namespace quire::make_model
