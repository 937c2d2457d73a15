// A random model as a GGUF file: the same model that WriteFolder writes for the same seed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "folder_writer.h"
#include "shapes.h"
#include "synthetic_tokenizer.h"
#include "weights/gguf_export.h"

namespace quire::make_model {

// `notes` receives what is stored in another type than the mix asks for.
Result<> WriteGguf(const std::filesystem::path& path, const Shape& shape, const SyntheticTokenizer& tokenizer,
                   const weights::GgufFileType& type, const WriteOptions& options, ThreadPool* pool,
                   std::vector<std::string>* notes);

}  // namespace quire::make_model
