// Tensors of arbitrary types, shapes and bytes under the names that quantised layouts use, and arbitrary settings: an
// error, or rows that can be read.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "weights/quantized_matrix.h"
#include "weights/tensor_index.h"

namespace quire::weights {
namespace {

// Takes numbers off the input; zeros when it is spent.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
  int Take(int below) {
    if (rest_.empty()) return 0;
    const int value = rest_.front() % below;
    rest_ = rest_.subspan(1);
    return value;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::span<const std::uint8_t> rest_;
};

class FuzzSource final : public ModelSource {
 public:
  explicit FuzzSource(Input* input) {
    constexpr std::array<std::string_view, 20> kSuffixes = {".weight",
                                                            ".qweight",
                                                            ".qzeros",
                                                            ".scales",
                                                            ".g_idx",
                                                            ".weight_packed",
                                                            ".weight_shape",
                                                            ".weight_scale",
                                                            ".weight_scale_inv",
                                                            ".weight_zero_point",
                                                            ".weight_g_idx",
                                                            ".SCB",
                                                            ".weight.absmax",
                                                            ".weight.quant_map",
                                                            ".weight.nested_absmax",
                                                            ".weight.nested_quant_map",
                                                            ".weight.quant_state.bitsandbytes__nf4",
                                                            ".compressed",
                                                            ".bitmask",
                                                            ".shape"};
    constexpr std::array<std::string_view, 9> kTypes = {"I32", "F16",  "U8",      "I8",     "I64",
                                                        "F32", "BF16", "F8_E4M3", "F8_E5M2"};
    constexpr std::array<std::int64_t, 8> kSides = {8, 1, 2, 32, 64, 4, 0, 3};
    constexpr std::string_view kState = R"({"blocksize":8,"shape":[8,8],"nested_blocksize":2})";
    std::vector<TensorSource> tensors;
    for (const std::string_view suffix : kSuffixes) {
      if (input->Take(3) == 2) continue;
      TensorSource tensor{.name = "w" + std::string(suffix),
                          .type = FindTypeBySafetensorsName(kTypes[static_cast<std::size_t>(input->Take(9))])};
      for (int dimensions = input->Take(4); dimensions > 0; --dimensions) {
        tensor.shape.push_back(kSides[static_cast<std::size_t>(input->Take(8))]);
      }
      const auto size = static_cast<std::size_t>(tensor.rows() * tensor.columns() * tensor.type->block_bytes);
      std::vector<std::byte>& data = storage_.emplace_back(size);
      const int fill = input->Take(256), step = input->Take(4);
      for (std::size_t i = 0; i < size; ++i)
        data[i] = static_cast<std::byte>(input->empty() ? fill : input->Take(256) * step);
      if (suffix.ends_with("nf4") && step == 0) {
        const auto state = std::as_bytes(std::span(kState));
        data.assign(state.begin(), state.end());
        tensor.type = FindTypeBySafetensorsName("U8");
        tensor.shape = {static_cast<std::int64_t>(data.size())};
      }
      tensor.data = data;
      tensors.push_back(std::move(tensor));
    }
    index_ = *TensorIndex::Build(std::move(tensors), "fuzz");
  }

  const ModelConfig& config() const override { return config_; }
  const GenerationConfig& generation_config() const override { return generation_config_; }
  Result<TextAssets> ReadTextAssets() const override { return TextAssets{}; }
  bool is_gguf() const override { return false; }
  const TensorSource* Find(std::string_view name) const override { return index_.Find(name); }
  std::span<const TensorSource> tensors() const override { return index_.tensors(); }
  std::int64_t total_bytes() const override { return index_.total_bytes(); }
  void Release(const TensorSource&) const override {}

 private:
  ModelConfig config_;
  GenerationConfig generation_config_;
  std::deque<std::vector<std::byte>> storage_;
  TensorIndex index_;
};

QuantizationConfig TakeConfig(Input* input) {
  constexpr std::array<int, 4> kBits = {4, 2, 3, 8};
  constexpr std::array<std::int64_t, 5> kGroups = {-1, 1, 32, 8, 3};
  QuantizationConfig config{.method = static_cast<QuantizationMethod>(input->Take(5)),
                            .bits = kBits[static_cast<std::size_t>(input->Take(4))],
                            .group_size = kGroups[static_cast<std::size_t>(input->Take(5))],
                            .zeros_minus_one = input->Take(2) == 0};
  if (config.method == QuantizationMethod::kAwq) config.bits = 4;
  if (input->Take(2) == 1) {
    config.block_rows = 1 + input->Take(9);
    config.block_columns = 1 + input->Take(9);
  }
  config.schemes = {{.bits = 4, .group_size = 8}, {.bits = 8}, {.bits = 4}};
  return config;
}

void ReadAll(const MatrixSource& matrix) {
  const MatrixInfo& info = matrix.info();
  std::vector<float> floats(static_cast<std::size_t>(info.columns));
  std::vector<std::byte> panel(kernels::PanelBytes(info.packed, info.columns));
  RowBuffer buffer;
  for (std::int64_t row = 0; row < info.rows; ++row) {
    const bool decoded = matrix.Decode(row, &buffer).has_value();
    if (decoded != matrix.Dequantize(row, floats.data()).has_value()) std::abort();
    if (!decoded) continue;
    const kernels::WeightRow view = buffer.View();
    kernels::PackPanel(info.packed, info.columns, std::span(&view, 1), panel.data());
  }
}

}  // namespace
}  // namespace quire::weights

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quire::weights;
  Input input(data, size);
  const QuantizationConfig config = TakeConfig(&input);
  const FuzzSource source(&input);
  const auto matrix = OpenQuantizedMatrix(source, config, "w");
  if (!matrix) {
    if (matrix.error().message.empty()) std::abort();
  } else if (*matrix != nullptr) {
    if ((*matrix)->info().rows <= 0 || (*matrix)->info().columns <= 0) std::abort();
    ReadAll(**matrix);
  }
  return 0;
}
