// Which kernel a format meets.

inline ActivationKind KindOf(WeightFormat format) {
  if (Traits(format).integer) return ActivationKind::kInt8;
  if (format == WeightFormat::kBf16 && (kBf16Activations || kMatrixTiles)) return ActivationKind::kBf16;
  if (format == WeightFormat::kBf16Sparse24 && kBf16Activations) return ActivationKind::kBf16;
  return ActivationKind::kF32;
}

// Of tiers with matrix tiles.
template <typename Format>
void GemmPairsMatrix(const GemmArgs& args);

template <typename Format>
inline void GemmPairs(ActivationKind kind, const GemmArgs& args) {
  if constexpr (kMatrixTiles) {
    GemmPairsMatrix<Format>(args);
  } else {
    GemmFloat<Format>(kind, args);
  }
}

inline void Gemm(const GemmArgs& args) {
  const WeightFormat format = args.weights->format;
  if (args.weights->k == 0) {  // an empty sum
    for (std::int64_t r = 0; r < args.num_rows; ++r) {
      for (std::int64_t c = args.panel_begin * kPanelWidth; c < args.panel_end * kPanelWidth && c < args.weights->n;
           ++c) {
        args.out[r * args.ld_out + c] = 0;
      }
    }
    return;
  }
  switch (format) {
    case WeightFormat::kF32:
      return GemmFloat<F32Weights>(KindOf(format), args);
    case WeightFormat::kF16:
      return GemmFloat<F16Weights>(KindOf(format), args);
    case WeightFormat::kBf16:
      return GemmPairs<Bf16Weights>(KindOf(format), args);
    case WeightFormat::kInt8Group32:
      return GemmInt8<WeightFormat::kInt8Group32>(args);
    case WeightFormat::kInt8Group32F32:
      return GemmInt8<WeightFormat::kInt8Group32F32>(args);
    case WeightFormat::kInt8Group32Min:
      return GemmInt8<WeightFormat::kInt8Group32Min>(args);
    case WeightFormat::kInt6Super:
      return GemmInt8<WeightFormat::kInt6Super>(args);
    case WeightFormat::kInt5Group32:
      return GemmInt8<WeightFormat::kInt5Group32>(args);
    case WeightFormat::kInt5Super:
      return GemmInt8<WeightFormat::kInt5Super>(args);
    case WeightFormat::kInt4Group32:
      return GemmInt8<WeightFormat::kInt4Group32>(args);
    case WeightFormat::kInt4Group32Min:
      return GemmInt8<WeightFormat::kInt4Group32Min>(args);
    case WeightFormat::kInt4Super:
      return GemmInt8<WeightFormat::kInt4Super>(args);
    case WeightFormat::kInt4Super16:
      return GemmInt8<WeightFormat::kInt4Super16>(args);
    case WeightFormat::kIq4Group32:
      return GemmInt8<WeightFormat::kIq4Group32>(args);
    case WeightFormat::kMxfp4Group32:
      return GemmInt8<WeightFormat::kMxfp4Group32>(args);
    case WeightFormat::kInt8Sparse24:
      return GemmInt8<WeightFormat::kInt8Sparse24>(args);
    case WeightFormat::kBf16Sparse24:
      return GemmFloat<Bf16SparseWeights>(KindOf(format), args);
    case WeightFormat::kFp8E4m3:
      return GemmScaled<Fp8E4m3Codes>(args);
    case WeightFormat::kFp8E5m2:
      return GemmScaled<Fp8E5m2Codes>(args);
    case WeightFormat::kNf4:
      return GemmScaled<Nf4Codes>(args);
  }
}
