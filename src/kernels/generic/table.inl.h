// The table of a tier, from the functions that the other files of generic/ made in its namespace.

inline constexpr KernelTable MakeTable(const char* isa) {
  return {
      .isa = isa,
      .activation_kind = &KindOf,
      .activation_row_bytes = &ActivationRowBytes,
      .prepare_activations = &PrepareActivations,
      .gemm = &Gemm,
      .store_kv = &StoreKv,
      .attention_scratch_bytes = &AttentionScratchBytes,
      .attention = &Attend,
      .rms_norm = &RmsNorm,
      .add_rms_norm = &AddRmsNorm,
      .rope = &Rope,
      .silu_mul = &SiluMul,
      .add_bias = &AddBias,
      .add = &AddValues,
      .max_value = &MaxValue,
      .sum_exp = &SumExp,
  };
}
