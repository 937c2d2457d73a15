// The GEMM over the projections of real models.
#include <cstring>
#include <iterator>

#include "base/aligned_buffer.h"
#include "bench/kernel_meter.h"

namespace quire::bench {
namespace {

using kernels::KernelTable;
using kernels::WeightFormat;

// A matrix in as many copies as the working set holds.
struct Weights {
  AlignedBuffer memory;
  std::vector<kernels::PackedMatrix> copies;
};

Result<Weights> MakeWeights(WeightFormat format, const kernels::ProjectionShape& shape,
                            const KernelSpeedOptions& options) {
  QUIRE_TRY(const kernels::RandomMatrix matrix, kernels::MakeRandomMatrix(format, shape.n, shape.k, 1, false));
  const std::size_t bytes = matrix.memory.size(), stride = (bytes + 63) / 64 * 64;
  const std::size_t count = NumCopies(options, stride);
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
  const bool has_tiles = std::string_view(table.isa) == "amx";
  switch (table.activation_kind(format)) {
    case kernels::ActivationKind::kInt8:
      return has_tiles ? Limit::kInt8Tiles : Limit::kInt8;
    case kernels::ActivationKind::kBf16:
      return has_tiles ? Limit::kBf16Tiles : Limit::kBf16;
    case kernels::ActivationKind::kF32:
      return Limit::kFma;
  }
  return Limit::kFma;
}

Result<> MeasureProjection(const KernelTable& table, const kernels::ProjectionShape& shape, const Weights& weights,
                           std::int64_t m, KernelMeter* meter) {
  const WeightFormat format = weights.copies[0].format;
  const kernels::ActivationKind kind = table.activation_kind(format);
  QUIRE_TRY(AlignedBuffer activations, AlignedBuffer::Allocate(Size(m) * table.activation_row_bytes(kind, shape.k)));
  QUIRE_TRY(AlignedBuffer out, AlignedBuffer::Allocate(Size(m * shape.n) * sizeof(float)));
  std::vector<float> x(Size(m * shape.k));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Pattern(i);
  table.prepare_activations(kind, x.data(), m, shape.k, shape.k, activations.data());

  std::size_t next = 0;
  const auto multiply = [&] {
    const kernels::PackedMatrix& matrix = weights.copies[next++ % weights.copies.size()];
    meter->pool()->ParallelFor(kernels::NumPanels(matrix.n), 1, [&](std::int64_t begin, std::int64_t end) {
      table.gemm({.activations = activations.data(),
                  .num_rows = m,
                  .weights = &matrix,
                  .panel_begin = begin,
                  .panel_end = end,
                  .out = out.as<float>().data(),
                  .ld_out = matrix.n});
    });
  };
  const KernelJob job{
      .what = {.isa = table.isa,
               .kernel = "gemm",
               .model = std::string(shape.model),
               .projection = std::string(shape.name),
               .format = std::string(kernels::Traits(format).name),
               .m = m,
               .n = shape.n,
               .k = shape.k},
      .bytes =
          static_cast<double>(kernels::NumPanels(shape.n)) * static_cast<double>(kernels::PanelBytes(format, shape.k)),
      .operations = 2.0 * static_cast<double>(m) * static_cast<double>(shape.n) * static_cast<double>(shape.k),
      .peak = ComputeLimit(table, format),
      .run = multiply};
  meter->Measure({&job, 1});
  return {};
}

}  // namespace

Result<> MeasureGemm(const KernelSpeedOptions& options, KernelTables tables, KernelMeter* meter) {
  std::vector<WeightFormat> formats = options.formats;
  if (formats.empty()) formats.assign(std::begin(kernels::kAllWeightFormats), std::end(kernels::kAllWeightFormats));
  for (const kernels::ProjectionShape& shape : kernels::RealProjections()) {
    if (!Wanted(options, shape.model)) continue;
    if (options.projection.empty() ? shape.name == "lm_head" : options.projection != shape.name) continue;
    for (const WeightFormat format : formats) {
      if (shape.k % kernels::InnerStep(format) != 0) {
        if (options.formats.empty()) continue;
        return Fail(ErrorCode::kInvalidArgument, "{} has no {}: its {} inputs are not a multiple of {}", shape.model,
                    kernels::Traits(format).name, shape.k, kernels::InnerStep(format));
      }
      QUIRE_TRY(const Weights weights, MakeWeights(format, shape, options));
      for (const std::int64_t m : options.row_counts) {
        for (const KernelTable* table : tables) {
          QUIRE_TRY_VOID(MeasureProjection(*table, shape, weights, m, meter));
        }
      }
    }
  }
  return {};
}

}  // namespace quire::bench
