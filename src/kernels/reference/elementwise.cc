#include <cmath>

#include "kernels/reference/reference.h"

namespace quire::kernels::reference {

void RmsNorm(const float* x, const float* weight, float eps, std::int64_t num_rows, std::int64_t n, std::int64_t ld_x,
             std::int64_t ld_y, float* y) {
  for (std::int64_t r = 0; r < num_rows; ++r, x += ld_x, y += ld_y) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += double{x[i]} * double{x[i]};
    const double inverse = 1.0 / std::sqrt(sum / static_cast<double>(n) + double{eps});
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(double{x[i]} * inverse * double{weight[i]});
  }
}

void AddRmsNorm(float* x, const float* delta, const float* weight, float eps, std::int64_t num_rows, std::int64_t n,
                float* y) {
  Add(x, delta, num_rows * n);
  RmsNorm(x, weight, eps, num_rows, n, n, n, y);
}

void Rope(float* x, std::int64_t num_tokens, std::int64_t num_heads, std::int64_t head_dim, std::int64_t rotary_dim,
          std::int64_t stride, const float* cos, const float* sin) {
  const std::int64_t half = rotary_dim / 2;
  for (std::int64_t t = 0; t < num_tokens; ++t) {
    for (std::int64_t h = 0; h < num_heads; ++h) {
      float* head = x + t * stride + h * head_dim;
      for (std::int64_t i = 0; i < half; ++i) {
        const double a = head[i], b = head[i + half], c = cos[t * half + i], s = sin[t * half + i];
        head[i] = static_cast<float>(a * c - b * s);
        head[i + half] = static_cast<float>(b * c + a * s);
      }
    }
  }
}

void SiluMul(const float* gate_up, std::int64_t num_rows, std::int64_t n, float* out) {
  for (std::int64_t r = 0; r < num_rows; ++r, gate_up += 2 * n, out += n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double gate = gate_up[i];
      out[i] = static_cast<float>(gate / (1.0 + std::exp(-gate)) * double{gate_up[n + i]});
    }
  }
}

void AddBias(float* x, const float* bias, std::int64_t num_rows, std::int64_t n, std::int64_t ld_x) {
  for (std::int64_t r = 0; r < num_rows; ++r) Add(x + r * ld_x, bias, n);
}

void Add(float* x, const float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] += y[i];
}

float MaxValue(const float* x, std::int64_t n, std::int64_t* index) {
  std::int64_t best = -1;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isnan(x[i]) && (best < 0 || x[i] > x[best])) best = i;
  }
  *index = best < 0 ? 0 : best;  // nothing but NaN: the first of them
  return x[*index];
}

double SumExp(const float* x, std::int64_t n, float offset, float scale) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp((double{x[i]} - double{offset}) * double{scale});
  return sum;
}

}  // namespace quire::kernels::reference
