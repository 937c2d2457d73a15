#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/model_config.h"

namespace quire::weights {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A small Llama with `changes` laid over it; a null removes nothing, it is the field's value.
json::value Config(std::string_view changes) {
  json::object config = ParseJson(R"({"architectures":["LlamaForCausalLM"],"vocab_size":128,"hidden_size":64,
    "intermediate_size":96,"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,
    "max_position_embeddings":4096})",
                                  "base")
                            ->get_object();
  const json::value parsed = *ParseJson(changes, "changes");
  for (const auto& [key, value] : parsed.get_object()) config[key] = value;
  return config;
}

ModelConfig Parsed(std::string_view changes) {
  auto config = ParseConfigJson(Config(changes), "config.json");
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return config.value_or(ModelConfig{});
}

std::string ErrorOf(std::string_view changes) {
  const auto config = ParseConfigJson(Config(changes), "config.json");
  return config.has_value() ? "no error" : config.error().message;
}

TEST(ConfigJson, LlamaDefaults) {
  const ModelConfig config = Parsed("{}");
  EXPECT_EQ(config.architecture, Architecture::kLlama);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rotary_dim, 16);
  EXPECT_EQ(config.rms_norm_eps, 1e-6f);
  EXPECT_EQ(config.rope.type, RopeType::kDefault);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_FALSE(config.tie_word_embeddings || config.qkv_bias || config.o_bias || config.mlp_bias || config.qk_norm);
  EXPECT_EQ(config.sliding_window, 0);
  EXPECT_EQ(config.layer_uses_sliding_window, std::vector<bool>(4, false));
  EXPECT_TRUE(config.eos_token_ids.empty());
  EXPECT_FALSE(config.bos_token_id.has_value());
}

TEST(ConfigJson, FamiliesDiffer) {
  EXPECT_EQ(Parsed(R"({"num_key_value_heads":null})").num_kv_heads, 4);
  const ModelConfig biased = Parsed(R"({"attention_bias":true,"mlp_bias":true,"head_dim":32})");
  EXPECT_TRUE(biased.qkv_bias && biased.o_bias && biased.mlp_bias);
  EXPECT_EQ(biased.head_dim, 32);
  const ModelConfig qwen2 = Parsed(R"({"architectures":["Qwen2ForCausalLM"],"tie_word_embeddings":true})");
  EXPECT_TRUE(qwen2.qkv_bias && qwen2.tie_word_embeddings);
  EXPECT_FALSE(qwen2.o_bias || qwen2.qk_norm);
  const ModelConfig qwen3 = Parsed(R"({"architectures":["Qwen3ForCausalLM"]})");
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(Parsed(R"({"architectures":null,"model_type":"mistral"})").architecture, Architecture::kMistral);
}

TEST(ConfigJson, SlidingWindows) {
  const auto window = [](std::string_view changes) {
    const ModelConfig config = Parsed(changes);
    return std::pair(config.sliding_window, config.layer_uses_sliding_window);
  };
  const std::vector<bool> none(4, false), all(4, true);
  EXPECT_EQ(window(R"({"sliding_window":16})"), std::pair(std::int64_t{0}, none));  // Llama has none
  EXPECT_EQ(window(R"({"architectures":["MistralForCausalLM"]})"), std::pair(std::int64_t{4096}, all));
  EXPECT_EQ(window(R"({"architectures":["MistralForCausalLM"],"sliding_window":null})"),
            std::pair(std::int64_t{0}, none));
  EXPECT_EQ(window(R"({"architectures":["MistralForCausalLM"],"sliding_window":16})"),
            std::pair(std::int64_t{16}, all));
  EXPECT_EQ(window(R"({"architectures":["Qwen2ForCausalLM"],"sliding_window":16,"max_window_layers":1})"),
            std::pair(std::int64_t{0}, none));
  EXPECT_EQ(window(R"({"architectures":["Qwen2ForCausalLM"],"sliding_window":16,"max_window_layers":1,
                       "use_sliding_window":true})"),
            std::pair(std::int64_t{16}, std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(window(R"({"architectures":["Qwen2ForCausalLM"],"use_sliding_window":true})"),  // all below layer 28
            std::pair(std::int64_t{0}, none));
  EXPECT_EQ(window(R"({"architectures":["Qwen3ForCausalLM"],"use_sliding_window":true,"sliding_window":8,
                       "layer_types":["sliding_attention","full_attention","full_attention","sliding_attention"]})"),
            std::pair(std::int64_t{8}, std::vector<bool>{true, false, false, true}));
  EXPECT_THAT(ErrorOf(R"({"architectures":["MistralForCausalLM"],"layer_types":["full_attention"]})"),
              HasSubstr("a list of 4 names"));
  EXPECT_THAT(ErrorOf(R"({"architectures":["MistralForCausalLM"],
                          "layer_types":["full_attention","chunked_attention","full_attention","full_attention"]})"),
              HasSubstr("layer_types[1] is \"chunked_attention\""));
}

TEST(ConfigJson, RopeInEverySpelling) {  // ROPE-01, ROPE-03, ROPE-04
  EXPECT_EQ(Parsed(R"({"rope_theta":500000})").rope.theta, 500000);
  const RopeConfig linear = Parsed(R"({"rope_scaling":{"type":"linear","factor":4}})").rope;
  EXPECT_EQ(linear.type, RopeType::kLinear);
  EXPECT_EQ(linear.factor, 4);
  const RopeConfig dynamic = Parsed(R"({"rope_scaling":{"rope_type":"dynamic","factor":6.0}})").rope;
  EXPECT_EQ(dynamic.type, RopeType::kDynamic);
  EXPECT_EQ(dynamic.original_max_position_embeddings, 4096);
  const RopeConfig llama3 = Parsed(R"({"rope_theta":5e5,"rope_scaling":{"rope_type":"llama3","factor":8,
      "low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}})")
                                .rope;
  EXPECT_EQ(llama3.type, RopeType::kLlama3);
  EXPECT_EQ(llama3.original_max_position_embeddings, 8192);
  const RopeConfig yarn = Parsed(R"({"rope_parameters":{"rope_type":"yarn","rope_theta":1000000,"factor":4,
      "original_max_position_embeddings":1024,"mscale":1,"mscale_all_dim":0.5,"beta_fast":16,"beta_slow":2,
      "attention_factor":1.25,"truncate":false}})")
                              .rope;
  EXPECT_EQ(yarn.type, RopeType::kYarn);
  EXPECT_EQ(yarn.theta, 1000000);
  EXPECT_EQ(yarn.original_max_position_embeddings, 1024);
  EXPECT_EQ(yarn.mscale_all_dim, 0.5);
  EXPECT_EQ(yarn.attention_factor, 1.25);
  EXPECT_EQ(yarn.beta_fast, 16);
  EXPECT_FALSE(yarn.yarn_truncate);
  EXPECT_EQ(Parsed(R"({"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5}})").rotary_dim, 8);

  EXPECT_THAT(ErrorOf(R"({"rope_scaling":{"type":"longrope","factor":4}})"),
              HasSubstr("rope_scaling: the RoPE type \"longrope\" is unknown"));
  EXPECT_THAT(ErrorOf(R"({"rope_scaling":{"type":"linear","rope_type":"yarn","factor":4}})"), HasSubstr("\"type\" is"));
  EXPECT_THAT(ErrorOf(R"({"rope_scaling":{"type":"linear"}})"), HasSubstr("\"factor\" is missing"));
  EXPECT_THAT(ErrorOf(R"({"rope_scaling":{"type":"linear","factor":0}})"), HasSubstr("\"factor\" is 0"));
  EXPECT_THAT(ErrorOf(R"({"rope_scaling":{"rope_type":"llama3","factor":8}})"),
              HasSubstr("\"original_max_position_embeddings\" is missing"));
  EXPECT_THAT(ErrorOf(R"({"rope_scaling":{"type":"default","mrope_section":[1,2]}})"),
              HasSubstr("the key \"mrope_section\" is unknown"));
  EXPECT_THAT(ErrorOf(R"({"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_theta":1e4}})"),
              HasSubstr("both given"));
  EXPECT_THAT(ErrorOf(R"({"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,
                          "original_max_position_embeddings":8192}})"),
              HasSubstr("is not below"));
}

TEST(ConfigJson, WhatIsNotBuiltIsNamed) {
  EXPECT_THAT(ErrorOf(R"({"architectures":["MambaForCausalLM"]})"), HasSubstr("the architecture MambaForCausalLM"));
  EXPECT_THAT(ErrorOf(R"({"architectures":null,"model_type":"rwkv"})"), HasSubstr("the architecture rwkv"));
  EXPECT_THAT(ErrorOf(R"({"architectures":[]})"), HasSubstr("a list of one name"));
  EXPECT_THAT(ErrorOf(R"({"architectures":null})"), HasSubstr("neither"));
  EXPECT_THAT(ErrorOf(R"({"quantization_config":{"quant_method":"aqlm"}})"),
              HasSubstr("quant_method \"aqlm\" is not supported; awq, gptq, compressed-tensors, fp8"));
  EXPECT_THAT(ErrorOf(R"({"hidden_act":"gelu"})"), HasSubstr("the activation \"gelu\""));
}

TEST(ConfigJson, RangesAreChecked) {
  EXPECT_THAT(ErrorOf(R"({"num_attention_heads":0})"), HasSubstr("\"num_attention_heads\" is 0"));
  EXPECT_THAT(ErrorOf(R"({"num_attention_heads":"4"})"), HasSubstr("\"num_attention_heads\" is \"4\""));
  EXPECT_THAT(ErrorOf(R"({"num_hidden_layers":100000})"), HasSubstr("from 1 to 4096"));
  EXPECT_THAT(ErrorOf(R"({"vocab_size":-1})"), HasSubstr("\"vocab_size\" is -1"));
  EXPECT_THAT(ErrorOf(R"({"vocab_size":1e300})"), HasSubstr("\"vocab_size\" is 1e+300"));
  EXPECT_THAT(ErrorOf(R"({"hidden_size":null})"), HasSubstr("\"hidden_size\" is missing"));
  EXPECT_THAT(ErrorOf(R"({"hidden_size":66})"), HasSubstr("not divisible"));
  EXPECT_THAT(ErrorOf(R"({"num_key_value_heads":3})"), HasSubstr("do not divide"));
  EXPECT_THAT(ErrorOf(R"({"num_key_value_heads":8})"), HasSubstr("num_kv_heads is 8"));
  EXPECT_THAT(ErrorOf(R"({"head_dim":15})"), HasSubstr("must be even"));
  EXPECT_THAT(ErrorOf(R"({"partial_rotary_factor":0.05})"), HasSubstr("rotary_dim is 0"));
  EXPECT_THAT(ErrorOf(R"({"rms_norm_eps":0})"), HasSubstr("\"rms_norm_eps\" is 0"));
  EXPECT_THAT(ErrorOf(R"({"eos_token_id":128})"), HasSubstr("outside the vocabulary"));
  EXPECT_THAT(ErrorOf(R"({"eos_token_id":[1,"2"]})"), HasSubstr("a token id or a list"));
  EXPECT_THAT(ErrorOf(R"({"bos_token_id":-1})"), HasSubstr("a token id"));
  EXPECT_THAT(ParseConfigJson(json::value(7), "x").error().message, HasSubstr("not a JSON object"));
}

TEST(ConfigJson, EndOfTextIdsAsNumberOrList) {
  EXPECT_THAT(Parsed(R"({"eos_token_id":5,"bos_token_id":3})").eos_token_ids, ElementsAre(TokenId(5)));
  EXPECT_THAT(Parsed(R"({"eos_token_id":[5,6]})").eos_token_ids, ElementsAre(TokenId(5), TokenId(6)));
}

TEST(GenerationConfigJson, ReadsWhatAuthorsRecommend) {
  const auto config = ParseGenerationConfigJson(
      *ParseJson(R"({"temperature":0.6,"top_p":0.95,"top_k":20,"min_p":0,"repetition_penalty":1.05,
                     "eos_token_id":[7],"do_sample":true})",
                 "g"),
      "generation_config.json");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->temperature, 0.6);
  EXPECT_EQ(config->top_p, 0.95);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->repetition_penalty, 1.05);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(TokenId(7)));
  EXPECT_THAT(ParseGenerationConfigJson(*ParseJson(R"({"top_p":2})", "g"), "g").error().message,
              HasSubstr("\"top_p\" is 2"));
}

}  // namespace
}  // namespace quire::weights
