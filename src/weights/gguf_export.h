// A model's configuration and vocabulary as GGUF metadata, in the words that llama.cpp and gguf_model.h read.
#pragma once

#include <string>
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
std::string GgufFileTypeNames();  // "F32, F16, … and IQ4_NL"

// "llama", "qwen2" or "qwen3". Mistral's files are of the first kind.
std::string_view GgufArchitectureName(Architecture architecture);

// Where GGUF interleaves the rows of a projection (tensor_names.h): row `row` is which row of Hugging Face's; likewise
// the elements of its bias, in place.
std::int64_t InterleavedRow(std::int64_t row, std::int64_t head_dim);
void InterleaveVector(std::int64_t head_dim, std::span<float> bias);

// Every hyper-parameter. Fails where GGUF has no words for one: dynamic RoPE scaling, for example.
Result<> PutConfig(const ModelConfig& config, const GenerationConfig& generation, std::string_view model_name,
                   GgufWriter* writer);
void PutFileType(const GgufFileType& type, GgufWriter* writer);
void PutVocabulary(const GgufVocabulary& vocabulary, std::string_view chat_template, GgufWriter* writer);

// The divisors of rope_freqs.weight that say what this scaling does, [rotary_dim / 2]; empty where keys say it.
std::vector<float> FrequencyDivisors(const ModelConfig& config);

}  // namespace quire::weights
