// The kernels that work row by row: norms, rotation, activation functions, reductions of logits, and those that convert
// rows into what a GEMM or the cache wants.
#include <cstring>
#include <string>

#include "base/aligned_buffer.h"
#include "bench/kernel_meter.h"
#include "engine/engine_options.h"
#include "nn/kv_pool.h"
#include "nn/linear.h"

namespace quire::bench {
namespace {

using kernels::ActivationKind;
using kernels::KernelTable;
using kernels::KvDtype;
using kernels::ModelShape;

// What kernels read besides their rows; small, and in the cache as in a forward pass.
struct Constants {
  std::vector<float> ones;            // a weight or a bias
  std::vector<float> cosines, sines;  // of one angle whose rotation keeps numbers as large as they are

  explicit Constants(const ModelShape& model, std::int64_t num_rows)
      : ones(Size(std::max(model.hidden_size, model.qkv_size())), 1.0f),
        cosines(Size(num_rows * model.head_dim / 2), 0.8f),
        sines(cosines.size(), 0.6f) {}
};

// One kernel on m rows of a model's size.
struct RowKernel {
  std::string_view name;
  std::string format;           // that it converts into, or empty
  std::int64_t width = 0;       // elements of a row
  std::int64_t row_floats = 0;  // of a row of all operands; the operands lie one after the other, m rows each
  double row_bytes = 0;         // that a row reads and writes at least
  double element_operations = 0;
  // Rows [begin, end) of operands that begin at `memory`.
  std::function<void(float* memory, std::int64_t begin, std::int64_t end)> run;
};

std::string_view KindName(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kF32:
      return "f32";
    case ActivationKind::kBf16:
      return "bf16";
    case ActivationKind::kInt8:
      return "int8";
  }
  return "";
}

RowKernel PrepareActivations(const KernelTable& table, ActivationKind kind, std::int64_t n, std::int64_t m) {
  const std::size_t out_bytes = table.activation_row_bytes(kind, n);
  return {.name = "prepare_activations",
          .format = std::string(KindName(kind)),
          .width = n,
          .row_floats = n + static_cast<std::int64_t>(out_bytes / sizeof(float)),
          .row_bytes = 4.0 * static_cast<double>(n) + static_cast<double>(out_bytes),
          // Largest magnitude, scaling, rounding and the sum of codes; or rounding alone.
          .element_operations = kind == ActivationKind::kInt8   ? 4.0
                                : kind == ActivationKind::kBf16 ? 1.0
                                                                : 0.0,
          .run = [=, &table](float* x, std::int64_t begin, std::int64_t end) {
            auto* out = reinterpret_cast<std::byte*>(x + m * n);
            table.prepare_activations(kind, x + begin * n, end - begin, n, n, out + Size(begin) * out_bytes);
          }};
}

std::vector<RowKernel> RowKernels(const KernelTable& t, const ModelShape& model, std::int64_t m,
                                  const Constants& constants) {
  constexpr float kEps = 1e-6f;
  const std::int64_t hidden = model.hidden_size, mlp = model.intermediate_size, qkv = model.qkv_size();
  const std::int64_t vocab = model.vocab_size, head_dim = model.head_dim, pairs = head_dim / 2;
  const std::int64_t heads = model.num_heads + model.num_kv_heads;  // that are rotated
  const float *ones = constants.ones.data(), *cosines = constants.cosines.data(), *sines = constants.sines.data();
  const auto bytes = [](std::int64_t floats) { return 4.0 * static_cast<double>(floats); };
  using Memory = float*;
  using Row = std::int64_t;
  return {
      PrepareActivations(t, ActivationKind::kF32, hidden, m),
      PrepareActivations(t, ActivationKind::kBf16, hidden, m),
      PrepareActivations(t, ActivationKind::kInt8, hidden, m),
      {"rms_norm", "", hidden, 2 * hidden, bytes(2 * hidden), 4,
       [=, &t](Memory x, Row begin, Row end) {
         t.rms_norm(x + begin * hidden, ones, kEps, end - begin, hidden, hidden, hidden, x + (m + begin) * hidden);
       }},
      {"add_rms_norm", "", hidden, 3 * hidden, bytes(4 * hidden), 5,
       [=, &t](Memory x, Row begin, Row end) {
         t.add_rms_norm(x + begin * hidden, x + (m + begin) * hidden, ones, kEps, end - begin, hidden,
                        x + (2 * m + begin) * hidden);
       }},
      {"rope", "", heads * head_dim, qkv, bytes(2 * heads * head_dim), 3,
       [=, &t](Memory x, Row begin, Row end) {
         t.rope(x + begin * qkv, end - begin, heads, head_dim, head_dim, qkv, cosines + begin * pairs,
                sines + begin * pairs);
       }},
      {"silu_mul", "", mlp, 3 * mlp, bytes(3 * mlp), 5,
       [=, &t](Memory x, Row begin, Row end) {
         t.silu_mul(x + begin * 2 * mlp, end - begin, mlp, x + (2 * m + begin) * mlp);
       }},
      {"add_bias", "", qkv, qkv, bytes(2 * qkv), 1,
       [=, &t](Memory x, Row begin, Row end) { t.add_bias(x + begin * qkv, ones, end - begin, qkv, qkv); }},
      {"add", "", hidden, 2 * hidden, bytes(3 * hidden), 1,
       [=, &t](Memory x, Row begin, Row end) {
         t.add(x + begin * hidden, x + (m + begin) * hidden, (end - begin) * hidden);
       }},
      {"max_value", "", vocab, vocab, bytes(vocab), 1,
       [=, &t](Memory x, Row begin, Row end) {
         std::int64_t index = 0;
         for (Row r = begin; r < end; ++r) t.max_value(x + r * vocab, vocab, &index);
       }},
      {"sum_exp", "", vocab, vocab, bytes(vocab), 4,
       [=, &t](Memory x, Row begin, Row end) {
         for (Row r = begin; r < end; ++r) t.sum_exp(x + r * vocab, vocab, 1.0f, 1.0f);
       }},
  };
}

// The operands in as many copies as the working set holds.
Result<AlignedBuffer> MakeOperands(std::size_t bytes, std::size_t count) {
  QUIRE_TRY(AlignedBuffer memory, AlignedBuffer::Allocate(bytes * count));
  const std::span<float> first = memory.as<float>().first(bytes / sizeof(float));
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = Pattern(i);
  for (std::size_t i = 1; i < count; ++i) std::memcpy(memory.data() + i * bytes, memory.data(), bytes);
  return memory;
}

Result<> MeasureRows(const RowKernel& kernel, const KernelTable& table, const ModelShape& model, std::int64_t m,
                     const KernelSpeedOptions& options, KernelMeter* meter) {
  const std::size_t bytes = Size(m * kernel.row_floats) * sizeof(float), count = NumCopies(options, bytes);
  QUIRE_TRY(AlignedBuffer memory, MakeOperands(bytes, count));
  const nn::ExecContext context{.pool = meter->pool(), .kernels = &table};
  std::size_t next = 0;
  const auto run = [&] {
    float* operands = memory.as<float>().data() + next++ % count * (bytes / sizeof(float));
    nn::ForRows(context, m, kernel.row_floats,
                [&](std::int64_t begin, std::int64_t end) { kernel.run(operands, begin, end); });
  };
  const auto rows = static_cast<double>(m);
  const KernelJob job{.what = {.isa = table.isa,
                               .kernel = std::string(kernel.name),
                               .model = std::string(model.name),
                               .format = kernel.format,
                               .m = m,
                               .n = kernel.width},
                      .bytes = rows * kernel.row_bytes,
                      .operations = rows * static_cast<double>(kernel.width) * kernel.element_operations,
                      .run = run};
  meter->Measure({&job, 1});
  return {};
}

// Consecutive tokens of one prompt, from the rows that the projection of Q, K and V leaves.
Result<> MeasureStored(const KernelTable& table, const ModelShape& model, KvDtype dtype, std::int64_t m,
                       const KernelSpeedOptions& options, KernelMeter* meter) {
  constexpr std::int64_t kBlock = kernels::KvLayout::block_size;
  const std::int64_t stride = model.qkv_size(), kv_size = std::int64_t{model.num_kv_heads} * model.head_dim;
  const auto num_blocks = static_cast<std::int32_t>((m + kBlock - 1) / kBlock);
  const kernels::KvLayout layout = LayoutInWorkingSet(model, dtype, num_blocks, options);
  QUIRE_TRY(nn::KvPool pool, nn::KvPool::Create(layout, num_blocks));
  std::vector<float> qkv(Size(m * stride));
  for (std::size_t i = 0; i < qkv.size(); ++i) qkv[i] = Pattern(i);
  std::vector<std::int64_t> slots(Size(m));
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<std::int64_t>(i);
  const nn::ExecContext context{.pool = meter->pool(), .kernels = &table};
  int layer = 0;
  const auto store = [&] {
    // Tokens of one block stay on one thread.
    nn::ForRows(context, num_blocks, kBlock * stride, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first = begin * kBlock, last = std::min(end * kBlock, m);
      const float* k = qkv.data() + first * stride + model.q_size();
      table.store_kv({.layout = &layout,
                      .pool = pool.data(),
                      .layer = layer,
                      .num_tokens = last - first,
                      .slots = slots.data() + first,
                      .k = k,
                      .v = k + kv_size,
                      .stride = stride});
    });
    layer = (layer + 1) % layout.num_layers;
  };
  const double token_bytes = static_cast<double>(layout.tile_offset(1, 0)) / kBlock;
  const KernelJob job{.what = {.isa = table.isa,
                               .kernel = "store_kv",
                               .model = std::string(model.name),
                               .format = std::string(engine::KvDtypeName(dtype)),
                               .m = m,
                               .n = 2 * kv_size},
                      .bytes = static_cast<double>(m) * (8.0 * static_cast<double>(kv_size) + token_bytes),
                      .run = store};
  meter->Measure({&job, 1});
  return {};
}

}  // namespace

Result<> MeasureRowKernel(std::string_view name, const KernelSpeedOptions& options, KernelTables tables,
                          KernelMeter* meter) {
  for (const ModelShape& model : kernels::RealModels()) {
    if (!Wanted(options, model.name)) continue;
    for (const std::int64_t m : options.row_counts) {
      const Constants constants(model, m);
      for (const KernelTable* table : tables) {
        for (const RowKernel& kernel : RowKernels(*table, model, m, constants)) {
          if (kernel.name == name) QUIRE_TRY_VOID(MeasureRows(kernel, *table, model, m, options, meter));
        }
      }
    }
  }
  return {};
}

Result<> MeasureStoreKv(const KernelSpeedOptions& options, KernelTables tables, KernelMeter* meter) {
  for (const ModelShape& model : kernels::RealModels()) {
    if (!Wanted(options, model.name)) continue;
    for (const KvDtype dtype : WantedKvDtypes(options)) {
      for (const std::int64_t m : options.row_counts) {
        for (const KernelTable* table : tables) {
          QUIRE_TRY_VOID(MeasureStored(*table, model, dtype, m, options, meter));
        }
      }
    }
  }
  return {};
}

}  // namespace quire::bench
