#include "random_weights.h"

#include <cmath>
#include <numbers>

namespace quire::make_model {
namespace {

// The finaliser of splitmix64 (Steele, Lea, Flood, 2014): every bit of the result depends on every bit of x.
std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// FNV-1a: the same everywhere, unlike std::hash.
std::uint64_t HashOf(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// The sum of four uniform numbers of 16 bits, centred and scaled to variance 1: close to a normal distribution, with
// tails cut at ±3.46. Var(U) = 1/12, so that the sum has variance 1/3.
float NearlyNormal(std::uint64_t bits) {
  const auto part = [&](int shift) { return static_cast<std::int32_t>(bits >> shift & 0xFFFF); };
  const std::int32_t sum = part(0) + part(16) + part(32) + part(48) - 2 * 65535;
  return static_cast<float>(sum) * static_cast<float>(std::numbers::sqrt3 / 65536.0);
}

}  // namespace

void RandomRow(std::uint64_t seed, const TensorSpec& tensor, std::int64_t row, float* out) {
  using Kind = TensorSpec::Kind;
  const std::int64_t columns = tensor.shape.back();
  const float unit = 1.0f / std::sqrt(static_cast<float>(columns));
  const float mean = tensor.kind == Kind::kNorm ? 1.0f : 0.0f;
  const float deviation = tensor.kind == Kind::kMatrix ? unit : tensor.kind == Kind::kEmbedding ? 3 * unit : 0.1f;
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;  // the increment of splitmix64
  std::uint64_t state = Mix(seed + kGolden) ^ HashOf(tensor.name);
  state = Mix(state) + static_cast<std::uint64_t>(row * columns) * kGolden;
  for (std::int64_t i = 0; i < columns; ++i) {
    state += kGolden;
    out[i] = mean + deviation * NearlyNormal(Mix(state));
  }
}

}  // namespace quire::make_model
