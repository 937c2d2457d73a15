// A random model as a Hugging Face folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "shapes.h"
#include "synthetic_tokenizer.h"
#include "weights/tensor_source.h"

namespace quire::make_model {

struct WriteOptions {
  std::uint64_t seed = 1;
  int num_shards = 1;  // files of a folder
  std::function<void(std::int64_t elements_done, std::int64_t elements, std::string_view tensor)> progress;
};

// `type` is F32, F16 or BF16. Files that stand in the folder already are replaced.
Result<> WriteFolder(const std::filesystem::path& folder, const Shape& shape, const SyntheticTokenizer& tokenizer,
                     const weights::TypeTraits& type, const WriteOptions& options, ThreadPool* pool);

}  // namespace quire::make_model
