// Arbitrary bytes as a safetensors file: an error, or tensors that cover the data without overlap.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quire::weights;
  // Random bytes hardly ever hold a header's length: take it from the first byte instead of the first eight.
  std::vector<std::byte> file(8);
  if (size > 0) {
    const std::size_t header = std::min<std::size_t>(std::size_t{data[0]} * 4, size - 1);
    for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<std::byte>(header >> (8 * i) & 255);
    const auto rest = std::as_bytes(std::span(data + 1, size - 1));
    file.insert(file.end(), rest.begin(), rest.end());
  }
  for (const std::span<const std::byte> bytes :
       {std::as_bytes(std::span(data, size)), std::span<const std::byte>(file)}) {
    const auto tensors = ParseSafetensors(bytes, "fuzz.safetensors");
    if (!tensors.has_value()) {
      if (tensors.error().message.empty()) std::abort();
      continue;
    }
    const std::byte* end = nullptr;
    for (const TensorSource& tensor : *tensors) {
      if (end && tensor.data.data() != end) std::abort();
      end = tensor.data.data() + tensor.data.size();
      if (static_cast<std::size_t>(tensor.rows() * tensor.columns() * tensor.type->block_bytes) != tensor.data.size())
        std::abort();
      if (tensor.data.empty()) continue;
      std::vector<float> row(static_cast<std::size_t>(tensor.columns()));
      tensor.type->dequantize_row(tensor.data.data(), tensor.columns(), row.data());
    }
    if (end && end != bytes.data() + bytes.size()) std::abort();
  }
  return 0;
}
