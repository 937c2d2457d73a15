#include "kernels/activation_layout.h"
#include "kernels/reference/reference.h"
#include "kernels/store_kv.h"

namespace quire::kernels {
namespace {

ActivationKind ReferenceActivationKind(WeightFormat format) {
  return Traits(format).integer ? ActivationKind::kInt8 : ActivationKind::kF32;
}

}  // namespace

const KernelTable& ReferenceKernels() {
  static constexpr KernelTable table{
      .isa = "reference",
      .activation_kind = &ReferenceActivationKind,
      .activation_row_bytes = &ActivationRowBytes,
      .prepare_activations = &PrepareActivationsReference,
      .gemm = &reference::Gemm,
      .store_kv = &StoreKv,
      .attention_scratch_bytes = &reference::AttentionScratchBytes,
      .attention = &reference::Attention,
      .rms_norm = &reference::RmsNorm,
      .add_rms_norm = &reference::AddRmsNorm,
      .rope = &reference::Rope,
      .silu_mul = &reference::SiluMul,
      .add_bias = &reference::AddBias,
      .add = &reference::Add,
      .max_value = &reference::MaxValue,
      .sum_exp = &reference::SumExp,
  };
  return table;
}

}  // namespace quire::kernels
