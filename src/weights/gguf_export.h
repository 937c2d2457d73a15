// A model's configuration and vocabulary as GGUF metadata, in the words that llama.cpp and gguf_model.h read.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/gguf_writer.h"
#include "weights/model_config.h"
#include "weights/model_source.h"

namespace quire::weights {

// What a file of mostly this type is called in general.file_type.
struct GgufFileType {
  std::string_view name;    // "Q4_K_M"
  std::uint32_t id;         // llama.cpp's llama_ftype
  std::string_view matrix;  // the type of most matrices, "Q4_K"
};
// Null when there is no such type; case-insensitive.
const GgufFileType* FindGgufFileType(std::string_view name);
std::span<const GgufFileType> AllGgufFileTypes();

// "llama", "qwen2" or "qwen3". Mistral's files are of the first kind.
std::string_view GgufArchitectureName(Architecture architecture);
// True where GGUF stores the rows of the query and key projections so that the pairs that rotate together are
// neighbours (row 2i and 2i + 1 of a head), while Hugging Face keeps them half a head apart.
bool GgufInterleavesRotaryRows(Architecture architecture);

// Row `row` of such a projection is which row of Hugging Face's; likewise the elements of its bias, in place.
std::int64_t InterleavedRow(std::int64_t row, std::int64_t head_dim);
void InterleaveVector(std::int64_t head_dim, std::span<float> bias);

// Every hyper-parameter. Fails where GGUF has no words for one: dynamic RoPE scaling, for example.
Result<> PutConfig(const ModelConfig& config, const GenerationConfig& generation, std::string_view model_name,
                   GgufWriter* writer);
void PutFileType(const GgufFileType& type, GgufWriter* writer);
void PutVocabulary(const TextAssets::GgufVocabulary& vocabulary, std::string_view chat_template, GgufWriter* writer);

// The divisors of rope_freqs.weight that say what this scaling does, [rotary_dim / 2]; empty where keys say it.
std::vector<float> FrequencyDivisors(const ModelConfig& config);

// "model.layers.3.self_attn.q_proj.weight" → "blk.3.attn_q.weight"; "" for a name that is not of these models.
std::string GgufTensorName(std::string_view hugging_face_name);

}  // namespace quire::weights
