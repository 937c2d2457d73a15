// The ranges of hyper-parameters, whatever file they come from (GGUF-05). They are far beyond any real model
// and small enough that no product of a few of them overflows 64 bits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "weights/model_config.h"

namespace quire::weights {

inline constexpr std::int64_t kVocabSizeMax = std::int64_t{1} << 24;
inline constexpr std::int64_t kHiddenSizeMax = std::int64_t{1} << 20;
inline constexpr std::int64_t kLayersMax = 4096;
inline constexpr std::int64_t kHeadsMax = 4096;
inline constexpr std::int64_t kHeadDimMax = 4096;
inline constexpr std::int64_t kPositionsMax = (std::int64_t{1} << 31) - 1;
inline constexpr double kRopeThetaMax = 1e15;
inline constexpr double kRopeFactorMax = 1e6;

// What holds between the fields of a complete config: every range, heads that group evenly, an even head_dim,
// one flag a layer, token ids inside the vocabulary. `name` stands in errors.
Result<> CheckModelConfig(const ModelConfig& config, std::string_view name);
Result<> CheckTokenIds(std::span<const TokenId> ids, int vocab_size, std::string_view what, std::string_view name);

}  // namespace quire::weights
