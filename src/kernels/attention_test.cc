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
    const AttentionQueries queries{.blocks = blocks.data(),
                                   .first_position = first,
                                   .num_queries = count,
                                   .q = q.data() + first * row,
                                   .out = out.data()};
    table.attention({.layout = &layout,
                     .pool = pool.data(),
                     .sequences = &queries,
                     .num_sequences = 1,
                     .layer = layer,
                     .kv_head = kv_head,
                     .group = group,
                     .q_stride = row,
                     .out_stride = row,
                     .scale = 1.0f / std::sqrt(static_cast<float>(layout.head_dim)),
                     .window = window,
                     .scratch = scratch.data()});
    return out;
  }
};

bool IsQuantized(KvDtype dtype) {
  return dtype != KvDtype::kBf16 && dtype != KvDtype::kF32;
}

bool SameBits(const float* a, const float* b, std::int64_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * 4) == 0;
}

// How far a tier's output may be from the exact one, as a multiple of max |v|.
//   score  s = scale · q·k with head_dim Fma's (γ), q rounded to BF16 where the tier does (2⁻⁸), two more
//   roundings for the scale, and with INT8 and INT4 two for each group of channels;
//          absolute error ≤ δ = scale · Σ|q·k| · ε, and in units of log2 two roundings of |s| ≤ scale ·
//          Σ|q·k|. In INT4 k is scale · code + min, whose parts are up to 3 times as large as max |k|.
//   weight p = e^(s − m): relative error e^2δ − 1, plus the exponential's 1.2e-7, plus 2⁻⁸ where p is rounded
//   to BF16, plus one rounding where p is multiplied with the scale of v
//   output Σ p·v / Σ p: both sums carry the weights' error (they share it, so this is generous), a chain of at most n
//          Fma's, and 3 roundings for each merge of partitions. In INT4 v has two parts as well.
double AttentionBound(const KernelTable& table, const Sequence& s, std::int64_t n) {
  const double u = 0x1p-24;
  const bool rounds = std::string_view(table.isa) == "avx512bf16" && s.layout.dtype == KvDtype::kBf16;
  const double head_dim = s.layout.head_dim, parts = s.layout.dtype == KvDtype::kInt4 ? 3 : 1;
  double q2 = 0, largest_k = 0;
  for (std::size_t i = 0; i < s.q.size(); i += static_cast<std::size_t>(s.layout.head_dim)) {
    double sum = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(s.layout.head_dim); ++d) {
      sum += double{s.q[i + d]} * double{s.q[i + d]};
    }
    q2 = std::max(q2, sum);
  }
  double k2 = 0;
  for (std::size_t i = 0; i < s.k.size(); i += static_cast<std::size_t>(s.layout.head_dim)) {
    double sum = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(s.layout.head_dim); ++d) {
      sum += double{s.k[i + d]} * double{s.k[i + d]};
      largest_k = std::max(largest_k, std::abs(double{s.k[i + d]}));
    }
    k2 = std::max(k2, sum);
  }
  if (parts > 1) k2 = head_dim * largest_k * largest_k;
  // Cauchy–Schwarz: of Σ|q·k| · scale. Rounding made keys larger by at most 2⁻⁴ (FP8).
  const double largest = std::sqrt(q2 * k2 / head_dim) * parts * 1.07;
  const double delta = largest * ((head_dim + 8) * u + (rounds ? 0x1p-8 : 0));
  const double weight = std::expm1(2 * delta) + 1.2e-7 + u + (rounds ? 0x1p-8 : 0);
  const double chain = (static_cast<double>(n) + 3.0 * (static_cast<double>(n) / 256 + 1)) * u;
  return 2 * parts * (weight + chain) * 1.07 + 4 * u;
}

double LargestValue(const Sequence& s) {
  double largest = 0;
  for (const float v : s.v) largest = std::max(largest, std::abs(double{v}));
  return largest;
}

const std::vector<int> kHeadDims = {2, 8, 16, 40, 64, 80, 128};

TEST(Attention, StaysWithinTheDerivedBoundOfTheReference) {
  std::uint64_t seed = 100;
  for (const KvDtype dtype : kKvDtypes) {
    for (const int head_dim : kHeadDims) {
      for (const std::int64_t window : {0, 1, 70}) {
        if (window == 1 && dtype != KvDtype::kBf16 && dtype != KvDtype::kInt4) continue;
        const std::int64_t length = 290;
        const Sequence sequence(dtype, head_dim, 3, length, ++seed);
        SCOPED_TRACE(testing::Message() << "dtype " << static_cast<int>(dtype) << " head_dim " << head_dim << " window "
                                        << window << " seed " << seed);
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
  for (const KvDtype dtype : kKvDtypes) {
    for (const int head_dim : kHeadDims) {
      for (const int group : {1, 3, 7, 8, 20}) {
        if (IsQuantized(dtype) && group != 1 && group != 7) continue;
        const std::int64_t length = 530;  // two partition edges
        const Sequence sequence(dtype, head_dim, group, length, ++seed);
        for (const std::int64_t window : {0, 1, 2, 15, 16, 17, 255, 256, 257, 300}) {
          if (head_dim > 16 && window != 0 && window != 17 && window != 257) continue;
          const KernelTable* const best = AvailableKernels().back();
          for (const KernelTable* table : AvailableKernels().subspan(1)) {
            if (table != best && (group == 8 || head_dim == 40)) continue;
            SCOPED_TRACE(testing::Message()
                         << table->isa << " dtype " << static_cast<int>(dtype) << " head_dim " << head_dim << " group "
                         << group << " window " << window << " seed " << seed);
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
  for (const KvDtype dtype : kKvDtypes) {
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
  for (const KvDtype dtype : kKvDtypes) {
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
  for (const KvDtype dtype : kKvDtypes) {
    Sequence sequence(dtype, 32, 5, length, 400);
    for (const KernelTable* table : AvailableKernels()) {
      const std::vector<float> together = sequence.Attend(*table, 0, length, 0);
      Sequence single(dtype, 32, 1, length, 401);
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
}

TEST(Attention, VeryLargeAndVerySmallScoresStayFinite) {
  for (const KvDtype dtype : kKvDtypes) {
    Sequence sequence(dtype, 16, 1, 300, 500);
    for (float& q : sequence.q) q *= 1e4f;  // softmax becomes a choice of one key
    for (const KernelTable* table : AvailableKernels()) {
      for (const float x : sequence.Attend(*table, 0, 300, 0)) ASSERT_TRUE(std::isfinite(x)) << table->isa;
    }
  }
}

// A query that sees one key gets its value as it is stored: half a step of the type away from what was given.
TEST(Attention, StoredValuesAreAsNearAsTheTypeAllows) {
  for (const KvDtype dtype : kKvDtypes) {
    const Sequence sequence(dtype, 40, 1, 40, 2);
    for (const KernelTable* table : AvailableKernels()) {
      const std::vector<float> out = sequence.Attend(*table, 0, 40, 1);
      for (std::size_t t = 0; t < 40; ++t) {
        const float* v = &sequence.v[(t * 2 + 1) * 40];
        const auto [least, most] = std::minmax_element(v, v + 40);
        const double largest = std::max(std::abs(double{*least}), std::abs(double{*most}));
        for (std::size_t d = 0; d < 40; ++d) {
          const double x = std::abs(double{v[d]});
          double step = 0;
          switch (dtype) {
            case KvDtype::kF32:
              break;
            case KvDtype::kBf16:
              step = x * 0x1p-7;
              break;
            case KvDtype::kFp8E4m3:
              step = std::max(x * 0x1p-3, 0x1p-9);
              break;
            case KvDtype::kInt8:
              step = largest / 127;
              break;
            case KvDtype::kInt4:  // scale and min are rounded to F16
              step = (double{*most} - double{*least}) / 15 + 16 * largest * 0x1p-11;
              break;
          }
          EXPECT_NEAR(out[t * 40 + d], v[d], step / 2 + largest * 1e-6) << table->isa << ' ' << static_cast<int>(dtype);
        }
      }
    }
  }
}

// Keys and values of zero, of one size, tiny and huge: nothing divides by zero or overflows.
TEST(Attention, ConstantTinyAndHugeTokensStayFinite) {
  for (const KvDtype dtype : kKvDtypes) {
    for (const float size : {0.0f, -3.0f, 1e-40f, 1e-8f, 60000.0f, 1e30f}) {
      Sequence sequence(dtype, 40, 2, 40, 3);
      for (float& q : sequence.q) q *= 1e-3f;
      std::vector<float> same(sequence.k.size(), size);
      sequence.Store(0, 40, sequence.k, same);
      const float limit = dtype == KvDtype::kFp8E4m3 ? 448 : dtype == KvDtype::kInt4 ? 65504 : 1e38f;
      for (const KernelTable* table : AvailableKernels()) {
        for (const float x : sequence.Attend(*table, 0, 40, 0)) {
          EXPECT_NEAR(x, std::clamp(size, -limit, limit), std::max(std::abs(size) * 0.07f, 0x1p-10f)) << table->isa;
        }
      }
      if (std::abs(size) > 1e9f) continue;  // scores overflow as they would in F32
      sequence.Store(0, 40, same, same);
      for (const KernelTable* table : AvailableKernels()) {
        for (const float x : sequence.Attend(*table, 0, 40, 0)) ASSERT_TRUE(std::isfinite(x)) << table->isa << size;
      }
    }
  }
}

}  // namespace
}  // namespace quire::kernels
