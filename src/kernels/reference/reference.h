// The pieces of the reference tier: scalar code that is read to learn what a kernel means, and run to check
// that the fast ones mean the same. Sums are kept in double.
#pragma once

#include "kernels/kernel_table.h"

namespace quire::kernels::reference {

void Gemm(const GemmArgs& args);

std::size_t AttentionScratchBytes(const KvLayout& layout, int group);
void Attention(const AttentionArgs& args);

void RmsNorm(const float* x, const float* weight, float eps, std::int64_t num_rows, std::int64_t n, std::int64_t ld_x,
             std::int64_t ld_y, float* y);
void AddRmsNorm(float* x, const float* delta, const float* weight, float eps, std::int64_t num_rows, std::int64_t n,
                float* y);
void Rope(float* x, std::int64_t num_tokens, std::int64_t num_heads, std::int64_t head_dim, std::int64_t rotary_dim,
          std::int64_t stride, const float* cos, const float* sin);
void SiluMul(const float* gate_up, std::int64_t num_rows, std::int64_t n, float* out);
void AddBias(float* x, const float* bias, std::int64_t num_rows, std::int64_t n, std::int64_t ld_x);
void Add(float* x, const float* y, std::int64_t n);
float MaxValue(const float* x, std::int64_t n, std::int64_t* index);
double SumExp(const float* x, std::int64_t n, float offset, float scale);

}  // namespace quire::kernels::reference
