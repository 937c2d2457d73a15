// Attention: against the reference within a derived bound, and the promise that a query's result is the same
// bits alone, in a chunk and next to other heads, whatever lies in the parts of the cache that it does not
// see.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernels_test_util.h"

namespace quire::kernels {
namespace {

constexpr std::int64_t kTokens = KvLayout::block_size;

// A sequence of `length` tokens with random queries, keys and values, stored in shuffled blocks of a pool.
struct Sequence {
  KvLayout layout;
  int group;
  std::int64_t length;
  int layer = 1, kv_head = 1;
  std::vector<std::int32_t> blocks;
  GuardedBuffer pool;
  std::vector<float> q, k, v;  // q [length, group, head_dim]; k, v [length, num_kv_heads, head_dim]

  Sequence(KvDtype dtype, int head_dim, int group_size, std::int64_t num_tokens, std::uint64_t seed)
      : layout{.num_layers = 2, .num_kv_heads = 2, .head_dim = head_dim, .dtype = dtype},
        group(group_size),
        length(num_tokens),
        pool(static_cast<std::size_t>((num_tokens + kTokens - 1) / kTokens + 2) * layout.block_bytes()) {
    std::mt19937_64 rng(seed);
    std::normal_distribution<float> normal;
    const std::int64_t num_blocks = (length + kTokens - 1) / kTokens;
    for (std::int64_t b = 0; b < num_blocks + 2; ++b) blocks.push_back(static_cast<std::int32_t>(b));
    std::shuffle(blocks.begin(), blocks.end(), rng);
    blocks.resize(static_cast<std::size_t>(num_blocks));
    const auto fill = [&](std::vector<float>* values, std::int64_t count) {
      values->resize(static_cast<std::size_t>(count));
      for (float& x : *values) x = normal(rng);
    };
    fill(&q, length * group * head_dim);
    fill(&k, length * 2 * head_dim);
    fill(&v, length * 2 * head_dim);
    Store(0, length, k, v);
  }

  // Writes `keys` and `values` of tokens [begin, end).
  void Store(std::int64_t begin, std::int64_t end, const std::vector<float>& keys, const std::vector<float>& values) {
    std::vector<std::int64_t> slots;
    for (std::int64_t t = begin; t < end; ++t) {
      slots.push_back(blocks[static_cast<std::size_t>(t / kTokens)] * kTokens + t % kTokens);
    }
    const std::int64_t stride = 2 * layout.head_dim;
    SelectKernels("").value()->store_kv({.layout = &layout,
                                         .pool = pool.data(),
                                         .layer = layer,
                                         .num_tokens = end - begin,
                                         .slots = slots.data(),
                                         .k = keys.data() + begin * stride,
                                         .v = values.data() + begin * stride,
                                         .stride = stride});
  }

  // Makes all tokens outside [begin, end) NaN, up to the end of the last block.
  void PoisonOutside(std::int64_t begin, std::int64_t end) {
    const std::int64_t all = static_cast<std::int64_t>(blocks.size()) * kTokens;
    const std::vector<float> nan(static_cast<std::size_t>(all * 2 * layout.head_dim),
                                 std::numeric_limits<float>::quiet_NaN());
    Store(0, begin, nan, nan);
    Store(end, all, nan, nan);
  }

  // Outputs [count, group, head_dim] of the queries from `first` on.
  std::vector<float> Attend(const KernelTable& table, std::int64_t first, std::int64_t count,
                            std::int64_t window) const {
    const std::int64_t row = std::int64_t{group} * layout.head_dim;
    std::vector<float> out(static_cast<std::size_t>(count * row), -7.0f);
    auto scratch = AlignedBuffer::Allocate(table.attention_scratch_bytes(layout, group)).value();
    table.attention({.layout = &layout,
                     .pool = pool.data(),
                     .blocks = blocks.data(),
                     .layer = layer,
                     .kv_head = kv_head,
                     .group = group,
                     .first_position = first,
                     .num_queries = count,
                     .q = q.data() + first * row,
                     .q_stride = row,
                     .scale = 1.0f / std::sqrt(static_cast<float>(layout.head_dim)),
                     .window = window,
                     .out = out.data(),
                     .out_stride = row,
                     .scratch = scratch.data()});
    return out;
  }
};

bool SameBits(const float* a, const float* b, std::int64_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * 4) == 0;
}

// How far a tier's output may be from the exact one, as a multiple of max |v|.
//   score  s = scale · q·k with head_dim Fma's (γ), q rounded to BF16 where the tier does (2⁻⁸), two more
//   roundings;
//          absolute error ≤ δ = scale · Σ|q·k| · ε, and in units of log2 two roundings of |s| ≤ scale ·
//          Σ|q·k|
//   weight p = e^(s − m): relative error e^2δ − 1, plus the exponential's 1.2e-7, plus 2⁻⁸ where p is rounded
//   to BF16 output Σ p·v / Σ p: both sums carry the weights' error (they share it, so this is generous), a
//   chain of at most n
//          Fma's, and 3 roundings for each merge of partitions
double AttentionBound(const KernelTable& table, const Sequence& s, std::int64_t n) {
  const double u = 0x1p-24;
  const bool rounds = std::string_view(table.isa) == "avx512bf16" && s.layout.dtype == KvDtype::kBf16;
  const double head_dim = s.layout.head_dim;
  double largest = 0;  // of Σ|q·k| · scale: Cauchy–Schwarz over the largest rows
  double q2 = 0, k2 = 0;
  const auto squares = [&](const std::vector<float>& x, double* best) {
    for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(s.layout.head_dim)) {
      double sum = 0;
      for (std::size_t d = 0; d < static_cast<std::size_t>(s.layout.head_dim); ++d) {
        sum += double{x[i + d]} * double{x[i + d]};
      }
      *best = std::max(*best, sum);
    }
  };
  squares(s.q, &q2);
  squares(s.k, &k2);
  largest = std::sqrt(q2 * k2 / head_dim) * 1.01;  // keys were rounded to BF16
  const double delta = largest * ((head_dim + 4) * u + (rounds ? 0x1p-8 : 0));
  const double weight = std::expm1(2 * delta) + 1.2e-7 + (rounds ? 0x1p-8 : 0);
  const double chain = (static_cast<double>(n) + 3.0 * (static_cast<double>(n) / 256 + 1)) * u;
  return 2 * (weight + chain) * 1.01 + 4 * u;
}

double LargestValue(const Sequence& s) {
  double largest = 0;
  for (const float v : s.v) largest = std::max(largest, std::abs(double{v}));
  return largest;
}

const std::vector<int> kHeadDims = {2, 8, 16, 40, 64, 80, 128};

TEST(Attention, StaysWithinTheDerivedBoundOfTheReference) {
  std::uint64_t seed = 100;
  for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kF32}) {
    for (const int head_dim : kHeadDims) {
      for (const std::int64_t window : {0, 1, 70}) {
        const std::int64_t length = 290;
        const Sequence sequence(dtype, head_dim, 3, length, ++seed);
        SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " window " << window << " seed " << seed);
        const std::vector<float> expected = sequence.Attend(ReferenceKernels(), 0, length, window);
        for (const KernelTable* table : AvailableKernels()) {
          const std::vector<float> out = sequence.Attend(*table, 0, length, window);
          const double limit = AttentionBound(*table, sequence, length) * LargestValue(sequence) * 1.01;
          double worst = 0;
          for (std::size_t i = 0; i < out.size(); ++i) {
            worst = std::max(worst, std::abs(double{out[i]} - double{expected[i]}));
          }
          EXPECT_LE(worst, limit) << table->isa;
          EXPECT_FALSE(std::isnan(worst));
        }
      }
    }
  }
}

TEST(Attention, ASingleVisibleKeyReturnsItsValue) {
  const Sequence sequence(KvDtype::kF32, 16, 2, 40, 1);
  for (const KernelTable* table : AvailableKernels()) {
    const std::vector<float> out = sequence.Attend(*table, 0, 40, 1);
    for (std::int64_t t = 0; t < 40; ++t) {
      for (std::int64_t d = 0; d < 16; ++d) {
        EXPECT_EQ(out[static_cast<std::size_t>(t * 32 + d)],
                  sequence.v[static_cast<std::size_t>((t * 2 + sequence.kv_head) * 16 + d)])
            << table->isa;
      }
    }
  }
}

// Every query alone, as decode does it, and the same queries in chunks of random sizes: the same bits.
TEST(Attention, AChunkIsTheSameBitsAsItsQueriesAlone) {
  std::uint64_t seed = 200;
  for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kF32}) {
    for (const int head_dim : kHeadDims) {
      for (const int group : {1, 3, 7, 8, 20}) {
        const std::int64_t length = 530;  // two partition edges
        const Sequence sequence(dtype, head_dim, group, length, ++seed);
        for (const std::int64_t window : {0, 1, 2, 15, 16, 17, 255, 256, 257, 300}) {
          if (head_dim > 16 && window != 0 && window != 17 && window != 257) continue;
          const KernelTable* const best = AvailableKernels().back();
          for (const KernelTable* table : AvailableKernels().subspan(1)) {
            if (table != best && (group == 8 || head_dim == 40)) continue;
            SCOPED_TRACE(testing::Message() << table->isa << " head_dim " << head_dim << " group " << group
                                            << " window " << window << " seed " << seed);
            const std::vector<float> whole = sequence.Attend(*table, 0, length, window);
            const std::int64_t row = std::int64_t{group} * head_dim;
            std::mt19937 rng(static_cast<std::uint32_t>(seed));
            for (std::int64_t t = 0; t < length;) {
              const std::int64_t chunk = std::min<std::int64_t>(length - t, 1 + rng() % (rng() % 4 == 0 ? 90 : 6));
              const std::vector<float> part = sequence.Attend(*table, t, chunk, window);
              ASSERT_TRUE(SameBits(part.data(), &whole[static_cast<std::size_t>(t * row)], chunk * row))
                  << "chunk of " << chunk << " at " << t;
              t += chunk;
            }
            for (const std::int64_t t : {0, 1, 14, 15, 16, 17, 254, 255, 256, 257, 271, 272, 511, 512, 513, 529}) {
              const std::vector<float> part = sequence.Attend(*table, t, 1, window);
              ASSERT_TRUE(SameBits(part.data(), &whole[static_cast<std::size_t>(t * row)], row)) << "alone at " << t;
            }
          }
        }
      }
    }
  }
}

// A recycled block keeps the bytes of whoever had it before, and those may be NaN.
TEST(Attention, WhatAQueryDoesNotSeeCannotChangeIt) {
  for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kF32}) {
    for (const std::int64_t window : {0, 1, 20, 33, 256}) {
      for (const std::int64_t position : {0, 1, 7, 30, 254, 255, 256, 299}) {
        Sequence sequence(dtype, 16, 3, 300, 300);
        std::vector<std::vector<float>> clean;
        for (const KernelTable* table : AvailableKernels()) {
          clean.push_back(sequence.Attend(*table, position, 1, window));
        }
        sequence.PoisonOutside(window > 0 ? std::max<std::int64_t>(0, position - window + 1) : 0, position + 1);
        for (std::size_t i = 0; i < clean.size(); ++i) {
          const KernelTable& table = *AvailableKernels()[i];
          const std::vector<float> out = sequence.Attend(table, position, 1, window);
          EXPECT_TRUE(SameBits(out.data(), clean[i].data(), 48)) << table.isa << ' ' << position << ' ' << window;
        }
      }
    }
  }
}

// The same inside a chunk: a token that later queries of the chunk see must not leak into the earlier ones.
TEST(Attention, APoisonedTokenSpoilsOnlyTheQueriesThatSeeIt) {
  for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kF32}) {
    for (const std::int64_t window : {0, 10}) {
      for (const std::int64_t poisoned : {0, 1, 21, 255, 256, 260}) {
        Sequence sequence(dtype, 16, 2, 300, 301);
        std::vector<std::vector<float>> clean;
        for (const KernelTable* table : AvailableKernels()) clean.push_back(sequence.Attend(*table, 0, 300, window));
        std::vector<float> bad_k = sequence.k, bad_v = sequence.v;
        std::fill_n(&bad_v[static_cast<std::size_t>(poisoned * 32)], 32, std::numeric_limits<float>::infinity());
        std::fill_n(&bad_k[static_cast<std::size_t>(poisoned * 32)], 32, std::numeric_limits<float>::quiet_NaN());
        sequence.Store(poisoned, poisoned + 1, bad_k, bad_v);
        for (std::size_t i = 0; i < clean.size(); ++i) {
          const std::vector<float> out = sequence.Attend(*AvailableKernels()[i], 0, 300, window);
          for (std::int64_t t = 0; t < 300; ++t) {
            const bool sees = t >= poisoned && (window == 0 || t - window < poisoned);
            const float* row = &out[static_cast<std::size_t>(t * 32)];
            if (sees) {
              EXPECT_FALSE(std::isfinite(row[0])) << AvailableKernels()[i]->isa << ' ' << t;
            } else {
              ASSERT_TRUE(SameBits(row, &clean[i][static_cast<std::size_t>(t * 32)], 32))
                  << AvailableKernels()[i]->isa << " query " << t << " poisoned " << poisoned;
            }
          }
        }
      }
    }
  }
}

TEST(Attention, HeadsOfAGroupAreIndependent) {
  const std::int64_t length = 70;
  Sequence sequence(KvDtype::kBf16, 32, 5, length, 400);
  for (const KernelTable* table : AvailableKernels()) {
    const std::vector<float> together = sequence.Attend(*table, 0, length, 0);
    Sequence single(KvDtype::kBf16, 32, 1, length, 401);
    single.Store(0, length, sequence.k, sequence.v);
    for (std::int64_t head = 0; head < 5; ++head) {
      for (std::int64_t t = 0; t < length; ++t) {
        std::copy_n(&sequence.q[static_cast<std::size_t>((t * 5 + head) * 32)], 32,
                    &single.q[static_cast<std::size_t>(t * 32)]);
      }
      const std::vector<float> alone = single.Attend(*table, 0, length, 0);
      for (std::int64_t t = 0; t < length; ++t) {
        EXPECT_TRUE(SameBits(&alone[static_cast<std::size_t>(t * 32)],
                             &together[static_cast<std::size_t>((t * 5 + head) * 32)], 32))
            << table->isa;
      }
    }
  }
}

TEST(Attention, VeryLargeAndVerySmallScoresStayFinite) {
  Sequence sequence(KvDtype::kF32, 16, 1, 300, 500);
  for (float& q : sequence.q) q *= 1e4f;  // softmax becomes a choice of one key
  for (const KernelTable* table : AvailableKernels()) {
    for (const float x : sequence.Attend(*table, 0, 300, 0)) ASSERT_TRUE(std::isfinite(x)) << table->isa;
  }
}

// KvLayout in bytes, by hand: token 5 of block 2, layer 1, head 1.
TEST(StoreKv, PutsEveryElementWhereTheLayoutSays) {
  for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kF32}) {
    const KvLayout layout{.num_layers = 2, .num_kv_heads = 2, .head_dim = 6, .dtype = dtype};
    auto pool = AlignedBuffer::Allocate(3 * layout.block_bytes()).value();
    std::vector<float> k(12), v(12);
    for (std::size_t i = 0; i < 12; ++i) k[i] = static_cast<float>(i + 1), v[i] = static_cast<float>(100 + i);
    const std::int64_t slot = 2 * kTokens + 5;
    ReferenceKernels().store_kv({.layout = &layout,
                                 .pool = pool.data(),
                                 .layer = 1,
                                 .num_tokens = 1,
                                 .slots = &slot,
                                 .k = k.data(),
                                 .v = v.data(),
                                 .stride = 12});
    const std::byte* tile = pool.data() + 2 * layout.block_bytes() + layout.tile_offset(1, 1);
    for (std::size_t d = 0; d < 6; ++d) {
      float stored_k, stored_v;
      if (dtype == KvDtype::kF32) {
        std::memcpy(&stored_k, tile + (d * 16 + 5) * 4, 4);
        std::memcpy(&stored_v, tile + layout.tile_bytes() + (5 * 6 + d) * 4, 4);
      } else {
        Bf16 bits;
        std::memcpy(&bits.bits, tile + (d / 2 * 32 + 5 * 2 + d % 2) * 2, 2);
        stored_k = ToFloat(bits);
        std::memcpy(&bits.bits, tile + layout.tile_bytes() + (2 * 12 + d * 2 + 1) * 2, 2);
        stored_v = ToFloat(bits);
      }
      EXPECT_EQ(stored_k, k[6 + d]);
      EXPECT_EQ(stored_v, v[6 + d]);
    }
    std::size_t written = 0;
    for (std::size_t i = 0; i < pool.size(); ++i) written += pool.data()[i] != std::byte{0};
    EXPECT_LE(written, 2u * 2 * 6 * 4);  // and nothing else
  }
}

}  // namespace
}  // namespace quire::kernels
