// The version of what PackPanel writes (weight_layout.h), for files that keep it. Apart from the layout, so that raising
// it compiles no kernel again.
#pragma once

#include <cstdint>

namespace quire::kernels {

// Raised whenever the same tensors would be packed to other bytes of the same format than before: files of packed
// weights (weights/packed_file.h) of another version are made again.
inline constexpr std::uint32_t kPanelLayoutVersion = 1;

}  // namespace quire::kernels
