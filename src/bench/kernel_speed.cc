#include "bench/kernel_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>

#include "base/aligned_buffer.h"
#include "base/json.h"
#include "bench/roofline.h"
#include "kernels/kernel_cases.h"

namespace quire::bench {
namespace {

using kernels::KernelTable;
using kernels::WeightFormat;

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A matrix in as many copies as the working set holds.
struct Weights {
  AlignedBuffer memory;
  std::vector<kernels::PackedMatrix> copies;
};

Result<Weights> MakeWeights(WeightFormat format, const kernels::ProjectionShape& shape, std::size_t working_set) {
  QUIRE_TRY(const kernels::RandomMatrix matrix, kernels::MakeRandomMatrix(format, shape.n, shape.k, 1, false));
  const std::size_t bytes = matrix.memory.size(), stride = (bytes + 63) / 64 * 64;
  const std::size_t count = std::max<std::size_t>(1, working_set / stride);
  Weights weights;
  QUIRE_TRY(weights.memory, AlignedBuffer::Allocate(count * stride));
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(weights.memory.data() + i * stride, matrix.memory.data(), bytes);
    weights.copies.push_back(matrix.packed);
    weights.copies.back().data = weights.memory.data() + i * stride;
  }
  return weights;
}

// What a format's products are done with on a tier.
Limit ComputeLimit(const KernelTable& table, WeightFormat format) {
  switch (table.activation_kind(format)) {
    case kernels::ActivationKind::kInt8:
      return Limit::kInt8;
    case kernels::ActivationKind::kBf16:
      return Limit::kBf16;
    case kernels::ActivationKind::kF32:
      return Limit::kFma;
  }
  return Limit::kFma;
}

// One case: its buffers, and a call that multiplies with the next copy of the weights.
class Case {
 public:
  static Result<Case> Create(ThreadPool* pool, const KernelTable* table, const Weights* weights, std::int64_t m) {
    const kernels::PackedMatrix& matrix = weights->copies[0];
    const kernels::ActivationKind kind = table->activation_kind(matrix.format);
    const auto rows = static_cast<std::size_t>(m);
    Case result(pool, table, weights, m);
    QUIRE_TRY(result.activations_, AlignedBuffer::Allocate(rows * table->activation_row_bytes(kind, matrix.k)));
    QUIRE_TRY(result.out_, AlignedBuffer::Allocate(rows * static_cast<std::size_t>(matrix.n) * sizeof(float)));
    std::vector<float> x(rows * static_cast<std::size_t>(matrix.k));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 2654435761 % 1000) * 1e-3f - 0.5f;
    table->prepare_activations(kind, x.data(), m, matrix.k, matrix.k, result.activations_.data());
    return result;
  }

  // Seconds of one multiplication, averaged over `count` of them.
  double Time(std::int64_t count) {
    const double begin = SecondsNow();
    for (std::int64_t i = 0; i < count; ++i) Multiply();
    return (SecondsNow() - begin) / static_cast<double>(count);
  }

 private:
  Case(ThreadPool* pool, const KernelTable* table, const Weights* weights, std::int64_t m)
      : pool_(pool), table_(table), weights_(weights), m_(m) {}

  void Multiply() {
    const kernels::PackedMatrix& matrix = weights_->copies[next_++ % weights_->copies.size()];
    pool_->ParallelFor(kernels::NumPanels(matrix.n), 1, [&](std::int64_t begin, std::int64_t end) {
      table_->gemm({.activations = activations_.data(),
                    .num_rows = m_,
                    .weights = &matrix,
                    .panel_begin = begin,
                    .panel_end = end,
                    .out = out_.as<float>().data(),
                    .ld_out = matrix.n});
    });
  }

  ThreadPool* pool_;
  const KernelTable* table_;
  const Weights* weights_;
  std::int64_t m_;
  std::size_t next_ = 0;
  AlignedBuffer activations_, out_;
};

Result<KernelSpeedRow> Measure(ThreadPool* pool, Roofline* roofline, const KernelTable& table,
                               const kernels::ProjectionShape& shape, const Weights& weights, std::int64_t m,
                               int repeats) {
  const WeightFormat format = weights.copies[0].format;
  QUIRE_TRY(Case bench_case, Case::Create(pool, &table, &weights, m));
  const double bytes =
      static_cast<double>(kernels::NumPanels(shape.n)) * static_cast<double>(kernels::PanelBytes(format, shape.k));
  const double operations = 2.0 * static_cast<double>(m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  const double once = bench_case.Time(1);  // and warms up
  const auto count = std::clamp<std::int64_t>(static_cast<std::int64_t>(0.02 / once), 1, 10000);
  std::vector<double> seconds, fractions;
  bool memory_bound = false;
  for (int i = 0; i < repeats; ++i) {
    const double bandwidth = roofline->Measure(Limit::kReadBandwidth) * 1e9;
    const double peak = roofline->Measure(ComputeLimit(table, format)) * 1e9;
    seconds.push_back(bench_case.Time(count));
    memory_bound = bytes / bandwidth > operations / peak;
    fractions.push_back(std::max(bytes / bandwidth, operations / peak) / seconds.back());
  }
  const double median = Median(seconds);
  return KernelSpeedRow{.isa = table.isa,
                        .model = std::string(shape.model),
                        .projection = std::string(shape.name),
                        .format = std::string(kernels::Traits(format).name),
                        .m = m,
                        .n = shape.n,
                        .k = shape.k,
                        .num_threads = pool->num_threads(),
                        .microseconds = median * 1e6,
                        .gb_per_second = bytes / median / 1e9,
                        .gop_per_second = operations / median / 1e9,
                        .limit_fraction = Median(fractions),
                        .limit_fraction_min = *std::min_element(fractions.begin(), fractions.end()),
                        .limit_fraction_max = *std::max_element(fractions.begin(), fractions.end()),
                        .memory_bound = memory_bound};
}

bool Wanted(const KernelSpeedOptions& options, const kernels::ProjectionShape& shape) {
  if (!options.model.empty() && options.model != shape.model) return false;
  return options.projection.empty() ? shape.name != "lm_head" : options.projection == shape.name;
}

}  // namespace

Result<std::vector<KernelSpeedRow>> RunKernelSpeed(ThreadPool* pool, const KernelSpeedOptions& options) {
  std::vector<const KernelTable*> tables;
  for (const std::string& isa : options.isas) {
    QUIRE_TRY(const KernelTable* table, kernels::SelectKernels(isa));
    tables.push_back(table);
  }
  if (tables.empty()) tables.push_back(*kernels::SelectKernels(""));
  std::vector<WeightFormat> formats = options.formats;
  if (formats.empty()) formats.assign(std::begin(kernels::kAllWeightFormats), std::end(kernels::kAllWeightFormats));

  QUIRE_TRY(Roofline roofline, Roofline::Create(pool, std::size_t{512} << 20));
  std::vector<KernelSpeedRow> rows;
  for (const kernels::ProjectionShape& shape : kernels::RealProjections()) {
    if (!Wanted(options, shape)) continue;
    for (const WeightFormat format : formats) {
      QUIRE_TRY(const Weights weights, MakeWeights(format, shape, options.working_set_bytes));
      for (const std::int64_t m : options.row_counts) {
        for (const KernelTable* table : tables) {
          QUIRE_TRY(KernelSpeedRow row, Measure(pool, &roofline, *table, shape, weights, m, options.repeats));
          rows.push_back(std::move(row));
        }
      }
    }
  }
  return rows;
}

std::string KernelSpeedText(const std::vector<KernelSpeedRow>& rows) {
  std::string text = fmt::format("{:<11} {:<13} {:<13} {:<11} {:>4} {:>3} {:>11} {:>8} {:>9}  {}\n", "tier", "model",
                                 "projection", "format", "m", "thr", "us", "GB/s", "GOP/s", "of the limit (min-max)");
  for (const KernelSpeedRow& row : rows) {
    text +=
        fmt::format("{:<11} {:<13} {:<13} {:<11} {:>4} {:>3} {:>11.1f} {:>8.1f} {:>9.1f}  {:.2f} ({:.2f}-{:.2f}) {}\n",
                    row.isa, row.model, row.projection, row.format, row.m, row.num_threads, row.microseconds,
                    row.gb_per_second, row.gop_per_second, row.limit_fraction, row.limit_fraction_min,
                    row.limit_fraction_max, row.memory_bound ? "memory" : "compute");
  }
  return text;
}

std::string KernelSpeedJson(const std::vector<KernelSpeedRow>& rows) {
  std::string out;
  JsonWriter writer(&out);
  writer.BeginArray();
  for (const KernelSpeedRow& row : rows) {
    writer.BeginObject();
    writer.Key("isa").String(row.isa).Key("model").String(row.model).Key("projection").String(row.projection);
    writer.Key("format").String(row.format).Key("m").Int(row.m).Key("n").Int(row.n).Key("k").Int(row.k);
    writer.Key("num_threads").Int(row.num_threads).Key("microseconds").Double(row.microseconds);
    writer.Key("gb_per_second").Double(row.gb_per_second).Key("gop_per_second").Double(row.gop_per_second);
    writer.Key("limit_fraction").Double(row.limit_fraction).Key("limit_fraction_min").Double(row.limit_fraction_min);
    writer.Key("limit_fraction_max").Double(row.limit_fraction_max);
    writer.Key("limit").String(row.memory_bound ? "memory" : "compute").EndObject();
  }
  writer.EndArray();
  return out;
}

}  // namespace quire::bench
