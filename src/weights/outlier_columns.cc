#include "weights/outlier_columns.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/float16.h"

namespace quire::weights {
namespace {

constexpr std::int64_t kGroup = 32;         // of most formats; two groups of those of 16
constexpr std::size_t kTakenMax = 8;        // of a group: a quarter, 4 bits for each of its weights
constexpr std::int64_t kSampledRows = 256;  // D(0) of a column of normally distributed outliers is known to 9 % then
constexpr std::int64_t kColumnsMax = 64;
constexpr std::int64_t kColumnsOfOneKept = 100;

// Magnitudes of sampled rows, each divided by the root mean square of its row.
class Sample {
 public:
  explicit Sample(std::int64_t columns) : columns_(static_cast<std::size_t>(columns)) {}

  Result<> Add(const MatrixSource& matrix) {
    const std::int64_t rows = matrix.info().rows, count = std::min(rows, kSampledRows);
    std::vector<float> row(columns_);
    for (std::int64_t i = 0; i < count; ++i) {
      QUIRE_TRY_VOID(matrix.Dequantize(i * rows / count, row.data()));
      double sum = 0;
      for (const float value : row) sum += static_cast<double>(value) * static_cast<double>(value);
      // A row of zeros says nothing, and neither does one with what is no number, which packing will refuse.
      if (!(sum > 0 && std::isfinite(sum))) continue;
      const double scale = 1 / std::sqrt(sum / static_cast<double>(columns_));
      for (const float value : row) magnitudes_.push_back(static_cast<float>(std::fabs(value) * scale));
    }
    return {};
  }

  std::size_t num_rows() const { return magnitudes_.size() / columns_; }
  // The group's part of a row.
  const float* Group(std::size_t row, std::int64_t first_column) const {
    return magnitudes_.data() + row * columns_ + first_column;
  }

 private:
  std::size_t columns_;
  std::vector<float> magnitudes_;  // [num_rows, columns_]
};

struct Taken {
  std::vector<std::int32_t> columns;
  double gain = 0;  // D(0) − D(t), for each column
};

// What is best taken out of one group, `most` columns at most.
Taken TakeOut(const Sample& sample, std::int64_t first_column, std::size_t most) {
  std::array<double, kGroup> energy{};
  for (std::size_t row = 0; row < sample.num_rows(); ++row) {
    const float* group = sample.Group(row, first_column);
    for (std::size_t i = 0; i < kGroup; ++i) energy[i] += static_cast<double>(group[i]) * static_cast<double>(group[i]);
  }
  std::array<std::size_t, kGroup> order;  // by energy, the most first
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(-energy[i], i); });

  std::array<double, kTakenMax + 1> error{};  // D
  for (std::size_t row = 0; row < sample.num_rows(); ++row) {
    const float* group = sample.Group(row, first_column);
    double largest = 0;  // of those that are left when `taken` are gone
    for (std::size_t taken = kGroup; taken-- > 0;) {
      largest = std::max(largest, static_cast<double>(group[order[taken]]));
      if (taken <= kTakenMax) error[taken] += largest * largest * static_cast<double>(kGroup - taken);
    }
  }
  std::size_t best = 0;
  double best_net = 1;  // what log2(D(0) / D(t)) − t must exceed
  for (std::size_t taken = 1; taken <= std::min(most, kTakenMax); ++taken) {
    if (error[taken] == 0) break;  // zeros are left, which no scale hurts
    const double net = std::log2(error[0] / error[taken]) - static_cast<double>(taken);
    if (net > best_net) {
      best = taken;
      best_net = net;
    }
  }
  Taken result;
  for (std::size_t i = 0; i < best; ++i) {
    result.columns.push_back(static_cast<std::int32_t>(first_column + static_cast<std::int64_t>(order[i])));
  }
  if (best > 0) result.gain = (error[0] - error[best]) / static_cast<double>(best);
  return result;
}

class KeptColumns final : public MatrixSource {
 public:
  KeptColumns(std::unique_ptr<MatrixSource> floats, std::vector<std::int32_t> kept)
      : MatrixSource({.name = floats->info().name,
                      .type_name = "BF16 columns",
                      .rows = floats->info().rows,
                      .columns = static_cast<std::int64_t>(kept.size()),
                      .packed = kernels::WeightFormat::kBf16}),
        floats_(std::move(floats)),
        kept_(std::move(kept)) {}

  Result<> Decode(std::int64_t row, RowBuffer* out) const override {
    out->values.resize(kept_.size());
    return Dequantize(row, out->values.data());
  }
  Result<> Dequantize(std::int64_t row, float* out) const override {
    std::vector<float> values(static_cast<std::size_t>(floats_->info().columns));
    QUIRE_TRY_VOID(floats_->Dequantize(row, values.data()));
    for (const std::int32_t column : kept_) *out++ = ToFloat(ToBf16(values[static_cast<std::size_t>(column)]));
    return {};
  }

 private:
  const std::unique_ptr<MatrixSource> floats_;
  const std::vector<std::int32_t> kept_;
};

}  // namespace

std::int64_t OutlierColumnsMax(std::int64_t columns) {
  return std::min(kColumnsMax, (columns + kColumnsOfOneKept - 1) / kColumnsOfOneKept);
}

Result<std::vector<std::int32_t>> FindOutlierColumns(std::span<const MatrixSource* const> matrices) {
  const std::int64_t columns = matrices.front()->info().columns;
  std::vector<std::int32_t> found;
  if (columns % kGroup != 0) return found;
  Sample sample(columns);
  for (const MatrixSource* matrix : matrices) QUIRE_TRY_VOID(sample.Add(*matrix));
  const auto most = static_cast<std::size_t>(OutlierColumnsMax(columns));
  std::vector<Taken> groups;
  for (std::int64_t first = 0; first < columns; first += kGroup) {
    Taken taken = TakeOut(sample, first, most);
    if (!taken.columns.empty()) groups.push_back(std::move(taken));
  }
  std::ranges::sort(groups, {}, [](const Taken& group) { return std::pair(-group.gain, group.columns.front()); });
  for (const Taken& group : groups) {  // whole, for what is left would go on spoiling the scale
    if (found.size() + group.columns.size() > most) continue;
    found.insert(found.end(), group.columns.begin(), group.columns.end());
  }
  std::ranges::sort(found);
  return found;
}

std::unique_ptr<MatrixSource> KeepColumns(std::unique_ptr<MatrixSource> floats, std::vector<std::int32_t> kept) {
  return std::make_unique<KeptColumns>(std::move(floats), std::move(kept));
}

}  // namespace quire::weights
