// Every quantised layout of Hugging Face checkpoints on tensors small enough to work out by hand.
// tests/weights/test_hf_formats.py has the large ones, and what is refused.
#include "weights/quantized_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/float16.h"
#include "base/float8.h"
#include "weights/test_files.h"

namespace quire::weights {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

struct TestTensor {
  std::string name, dtype, shape;
  std::string bytes;
};

template <typename T>
std::string Bytes(std::initializer_list<T> values) {
  std::string bytes;
  for (const T value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return bytes;
}
std::string F32(std::initializer_list<float> values) {
  return Bytes(values);
}
std::string F16Bytes(std::initializer_list<float> values) {
  std::string bytes;
  for (const float value : values) bytes += Bytes({ToF16(value).bits});
  return bytes;
}
std::string Words(std::initializer_list<std::uint32_t> values) {
  return Bytes(values);
}

// A folder whose config.json has `quantization`, open.
class Model {
 public:
  Model(std::string_view quantization, const std::vector<TestTensor>& tensors) {
    folder_.Write("config.json", R"({"architectures":["LlamaForCausalLM"],"vocab_size":8,"hidden_size":4,
        "intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":16,
        "eos_token_id":1,"quantization_config":)" +
                                     std::string(quantization) + "}");
    std::string header = "{", data;
    for (const TestTensor& tensor : tensors) {
      header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", data.empty() ? "" : ",",
                            tensor.name, tensor.dtype, tensor.shape, data.size(), data.size() + tensor.bytes.size());
      data += tensor.bytes;
    }
    folder_.Write("model.safetensors", SafetensorsFile(header + "}", 0) + data);
    auto source = ModelSource::Open(folder_.path());
    EXPECT_TRUE(source.has_value()) << source.error().message;
    if (source) source_ = *std::move(source);
  }

  std::unique_ptr<MatrixSource> Find(std::string_view stem) const {
    auto matrix = source_->FindMatrix(stem);
    EXPECT_TRUE(matrix.has_value()) << matrix.error().message;
    return matrix ? *std::move(matrix) : nullptr;
  }
  std::string ErrorOf(std::string_view stem) const {
    const auto matrix = source_->FindMatrix(stem);
    return matrix ? "no error" : matrix.error().message;
  }
  // Row `row` of the matrix "w".
  std::vector<float> Row(std::int64_t row) const {
    const auto matrix = Find("w");
    if (matrix == nullptr) return {};
    std::vector<float> out(static_cast<std::size_t>(matrix->info().columns));
    const Result<> done = matrix->Dequantize(row, out.data());
    EXPECT_TRUE(done.has_value()) << done.error().message;
    return out;
  }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<ModelSource> source_;
};

TEST(QuantizedMatrix, AwqNibblesComeEvenOutputsFirst) {
  // Nibble i of a word is i, then i + 8.
  const Model model(R"({"quant_method":"awq","bits":4,"group_size":-1,"version":"GEMM"})",
                    {{"w.qweight", "I32", "2,1", Words({0x76543210, 0xFEDCBA98})},
                     {"w.qzeros", "I32", "1,1", Words({0x76543210})},
                     {"w.scales", "F16", "1,8", F16Bytes({1, 1, 1, 1, 1, 1, 1, 0.5})}});
  // Output 1 is in nibble 4, of the zero points too.
  EXPECT_THAT(model.Row(0), ElementsAre(0 - 0, 8 - 0));
  EXPECT_THAT(model.Row(1), ElementsAre(4 - 4, 12 - 4));
  const Model shifted(R"({"quant_method":"awq","bits":4,"group_size":1})",
                      {{"w.qweight", "I32", "2,1", Words({0x76543210, 0x76543210})},
                       {"w.qzeros", "I32", "2,1", Words({0x00000000, 0x11111111})},
                       {"w.scales", "F16", "2,8", F16Bytes({1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2})}});
  const std::vector<float> codes{0, 4, 1, 5, 2, 6, 3, 7};
  for (std::int64_t row = 0; row < 8; ++row) {
    const float code = codes[static_cast<std::size_t>(row)];
    EXPECT_THAT(shifted.Row(row), ElementsAre(code, 2 * (code - 1))) << row;
  }
}

TEST(QuantizedMatrix, GptqCodesRunDownTheColumnsAndZerosAlongTheRow) {
  const std::vector<TestTensor> tensors{
      {"w.qweight", "I32", "1,8", Words({0x76543210, 0x76543211, 0, 0, 0, 0, 0, 0xF0000000})},
      {"w.qzeros", "I32", "1,1", Words({0xF6543210})},
      {"w.scales", "F16", "1,8", F16Bytes({1, 0.5, 1, 1, 1, 1, 1, 2})}};
  const Model first(R"({"quant_method":"gptq","bits":4,"group_size":8})", tensors);
  EXPECT_THAT(first.Row(0), ElementsAre(-1, 0, 1, 2, 3, 4, 5, 6));             // the zero 0 stands for 1
  EXPECT_THAT(first.Row(1), ElementsAre(-0.5, -0.5, 0, 0.5, 1, 1.5, 2, 2.5));  // 1 stands for 2
  EXPECT_THAT(first.Row(7), ElementsAre(0, 0, 0, 0, 0, 0, 0, 30));             // 15 for 16, which is 0 in four bits
  const Model second(R"({"quant_method":"gptq","bits":4,"group_size":-1,"checkpoint_format":"gptq_v2"})", tensors);
  EXPECT_THAT(second.Row(0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(second.Row(7), ElementsAre(-30, -30, -30, -30, -30, -30, -30, 0));
}

TEST(QuantizedMatrix, GptqOfThreeBitsCrossesWords) {
  // 0, 1, … 7 four times over are the octal digits 76543210, 24 bits, four times over.
  std::string words, zeros, scales;
  for (const std::uint32_t word : {0x88FAC688u, 0xC688FAC6u, 0xFAC688FAu}) {
    for (int output = 0; output < 32; ++output) words += Words({output == 3 ? word : 0});
  }
  for (int output = 0; output < 32; ++output) scales += F16Bytes({0.25});
  const Model model(R"({"quant_method":"gptq","bits":3,"group_size":32,"checkpoint_format":"gptq_v2"})",
                    {{"w.qweight", "I32", "3,32", words},
                     {"w.qzeros", "I32", "1,3", Words({0x88FAC688, 0xC688FAC6, 0xFAC688FA})},
                     {"w.scales", "F16", "1,32", scales}});
  const std::vector<float> row = model.Row(3);
  for (std::size_t c = 0; c < 32; ++c) EXPECT_EQ(row[c], 0.25f * (static_cast<float>(c % 8) - 3)) << c;
  EXPECT_THAT(model.Row(31), testing::Each(-1.75f));
}

TEST(QuantizedMatrix, GptqBringsTheColumnsOfAGroupTogether) {
  std::string words, zeros, scales, groups;
  for (int i = 0; i < 8 * 8; ++i) words += Words({0x76543210});
  for (int i = 0; i < 8; ++i) scales += F16Bytes({1});
  for (int i = 0; i < 8; ++i) scales += F16Bytes({100});
  for (int i = 0; i < 64; ++i) groups += Words({i % 2 == 0 ? 1u : 0u});
  const Model model(R"({"quant_method":"gptq","bits":4,"group_size":32,"desc_act":true})",
                    {{"w.qweight", "I32", "8,8", words},
                     {"w.qzeros", "I32", "2,1", Words({0x77777777, 0xEEEEEEEE})},
                     {"w.scales", "F16", "2,8", scales},
                     {"w.g_idx", "I32", "64", groups}});
  const auto matrix = model.Find("w");
  ASSERT_NE(matrix, nullptr);
  const std::vector<float> row = model.Row(5);
  EXPECT_EQ(row[0], 100 * (0 - 15));
  EXPECT_EQ(row[1], 1 - 8);
  EXPECT_EQ(row[63], 7 - 8);
  std::vector<std::int32_t> order;
  for (int i = 0; i < 32; ++i) order.push_back(2 * i + 1);
  for (int i = 0; i < 32; ++i) order.push_back(2 * i);
  EXPECT_THAT(matrix->info().input_order, ElementsAreArray(order));
  EXPECT_EQ(matrix->info().tensors.size(), 4u);
}

TEST(QuantizedMatrix, CompressedIntegers) {
  const std::string int8 = R"({"quant_method":"compressed-tensors","format":"int-quantized","config_groups":
      {"group_0":{"weights":{"num_bits":8,"type":"int","strategy":"channel"}}}})";
  const Model plain(int8, {{"w.weight", "I8", "2,2", Bytes<std::int8_t>({1, -2, 127, -128})},
                           {"w.weight_scale", "F32", "2,1", F32({0.5, 2})}});
  EXPECT_THAT(plain.Row(0), ElementsAre(0.5, -1));
  EXPECT_THAT(plain.Row(1), ElementsAre(254, -256));
  const Model offset(int8, {{"w.weight", "I8", "2,2", Bytes<std::int8_t>({1, -2, 127, -128})},
                            {"w.weight_scale", "F32", "2,1", F32({0.5, 2})},
                            {"w.weight_zero_point", "I8", "2,1", Bytes<std::int8_t>({1, -1})}});
  EXPECT_THAT(offset.Row(0), ElementsAre(0, -1.5));
  EXPECT_THAT(offset.Row(1), ElementsAre(256, -254));
  // Codes are 8 more than the values, those of zero points too: −8 … −1 less −2.
  const Model packed(
      R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":
          {"group_0":{"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":8}}}})",
      {{"w.weight_packed", "I32", "1,2", Words({0x76543210, 0x8})},
       {"w.weight_shape", "I64", "2", Bytes<std::int64_t>({1, 16})},
       {"w.weight_scale", "F16", "1,2", F16Bytes({2, 1})},
       {"w.weight_zero_point", "I32", "1,2", Words({0x6, 0x8})}});
  EXPECT_THAT(packed.Row(0), ElementsAre(-12, -10, -8, -6, -4, -2, 0, 2, 0, -8, -8, -8, -8, -8, -8, -8));
}

TEST(QuantizedMatrix, Float8) {
  EXPECT_EQ(ToFloat(Fp8E4m3{0x38}), 1.0f);
  EXPECT_EQ(ToFloat(Fp8E4m3{0x01}), 0x1p-9f);
  EXPECT_EQ(ToFloat(Fp8E4m3{0x07}), 7 * 0x1p-9f);
  EXPECT_EQ(ToFloat(Fp8E4m3{0x08}), 0x1p-6f);
  EXPECT_EQ(ToFloat(Fp8E4m3{0xFE}), -448.0f);
  EXPECT_TRUE(std::isnan(ToFloat(Fp8E4m3{0x7F})));
  EXPECT_EQ(ToFloat(Fp8E5m2{0x3C}), 1.0f);
  EXPECT_EQ(ToFloat(Fp8E5m2{0x01}), 0x1p-16f);
  EXPECT_EQ(ToFloat(Fp8E5m2{0xFB}), -57344.0f);
  const std::string codes("\x38\xB8\x7E\x40\x01\x00", 6);
  const Model tensor(R"({"quant_method":"fp8"})",
                     {{"w.weight", "F8_E4M3", "2,3", codes}, {"w.weight_scale", "F32", "", F32({0.5})}});
  EXPECT_THAT(tensor.Row(0), ElementsAre(0.5, -0.5, 224));
  EXPECT_THAT(tensor.Row(1), ElementsAre(1, 0x1p-10f, 0));
  const Model blocks(R"({"quant_method":"fp8","weight_block_size":[1,2]})",
                     {{"w.weight", "F8_E4M3", "2,3", codes}, {"w.weight_scale_inv", "F32", "2,2", F32({1, 2, 3, 4})}});
  EXPECT_THAT(blocks.Row(0), ElementsAre(1, -1, 896));
  EXPECT_THAT(blocks.Row(1), ElementsAre(6, 3 * 0x1p-9f, 0));
  const Model channels(R"({"quant_method":"compressed-tensors","format":"float-quantized"})",
                       {{"w.weight", "F8_E5M2", "2,3", std::string("\x3C\xBC\x40\x3C\x01\x00", 6)},
                        {"w.weight_scale", "F16", "2,1", F16Bytes({3, 4})}});
  EXPECT_THAT(channels.Row(0), ElementsAre(3, -3, 6));
  EXPECT_THAT(channels.Row(1), ElementsAre(4, 0x1p-14f, 0));
}

TEST(QuantizedMatrix, BitsAndBytes) {
  const Model int8(R"({"quant_method":"bitsandbytes","load_in_8bit":true})",
                   {{"w.weight", "I8", "2,2", Bytes<std::int8_t>({1, -2, 127, -127})},
                    {"w.SCB", "F32", "2", F32({127, 254})},
                    {"w.weight_format", "U8", "", std::string(1, '\0')}});
  EXPECT_THAT(int8.Row(0), ElementsAre(1, -2));
  EXPECT_THAT(int8.Row(1), ElementsAre(254, -254));

  const std::string map = F32({-8, -7, -6, -5, -4, -3, -2, 0, 1, 2, 3, 4, 5, 6, 7, 8});
  const std::string state = R"({"blocksize":4,"shape":[2,3],"nested_blocksize":1,"nested_offset":10})";
  const std::string length = std::to_string(state.size());
  // The first weight of a pair is in the high nibble; blocks of four run over the ends of rows.
  const Model flat(R"({"quant_method":"bitsandbytes","load_in_4bit":true})",
                   {{"w.weight", "U8", "3,1", std::string("\x0F\x78\x9A", 3)},
                    {"w.weight.absmax", "F32", "2", F32({1, 100})},
                    {"w.weight.quant_map", "F32", "16", map},
                    {"w.weight.quant_state.bitsandbytes__nf4", "U8", length, state}});
  EXPECT_THAT(flat.Row(0), ElementsAre(-8, 8, 0));
  EXPECT_THAT(flat.Row(1), ElementsAre(1, 200, 300));
  // absmax = map[1] · 2 + 10 = 11 and map[0] · 3 + 10 = 10.
  const Model nested(R"({"quant_method":"bitsandbytes","load_in_4bit":true})",
                     {{"w.weight", "U8", "3,1", std::string("\x0F\x78\x9A", 3)},
                      {"w.weight.absmax", "U8", "2", std::string("\x01\x00", 2)},
                      {"w.weight.nested_absmax", "F32", "2", F32({2, 3})},
                      {"w.weight.nested_quant_map", "F32", "256", F32({0, 0.5}) + std::string(254 * 4, '\0')},
                      {"w.weight.quant_map", "F32", "16", map},
                      {"w.weight.quant_state.bitsandbytes__nf4", "U8", length, state}});
  EXPECT_THAT(nested.Row(0), ElementsAre(-88, 88, 0));
  EXPECT_THAT(nested.Row(1), ElementsAre(11, 20, 30));
}

TEST(QuantizedMatrix, Sparse24) {
  const std::string sparse = R"({"quant_method":"compressed-tensors","format":"dense",
                                 "sparsity_config":{"format":"sparse-24-bitmask"}})";
  // Columns 0 and 2, 5 and 7; then 0 and 1, 6 and 7.
  const std::vector<TestTensor> shared{{"w.bitmask", "U8", "2,1", std::string("\xA5\xC3", 2)},
                                       {"w.shape", "I64", "2,1", Bytes<std::int64_t>({2, 8})}};
  std::vector<TestTensor> floats = shared, codes = shared;
  floats.push_back({"w.compressed", "F16", "2,4", F16Bytes({1, 2, 3, 4, 5, 6, 7, 8})});
  const Model model(sparse, floats);
  EXPECT_THAT(model.Row(0), ElementsAre(1, 0, 2, 0, 0, 3, 0, 4));
  EXPECT_THAT(model.Row(1), ElementsAre(5, 6, 0, 0, 0, 0, 7, 8));
  codes.push_back({"w.compressed", "I8", "2,4", Bytes<std::int8_t>({1, 2, 3, -4, 5, 6, 7, -128})});
  codes.push_back({"w.weight_scale", "F32", "2,1", F32({1, 0.5})});
  const Model int8(sparse, codes);
  EXPECT_THAT(int8.Row(0), ElementsAre(1, 0, 2, 0, 0, 3, 0, -4));
  EXPECT_THAT(int8.Row(1), ElementsAre(2.5, 3, 0, 0, 0, 0, 3.5, -64));
}

TEST(QuantizedMatrix, CodesWithoutScalesAreRefused) {
  const Model model(R"({"quant_method":"awq"})",
                    {{"w.weight", "I8", "1,2", Bytes<std::int8_t>({1, 2})}, {"v.weight", "F32", "1,2", F32({1, 2})}});
  EXPECT_EQ(model.Find("u"), nullptr);
  EXPECT_EQ(model.Find("v")->info().type_name, "F32");
  EXPECT_THAT(model.ErrorOf("w"), testing::HasSubstr("tensor w.weight has the type I8: codes, but there is nothing"));
}

}  // namespace
}  // namespace quire::weights
