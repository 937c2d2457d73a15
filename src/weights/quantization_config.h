// What a Hugging Face config.json says about how its weights were quantised: "quantization_config". Which matrices
// are quantised, and to which of several schemes, the tensors show by themselves (a matrix that was left alone has a
// plain .weight), so lists of modules ("ignore", "modules_to_not_convert", "targets") are not matched against names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/json_fields.h"

namespace quire::weights {

enum class QuantizationMethod : std::uint8_t { kAwq, kGptq, kCompressedTensors, kFp8, kBitsAndBytes };

// A kind of weights that compressed-tensors declares.
struct WeightScheme {
  bool is_float = false;
  int bits = 0;
  std::int64_t group_size = 0;  // 0: a scale per output or per tensor, or per block
};

struct QuantizationConfig {
  QuantizationMethod method = QuantizationMethod::kAwq;
  std::string name;              // quant_method
  int bits = 0;                  // AWQ, GPTQ
  std::int64_t group_size = -1;  // AWQ, GPTQ: inputs that share a scale; −1: all of them
  bool zeros_minus_one = true;   // GPTQ "v1" stores zero points less one, "gptq_v2" as they are
  std::int64_t block_rows = 0;   // FP8: outputs and inputs that share a scale; 0: no blocks
  std::int64_t block_columns = 0;
  std::vector<WeightScheme> schemes;  // compressed-tensors
};

// `root` is config.json. Nothing when the model is not quantised; an error that lists what is supported for a method,
// a number of bits or a layout that is not.
Result<std::optional<QuantizationConfig>> ParseQuantizationConfig(const JsonFields& root);

}  // namespace quire::weights
