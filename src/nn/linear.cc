#include "nn/linear.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "base/check.h"

namespace quire::nn {
namespace {

constexpr int kNumKinds = 3;

// Where the rows of each kind start inside a block of prepared activations: kinds in the order of the
// enumeration, all rows of a kind together, as GemmArgs wants them.
struct PreparedLayout {
  std::array<bool, kNumKinds> used{};
  std::array<std::size_t, kNumKinds> row_bytes{};

  std::size_t RowBytes() const {
    std::size_t sum = 0;
    for (int kind = 0; kind < kNumKinds; ++kind) sum += used[kind] ? row_bytes[kind] : 0;
    return sum;
  }
  std::size_t Offset(kernels::ActivationKind kind, std::int64_t num_rows) const {
    std::size_t sum = 0;
    for (int before = 0; before < static_cast<int>(kind); ++before) sum += used[before] ? row_bytes[before] : 0;
    return sum * static_cast<std::size_t>(num_rows);
  }
};

// How many panels a thread takes at a time, at most: enough for the kernel's parallel streams, few enough that a thread that
// was held up does not hold up the others. With few rows a panel takes little time, and the first ones of a task are read from
// memory without having been prefetched: those tasks are longer.
constexpr std::int64_t kPanelsPerTask = 8, kPanelsPerFewRowsTask = 32;
// Rows of prepared activations that are worked on together, so that they stay in the second-level cache.
constexpr std::int64_t kRowsPerTask = 512;
constexpr std::int64_t kFewRows = 64;
// Rows whose outliers are multiplied together: their outputs lie on the stack, 32 KiB.
constexpr std::int64_t kOutlierRows = 16;
// Values of a row that Embed puts into their columns; no fewer than weights/outlier_columns.h keeps.
constexpr std::int64_t kEmbeddingOutliersMax = 64;

constexpr std::int64_t CacheLinesOfFloats(std::int64_t floats) {
  constexpr std::int64_t kLine = kCacheLineBytes / sizeof(float);
  return (floats + kLine - 1) / kLine * kLine;
}

// Panels [begin, end) as a matrix.
kernels::PackedMatrix PanelsOf(const kernels::PackedMatrix& matrix, std::int64_t begin, std::int64_t end) {
  return {.format = matrix.format,
          .n = std::min(end * kernels::kPanelWidth, matrix.n) - begin * kernels::kPanelWidth,
          .k = matrix.k,
          .data = matrix.data + kernels::PanelBytes(matrix.format, matrix.k) * static_cast<std::size_t>(begin)};
}

}  // namespace

Result<PackedWeights> PackedWeights::Create(kernels::WeightFormat format, std::int64_t num_outputs,
                                            std::int64_t num_inputs) {
  PackedWeights weights;
  QUIRE_TRY(weights.memory_, AlignedBuffer::Allocate(MatrixBytes(format, num_outputs, num_inputs)));
  weights.matrix_ = {.format = format, .n = num_outputs, .k = num_inputs, .data = weights.memory_.data()};
  return weights;
}

PackedWeights PackedWeights::View(const kernels::PackedMatrix& matrix, std::shared_ptr<const MappedFile> file) {
  CHECK(reinterpret_cast<std::uintptr_t>(matrix.data) % kCacheLineBytes == 0);
  PackedWeights weights;
  weights.matrix_ = matrix;
  weights.file_ = std::move(file);
  return weights;
}

Linear::Linear(std::vector<kernels::PackedMatrix> segments, std::vector<float> bias,
               std::vector<std::int32_t> input_order, OutlierColumns outliers)
    : bias_(std::move(bias)), input_order_(std::move(input_order)), outlier_columns_(std::move(outliers.columns)) {
  CHECK(!segments.empty());
  CHECK(outliers.weights.size() == (outlier_columns_.empty() ? 0 : segments.size()));
  num_inputs_ = segments.front().k;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const kernels::PackedMatrix& matrix = segments[i];
    CHECK(matrix.k == num_inputs_);
    segments_.push_back({matrix, num_outputs_, num_panels_});
    num_outputs_ += matrix.n;
    num_panels_ += kernels::NumPanels(matrix.n);
    if (outlier_columns_.empty()) continue;
    const kernels::PackedMatrix& kept = outliers.weights[i];
    CHECK(kept.format == kernels::WeightFormat::kBf16 && kept.n == matrix.n && kept.k == num_outliers());
    segments_.back().outliers = kept;
  }
  CHECK(outlier_columns_.empty() || (outlier_columns_.front() >= 0 && outlier_columns_.back() < num_inputs_));
  CHECK(bias_.empty() || static_cast<std::int64_t>(bias_.size()) == num_outputs_);
  CHECK(input_order_.empty() || static_cast<std::int64_t>(input_order_.size()) == num_inputs_);
}

namespace {

template <typename Segments>
PreparedLayout LayoutFor(const kernels::KernelTable& kernels, const Segments& segments, std::int64_t num_inputs) {
  PreparedLayout layout;
  for (const auto& segment : segments) {
    const auto kind = kernels.activation_kind(segment.matrix.format);
    layout.used[static_cast<std::size_t>(kind)] = true;
    layout.row_bytes[static_cast<std::size_t>(kind)] = kernels.activation_row_bytes(kind, num_inputs);
  }
  return layout;
}

}  // namespace

// prepared:  | rows of each kind that segments read | rows of the outliers | arranged rows, every thread's own |
std::size_t Linear::PreparedRowBytes(const kernels::KernelTable& kernels) const {
  return LayoutFor(kernels, segments_, num_inputs_).RowBytes() + OutlierRowBytes(kernels) +
         static_cast<std::size_t>(ArrangedRowFloats()) * sizeof(float);
}

std::size_t Linear::OutlierRowBytes(const kernels::KernelTable& kernels) const {
  if (num_outliers() == 0) return 0;
  return kernels.activation_row_bytes(kernels.activation_kind(kernels::WeightFormat::kBf16), num_outliers());
}

std::int64_t Linear::ArrangedFloats() const {
  return arranges() ? CacheLinesOfFloats(num_inputs_) : 0;
}

std::int64_t Linear::ArrangedRowFloats() const {
  return ArrangedFloats() + CacheLinesOfFloats(num_outliers());
}

void Linear::Arrange(const float* x, std::int64_t ld_x, std::int64_t num_rows, float* arranged) const {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const float* in = x + row * ld_x;
    float* out = arranged + row * ArrangedRowFloats();
    if (input_order_.empty()) {
      std::copy_n(in, num_inputs_, out);
    } else {
      for (std::int64_t i = 0; i < num_inputs_; ++i) out[i] = in[input_order_[static_cast<std::size_t>(i)]];
    }
    float* outliers = out + ArrangedFloats();
    for (const std::int32_t column : outlier_columns_) *outliers++ = std::exchange(out[column], 0.0f);
  }
}

void Linear::Prepare(const kernels::KernelTable& kernels, const float* x, std::int64_t ld_x, std::int64_t begin,
                     std::int64_t end, std::int64_t num_rows, std::byte* prepared) const {
  const PreparedLayout layout = LayoutFor(kernels, segments_, num_inputs_);
  const float* rows_in_order = x + begin * ld_x;
  if (arranges()) {
    std::byte* outlier_rows = prepared + layout.RowBytes() * static_cast<std::size_t>(num_rows);
    std::byte* arranged_rows = outlier_rows + OutlierRowBytes(kernels) * static_cast<std::size_t>(num_rows);
    float* arranged = reinterpret_cast<float*>(arranged_rows) + begin * ArrangedRowFloats();
    Arrange(rows_in_order, ld_x, end - begin, arranged);
    rows_in_order = arranged;
    ld_x = ArrangedRowFloats();
    if (num_outliers() > 0) {
      kernels.prepare_activations(kernels.activation_kind(kernels::WeightFormat::kBf16), arranged + ArrangedFloats(),
                                  end - begin, num_outliers(), ld_x,
                                  outlier_rows + OutlierRowBytes(kernels) * static_cast<std::size_t>(begin));
    }
  }
  for (int index = 0; index < kNumKinds; ++index) {
    if (!layout.used[index]) continue;
    const auto kind = static_cast<kernels::ActivationKind>(index);
    std::byte* rows =
        prepared + layout.Offset(kind, num_rows) + layout.row_bytes[index] * static_cast<std::size_t>(begin);
    kernels.prepare_activations(kind, rows_in_order, end - begin, num_inputs_, ld_x, rows);
  }
}

void Linear::MultiplyPanels(const kernels::KernelTable& kernels, const std::byte* prepared, std::int64_t num_rows,
                            std::int64_t row_begin, std::int64_t row_end, std::int64_t panel_begin,
                            std::int64_t panel_end, float* y, std::int64_t ld_y) const {
  const PreparedLayout layout = LayoutFor(kernels, segments_, num_inputs_);
  for (const Segment& segment : segments_) {
    const std::int64_t begin = std::max(panel_begin - segment.first_panel, std::int64_t{0});
    const std::int64_t end = std::min(panel_end - segment.first_panel, kernels::NumPanels(segment.matrix.n));
    if (begin >= end) continue;
    const auto kind = kernels.activation_kind(segment.matrix.format);
    const std::size_t row_bytes = layout.row_bytes[static_cast<std::size_t>(kind)];
    float* out = y + row_begin * ld_y + segment.first_output;
    kernels.gemm(
        {.activations = prepared + layout.Offset(kind, num_rows) + row_bytes * static_cast<std::size_t>(row_begin),
         .num_rows = row_end - row_begin,
         .weights = &segment.matrix,
         .panel_begin = begin,
         .panel_end = end,
         .out = out,
         .ld_out = ld_y});
    if (num_outliers() > 0) {
      const std::byte* outlier_rows = prepared + layout.RowBytes() * static_cast<std::size_t>(num_rows);
      AddOutliers(kernels, segment, outlier_rows + OutlierRowBytes(kernels) * static_cast<std::size_t>(row_begin),
                  row_end - row_begin, begin, end, out, ld_y);
    }
    if (bias_.empty()) continue;
    const std::int64_t first = begin * kernels::kPanelWidth;
    const std::int64_t last = std::min(end * kernels::kPanelWidth, segment.matrix.n);
    kernels.add_bias(out + first, bias_.data() + segment.first_output + first, row_end - row_begin, last - first, ld_y);
  }
}

void Linear::AddOutliers(const kernels::KernelTable& kernels, const Segment& segment, const std::byte* activations,
                         std::int64_t num_rows, std::int64_t panel_begin, std::int64_t panel_end, float* out,
                         std::int64_t ld_out) const {
  CHECK(panel_end - panel_begin <= kPanelsPerFewRowsTask);
  alignas(kCacheLineBytes) std::array<float, kOutlierRows * kPanelsPerFewRowsTask * kernels::kPanelWidth> sums;
  constexpr std::int64_t kLdSums = kPanelsPerFewRowsTask * kernels::kPanelWidth;
  const kernels::PackedMatrix weights = PanelsOf(segment.outliers, panel_begin, panel_end);
  for (std::int64_t row = 0; row < num_rows; row += kOutlierRows) {
    const std::int64_t count = std::min(kOutlierRows, num_rows - row);
    kernels.gemm({.activations = activations + OutlierRowBytes(kernels) * static_cast<std::size_t>(row),
                  .num_rows = count,
                  .weights = &weights,
                  .panel_begin = 0,
                  .panel_end = panel_end - panel_begin,
                  .out = sums.data(),
                  .ld_out = kLdSums});
    for (std::int64_t i = 0; i < count; ++i) {
      kernels.add(out + (row + i) * ld_out + panel_begin * kernels::kPanelWidth, sums.data() + i * kLdSums, weights.n);
    }
  }
}

void Linear::Multiply(const ExecContext& context, const std::byte* prepared, std::int64_t num_rows, float* y,
                      std::int64_t ld_y) const {
  const std::int64_t row_tasks = (num_rows + kRowsPerTask - 1) / kRowsPerTask;
  // Where there are so many panels, two tasks for every thread at least; eight of many rows, which take long, so that none
  // waits long for the last one.
  const bool few = num_rows <= kFewRows;
  const std::int64_t tasks_wanted = (few ? 2 : 8) * context.pool->num_threads();
  const std::int64_t per_task = std::clamp(num_panels_ * row_tasks / tasks_wanted, std::int64_t{few ? 1 : 2},
                                           few ? kPanelsPerFewRowsTask : kPanelsPerTask);
  const std::int64_t panel_tasks = (num_panels_ + per_task - 1) / per_task;
  const std::int64_t num_tasks = panel_tasks * row_tasks;
  const auto run = [&](std::int64_t task) {
    const std::int64_t row = task / panel_tasks * kRowsPerTask, panel = task % panel_tasks * per_task;
    MultiplyPanels(*context.kernels, prepared, num_rows, row, std::min(row + kRowsPerTask, num_rows), panel,
                   std::min(panel + per_task, num_panels_), y, ld_y);
  };
  if (num_tasks <= 1 || context.pool->num_threads() == 1) {
    for (std::int64_t task = 0; task < num_tasks; ++task) run(task);
    return;
  }
  // Relaxed: the counter hands out numbers only; the pool orders what the tasks read and write.
  std::atomic<std::int64_t> next{0};
  RunOnPool(context, [&](int) {
    for (std::int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < num_tasks;) run(task);
  });
}

void Linear::Forward(const ExecContext& context, const float* x, std::int64_t ld_x, std::int64_t num_rows, float* y,
                     std::int64_t ld_y) const {
  const Workspace::Scope scope(context.workspace);
  auto* prepared =
      context.workspace->Take<std::byte>(PreparedRowBytes(*context.kernels) * static_cast<std::size_t>(num_rows));
  ForRows(context, num_rows, num_inputs_, [&](std::int64_t begin, std::int64_t end) {
    Prepare(*context.kernels, x, ld_x, begin, end, num_rows, prepared);
  });
  Multiply(context, prepared, num_rows, y, ld_y);
}

void Embed(const ExecContext& context, const EmbeddingTable& table, std::span<const TokenId> tokens, float* out) {
  const std::vector<std::int32_t>& outliers = table.outliers.columns;
  CHECK(static_cast<std::int64_t>(outliers.size()) <= kEmbeddingOutliersMax);
  const std::int64_t columns = table.matrix.k;
  ForRows(context, static_cast<std::int64_t>(tokens.size()), columns, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, kEmbeddingOutliersMax> kept;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t token = tokens[static_cast<std::size_t>(row)].value();
      CHECK(token >= 0 && token < table.matrix.n);
      kernels::UnpackRow(table.matrix, token, out + row * columns);
      if (outliers.empty()) continue;
      kernels::UnpackRow(table.outliers.weights.front(), token, kept.data());
      for (std::size_t i = 0; i < outliers.size(); ++i) out[row * columns + outliers[i]] = kept[i];
    }
  });
}

}  // namespace quire::nn
