// Folders as downloads leave them: whole, sharded, with strays, and broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "weights/model_source.h"
#include "weights/test_files.h"

namespace quire::weights {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kConfig = R"({"architectures":["LlamaForCausalLM"],"vocab_size":8,"hidden_size":4,
  "intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":16,
  "eos_token_id":1})";

float ValueOf(const TensorSource* tensor) {
  if (!tensor) return -1;
  float value = 0;
  tensor->type->dequantize_row(tensor->data.data(), 1, &value);
  return value;
}

std::string ErrorOf(const std::filesystem::path& path) {
  const auto source = ModelSource::Open(path);
  return source.has_value() ? "no error" : source.error().message;
}

TEST(HfModelSource, OpensTheDemoModel) {
  const auto opened = ModelSource::Open(QUIRE_SOURCE_DIR "/models/demo");
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  const ModelSource& source = **opened;
  EXPECT_FALSE(source.is_gguf());
  EXPECT_EQ(source.config().architecture, Architecture::kQwen3);
  EXPECT_EQ(source.config().hidden_size, 256);
  EXPECT_EQ(source.config().head_dim, 64);
  EXPECT_TRUE(source.config().qk_norm);
  EXPECT_FALSE(source.config().qkv_bias);
  EXPECT_TRUE(source.config().tie_word_embeddings);
  EXPECT_THAT(source.config().eos_token_ids, ElementsAre(TokenId(4089), TokenId(4087)));
  EXPECT_EQ(source.generation_config().top_k, 40);
  const TensorSource* embedding = source.Find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_THAT(embedding->shape, ElementsAre(4096, 256));
  EXPECT_EQ(embedding->type->name, "BF16");
  EXPECT_EQ(source.Find("lm_head.weight"), nullptr);
  std::int64_t total = 0;
  for (const TensorSource& tensor : source.tensors()) total += static_cast<std::int64_t>(tensor.data.size());
  EXPECT_EQ(source.total_bytes(), total);

  const auto assets = source.ReadTextAssets();
  ASSERT_TRUE(assets.has_value()) << assets.error().message;
  EXPECT_THAT(assets->tokenizer_json, HasSubstr("merges"));
  EXPECT_TRUE(assets->sentencepiece_model.empty());
  EXPECT_THAT(assets->chat_template, HasSubstr("<|im_start|>"));
  EXPECT_EQ(assets->eos_token, "<|im_end|>");
}

// Released pages come back with the same bytes when they are read again.
TEST(HfModelSource, ReleasedTensorsCanBeReadAgain) {
  const auto opened = ModelSource::Open(QUIRE_SOURCE_DIR "/models/demo");
  ASSERT_TRUE(opened.has_value());
  for (const TensorSource& tensor : (*opened)->tensors()) {
    const std::vector<std::byte> before(tensor.data.begin(), tensor.data.end());
    (*opened)->Release(tensor);
    EXPECT_TRUE(std::ranges::equal(before, tensor.data)) << tensor.name;
  }
}

TEST(HfModelSource, SingleFileWithoutIndex) {  // LOAD-06
  const TemporaryFolder folder;
  folder.Write("config.json", kConfig);
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
  folder.Write("pytorch_model.bin", "x");
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("pickle"));
  folder.Write("model.safetensors", ScalarSafetensors({{"a", 5}}));
  const auto source = ModelSource::Open(folder.path());
  ASSERT_TRUE(source.has_value()) << source.error().message;
  EXPECT_EQ(ValueOf((*source)->Find("a")), 5);
}

TEST(HfModelSource, OnlyTheFilesOfTheIndexAreRead) {  // LOAD-03, LOAD-04
  const TemporaryFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", ScalarSafetensors({{"a", 99}, {"c", 99}}));
  folder.Write("consolidated.safetensors", "not even a safetensors file");
  folder.Write("one.safetensors", ScalarSafetensors({{"a", 1}, {"b", 77}}));
  folder.Write("two.safetensors", ScalarSafetensors({{"b", 2}}));
  folder.Write("model.safetensors.index.json",
               R"({"metadata":{},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto source = ModelSource::Open(folder.path());
  ASSERT_TRUE(source.has_value()) << source.error().message;
  EXPECT_EQ(ValueOf((*source)->Find("a")), 1);
  EXPECT_EQ(ValueOf((*source)->Find("b")), 2);
  EXPECT_EQ((*source)->Find("c"), nullptr);
  EXPECT_EQ((*source)->tensors().size(), 2u);
  for (const TensorSource& tensor : (*source)->tensors()) (*source)->Release(tensor);
}

TEST(HfModelSource, MissingShardsAreNamed) {  // LOAD-01
  const TemporaryFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("one.safetensors", ScalarSafetensors({{"a", 1}}));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors",
                   "d":"three.safetensors"}})");
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("three.safetensors (with d), two.safetensors (with b and 1 more"));
  folder.Write("two.safetensors", ScalarSafetensors({{"b", 1}}));
  folder.Write("three.safetensors", ScalarSafetensors({{"d", 1}}));
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("two.safetensors does not hold the tensor c"));
  const std::string whole = ScalarSafetensors({{"b", 1}, {"c", 2}});
  folder.Write("two.safetensors", whole.substr(0, whole.size() - 1));
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("truncated?"));
}

TEST(HfModelSource, ShardNamesStayInTheFolder) {  // SAFE-05
  const TemporaryFolder folder;
  folder.Write("config.json", kConfig);
  for (const std::string name : {"../../etc/passwd", "/etc/passwd", "..", ".", "", "sub/x", "a\\\\b", "a\\u0000b"}) {
    folder.Write("model.safetensors.index.json", R"({"weight_map":{"a":")" + name + R"("}})");
    EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("a plain file name is wanted")) << name;
  }
  folder.Write("model.safetensors.index.json", R"({"weight_map":{"a":7}})");
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("a plain file name is wanted"));
  folder.Write("model.safetensors.index.json", R"({"weight_map":{}})");
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("no \"weight_map\""));
}

TEST(HfModelSource, TokenIdsOutsideTheVocabularyAreRefused) {
  const TemporaryFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", ScalarSafetensors({{"a", 5}}));
  folder.Write("generation_config.json", R"({"eos_token_id":[1,8]})");
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("end-of-text id 8 is outside the vocabulary of 8"));
}

TEST(HfModelSource, TextAssetsInEveryForm) {
  const TemporaryFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", ScalarSafetensors({{"a", 5}}));
  const auto source = ModelSource::Open(folder.path());
  ASSERT_TRUE(source.has_value());
  EXPECT_THAT((*source)->ReadTextAssets().error().message, HasSubstr("neither tokenizer.json nor tokenizer.model"));

  folder.Write("tokenizer.model", "protobuf");
  folder.Write("tokenizer_config.json",
               R"({"bos_token":{"content":"<s>","lstrip":false},"eos_token":null,"chat_template":[
                   {"name":"tool_use","template":"T"},{"name":"default","template":"D"}]})");
  folder.Write("special_tokens_map.json", R"({"bos_token":"ignored","eos_token":"</s>"})");
  auto assets = (*source)->ReadTextAssets();
  ASSERT_TRUE(assets.has_value()) << assets.error().message;
  EXPECT_EQ(assets->sentencepiece_model, "protobuf");
  EXPECT_EQ(assets->bos_token, "<s>");
  EXPECT_EQ(assets->eos_token, "</s>");
  EXPECT_EQ(assets->chat_template, "D");

  folder.Write("tokenizer.json", "{}");
  folder.Write("chat_template.jinja", "J");
  assets = (*source)->ReadTextAssets();
  ASSERT_TRUE(assets.has_value()) << assets.error().message;
  EXPECT_EQ(assets->tokenizer_json, "{}");
  EXPECT_EQ(assets->sentencepiece_model, "");
  EXPECT_EQ(assets->chat_template, "J");

  folder.Write("tokenizer_config.json", R"({"bos_token":7})");
  EXPECT_THAT((*source)->ReadTextAssets().error().message, HasSubstr("\"bos_token\" is neither"));
}

// What is there and cannot be read is never taken for what is not there.
TEST(HfModelSource, TextAssetsThatAreNoFiles) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja",
                           "special_tokens_map.json", "chat_template.json"}) {
    const TemporaryFolder folder;
    folder.Write("config.json", kConfig);
    folder.Write("model.safetensors", ScalarSafetensors({{"a", 5}}));
    if (std::string_view(name) != "tokenizer.json") folder.Write("tokenizer.model", "protobuf");
    const auto source = ModelSource::Open(folder.path());
    ASSERT_TRUE(source.has_value());
    const auto path = folder.path() / name;
    const auto error = [&] { return (*source)->ReadTextAssets().error().message; };
    folder.Write(name, "");
    EXPECT_EQ(error(), path.string() + " is empty");
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    EXPECT_EQ(error(), path.string() + " is not a regular file");
    std::filesystem::remove(path);
    std::filesystem::create_symlink("/dev/zero", path);
    EXPECT_EQ(error(), path.string() + " is not a regular file");
    std::filesystem::remove(path);
    std::filesystem::create_symlink(name, path);  // to itself
    EXPECT_THAT(error(), HasSubstr("cannot open " + path.string()));
    std::filesystem::remove(path);
    std::filesystem::create_symlink("nowhere", path);
    EXPECT_THAT(error(), HasSubstr("cannot open " + path.string()));
  }
}

}  // namespace
}  // namespace quire::weights
