// Arbitrary bytes as a GGUF file: an error or a file whose every tensor can be read to its last byte.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "weights/gguf_file.h"
#include "weights/gguf_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quire::weights;
  const auto file = GgufFile::Parse(std::as_bytes(std::span(data, size)), "fuzz.gguf");
  if (!file.has_value()) {
    if (file.error().message.empty()) std::abort();
    return 0;
  }
  std::vector<float> row;
  for (const TensorSource& tensor : file->tensors()) {
    row.resize(static_cast<std::size_t>(tensor.columns()));
    const auto row_bytes = RowBytes(*tensor.type, tensor.columns(), tensor.name);
    if (!row_bytes.has_value() || *row_bytes * static_cast<std::size_t>(tensor.rows()) != tensor.data.size())
      std::abort();
    for (std::int64_t r = 0; r < tensor.rows(); ++r) {
      tensor.type->dequantize_row(tensor.data.data() + static_cast<std::size_t>(r) * *row_bytes, tensor.columns(),
                                  row.data());
    }
  }
  for (const auto& [key, value] : file->metadata()) {
    (void)file->OptionalIntForEach(key, 3, -1000, 1000);
    (void)file->OptionalReal(key, 0, 1);
    (void)file->OptionalBool(key);
    (void)file->OptionalString(key);
    (void)file->Strings(key);
    (void)file->Floats(key);
    (void)file->Int32s(key);
    (void)file->Bools(key);
  }
  (void)ParseGgufConfig(*file);
  (void)ParseGgufGenerationConfig(*file);
  (void)ReadGgufTextAssets(*file);
  return 0;
}
