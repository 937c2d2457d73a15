// The compute of one CPU tier as a table of function pointers, chosen once at start, and the memory layouts that all
// tiers share. Raw pointers and sizes only; whoever calls owns the memory. All tensors are row-major float unless the
// comment says otherwise; all buffers may be unaligned unless it says so. Kernels never allocate, never start
// threads, and compute a row's result from that row alone: how rows and outputs are split over calls and threads
// never changes a bit of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/float16.h"
#include "base/result.h"
#include "kernels/kv_layout.h"

namespace quire::kernels {

// ---- Weights -------------------------------------------------------------------------------------------------------

// How a weight matrix W [n, k] is packed. In every format 16 consecutive outputs (rows of W) form a panel, and a
// panel is contiguous; the last panel is padded with zero weights.
//
//   kF32, kF16   panel [k][16]
//   kBf16        panel [ceil(k/2)][16][2]: the pairs that vdpbf16ps wants
//   kFp8*, kNf4  codes of 8 or 4 bits that stand for floats, with a scale for each group of the inner dimension (the last
//                may be shorter):  w = scale · value(code)
//   the others   integer codes of 4, 5, 6 or 8 bits with a scale, and in some formats a minimum, for each group of
//                the inner dimension:  w = scale · (code − zero_point) − min
//                or, with a table,     w = scale · table[code]
//
// The panel of an integer format is a sequence of blocks of 256 inner elements (the last one may be shorter): first the
// scales of all its groups, then the codes. docs/kernels.md draws both; GroupLayout says where everything lies. k is a
// multiple of the group, and of 256 in the formats with two levels of scales.
enum class WeightFormat : std::uint8_t {
  kF32,
  kF16,
  kBf16,
  kInt8Group32,     // zero point 128, scales F16: Q8_0
  kInt8Group32F32,  // zero point 128, scales F32: Q8_K, INT8 with a scale for each channel
  kInt8Group32Min,  // codes ≤ 127, scales and minima F32: whatever has a minimum and no format of its own
  kInt6Super,       // groups of 16 with s8 scales under one F16 of 256, zero point 32: Q6_K, Q3_K
  kInt5Group32,     // zero point 16, scales F16: Q5_0
  kInt5Super,       // groups of 32 with 6-bit scales and minima under two F16 of 256: Q5_K
  kInt4Group32,     // zero point 8, scales F16: Q4_0
  kInt4Group32Min,  // scales F16, minima F32: Q4_1, AWQ, GPTQ
  kInt4Super,       // as kInt5Super: Q4_K
  kInt4Super16,     // the same with groups of 16: Q2_K
  kIq4Group32,      // a table of 16 integers, scales F32: IQ4_NL, IQ4_XS
  kMxfp4Group32,    // the doubles of the 16 values of FP4 E2M1, scales F32: MXFP4
  kFp8E4m3,         // groups of 128, scales F32
  kFp8E5m2,         // likewise
  kNf4,             // groups of 64, scales F32: bitsandbytes' normal floats
  kInt8Sparse24,    // as kInt8Group32F32, two of every four weights stored, the others 0
  kBf16Sparse24,    // as kBf16, likewise; k is a multiple of 4
};
inline constexpr int kNumWeightFormats = 20;
inline constexpr int kPanelWidth = 16;

// What a scale or minimum of a group is stored as. kSuper: an s8 for the group, which multiplies an F16 of the block.
enum class ScaleType : std::uint8_t { kNone, kF16, kF32, kSuper };

struct FormatTraits {
  std::string_view name;
  bool integer;
  int code_bits;   // 0 in F32, F16 and BF16
  int group;       // inner elements that share a scale; 1 where there is none
  int zero_point;  // what a code that stands for 0 is; with a table: 128, added to its values
  ScaleType scale;
  ScaleType min;             // kNone: the format has none
  const std::int8_t* table;  // [16], or null: code c stands for table[c]
  int code_max;              // the largest code that PackPanel takes
  bool sparse = false;       // of every four weights at most two are not 0, and two are stored
};
const FormatTraits& Traits(WeightFormat format);

// Bytes of one panel for an inner dimension of k.
std::size_t PanelBytes(WeightFormat format, std::int64_t k);
inline std::int64_t NumPanels(std::int64_t n) {
  return (n + kPanelWidth - 1) / kPanelWidth;
}

// A packed matrix; a view. `data` is 64-byte aligned.
struct PackedMatrix {
  WeightFormat format = WeightFormat::kF32;
  std::int64_t n = 0, k = 0;        // outputs, inputs
  const std::byte* data = nullptr;  // [NumPanels(n)][PanelBytes(format, k)]
};

// One row of W on its way from a file into a panel. F32, F16 and BF16 read `values` only. The others read `codes`,
// `scales` and, where there are minima, `mins`; these have one entry for each group, or for each block of 256 in the
// formats with two levels of scales, which read `scale_codes` and `min_codes` for each group too.
struct WeightRow {
  const float* values = nullptr;             // [k]
  const std::uint8_t* codes = nullptr;       // [k]
  const float* scales = nullptr;             // [⌈k / group⌉] or [k / 256]
  const float* mins = nullptr;               // likewise
  const std::int8_t* scale_codes = nullptr;  // [k / group]
  const std::int8_t* min_codes = nullptr;    // [k / group]
};

// Writes rows (at most 16; the missing ones become zero weights) into one panel. Scalar, the same on every tier.
void PackPanel(WeightFormat format, std::int64_t k, std::span<const WeightRow> rows, std::byte* panel);
// Row `row` of W as floats, exactly as the kernels see it; used for embeddings and by tests. `out` [k].
void UnpackRow(const PackedMatrix& matrix, std::int64_t row, float* out);

// ---- Activations ---------------------------------------------------------------------------------------------------

// What a GEMM reads: rows of activations converted once for all the matrices of the same kind that they meet.
//   kF32    the floats as they are (float formats on tiers without BF16 dot products; kF32 and kF16 everywhere)
//   kBf16   rounded to BF16, in the layout of the tier
//   kInt8   signed codes with one scale per block of 256 inner elements of a row (the last block may be shorter), and
//           the sums of codes that the zero points and minima need; symmetric, |code| ≤ 127, rounded half to even
enum class ActivationKind : std::uint8_t { kF32, kBf16, kInt8 };
inline constexpr int kActivationBlock = 256;

struct GemmArgs {
  const std::byte* activations = nullptr;  // prepared by this table for the matrix's kind: row r starts at
                                           // r · activation_row_bytes(kind, k); 64-byte aligned
  std::int64_t num_rows = 0;               // m
  const PackedMatrix* weights = nullptr;
  std::int64_t panel_begin = 0, panel_end = 0;  // the panels to compute
  float* out = nullptr;                         // [m, ld_out]; column c of the matrix goes to out[r · ld_out + c]
  std::int64_t ld_out = 0;                      // padding columns beyond n are not written
};

// ---- Keys and values -----------------------------------------------------------------------------------------------

struct StoreKvArgs {
  const KvLayout* layout = nullptr;
  std::byte* pool = nullptr;  // block b at b · layout->block_bytes()
  int layer = 0;
  std::int64_t num_tokens = 0;
  const std::int64_t* slots = nullptr;  // [num_tokens] block id · block_size + offset
  const float* k = nullptr;             // token t, head h: k + t · stride + h · head_dim
  const float* v = nullptr;             // likewise
  std::int64_t stride = 0;              // floats between tokens
};

// Consecutive tokens of one sequence and its own cached keys. Query i stands at position p = first_position + i and sees
// keys j with max(0, p − window + 1) ≤ j ≤ p.
struct AttentionQueries {
  const std::int32_t* blocks = nullptr;  // block ids of the sequence, from position 0
  std::int64_t first_position = 0;
  std::int64_t num_queries = 0;
  const float* q = nullptr;  // query i, head g: q + i · q_stride + g · head_dim
  float* out = nullptr;      // as q
  // So many leading partitions lie in the same blocks as those of the sequence before this one in AttentionArgs, and
  // both have all of their tokens: they are read once for both.
  std::int64_t shared_partitions = 0;
};

// Causal attention for the query heads that share one KV head. Keys are walked in partitions of kAttentionPartition
// tokens counted from position 0, and the partial softmaxes are merged in that order, so that a query's result never
// depends on the chunk it came in, nor on the sequences that it shares keys with.
struct AttentionArgs {
  const KvLayout* layout = nullptr;
  const std::byte* pool = nullptr;
  const AttentionQueries* sequences = nullptr;  // [num_sequences]
  std::int64_t num_sequences = 0;
  int layer = 0;
  int kv_head = 0;
  int group = 1;  // query heads of this KV head
  std::int64_t q_stride = 0, out_stride = 0;
  float scale = 1;               // multiplies q · k
  std::int64_t window = 0;       // 0: no sliding window
  std::byte* scratch = nullptr;  // attention_scratch_bytes(layout, group), 64-byte aligned, one per thread
};
inline constexpr int kAttentionPartition = 256;

// ---- The table -----------------------------------------------------------------------------------------------------

struct KernelTable {
  const char* isa = nullptr;

  // The kind of activation that a matrix of this format is multiplied with on this tier.
  ActivationKind (*activation_kind)(WeightFormat) = nullptr;
  std::size_t (*activation_row_bytes)(ActivationKind, std::int64_t k) = nullptr;  // an odd multiple of 64
  // x [num_rows, k] with row stride ld_x → prepared rows at `out`.
  void (*prepare_activations)(ActivationKind, const float* x, std::int64_t num_rows, std::int64_t k, std::int64_t ld_x,
                              std::byte* out) = nullptr;
  // out = activations · Wᵀ for a range of panels.
  void (*gemm)(const GemmArgs&) = nullptr;

  void (*store_kv)(const StoreKvArgs&) = nullptr;
  std::size_t (*attention_scratch_bytes)(const KvLayout&, int group) = nullptr;
  void (*attention)(const AttentionArgs&) = nullptr;

  // y = x / rms(x) · weight for each row of n; y may be x. Mean of squares in a fixed order.
  void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t num_rows, std::int64_t n,
                   std::int64_t ld_x, std::int64_t ld_y, float* y) = nullptr;
  // x += delta, then y = rms_norm(x); all [num_rows, n], contiguous.
  void (*add_rms_norm)(float* x, const float* delta, const float* weight, float eps, std::int64_t num_rows,
                       std::int64_t n, float* y) = nullptr;
  // Rotates pairs (i, i + rotary_dim/2) of every head in place; cos and sin [num_tokens, rotary_dim/2].
  void (*rope)(float* x, std::int64_t num_tokens, std::int64_t num_heads, std::int64_t head_dim,
               std::int64_t rotary_dim, std::int64_t stride, const float* cos, const float* sin) = nullptr;
  // out[r, i] = silu(gate_up[r, i]) · gate_up[r, n + i];  gate_up [num_rows, 2n], out [num_rows, n];
  // a single row may be its own output.
  void (*silu_mul)(const float* gate_up, std::int64_t num_rows, std::int64_t n, float* out) = nullptr;
  // x[r, i] += bias[i]
  void (*add_bias)(float* x, const float* bias, std::int64_t num_rows, std::int64_t n, std::int64_t ld_x) = nullptr;
  // x[i] += y[i]
  void (*add)(float* x, const float* y, std::int64_t n) = nullptr;
  // The largest of n ≥ 1 values and the lowest index that has it; NaN never wins.
  float (*max_value)(const float* x, std::int64_t n, std::int64_t* index) = nullptr;
  // Σ exp((x[i] − offset) · scale), in double, in a fixed order.
  double (*sum_exp)(const float* x, std::int64_t n, float offset, float scale) = nullptr;
};

// The scalar specification: double accumulation, no SIMD.
const KernelTable& ReferenceKernels();

// The tiers that this CPU (CPUID and XCR0) can run, slowest first; "reference" is always the first.
std::span<const KernelTable* const> AvailableKernels();
// ("avx512vnni" comes after "avx512bf16" on CPUs whose BF16 dot products are slower than their FMAs.)
// The best tier, or the one named by `isa` ("reference", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx"; on ARM
// "neon"; "" or "auto": the best). An unknown name, or one that this CPU cannot run, is an error that lists what it can.
Result<const KernelTable*> SelectKernels(std::string_view isa);

}  // namespace quire::kernels
