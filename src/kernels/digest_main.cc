// Prints a digest of what every kernel of every tier of this machine computes from the same made-up data, a line each:
//
//   avx2 gemm int4k 5f0c…
//
// Tiers with the same arithmetic have the same digests on whatever machine, of whatever processor: tests/machines
// compares this one with emulated ones.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/counter_rng.h"
#include "kernels/kernel_cases.h"
#include "kernels/kernel_table.h"

namespace quire::kernels {
namespace {

// In [−2, 2), from a sum and not a logarithm: the same on all machines.
std::vector<float> Floats(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(UniformDouble(seed, i) + UniformDouble(seed, i, 1) - 1) * 2;
  }
  return values;
}

// FNV-1a of 64 bits.
std::uint64_t Digest(const void* data, std::size_t bytes) {
  std::uint64_t digest = 0xCBF29CE484222325;
  for (std::size_t i = 0; i < bytes; ++i) {
    digest = (digest ^ static_cast<const std::uint8_t*>(data)[i]) * 0x100000001B3;
  }
  return digest;
}

void Print(const KernelTable& table, const std::string& what, const void* data, std::size_t bytes) {
  std::printf("%s %s %016llx\n", table.isa, what.c_str(), static_cast<unsigned long long>(Digest(data, bytes)));
}
void Print(const KernelTable& table, const std::string& what, const std::vector<float>& values) {
  Print(table, what, values.data(), values.size() * sizeof(float));
}

// One row, few and many: each has its own shapes of tiles.
void PrintGemm(const KernelTable& table, WeightFormat format) {
  const std::int64_t k = InnerStep(format) == 256 ? 768 : 608, n = 70;
  const RandomMatrix matrix = MakeRandomMatrix(format, n, k, 1, false).value();
  const ActivationKind kind = table.activation_kind(format);
  for (const std::int64_t m : {1, 3, 17}) {
    const std::vector<float> x = Floats(m * k, 2);
    AlignedBuffer rows =
        AlignedBuffer::Allocate(table.activation_row_bytes(kind, k) * static_cast<std::size_t>(m)).value();
    table.prepare_activations(kind, x.data(), m, k, k, rows.data());
    std::vector<float> out(static_cast<std::size_t>(m * n));
    table.gemm({.activations = rows.data(),
                .num_rows = m,
                .weights = &matrix.packed,
                .panel_begin = 0,
                .panel_end = NumPanels(n),
                .out = out.data(),
                .ld_out = n});
    Print(table, "gemm " + std::string(Traits(format).name) + " rows " + std::to_string(m), out);
  }
}

// A chunk at the end of a sequence of two partitions, with and without a window.
void PrintAttention(const KernelTable& table, KvDtype dtype, const char* name) {
  constexpr std::int64_t kLength = 300, kQueries = 9, kGroup = 3;
  const KvLayout layout{.num_layers = 1, .num_kv_heads = 1, .head_dim = 40, .dtype = dtype};
  const std::int64_t num_blocks = (kLength + KvLayout::block_size - 1) / KvLayout::block_size;
  AlignedBuffer pool = AlignedBuffer::Allocate(static_cast<std::size_t>(num_blocks) * layout.block_bytes()).value();
  const std::vector<float> k = Floats(kLength * layout.head_dim, 3), v = Floats(kLength * layout.head_dim, 4);
  std::vector<std::int64_t> slots;
  for (std::int64_t t = 0; t < kLength; ++t) slots.push_back(t);
  table.store_kv({.layout = &layout,
                  .pool = pool.data(),
                  .num_tokens = kLength,
                  .slots = slots.data(),
                  .k = k.data(),
                  .v = v.data(),
                  .stride = layout.head_dim});
  std::vector<std::int32_t> blocks;
  for (std::int64_t b = 0; b < num_blocks; ++b) blocks.push_back(static_cast<std::int32_t>(b));
  AlignedBuffer scratch = AlignedBuffer::Allocate(table.attention_scratch_bytes(layout, kGroup)).value();
  const std::vector<float> q = Floats(kQueries * kGroup * layout.head_dim, 5);
  for (const std::int64_t window : {0, 50}) {
    std::vector<float> out(q.size());
    const AttentionQueries queries{.blocks = blocks.data(),
                                   .first_position = kLength - kQueries,
                                   .num_queries = kQueries,
                                   .q = q.data(),
                                   .out = out.data()};
    table.attention({.layout = &layout,
                     .pool = pool.data(),
                     .sequences = &queries,
                     .num_sequences = 1,
                     .group = kGroup,
                     .q_stride = kGroup * layout.head_dim,
                     .out_stride = kGroup * layout.head_dim,
                     .scale = 0.25f,
                     .window = window,
                     .scratch = scratch.data()});
    Print(table, "attention " + std::string(name) + " window " + std::to_string(window), out);
  }
}

void PrintElementwise(const KernelTable& table) {
  constexpr std::int64_t kRows = 3, kCount = 203;
  const std::vector<float> x = Floats(kRows * kCount, 6), weight = Floats(kCount, 7);
  std::vector<float> y(x.size());
  table.rms_norm(x.data(), weight.data(), 1e-6f, kRows, kCount, kCount, kCount, y.data());
  Print(table, "rms_norm", y);
  std::vector<float> sum = x;
  table.add_rms_norm(sum.data(), y.data(), weight.data(), 1e-6f, kRows, kCount, y.data());
  Print(table, "add_rms_norm", y);
  table.add_bias(sum.data(), weight.data(), kRows, kCount, kCount);
  table.add(sum.data(), x.data(), kRows * kCount);
  Print(table, "add", sum);
  constexpr std::int64_t kTokens = 3, kHeads = 2, kHeadDim = 100, kRotary = 70;
  std::vector<float> heads = Floats(kTokens * kHeads * kHeadDim, 8);
  const std::vector<float> cos = Floats(kTokens * kRotary / 2, 9), sin = Floats(kTokens * kRotary / 2, 10);
  table.rope(heads.data(), kTokens, kHeads, kHeadDim, kRotary, kHeads * kHeadDim, cos.data(), sin.data());
  Print(table, "rope", heads);
  std::vector<float> gate_up = Floats(kRows * 2 * kCount, 11);
  for (std::size_t i = 0; i < gate_up.size(); i += 5) gate_up[i] *= 50;  // beyond where the exponential is bounded
  table.silu_mul(gate_up.data(), kRows, kCount, y.data());
  Print(table, "silu_mul", y);
  std::int64_t index = 0;
  const float largest = table.max_value(x.data(), kRows * kCount, &index);
  Print(table, "max_value", {largest, static_cast<float>(index)});
  const double total = table.sum_exp(x.data(), kRows * kCount, 1.5f, 3.0f);
  Print(table, "sum_exp", &total, sizeof(total));
}

}  // namespace
}  // namespace quire::kernels

int main() {
  using namespace quire::kernels;
  constexpr std::pair<KvDtype, const char*> kCaches[] = {{KvDtype::kBf16, "bf16"},
                                                         {KvDtype::kF32, "f32"},
                                                         {KvDtype::kFp8E4m3, "fp8_e4m3"},
                                                         {KvDtype::kInt8, "int8"},
                                                         {KvDtype::kInt4, "int4"}};
  for (const KernelTable* table : AvailableKernels()) {
    for (const WeightFormat format : kAllWeightFormats) PrintGemm(*table, format);
    for (const auto& [dtype, name] : kCaches) PrintAttention(*table, dtype, name);
    PrintElementwise(*table);
  }
  return 0;
}
