// Arbitrary bytes as what a file of packed weights says of quantised matrices: an error, or columns that exist, each
// once, which are written as the bytes that they were read from.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "weights/outlier_columns.h"
#include "weights/quantization_note.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quire::weights;
  constexpr std::int64_t kColumns = 320;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto note = ReadQuantizationNote(bytes, kColumns, 1);
  if (!note) return note.error().message.empty() ? std::abort(), 0 : 0;
  const std::vector<std::int32_t>& columns = note->outlier_columns;
  if (static_cast<std::int64_t>(columns.size()) > OutlierColumnsMax(kColumns)) std::abort();
  if (!std::ranges::is_sorted(columns) || std::ranges::adjacent_find(columns) != columns.end()) std::abort();
  if (!columns.empty() && (columns.front() < 0 || columns.back() >= kColumns)) std::abort();
  if (!std::ranges::equal(WriteQuantizationNote(*note), bytes)) std::abort();
  return 0;
}
