#include "bench/roofline.h"

#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "base/json.h"
#include "bench/median.h"
#include "kernels/cpu_features.h"
#include "kernels/target.h"

namespace quire::bench {
namespace {

// Register-only loops. Each repeats one instruction over twelve independent accumulators (a latency of five cycles times
// two ports needs ten) and is written as assembly, so that no compiler folds, fuses or hoists it.
constexpr int kChains = 12;
constexpr std::int64_t kRounds = 4096;

// Keeps the compiler from dropping a result.
template <typename T>
void Keep(const T& value) {
  __asm__ volatile("" : : "m"(value) : "memory");
}

QUIRE_TARGET_BEGIN("avx2,fma")
void FmaYmm() {
  __m256 sum[kChains] = {};
  const __m256 a = _mm256_set1_ps(0.5f);
  for (std::int64_t i = 0; i < kRounds; ++i) {
    QUIRE_UNROLL for (int c = 0; c < kChains; ++c) {
      __asm__ volatile("vfmadd231ps %1, %1, %0" : "+x"(sum[c]) : "x"(a));
    }
  }
  Keep(sum);
}
void DotYmm() {  // vpmaddubsw, vpmaddwd, vpaddd: the three steps of a u8 × s8 dot product without VNNI
  __m256i sum[kChains] = {};
  const __m256i a = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
  for (std::int64_t i = 0; i < kRounds; ++i) {
    QUIRE_UNROLL for (int c = 0; c < kChains; ++c) {
      __m256i product;
      __asm__ volatile("vpmaddubsw %2, %2, %1\n\tvpmaddwd %3, %1, %1\n\tvpaddd %1, %0, %0"
                       : "+x"(sum[c]), "=&x"(product)
                       : "x"(a), "x"(ones));
    }
  }
  Keep(sum);
}
void ReadYmm(const std::byte* data, std::size_t bytes) {
  constexpr int kStreams = 8;
  const std::size_t part = bytes / kStreams / 64 * 64;
  __m256i sum[kStreams] = {};
  for (std::size_t i = 0; i + 64 <= part; i += 64) {
    QUIRE_UNROLL for (int s = 0; s < kStreams; ++s) {
      const std::byte* line = data + static_cast<std::size_t>(s) * part + i;
      __builtin_prefetch(line + 1024);
      const auto* halves = reinterpret_cast<const __m256i*>(line);
      sum[s] = _mm256_xor_si256(sum[s], _mm256_xor_si256(_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)));
    }
  }
  Keep(sum);
}
QUIRE_TARGET_END

QUIRE_TARGET_BEGIN("avx512f")
void FmaZmm() {
  __m512 sum[kChains] = {};
  const __m512 a = _mm512_set1_ps(0.5f);
  for (std::int64_t i = 0; i < kRounds; ++i) {
    QUIRE_UNROLL for (int c = 0; c < kChains; ++c) {
      __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(sum[c]) : "v"(a));
    }
  }
  Keep(sum);
}
void ReadZmm(const std::byte* data, std::size_t bytes) {
  constexpr int kStreams = 8;
  const std::size_t part = bytes / kStreams / 64 * 64;
  __m512i sum[kStreams] = {};
  for (std::size_t i = 0; i + 64 <= part; i += 64) {
    QUIRE_UNROLL for (int s = 0; s < kStreams; ++s) {
      const std::byte* line = data + static_cast<std::size_t>(s) * part + i;
      __builtin_prefetch(line + 1024);
      sum[s] = _mm512_xor_si512(sum[s], _mm512_loadu_si512(line));
    }
  }
  Keep(sum);
}
QUIRE_TARGET_END

QUIRE_TARGET_BEGIN("avx512f,avx512bw,avx512vnni,avx512bf16")
void DotZmm() {
  __m512i sum[kChains] = {};
  const __m512i a = _mm512_set1_epi32(0x01020304);
  for (std::int64_t i = 0; i < kRounds; ++i) {
    QUIRE_UNROLL for (int c = 0; c < kChains; ++c) {
      __asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(sum[c]) : "v"(a));
    }
  }
  Keep(sum);
}
void Bf16Zmm() {
  __m512 sum[kChains] = {};
  const __m512i a = _mm512_set1_epi32(0x3F003F00);
  for (std::int64_t i = 0; i < kRounds; ++i) {
    QUIRE_UNROLL for (int c = 0; c < kChains; ++c) {
      __asm__ volatile("vdpbf16ps %1, %1, %0" : "+v"(sum[c]) : "v"(a));
    }
  }
  Keep(sum);
}
QUIRE_TARGET_END

#include "kernels/simd/amx_instructions.inl.h"

// Products of 16 rows × 64 bytes with 16 outputs × 64 bytes, into four sums.
constexpr double kTileProducts = 4.0 * 16 * 16 * kRounds;  // of 64 bytes with 64 bytes
void Int8Tiles() {
  const MatrixTiles tiles(16, 64);
  for (std::int64_t i = 0; i < kRounds; ++i) {
    MatrixDotInt8<0, 4, 6>();
    MatrixDotInt8<1, 4, 7>();
    MatrixDotInt8<2, 5, 6>();
    MatrixDotInt8<3, 5, 7>();
  }
}
void Bf16Tiles() {
  const MatrixTiles tiles(16, 64);
  for (std::int64_t i = 0; i < kRounds; ++i) {
    MatrixDotBf16<0, 4, 6>();
    MatrixDotBf16<1, 4, 7>();
    MatrixDotBf16<2, 5, 6>();
    MatrixDotBf16<3, 5, 7>();
  }
}

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr double kMeasureSeconds = 0.01;

// A register loop, and the operations of one call of it.
struct Loop {
  void (*run)() = nullptr;
  double operations = 0;
};

Loop LoopFor(Limit limit, const kernels::CpuFeatures& cpu) {
  constexpr double kInstructions = double{kRounds} * kChains;
  switch (limit) {
    case Limit::kReadBandwidth:
      return {};
    case Limit::kInt8:  // a quad of products in each 32-bit lane
      if (cpu.avx512vnni) return {&DotZmm, kInstructions * 16 * 8};
      return cpu.avx2 ? Loop{&DotYmm, kInstructions * 8 * 8} : Loop{};
    case Limit::kBf16:
      return cpu.avx512bf16 ? Loop{&Bf16Zmm, kInstructions * 16 * 4} : Loop{};
    case Limit::kFma:
      if (cpu.avx512) return {&FmaZmm, kInstructions * 16 * 2};
      return cpu.avx2 ? Loop{&FmaYmm, kInstructions * 8 * 2} : Loop{};
    case Limit::kInt8Tiles:
      if (!cpu.amx || !kernels::RequestTileRegisters()) return {};
      return {&Int8Tiles, kTileProducts * 64 * 2};
    case Limit::kBf16Tiles:
      if (!cpu.amx || !kernels::RequestTileRegisters()) return {};
      return {&Bf16Tiles, kTileProducts * 32 * 2};
  }
  return {};
}

double MeasureLoop(ThreadPool* pool, const Loop& loop) {
  if (loop.run == nullptr) return 0;
  std::vector<double> rates(static_cast<std::size_t>(pool->num_threads()));
  pool->Run([&](int thread) {
    const double begin = SecondsNow();
    double calls = 0, seconds = 0;
    do {
      loop.run();
      ++calls;
      seconds = SecondsNow() - begin;
    } while (seconds < kMeasureSeconds);
    rates[static_cast<std::size_t>(thread)] = calls * loop.operations / seconds / 1e9;
  });
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

}  // namespace

Result<Roofline> Roofline::Create(ThreadPool* pool, std::size_t buffer_bytes) {
  Roofline roofline;
  roofline.pool_ = pool;
  QUIRE_TRY(roofline.buffer_, AlignedBuffer::Allocate(std::max<std::size_t>(buffer_bytes, 1 << 20)));
  // Untouched pages are all the same page of zeros, which the cache would hold.
  for (std::size_t i = 0; i < roofline.buffer_.size(); i += 64) roofline.buffer_.data()[i] = std::byte{1};
  return roofline;
}

double Roofline::Measure(Limit limit) {
  const kernels::CpuFeatures cpu = kernels::DecodeCpuFeatures(kernels::ReadCpuid());
  if (limit != Limit::kReadBandwidth) return MeasureLoop(pool_, LoopFor(limit, cpu));
  const auto read = cpu.avx512 ? &ReadZmm : cpu.avx2 ? &ReadYmm : nullptr;
  if (read == nullptr) return 0;
  const std::size_t part = buffer_.size() / static_cast<std::size_t>(pool_->num_threads()) / 4096 * 4096;
  const double begin = SecondsNow();
  pool_->Run([&](int thread) { read(buffer_.data() + static_cast<std::size_t>(thread) * part, part); });
  const double seconds = SecondsNow() - begin;
  return static_cast<double>(part) * pool_->num_threads() / seconds / 1e9;
}

RooflineResult MeasureRoofline(Roofline* roofline, int num_threads, int repeats) {
  constexpr std::array kLimits = {Limit::kReadBandwidth, Limit::kInt8,      Limit::kBf16,
                                  Limit::kFma,           Limit::kInt8Tiles, Limit::kBf16Tiles};
  std::array<std::vector<double>, kLimits.size()> samples;
  for (int i = 0; i < repeats; ++i) {
    for (std::size_t l = 0; l < kLimits.size(); ++l) samples[l].push_back(roofline->Measure(kLimits[l]));
  }
  return {.num_threads = num_threads,
          .read_gb_per_second = Median(samples[0]),
          .int8_gop_per_second = Median(samples[1]),
          .bf16_gflop_per_second = Median(samples[2]),
          .fma_gflop_per_second = Median(samples[3]),
          .int8_tiles_gop_per_second = Median(samples[4]),
          .bf16_tiles_gflop_per_second = Median(samples[5])};
}

std::string RooflineResult::ToText() const {
  return fmt::format(
      "{} thread{}\n"
      "  read bandwidth  {:8.1f} GB/s\n"
      "  INT8 dot        {:8.1f} GOP/s\n"
      "  BF16 dot        {:8.1f} GFLOP/s\n"
      "  FP32 FMA        {:8.1f} GFLOP/s\n"
      "  INT8 tiles      {:8.1f} GOP/s\n"
      "  BF16 tiles      {:8.1f} GFLOP/s\n",
      num_threads, num_threads == 1 ? "" : "s", read_gb_per_second, int8_gop_per_second, bf16_gflop_per_second,
      fma_gflop_per_second, int8_tiles_gop_per_second, bf16_tiles_gflop_per_second);
}

std::string RooflineResult::ToJson() const {
  std::string out;
  JsonWriter(&out)
      .BeginObject()
      .Key("num_threads")
      .Int(num_threads)
      .Key("read_gb_per_second")
      .Double(read_gb_per_second)
      .Key("int8_gop_per_second")
      .Double(int8_gop_per_second)
      .Key("bf16_gflop_per_second")
      .Double(bf16_gflop_per_second)
      .Key("fma_gflop_per_second")
      .Double(fma_gflop_per_second)
      .Key("int8_tiles_gop_per_second")
      .Double(int8_tiles_gop_per_second)
      .Key("bf16_tiles_gflop_per_second")
      .Double(bf16_tiles_gflop_per_second)
      .EndObject();
  return out;
}

}  // namespace quire::bench
