// One tensor in a model file: its type, its shape and its bytes, and how its rows are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/kernel_table.h"

namespace quire::weights {

// A view into a mapped file; the ModelSource owns the mapping. Sizes were checked against the file.
struct TensorSource {
  std::string name;
  struct TypeTraits const* type = nullptr;
  std::vector<std::int64_t> shape;  // outermost first: a matrix is [rows, columns]
  std::span<const std::byte> data;

  std::int64_t rows() const;     // the product of all dimensions but the last; 1 for a vector
  std::int64_t columns() const;  // the last dimension
};

// Storage for one decoded row, in the form that PackPanel takes. Sized once, reused for every row.
struct RowBuffer {
  std::vector<float> values;                        // [k]
  std::vector<std::uint8_t> codes;                  // [k]
  std::vector<float> scales, mins;                  // [k / group], or [k / 256] where there are two levels of scales
  std::vector<std::int8_t> scale_codes, min_codes;  // [k / group]
  kernels::WeightRow View() const;
  // No weight of the row is NaN or infinite. Reads whatever was decoded last: values, or scales and minima.
  bool IsFinite() const;
};

// A type that tensors can be stored in. One row of a table (tensor_types.cc); nothing else in quire switches over types.
struct TypeTraits {
  std::string_view name;              // "Q4_K"
  int gguf_id;                        // ggml_type
  std::string_view safetensors_name;  // "BF16"; "" where safetensors has none
  int block_elements;                 // 1, 32, 256
  int block_bytes;
  kernels::WeightFormat packed;  // the panel format that holds this type exactly
  // Row of `columns` elements at `row` → codes and scales (exact) for integer `packed`, else values. Null for integers
  // that only mean something beside other tensors.
  void (*decode_row)(const std::byte* row, std::int64_t columns, RowBuffer* out);
  // The same row as floats, whatever the type.
  void (*dequantize_row)(const std::byte* row, std::int64_t columns, float* out);
  // Floats → this type, as ggml's reference quantizers round; null where quire does not write the type.
  void (*quantize_row)(const float* values, std::int64_t columns, std::byte* out);
};

const TypeTraits* FindTypeByGgufId(std::uint32_t id);
const TypeTraits* FindTypeBySafetensorsName(std::string_view name);
// Of the types that hold the codes of quantised layouts (code_types.cc) and are in no other list.
const TypeTraits* FindCodeType(std::string_view safetensors_name);
const TypeTraits* FindTypeByName(std::string_view name);  // case-insensitive
std::span<const TypeTraits> AllTypes();
std::string TypeNames();  // "F32, F16, … and MXFP4"

// Bytes of one row of `columns` elements; an error when the type's blocks do not divide it.
Result<std::size_t> RowBytes(const TypeTraits& type, std::int64_t columns, std::string_view tensor_name);

}  // namespace quire::weights
