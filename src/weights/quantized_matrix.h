// The quantised layouts of Hugging Face checkpoints, one file each: which tensors a matrix consists of, and how they
// become codes, scales and zero points. Everything is checked when a matrix is opened, but for what only its codes
// show, which is checked as rows are read.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/matrix_source.h"
#include "weights/model_source.h"
#include "weights/quantization_config.h"

namespace quire::weights {

// The matrix called `stem`; null when the source holds none of its tensors.
Result<std::unique_ptr<MatrixSource>> OpenQuantizedMatrix(const ModelSource& source, const QuantizationConfig& config,
                                                          std::string_view stem);

// What the layouts share -------------------------------------------------------------------------------------------

// The tensors of one matrix: finds them by their suffix, checks their types, and remembers them.
class MatrixTensors {
 public:
  MatrixTensors(const ModelSource& source, std::string_view stem) : source_(source), stem_(stem) {}

  const std::string& stem() const { return stem_; }
  // A tensor that has to be there, of one of the types.
  Result<const TensorSource*> Require(std::string_view suffix, std::initializer_list<std::string_view> types);
  // Null when it is not there.
  Result<const TensorSource*> Optional(std::string_view suffix, std::initializer_list<std::string_view> types);
  // Belongs to the matrix, and is not needed.
  void Ignore(std::string_view suffix);
  // What a checkpoint says about activations. quire's are not coarser than what they were calibrated for: it derives
  // their scales from the values themselves, or leaves them as they are.
  void IgnoreActivationScales();
  std::vector<const TensorSource*> Take() { return std::move(tensors_); }

 private:
  const ModelSource& source_;
  const std::string stem_;
  std::vector<const TensorSource*> tensors_;
};

// "tensor X has shape [3, 4]; [3, 5] is wanted, because …"
Result<> CheckShape(const TensorSource& tensor, std::initializer_list<std::int64_t> shape, std::string_view because);
// Matrices of two dimensions, neither of them zero, both below 2^31.
Result<> CheckIsMatrix(const TensorSource& tensor);
// All elements as floats. A NaN or an infinity is an error.
Result<std::vector<float>> ReadFiniteFloats(const TensorSource& tensor);
// All elements of a tensor of I8, U8, I32 or I64 that fit in 32 bits; others are an error.
Result<std::vector<std::int32_t>> ReadIntegers(const TensorSource& tensor);

// Not constexpr: g++ 12 refuses such a list. Its array lives as long as the program.
inline const std::initializer_list<std::string_view> kScaleTypes = {"F16", "BF16", "F32"};

// Scales of groups of inputs, [rows, groups]; for one group also [rows], or one for everything.
struct RowScales {
  std::vector<float> values;  // [rows, num_groups]
  std::int64_t num_groups = 1;
};
Result<RowScales> ReadRowScales(const TensorSource& tensor, std::int64_t rows, std::int64_t columns);

// [columns] → groups of equal size in their order.
std::vector<std::int32_t> ContiguousGroups(std::int64_t columns, std::int64_t num_groups);
// The group of each input. No tensor, or −1 everywhere: contiguous groups.
Result<std::vector<std::int32_t>> ReadGroupIndex(const TensorSource* g_idx, std::int64_t columns,
                                                 std::int64_t num_groups);

// The number of groups of inputs that the configuration gives a matrix of AWQ or GPTQ, where the other tensors have the
// shapes that follow: zero points [groups, zero_words] in packed words, scales [groups, rows].
Result<std::int64_t> CountGroups(const QuantizationConfig& config, const TensorSource& qweight, std::int64_t rows,
                                 std::int64_t columns, const TensorSource& qzeros, std::int64_t zero_words,
                                 const TensorSource& scales);

// Packed words: the first value in the lowest bits, values that cross the border of two words included.
inline std::uint32_t LoadWord(const TensorSource& tensor, std::int64_t index) {
  std::uint32_t word;
  __builtin_memcpy(&word, tensor.data.data() + index * static_cast<std::int64_t>(sizeof word), sizeof word);
  return word;
}
template <typename Load>
void ReadBitStream(std::int64_t count, int bits, Load load, std::uint8_t* out) {
  std::uint64_t buffer = 0;
  int available = 0;
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (available < bits) {
      buffer |= std::uint64_t{load(next++)} << available;
      available += 32;
    }
    out[i] = static_cast<std::uint8_t>(buffer & ((1u << bits) - 1));
    buffer >>= bits;
    available -= bits;
  }
}

// A matrix of integer codes: w[row, c] = scale · (code − zero), scale and zero those of the row and of c's group.
struct IntegerCodes {
  int bits = 0;  // codes and zeros are below 2^bits
  std::int64_t num_groups = 0;
  std::vector<std::int32_t> group_of_column;                        // [columns]
  std::vector<float> scales;                                        // [rows, num_groups], finite
  std::vector<std::uint8_t> zeros;                                  // [rows, num_groups], or one value for all
  std::function<void(std::int64_t row, std::uint8_t* codes)> read;  // [columns], called by several threads
  bool sparse = false;                                              // of every four at most two differ from the zero
};
// Chooses the panel format and, where it brings groups together, the order of the columns.
std::unique_ptr<MatrixSource> MakeIntegerMatrix(MatrixInfo info, IntegerCodes codes);

// IntegerCodes::read of a tensor [rows, columns] of I8: 128 more than its values.
std::function<void(std::int64_t row, std::uint8_t* codes)> ReadSignedBytes(const TensorSource& tensor);

// From [num_groups, rows], as AWQ and GPTQ have it, to [rows, num_groups].
template <typename T>
std::vector<T> Transposed(std::span<const T> values, std::int64_t num_groups) {
  std::vector<T> out(values.size());
  const std::int64_t rows = static_cast<std::int64_t>(values.size()) / num_groups;
  for (std::int64_t group = 0; group < num_groups; ++group) {
    for (std::int64_t row = 0; row < rows; ++row) {
      out[static_cast<std::size_t>(row * num_groups + group)] = values[static_cast<std::size_t>(group * rows + row)];
    }
  }
  return out;
}

// The layouts --------------------------------------------------------------------------------------------------------

using OpenedMatrix = Result<std::unique_ptr<MatrixSource>>;
OpenedMatrix OpenAwq(const ModelSource& source, const QuantizationConfig& config, std::string_view stem);
OpenedMatrix OpenGptq(const ModelSource& source, const QuantizationConfig& config, std::string_view stem);
OpenedMatrix OpenPackedIntegers(const ModelSource& source, const QuantizationConfig& config, std::string_view stem);
OpenedMatrix OpenInt8(const ModelSource& source, const QuantizationConfig& config, std::string_view stem);
OpenedMatrix OpenFloat8(const ModelSource& source, const QuantizationConfig& config, std::string_view stem);
OpenedMatrix OpenSparse24(const ModelSource& source, const QuantizationConfig& config, std::string_view stem);
OpenedMatrix OpenBitsAndBytesInt8(const ModelSource& source, const QuantizationConfig& config, std::string_view stem);
OpenedMatrix OpenBitsAndBytes4Bit(const ModelSource& source, const QuantizationConfig& config, std::string_view stem);

}  // namespace quire::weights
