#include "bench/model_speed.h"

#include <gtest/gtest.h>

namespace quire::bench {
namespace {

TEST(ModelBenchCase, IsReadAsItIsWritten) {
  const ModelBenchCase prefill = *ParseModelBenchCase("prefill 512");
  EXPECT_EQ(prefill.kind, ModelBenchCase::Kind::kPrefill);
  EXPECT_EQ(prefill.num_tokens, 512);
  const ModelBenchCase batch = *ParseModelBenchCase(" decode 64  8 ");
  EXPECT_EQ(batch.kind, ModelBenchCase::Kind::kDecode);
  EXPECT_EQ(batch.num_tokens, 64);
  EXPECT_EQ(batch.num_sequences, 8);
  EXPECT_EQ(batch.context, 1);
  EXPECT_EQ(ParseModelBenchCase("decode 16 1 4096")->context, 4096);
}

TEST(ModelBenchCase, WhatIsNoCaseIsRefused) {
  for (const char* text :
       {"", "prefill", "decode 5", "prefill 0", "prefill -1", "decode 5 0", "decode 16 8 4096", "decode 16 1 0",
        "decode 16 1 x", "decode 16 1 2 3", "prefill 512 1", "encode 5", "prefill 99999999999", "decode 1 5000"}) {
    const Result<ModelBenchCase> parsed = ParseModelBenchCase(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().param, "case");
  }
}

}  // namespace
}  // namespace quire::bench
