// The searches of the quantizers for the scale (and minimum) of a group that minimise a weighted error, over a short list of
// candidates; four groups at a time.
#pragma once

#include <array>
#include <cstdint>

#include "weights/quantize_lanes.h"
#include "weights/quantize_rounding.h"

namespace quire::weights {

// ---- scale · (code − code_max) -----------------------------------------------------------------------------------------

// Σ w·x·l and Σ w·l² for the codes l of one candidate scale, with weights w = x². For codes l the best scale is
// Σwxl / Σwl²; of the candidates the one with the largest (Σwxl)² / Σwl² wins.
struct SymmetricFit {
  Lanes sum_lx{}, sum_l2{};
};

template <int n, int kCodeMax>
SymmetricFit FitSymmetric(const Lanes* x, Lanes inverse_scale) {
  SymmetricFit fit;
  for (int i = 0; i < n; ++i) {
    const Lanes code = NearestClamped(inverse_scale * x[i], -kCodeMax, kCodeMax - 1);
    const Lanes weight = x[i] * x[i];
    fit.sum_lx += weight * x[i] * code;
    fit.sum_l2 += weight * code * code;
  }
  return fit;
}

// Scales for which scale · (code − kCodeMax) is closest to x, and those codes in [0, 2 · kCodeMax), group by group.
template <int n, int kCodeMax>
Lanes SearchSymmetricScales(const Lanes* x, std::uint8_t* codes) {
  const Lanes largest = LargestMagnitude(x, n);
  Lanes best_inverse = static_cast<float>(-kCodeMax) / largest;
  const SymmetricFit start = FitSymmetric<n, kCodeMax>(x, best_inverse);
  Lanes scale = start.sum_l2 != 0.0f ? start.sum_lx / start.sum_l2 : Lanes{};
  Lanes best = scale * start.sum_lx;
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    const Lanes inverse_scale = -(static_cast<float>(kCodeMax) + 0.1f * static_cast<float>(step)) / largest;
    const SymmetricFit fit = FitSymmetric<n, kCodeMax>(x, inverse_scale);
    const auto better = (fit.sum_l2 > 0.0f) & (fit.sum_lx * fit.sum_lx > best * fit.sum_l2);
    best_inverse = better ? inverse_scale : best_inverse;
    scale = better ? fit.sum_lx / fit.sum_l2 : scale;
    best = better ? scale * fit.sum_lx : best;
  }
  const auto is_zero = Magnitude(largest) < kScaleEpsilon;
  for (int i = 0; i < n; ++i) {
    const Lanes code = NearestClamped(best_inverse * x[i], -kCodeMax, kCodeMax - 1) + static_cast<float>(kCodeMax);
    for (int g = 0; g < kLanes; ++g) codes[g * n + i] = static_cast<std::uint8_t>(is_zero[g] ? 0.0f : code[g]);
  }
  return is_zero ? Lanes{} : scale;
}

// ---- scale · code − minimum ------------------------------------------------------------------------------------------------

struct AffineFit {
  Lanes scale{}, minimum{};  // both ≥ 0
};

// What sets one search for it apart from another.
struct AffineSearch {
  int group;
  int code_max;
  float first_step;  // candidates: code_max + first_step, + first_step + 0.1, …
  int num_steps;
  bool absolute_error;  // |error|, else its square
};

template <AffineSearch kSearch>
Lanes AffineCode(Lanes x, Lanes inverse_scale, Lanes offset) {
  return NearestClamped(inverse_scale * (x - offset), 0, kSearch.code_max);
}

// Σ w · error(scale · code + offset − x).
template <AffineSearch kSearch>
Lanes AffineError(const Lanes* x, const Lanes* weights, const Lanes* codes, Lanes scale, Lanes offset) {
  Lanes sum{};
  for (int i = 0; i < kSearch.group; ++i) {
    const Lanes difference = scale * codes[i] + offset - x[i];
    sum += weights[i] * (kSearch.absolute_error ? Magnitude(difference) : difference * difference);
  }
  return sum;
}

// Weighted least squares of x against given codes, for many roundings of x. Each rounding starts from the best minimum
// so far. `out` gets the codes of the winner, group by group.
template <AffineSearch kSearch>
AffineFit SearchAffineScales(const Lanes* x, const Lanes* weights, std::uint8_t* out) {
  constexpr int n = kSearch.group, kCodeMax = kSearch.code_max;
  Lanes low = x[0], high = x[0], sum_w = weights[0], sum_x = sum_w * x[0];
  for (int i = 1; i < n; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  low = low < 0.0f ? low : Lanes{};  // the minimum is subtracted and not negative
  const auto is_flat = high == low;

  std::array<Lanes, n> codes;
  Lanes best_inverse = static_cast<float>(kCodeMax) / (high - low), best_from = low;
  for (int i = 0; i < n; ++i) codes[i] = AffineCode<kSearch>(x[i], best_inverse, low);
  Lanes scale = 1.0f / best_inverse, offset = low;
  Lanes best_error = AffineError<kSearch>(x, weights, codes.data(), scale, offset);
  for (int step = 0; step <= kSearch.num_steps; ++step) {
    const float width = kSearch.first_step + 0.1f * static_cast<float>(step) + static_cast<float>(kCodeMax);
    const Lanes inverse_scale = width / (high - offset);
    Lanes sum_l{}, sum_l2{}, sum_xl{};
    for (int i = 0; i < n; ++i) {
      const Lanes l = codes[i] = AffineCode<kSearch>(x[i], inverse_scale, offset);
      sum_l += weights[i] * l;
      sum_l2 += weights[i] * l * l;
      sum_xl += weights[i] * l * x[i];
    }
    const Lanes determinant = sum_w * sum_l2 - sum_l * sum_l;
    Lanes step_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    Lanes step_offset = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    step_scale = step_offset > 0.0f ? sum_xl / sum_l2 : step_scale;
    step_offset = step_offset > 0.0f ? Lanes{} : step_offset;
    const Lanes error = AffineError<kSearch>(x, weights, codes.data(), step_scale, step_offset);
    const auto better = (determinant > 0.0f) & (error < best_error);
    best_inverse = better ? inverse_scale : best_inverse;
    best_from = better ? offset : best_from;
    best_error = better ? error : best_error;
    scale = better ? step_scale : scale;
    offset = better ? step_offset : offset;
  }
  for (int i = 0; i < n; ++i) {
    const Lanes code = AffineCode<kSearch>(x[i], best_inverse, best_from);
    for (int g = 0; g < kLanes; ++g) out[g * n + i] = static_cast<std::uint8_t>(is_flat[g] ? 0.0f : code[g]);
  }
  return {is_flat ? Lanes{} : scale, is_flat ? -low : -offset};
}

}  // namespace quire::weights
