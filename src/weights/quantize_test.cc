#include "weights/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/mapped_file.h"
#include "weights/tensor_names.h"
#include "weights/test_files.h"

namespace quire::weights {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> FloatsOf(const TensorSource& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.rows() * tensor.columns()));
  const std::size_t row_bytes = *RowBytes(*tensor.type, tensor.columns(), tensor.name);
  for (std::int64_t row = 0; row < tensor.rows(); ++row) {
    tensor.type->dequantize_row(tensor.data.data() + static_cast<std::size_t>(row) * row_bytes, tensor.columns(),
                                values.data() + row * tensor.columns());
  }
  return values;
}

double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(error / norm);
}

class Quantize : public testing::Test {
 protected:
  Result<std::unique_ptr<ModelSource>> To(const std::filesystem::path& source, std::string type) {
    const std::filesystem::path output = folder_.path() / (type + ".gguf");
    QUIRE_TRY(summary_, QuantizeModel(source, output, {.type = type}, &pool_));
    return ModelSource::Open(output);
  }
  std::string ErrorOf(const std::filesystem::path& source, std::string type = "Q8_0") {
    const auto result = To(source, type);
    EXPECT_FALSE(std::filesystem::exists(folder_.path() / (type + ".gguf")));
    return result.has_value() ? "no error" : result.error().message;
  }

  const std::filesystem::path demo_ = QUIRE_SOURCE_DIR "/models/demo";
  TemporaryFolder folder_;
  ThreadPool pool_{2};
  QuantizeSummary summary_;
};

TEST_F(Quantize, TheDemoModelKeepsEverything) {
  const auto hf = ModelSource::Open(demo_);
  ASSERT_TRUE(hf.has_value());
  const auto gguf = To(demo_, "F32");
  ASSERT_TRUE(gguf.has_value()) << gguf.error().message;
  const ModelConfig &a = (*hf)->config(), &b = (*gguf)->config();
  EXPECT_EQ(b.architecture, a.architecture);
  EXPECT_EQ(std::tie(b.vocab_size, b.hidden_size, b.intermediate_size, b.num_layers, b.num_heads, b.num_kv_heads),
            std::tie(a.vocab_size, a.hidden_size, a.intermediate_size, a.num_layers, a.num_heads, a.num_kv_heads));
  EXPECT_EQ(std::tie(b.head_dim, b.rotary_dim, b.max_position_embeddings, b.rms_norm_eps, b.tie_word_embeddings),
            std::tie(a.head_dim, a.rotary_dim, a.max_position_embeddings, a.rms_norm_eps, a.tie_word_embeddings));
  EXPECT_EQ(b.eos_token_ids, a.eos_token_ids);
  EXPECT_EQ(b.bos_token_id, a.bos_token_id);
  EXPECT_NEAR(*(*gguf)->generation_config().temperature, *(*hf)->generation_config().temperature, 1e-6);
  EXPECT_EQ((*gguf)->generation_config().top_k, (*hf)->generation_config().top_k);
  EXPECT_EQ((*gguf)->tensors().size(), (*hf)->tensors().size());
  for (const TensorSource& tensor : (*hf)->tensors()) {
    const TensorSource* other = (*gguf)->Find(GgufTensorName(tensor.name));
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(other->shape, tensor.shape) << tensor.name;
    EXPECT_EQ(FloatsOf(*other), FloatsOf(tensor)) << tensor.name;
  }
  const auto text_a = (*hf)->ReadTextAssets(), text_b = (*gguf)->ReadTextAssets();
  ASSERT_TRUE(text_b.has_value()) << text_b.error().message;
  EXPECT_EQ(text_b->chat_template, text_a->chat_template);
  EXPECT_EQ(text_b->eos_token, text_a->eos_token);
  EXPECT_EQ(text_b->gguf_vocabulary->pre, "qwen2");
  EXPECT_EQ(text_b->gguf_vocabulary->tokens.size(), 4096u);
  EXPECT_EQ(text_b->gguf_vocabulary->merges.size(), 3831u);
}

TEST_F(Quantize, TheMixOfQ4KM) {
  const auto source = To(demo_, "Q4_K_M");
  ASSERT_TRUE(source.has_value()) << source.error().message;
  std::map<std::string, std::string> types;
  for (const TensorSource& tensor : (*source)->tensors()) types[tensor.name] = tensor.type->name;
  EXPECT_EQ(types["token_embd.weight"], "Q6_K");  // tied: it is the output matrix too
  EXPECT_EQ(types["output_norm.weight"], "F32");
  EXPECT_EQ(types["blk.0.attn_q.weight"], "Q4_K");
  EXPECT_EQ(types["blk.0.attn_q_norm.weight"], "F32");
  // Of six layers: none before 6/8, those from 5 on, and every third.
  for (int layer = 0; layer < 6; ++layer) {
    const std::string wanted = layer == 2 || layer == 5 ? "Q6_K" : "Q4_K";
    EXPECT_EQ(types[fmt::format("blk.{}.attn_v.weight", layer)], wanted) << layer;
    EXPECT_EQ(types[fmt::format("blk.{}.ffn_down.weight", layer)], wanted) << layer;
    EXPECT_EQ(types[fmt::format("blk.{}.ffn_up.weight", layer)], "Q4_K") << layer;
  }
  EXPECT_TRUE(summary_.notes.empty());
  EXPECT_EQ(summary_.output_bytes,
            static_cast<std::int64_t>(std::filesystem::file_size(folder_.path() / "Q4_K_M.gguf")));
}

// llama.cpp's rules; tests/weights/test_models.py compares whole files with its own.
TEST(TypeInMix, EveryMix) {
  ModelConfig config{.num_layers = 32, .num_heads = 8, .num_kv_heads = 4};
  const auto type = [&](std::string_view mix, std::string_view name, std::int64_t columns = 256) {
    std::string note;
    return TypeInMix(*FindGgufFileType(mix), config, name, 2, columns, &note).name;
  };
  for (const std::string_view mix : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K_M", "Q5_K_M", "Q6_K", "IQ4_NL"}) {
    EXPECT_EQ(type(mix, "output.weight"), "Q6_K") << mix;
  }
  EXPECT_EQ(type("Q8_0", "output.weight"), "Q8_0");
  EXPECT_EQ(type("BF16", "output.weight"), "BF16");
  EXPECT_EQ(type("Q2_K", "token_embd.weight"), "Q2_K");

  EXPECT_EQ(type("Q2_K", "blk.5.attn_v.weight"), "Q3_K");
  EXPECT_EQ(type("Q2_K", "blk.5.attn_output.weight"), "Q3_K");
  EXPECT_EQ(type("Q2_K", "blk.5.ffn_down.weight"), "Q3_K");
  EXPECT_EQ(type("Q2_K", "blk.5.ffn_up.weight"), "Q2_K");
  EXPECT_EQ(type("Q3_K_M", "blk.1.attn_v.weight"), "Q5_K");
  EXPECT_EQ(type("Q3_K_M", "blk.2.attn_v.weight"), "Q4_K");
  EXPECT_EQ(type("Q3_K_M", "blk.1.ffn_down.weight"), "Q5_K");  // 32 / 16 layers
  EXPECT_EQ(type("Q3_K_M", "blk.2.ffn_down.weight"), "Q4_K");
  EXPECT_EQ(type("Q3_K_M", "blk.9.attn_output.weight"), "Q4_K");
  EXPECT_EQ(type("Q5_K_M", "blk.3.attn_v.weight"), "Q6_K");
  EXPECT_EQ(type("Q5_K_M", "blk.4.ffn_down.weight"), "Q5_K");
  EXPECT_EQ(type("IQ4_NL", "blk.3.ffn_down.weight"), "Q5_K");  // 32 / 8 layers
  EXPECT_EQ(type("IQ4_NL", "blk.4.ffn_down.weight"), "IQ4_NL");
  EXPECT_EQ(type("IQ4_NL", "blk.3.attn_v.weight"), "IQ4_NL");
  config.num_kv_heads = 2;
  EXPECT_EQ(type("IQ4_NL", "blk.3.attn_v.weight"), "Q5_K");
  EXPECT_EQ(type("Q2_K", "blk.5.attn_v.weight"), "Q4_K");

  config.num_layers = 80;  // Llama 70B
  EXPECT_EQ(type("Q4_K_M", "blk.10.attn_v.weight"), "Q5_K");
  EXPECT_EQ(type("Q4_K_M", "blk.12.attn_v.weight"), "Q6_K");
  EXPECT_EQ(type("Q2_K", "blk.10.attn_v.weight"), "Q5_K");
  config.num_kv_heads = 8;  // Llama 65B
  EXPECT_EQ(type("Q4_K_M", "blk.10.attn_v.weight"), "Q4_K");
  EXPECT_EQ(type("Q2_K", "blk.10.attn_v.weight"), "Q3_K");

  EXPECT_EQ(type("Q2_K", "blk.5.ffn_up.weight", 96), "Q4_0");
  EXPECT_EQ(type("Q3_K_M", "blk.5.ffn_up.weight", 96), "Q4_0");
  EXPECT_EQ(type("Q4_K_M", "blk.5.ffn_up.weight", 96), "Q5_0");
  EXPECT_EQ(type("Q5_K_M", "blk.5.ffn_up.weight", 96), "Q5_1");
  EXPECT_EQ(type("Q6_K", "blk.5.ffn_up.weight", 96), "Q8_0");
  EXPECT_EQ(type("Q2_K", "blk.5.ffn_up.weight", 100), "F16");
}

TEST_F(Quantize, ErrorsAreThoseOfTheTypes) {
  const auto exact = ModelSource::Open(demo_);
  ASSERT_TRUE(exact.has_value());
  for (const auto& [type, bound] :
       {std::pair{"BF16", 0.0}, std::pair{"F16", 1e-3}, std::pair{"Q8_0", 0.01}, std::pair{"Q4_0", 0.13},
        std::pair{"Q4_1", 0.12}, std::pair{"Q5_0", 0.07}, std::pair{"Q5_1", 0.06}, std::pair{"Q2_K", 0.4},
        std::pair{"Q3_K_M", 0.2}, std::pair{"Q4_K_M", 0.1}, std::pair{"Q5_K_M", 0.06}, std::pair{"Q6_K", 0.03},
        std::pair{"IQ4_NL", 0.12}}) {
    const auto source = To(demo_, type);
    ASSERT_TRUE(source.has_value()) << source.error().message;
    for (const TensorSource& tensor : (*exact)->tensors()) {
      const TensorSource& other = *(*source)->Find(GgufTensorName(tensor.name));
      EXPECT_LE(RelativeError(FloatsOf(tensor), FloatsOf(other)), bound) << type << " " << tensor.name;
    }
  }
}

TEST_F(Quantize, TheNumberOfThreadsDoesNotShow) {
  const std::filesystem::path one = folder_.path() / "one.gguf", three = folder_.path() / "three.gguf";
  ThreadPool pool_of_one(1), pool_of_three(3);
  ASSERT_TRUE(QuantizeModel(demo_, one, {.type = "Q4_K_M"}, &pool_of_one).has_value());
  ASSERT_TRUE(QuantizeModel(demo_, three, {.type = "Q4_K_M"}, &pool_of_three).has_value());
  EXPECT_EQ(*ReadFile(one, std::size_t{1} << 30), *ReadFile(three, std::size_t{1} << 30));
}

TEST_F(Quantize, GgufToGguf) {
  const std::filesystem::path path = QUIRE_SOURCE_DIR "/../shared/models/stories260K/stories260K-f32.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "the shared test data is not here: " << path;
  const auto before = ModelSource::Open(path);
  const auto after = To(path, "Q4_K_M");
  ASSERT_TRUE(after.has_value()) << after.error().message;
  // Rows of 64 and 172 elements: nothing that a K type could hold.
  EXPECT_EQ((*after)->Find("blk.0.attn_q.weight")->type->name, "Q5_0");
  EXPECT_EQ((*after)->Find("output.weight")->type->name, "Q8_0");
  EXPECT_EQ((*after)->Find("blk.0.ffn_down.weight")->type->name, "F16");
  EXPECT_THAT(summary_.notes, testing::Contains(HasSubstr("blk.0.ffn_down.weight is F16 instead of Q4_K, whose blocks "
                                                          "of 256 do not divide its rows of 172")));
  const auto text_a = (*before)->ReadTextAssets(), text_b = (*after)->ReadTextAssets();
  EXPECT_EQ(text_a->gguf_vocabulary->tokens, text_b->gguf_vocabulary->tokens);
  EXPECT_EQ(text_a->gguf_vocabulary->scores, text_b->gguf_vocabulary->scores);
  EXPECT_EQ((*after)->config().rope.theta, (*before)->config().rope.theta);
  std::int64_t last = 0;
  const auto again = QuantizeModel(path, folder_.path() / "again.gguf",
                                   {.type = "F32",
                                    .progress =
                                        [&](std::int64_t done, std::int64_t total, std::string_view) {
                                          EXPECT_GT(done, last);
                                          EXPECT_LE(done, total);
                                          last = done;
                                        }},
                                   &pool_);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(last, (*before)->total_bytes());
  const auto copy = ModelSource::Open(folder_.path() / "again.gguf");
  for (const TensorSource& tensor : (*before)->tensors()) {
    EXPECT_TRUE(std::ranges::equal((*copy)->Find(tensor.name)->data, tensor.data)) << tensor.name;
  }
}

// A Llama with one layer, two heads of 4 and llama3 scaling; row r of q holds the number r everywhere.
void WriteLlama(const TemporaryFolder& folder, float q_scale, std::string_view extra = "") {
  folder.Write("config.json", R"({"architectures":["LlamaForCausalLM"],"vocab_size":4,"hidden_size":8,
      "intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":4,
      "attention_bias":true,"max_position_embeddings":64,"tie_word_embeddings":true,"rope_theta":10000,
      "rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,
                      "original_max_position_embeddings":16}})");
  folder.Write("tokenizer.json",
               R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},
                   "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}})");
  std::string header = "{", data;
  const auto add = [&](std::string_view name, int rows, int columns, float scale) {
    const std::size_t begin = data.size();
    for (int i = 0; i < rows * columns; ++i) {
      const float value = scale * static_cast<float>(rows > 1 ? i / columns : i);
      data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[{}{}],"data_offsets":[{},{}]}})", begin == 0 ? "" : ",",
                          name, rows > 1 ? fmt::format("{},", rows) : "", columns, begin, data.size());
  };
  add("model.embed_tokens.weight", 4, 8, 1);
  add("lm_head.weight", 4, 8, 1);
  add("model.layers.0.self_attn.rotary_emb.inv_freq", 1, 2, 1);
  add("model.layers.0.self_attn.q_proj.weight", 8, 8, q_scale);
  add("model.layers.0.self_attn.q_proj.bias", 1, 8, 1);
  add("model.layers.0.self_attn.k_proj.weight", 4, 8, 1);
  add("model.layers.0.self_attn.v_proj.weight", 4, 8, 1);
  if (!extra.empty()) add(extra, 4, 8, 1);
  folder.Write("model.safetensors", SafetensorsFile(header + "}", 0) + data);
}

TEST_F(Quantize, RowsOfQueriesAndKeysChangePlacesInLlama) {
  const TemporaryFolder llama;
  WriteLlama(llama, 1);
  const auto source = To(llama.path(), "F32");
  ASSERT_TRUE(source.has_value()) << source.error().message;
  const auto first_of_rows = [&](std::string_view name) {
    std::vector<int> rows;
    const std::vector<float> values = FloatsOf(*(*source)->Find(name));
    for (std::size_t at = 0; at < values.size(); at += 8) rows.push_back(static_cast<int>(values[at]));
    return rows;
  };
  EXPECT_THAT(first_of_rows("blk.0.attn_q.weight"), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(first_of_rows("blk.0.attn_k.weight"), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(first_of_rows("blk.0.attn_v.weight"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(FloatsOf(*(*source)->Find("blk.0.attn_q.bias")), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_EQ((*source)->Find("output.weight"), nullptr);  // tied
  EXPECT_EQ((*source)->tensors().size(), 5u);
  // wavelengths 2π and 200π of a trained length of 16: inside the blend, and far beyond it.
  const auto& divisors = (*source)->config().rope.frequency_divisors;
  ASSERT_EQ(divisors.size(), 2u);
  const double blend = (16 / (2 * 3.14159265358979) - 1) / 3;
  EXPECT_NEAR(divisors[0], 1 / ((1 - blend) / 8 + blend), 1e-6);
  EXPECT_EQ(divisors[1], 8);
}

TEST_F(Quantize, BadValuesAndNamesAreErrors) {
  const TemporaryFolder llama;
  WriteLlama(llama, 1e5f);
  EXPECT_THAT(ErrorOf(llama.path(), "F16"), HasSubstr("tensor blk.0.attn_q.weight: row"));
  WriteLlama(llama, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(ErrorOf(llama.path(), "Q8_0"), HasSubstr("tensor blk.0.attn_q.weight: row"));
  WriteLlama(llama, 1, "model.layers.0.self_attn.strange.weight");
  EXPECT_THAT(ErrorOf(llama.path()), HasSubstr("self_attn.strange.weight has no name in GGUF"));
  EXPECT_THAT(ErrorOf(demo_, "Q5_K"), HasSubstr("unknown type \"Q5_K\""));
  EXPECT_THAT(ErrorOf(folder_.path() / "nothing"), HasSubstr("there is no model"));

  ASSERT_TRUE(To(demo_, "BF16").has_value());
  const std::filesystem::path file = folder_.path() / "BF16.gguf";
  EXPECT_THAT(QuantizeModel(file, file, {}, &pool_).error().message, HasSubstr("would be read and replaced at once"));
  EXPECT_THAT(QuantizeModel(folder_.path(), file, {}, &pool_).error().message, HasSubstr("read and replaced"));
  EXPECT_THAT(QuantizeModel(demo_, folder_.path(), {}, &pool_).error().message, HasSubstr("is a folder"));
}

TEST(GgufTensorName, EveryName) {
  EXPECT_EQ(GgufTensorName("model.embed_tokens.weight"), "token_embd.weight");
  EXPECT_EQ(GgufTensorName("lm_head.weight"), "output.weight");
  EXPECT_EQ(GgufTensorName("model.layers.31.mlp.down_proj.bias"), "blk.31.ffn_down.bias");
  EXPECT_EQ(GgufTensorName("model.layers.x.mlp.down_proj.weight"), "");
  EXPECT_EQ(GgufTensorName("model.layers.-1.mlp.down_proj.weight"), "");
  EXPECT_EQ(GgufTensorName("model.layers.1mlp.down_proj.weight"), "");
  EXPECT_EQ(GgufTensorName("model.norm.scale"), "");
  EXPECT_EQ(GgufTensorName("weight"), "");
}

}  // namespace
}  // namespace quire::weights
