// For tests: a model of BF16 tensors that computes what another one does, but for the last bits, and is hard to quantise.
// A few columns of its matrices are 32 times as large, and what they meet is 32 times as small: an element of the norm
// before QKV and MLP, an output of up_proj before down_proj. Powers of two, so no weight is rounded. Trained models get
// such columns where a norm's weights differ much.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/float16.h"
#include "base/json.h"

namespace quire::models {

class PlantedOutliers {
 public:
  static constexpr int kQkvColumn = 100, kMlpColumn = 77, kDownColumn = 300;
  static constexpr int kNumOutliers = 3 + 2 + 1;  // of a layer's matrices

  // Reads the safetensors file of `from`.
  explicit PlantedOutliers(const std::filesystem::path& from) {
    std::ifstream file(from / "model.safetensors", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    std::uint64_t header_bytes = 0;
    CHECK(bytes_.size() > sizeof header_bytes);
    std::memcpy(&header_bytes, bytes_.data(), sizeof header_bytes);
    data_ = sizeof header_bytes + header_bytes;
    tensors_ = ParseJson(bytes_.substr(sizeof header_bytes, header_bytes), "header")->as_object();
  }

  // Copies `from` to `to`, with columns planted in every layer.
  static void Copy(const std::filesystem::path& from, const std::filesystem::path& to) {
    std::filesystem::copy(from, to);
    PlantedOutliers model(from);
    for (int layer = 0; model.tensors_.contains(Name(layer, "self_attn.q_proj")); ++layer) model.Plant(layer);
    model.Write(to);
  }

  // Multiplies the elements of a row, of a column, or, where -1 stands for all, of both.
  void Scale(const std::string& name, int only_row, int only_column, float factor) {
    const json::object& tensor = tensors_.at(name).as_object();
    CHECK(tensor.at("dtype").as_string() == "BF16");
    const auto columns = static_cast<std::size_t>(tensor.at("shape").as_array().back().as_int64());
    const json::array& offsets = tensor.at("data_offsets").as_array();
    const auto begin = static_cast<std::size_t>(offsets[0].as_int64());
    const auto count = (static_cast<std::size_t>(offsets[1].as_int64()) - begin) / sizeof(Bf16);
    for (std::size_t i = 0; i < count; ++i) {
      if (only_row >= 0 && i / columns != static_cast<std::size_t>(only_row)) continue;
      if (only_column >= 0 && i % columns != static_cast<std::size_t>(only_column)) continue;
      char* place = bytes_.data() + data_ + begin + i * sizeof(Bf16);
      Bf16 value;
      std::memcpy(&value, place, sizeof value);
      value = ToBf16(ToFloat(value) * factor);
      std::memcpy(place, &value, sizeof value);
    }
  }

  void Write(const std::filesystem::path& folder) const {
    std::filesystem::remove(folder / "model.safetensors");
    std::ofstream(folder / "model.safetensors", std::ios::binary) << bytes_;
  }

 private:
  static std::string Name(int layer, std::string_view part) {
    return "model.layers." + std::to_string(layer) + "." + std::string(part) + ".weight";
  }

  void Plant(int layer) {
    Scale(Name(layer, "input_layernorm"), -1, kQkvColumn, 1.0f / 32);
    for (const char* part : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}) {
      Scale(Name(layer, part), -1, kQkvColumn, 32);
    }
    Scale(Name(layer, "post_attention_layernorm"), -1, kMlpColumn, 1.0f / 32);
    for (const char* part : {"mlp.gate_proj", "mlp.up_proj"}) Scale(Name(layer, part), -1, kMlpColumn, 32);
    Scale(Name(layer, "mlp.up_proj"), kDownColumn, -1, 1.0f / 32);
    Scale(Name(layer, "mlp.down_proj"), -1, kDownColumn, 32);
  }

  std::string bytes_;
  std::size_t data_ = 0;  // where the tensors begin
  json::object tensors_;
};

}  // namespace quire::models
