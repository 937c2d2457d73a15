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
  std::string type = "Q8_0";  // F32, F16, BF16, Q8_0, Q4_0 or Q4_K_M
  // Called from the calling thread: bytes of the source done, bytes in all, name of the tensor.
  std::function<void(std::int64_t done, std::int64_t total, std::string_view tensor)> progress;
};

struct QuantizeSummary {
  std::int64_t source_bytes = 0;   // of all tensors
  std::int64_t output_bytes = 0;   // of the file
  std::vector<std::string> notes;  // tensors that are stored in another type than the mix asks for, and why
};

// Norms and biases stay F32. Q4_K_M is llama.cpp's mix: Q6_K for the output matrix and for half of the layers'
// attn_v and ffn_down, else Q4_K. The output matrix of a Q4_0 file is Q6_K too. Rows that a type's blocks do not
// divide fall back: Q6_K to Q8_0, Q4_K to Q4_0, and either to F16. The output appears when it is complete.
Result<QuantizeSummary> QuantizeModel(const std::filesystem::path& source, const std::filesystem::path& output,
                                      const QuantizeOptions& options, ThreadPool* pool);

// The type that the mix gives a tensor of this GGUF name and row length; `note` says why it is another, if it is.
const TypeTraits& TypeInMix(const GgufFileType& mix, const ModelConfig& config, std::string_view gguf_name,
                            std::size_t dimensions, std::int64_t columns, std::string* note);

}  // namespace quire::weights
