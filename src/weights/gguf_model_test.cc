#include "weights/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "weights/test_files.h"

namespace quire::weights {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The metadata of a tiny Llama; `but` leaves a key out, so that a test can put another value there.
GgufBytes Model(std::string_view but = "", std::string_view architecture = "llama") {
  GgufBytes bytes;
  const auto key = [&](std::string_view name) { return std::string(architecture) + "." + std::string(name); };
  const std::vector<std::pair<std::string, std::uint32_t>> integers = {
      {"block_count", 2},      {"embedding_length", 32},    {"feed_forward_length", 64},
      {"context_length", 128}, {"attention.head_count", 4}, {"attention.head_count_kv", 2}};
  if (but != "general.architecture") bytes.String("general.architecture", architecture);
  for (const auto& [name, value] : integers) {
    if (key(name) != but) bytes.Uint32(key(name), value);
  }
  if (key("attention.layer_norm_rms_epsilon") != but) bytes.Float(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  bytes.Tensor("token_embd.weight", {32, 8}, 0, 0);
  return bytes;
}

class GgufModel : public testing::Test {
 protected:
  Result<std::unique_ptr<ModelSource>> Open(const GgufBytes& bytes) {
    return ModelSource::Open(folder_.Write("m.gguf", bytes.File(8192)));
  }
  std::string ErrorOf(const GgufBytes& bytes) {
    const auto source = Open(bytes);
    return source.has_value() ? "no error" : source.error().message;
  }
  ModelConfig ConfigOf(const GgufBytes& bytes) {
    const auto source = Open(bytes);
    EXPECT_TRUE(source.has_value()) << source.error().message;
    return source.has_value() ? (*source)->config() : ModelConfig{};
  }
  TemporaryFolder folder_;
};

TEST_F(GgufModel, ReadsHyperParameters) {
  const ModelConfig config = ConfigOf(Model());
  EXPECT_EQ(config.architecture, Architecture::kLlama);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.hidden_size, 32);
  EXPECT_EQ(config.intermediate_size, 64);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.rotary_dim, 8);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.vocab_size, 8);
  EXPECT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_FALSE(config.qkv_bias || config.o_bias || config.mlp_bias || config.qk_norm);
  EXPECT_EQ(config.rope.theta, 10000);

  GgufBytes more = Model("", "qwen3");
  more.Uint32("qwen3.attention.key_length", 16).Uint32("qwen3.attention.value_length", 16);
  more.Float("qwen3.rope.freq_base", 1e6f).Tensor("output.weight", {32, 8}, 0, 1024);
  const ModelConfig qwen3 = ConfigOf(more);
  EXPECT_EQ(qwen3.head_dim, 16);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.tie_word_embeddings);
  EXPECT_EQ(qwen3.rope.theta, 1e6);
  EXPECT_TRUE(ConfigOf(Model("", "qwen2")).qkv_bias);
  EXPECT_TRUE(ConfigOf(Model().Tensor("blk.0.attn_q.bias", {32}, 0, 1024)).qkv_bias);
}

TEST_F(GgufModel, HyperParametersAreRanged) {  // GGUF-05
  const auto with = [&](std::string_view key, std::uint32_t value) { return ErrorOf(Model(key).Uint32(key, value)); };
  EXPECT_THAT(with("llama.block_count", 0), HasSubstr("llama.block_count is 0"));
  EXPECT_EQ(with("llama.block_count", 513), "no error");
  EXPECT_THAT(with("llama.block_count", 1u << 31), HasSubstr("must lie between 1 and 4096"));
  EXPECT_THAT(with("llama.attention.head_count", 0), HasSubstr("head_count is 0"));
  EXPECT_THAT(with("llama.attention.head_count", 5), HasSubstr("not divisible by head_count 5"));
  EXPECT_THAT(with("llama.attention.head_count_kv", 0), HasSubstr("head_count_kv is 0"));
  EXPECT_THAT(with("llama.attention.head_count_kv", 3), HasSubstr("do not divide"));
  EXPECT_THAT(with("llama.embedding_length", 0), HasSubstr("embedding_length is 0"));
  EXPECT_THAT(with("llama.context_length", 0), HasSubstr("context_length is 0"));
  EXPECT_THAT(with("llama.rope.dimension_count", 10), HasSubstr("rotary_dim is 10"));
  EXPECT_THAT(with("llama.attention.key_length", 7), HasSubstr("must be even"));
  EXPECT_THAT(with("llama.attention.value_length", 4), HasSubstr("keys of 8 and values of 4"));
  EXPECT_THAT(with("llama.expert_count", 8), HasSubstr("a mixture of 8 experts"));
  const std::string heads = "llama.attention.head_count";
  EXPECT_THAT(ErrorOf(Model(heads).Array(heads, 4, 1, GgufBytes::Raw(4u))), HasSubstr("has 1 elements; 2 are wanted"));
  EXPECT_EQ(ErrorOf(Model(heads).Array(heads, 4, 2, GgufBytes::Raw(4u) + GgufBytes::Raw(4u))), "no error");
  for (const char* key : {"general.architecture", "llama.block_count", "llama.feed_forward_length",
                          "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    EXPECT_THAT(ErrorOf(Model(key)), HasSubstr(std::string(key) + " is missing"));
  }
  EXPECT_THAT(ErrorOf(Model("", "rwkv7")), HasSubstr("the architecture rwkv7 is not supported"));
  EXPECT_THAT(ErrorOf(Model().Uint32("split.count", 3)), HasSubstr("one of 3 parts"));
}

TEST_F(GgufModel, RopeScaling) {
  const auto rope = [&](GgufBytes bytes) { return ConfigOf(bytes).rope; };
  EXPECT_EQ(rope(Model().Float("llama.rope.scale_linear", 2)).type, RopeType::kLinear);
  EXPECT_EQ(rope(Model().String("llama.rope.scaling.type", "none").Float("llama.rope.scaling.factor", 4)).factor, 1);
  const RopeConfig yarn = rope(Model()
                                   .String("llama.rope.scaling.type", "yarn")
                                   .Float("llama.rope.scaling.factor", 4)
                                   .Uint32("llama.rope.scaling.original_context_length", 64)
                                   .Float("llama.rope.scaling.attn_factor", 2));
  EXPECT_EQ(yarn.type, RopeType::kYarn);
  EXPECT_EQ(yarn.original_max_position_embeddings, 64);
  EXPECT_NEAR(*yarn.attention_factor, 2 * (0.1 * std::log(4.0) + 1), 1e-12);
  EXPECT_THAT(ErrorOf(Model().String("llama.rope.scaling.type", "longrope")), HasSubstr("is \"longrope\""));
  EXPECT_THAT(ErrorOf(Model()
                          .String("llama.rope.scaling.type", "yarn")
                          .Float("llama.rope.scaling.factor", 4)
                          .Float("llama.rope.scaling.yarn_log_multiplier", 0.1f)),
              HasSubstr("yarn_log_multiplier"));

  const std::string divisors =
      GgufBytes::Raw(1.0f) + GgufBytes::Raw(2.0f) + GgufBytes::Raw(4.0f) + GgufBytes::Raw(8.0f);
  std::string file = Model().Tensor("rope_freqs.weight", {4}, 0, 1024).File(2048);
  file.replace(file.size() - 1024, divisors.size(), divisors);
  const auto source = ModelSource::Open(folder_.Write("m.gguf", file));
  ASSERT_TRUE(source.has_value()) << source.error().message;
  EXPECT_THAT((*source)->config().rope.frequency_divisors, ElementsAre(1, 2, 4, 8));
  EXPECT_EQ((*source)->Find("rope_freqs.weight"), nullptr);  // part of the config, not of the layers
  EXPECT_THAT(ErrorOf(Model().Tensor("rope_freqs.weight", {4}, 0, 1024)), HasSubstr("a RoPE frequency divisor is 0"));
  EXPECT_THAT(ErrorOf(Model().Tensor("rope_freqs.weight", {3}, 0, 1024)), HasSubstr("3 RoPE frequency divisors; 4"));
}

TEST_F(GgufModel, SlidingWindow) {
  EXPECT_THAT(ConfigOf(Model().Uint32("llama.attention.sliding_window", 16)).layer_uses_sliding_window,
              ElementsAre(true, true));
  EXPECT_THAT(ConfigOf(Model()
                           .Uint32("llama.attention.sliding_window", 16)
                           .Array("llama.attention.sliding_window_pattern", 7, 2, std::string("\0\1", 2)))
                  .layer_uses_sliding_window,
              ElementsAre(false, true));
  EXPECT_THAT(ErrorOf(Model()
                          .Uint32("llama.attention.sliding_window", 16)
                          .Array("llama.attention.sliding_window_pattern", 7, 1, std::string("\1", 1))),
              HasSubstr("1 layer types for 2 layers"));
}

TEST_F(GgufModel, VocabularyArraysAreTypedAndEquallyLong) {  // GGUF-03
  const auto vocabulary = [&](std::size_t scores, std::uint32_t type) {
    GgufBytes bytes = Model();
    bytes.String("tokenizer.ggml.model", "llama").Strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>"});
    bytes.Array("tokenizer.ggml.scores", type, scores, std::string(scores * (type == 6 ? 4 : 1), '\0'));
    bytes.Uint32("tokenizer.ggml.bos_token_id", 1).Uint32("tokenizer.ggml.eos_token_id", 2);
    bytes.Pair("tokenizer.ggml.add_bos_token", 7, "\x01").String("tokenizer.chat_template", "T");
    return bytes;
  };
  const auto source = Open(vocabulary(3, 6));
  ASSERT_TRUE(source.has_value()) << source.error().message;
  const auto assets = (*source)->ReadTextAssets();
  ASSERT_TRUE(assets.has_value()) << assets.error().message;
  EXPECT_THAT(assets->gguf_vocabulary->tokens, ElementsAre("<unk>", "<s>", "</s>"));
  EXPECT_EQ(assets->gguf_vocabulary->add_bos, true);
  EXPECT_EQ(assets->bos_token, "<s>");
  EXPECT_EQ(assets->eos_token, "</s>");
  EXPECT_EQ(assets->chat_template, "T");
  EXPECT_THAT((*source)->config().eos_token_ids, ElementsAre(TokenId(2)));
  EXPECT_EQ((*source)->config().bos_token_id, TokenId(1));

  EXPECT_THAT((*Open(vocabulary(2, 6)))->ReadTextAssets().error().message, HasSubstr("scores has 2 elements for 3"));
  EXPECT_THAT((*Open(vocabulary(3, 0)))->ReadTextAssets().error().message, HasSubstr("ARRAY of UINT8"));
  EXPECT_THAT((*Open(Model()))->ReadTextAssets().error().message, HasSubstr("there is no tokenizer"));
  EXPECT_THAT(ErrorOf(Model().Uint32("tokenizer.ggml.eos_token_id", 8)), HasSubstr("eos_token_id is 8"));
  EXPECT_THAT(ErrorOf(Model().Strings("tokenizer.ggml.tokens", std::vector<std::string>(9, "t"))),
              HasSubstr("8 rows for a vocabulary of 9"));
}

TEST_F(GgufModel, EveryWayToEndATurn) {
  GgufBytes bytes = Model();
  bytes.Strings("tokenizer.ggml.tokens", {"a", "<|im_end|>", "<|endoftext|>", "<|eot_id|>"});
  bytes.Array("tokenizer.ggml.token_type", 5, 4,
              GgufBytes::Raw(1) + GgufBytes::Raw(3) + GgufBytes::Raw(3) + GgufBytes::Raw(1));
  bytes.Uint32("tokenizer.ggml.eos_token_id", 2);
  EXPECT_THAT(ConfigOf(bytes).eos_token_ids, ElementsAre(TokenId(2), TokenId(1)));  // 3 is ordinary text here
  bytes.Array(kEndOfTextIdsKey, 5, 1, GgufBytes::Raw(2));
  EXPECT_THAT(ConfigOf(bytes).eos_token_ids, ElementsAre(TokenId(2)));
}

TEST_F(GgufModel, OpensTheOnlyGgufOfAFolder) {
  ASSERT_TRUE(Open(Model()).has_value());
  EXPECT_TRUE(ModelSource::Open(folder_.path()).has_value());
  folder_.Write("other.gguf", "GGUF");
  EXPECT_THAT(ModelSource::Open(folder_.path()).error().message, HasSubstr("holds 2 .gguf files (m.gguf, other.gguf"));
  const TemporaryFolder empty;
  EXPECT_THAT(ModelSource::Open(empty.path()).error().message, HasSubstr("holds no model"));
  EXPECT_THAT(ModelSource::Open(empty.path() / "x").error().message, HasSubstr("there is no model at"));
  EXPECT_THAT(ModelSource::Open(empty.Write("x.bin", "zzzz")).error().message, HasSubstr("is not a model"));
  EXPECT_TRUE(ModelSource::Open(empty.Write("blob", Model().File(2048))).has_value());
}

TEST(GgufModelFiles, Stories260K) {
  const std::filesystem::path path = QUIRE_SOURCE_DIR "/../shared/models/stories260K/stories260K-f32.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "the shared test data is not here: " << path;
  const auto opened = ModelSource::Open(path);
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  const ModelConfig& config = (*opened)->config();
  EXPECT_EQ(config.architecture, Architecture::kLlama);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.num_layers, 5);
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.vocab_size, 512);
  const auto assets = (*opened)->ReadTextAssets();
  ASSERT_TRUE(assets.has_value()) << assets.error().message;
  EXPECT_EQ(assets->gguf_vocabulary->tokens.size(), 512u);
  for (const TensorSource& tensor : (*opened)->tensors()) {
    const std::vector<std::byte> before(tensor.data.begin(), tensor.data.end());
    (*opened)->Release(tensor);
    EXPECT_TRUE(std::ranges::equal(before, tensor.data)) << tensor.name;
  }
}

TEST(GgufModelFiles, VocabulariesWithoutAModel) {
  const std::filesystem::path folder = QUIRE_SOURCE_DIR "/../shared/tokenizers";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "the shared test data is not here: " << folder;
  for (const auto& [file, model, tokens] : {std::tuple{"ggml-vocab-gpt-2.gguf", "gpt2", 50257u},
                                            std::tuple{"ggml-vocab-llama-spm.gguf", "llama", 32000u}}) {
    const auto assets = ReadGgufTextAssets(folder / file);
    ASSERT_TRUE(assets.has_value()) << assets.error().message;
    EXPECT_EQ(assets->gguf_vocabulary->model, model);
    EXPECT_EQ(assets->gguf_vocabulary->tokens.size(), tokens);
  }
}

}  // namespace
}  // namespace quire::weights
