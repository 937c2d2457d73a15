// The safetensors container: eight bytes of header length, a JSON header, then the tensors' bytes without a
// gap. https://github.com/huggingface/safetensors describes it; the checks are those of its reference
// library, and more.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/tensor_source.h"

namespace quire::weights {

inline constexpr std::size_t kSafetensorsHeaderBytesMax = 100'000'000;

// The tensors of one file in the order of their bytes; `file` is the whole file and outlives them, `name`
// stands in errors. Refused: a header that is too long, not a UTF-8 JSON object, or says a key twice; a type
// that quire cannot read; sizes that disagree with shapes; overlaps, gaps, and anything but the exact end of
// the file (SAFE-01, -02, -04).
Result<std::vector<TensorSource>> ParseSafetensors(std::span<const std::byte> file, std::string_view name);

}  // namespace quire::weights
