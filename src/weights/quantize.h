// A model in another storage type: a Hugging Face folder or a GGUF file in, a GGUF file out, which quire and
// llama.cpp both load, with its tokenizer and chat template.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "weights/gguf_export.h"
#include "weights/model_source.h"

namespace quire::weights {

struct QuantizeOptions {
  std::string type = "Q8_0";  // one of GgufFileTypeNames(), or int8 or int4 (see quantizing_matrix.h)
  // Called from the calling thread: bytes of the source done, bytes in all, name of the tensor.
  std::function<void(std::int64_t done, std::int64_t total, std::string_view tensor)> progress;
};

struct QuantizeSummary {
  std::int64_t source_bytes = 0;  // of all tensors
  std::int64_t output_bytes = 0;  // of the file
  // Tensors that are stored in another type than the mix asks for, and why; columns that outlier_columns.h would keep.
  std::vector<std::string> notes;
};

// Norms and biases stay F32. The types of the matrices are those of llama.cpp's file of the same name: the output matrix
// of every quantised type but Q8_0 is Q6_K, the K types and IQ4_NL give some of the layers' attn_v, ffn_down and attn_output
// more bits. Rows that blocks of 256 do not divide fall back, Q2_K and Q3_K to Q4_0, Q4_K to Q5_0, Q5_K to Q5_1, Q6_K
// to Q8_0, and all to F16 that blocks of 32 do not divide either. The output appears when it is complete.
Result<QuantizeSummary> QuantizeModel(const std::filesystem::path& source, const std::filesystem::path& output,
                                      const QuantizeOptions& options, ThreadPool* pool);

// The type that the mix gives a tensor of this GGUF name and row length; `note` says why it is another, if it is.
const TypeTraits& TypeInMix(const GgufFileType& mix, const ModelConfig& config, std::string_view gguf_name,
                            std::size_t dimensions, std::int64_t columns, std::string* note);

}  // namespace quire::weights
