#include "bench/simulation/devices.h"

#include <gtest/gtest.h>

namespace quire::bench {
namespace {

TEST(Devices, TheBuiltInOnesAreThere) {
  const DeviceFile file = DeviceFile::BuiltIn();
  for (const char* const name : {"rtx-4090", "h100", "h200", "epyc-9654"}) EXPECT_TRUE(file.FindDevice(name)) << name;
  const auto llama = file.FindModel("llama-3.1-8b");
  ASSERT_TRUE(llama);
  // 8.03 billion parameters, without the embedding table of 525 million.
  EXPECT_NEAR(((*llama)->layer_weights() + (*llama)->head_weights()) / 1e9, 7.5, 0.01);
  EXPECT_EQ((*llama)->kv_bytes_per_token(), 131072);
  const auto unknown = file.FindDevice("abacus");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().param, "device");
  EXPECT_NE(unknown.error().message.find("h100, h200"), std::string::npos) << unknown.error().message;
}

TEST(Devices, AFileIsReadAsItIsWritten) {
  DeviceFile file = DeviceFile::BuiltIn();
  file.Put(MeasuredSteps{.device = "this-machine",
                         .model = "demo",
                         .how = "2 threads",
                         .token_us = {{1, 1.5}, {2, 2}},
                         .sample_us = {{1, 0}},
                         .decode_context_us = 0.25,
                         .chunk_pair_us = 0});
  const auto again = DeviceFile::Parse(file.ToJson(), "again");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->ToJson(), file.ToJson());
  EXPECT_EQ(again->devices.size(), file.devices.size());
  const MeasuredSteps* const steps = again->FindMeasured("this-machine", "demo");
  ASSERT_NE(steps, nullptr);
  EXPECT_EQ(steps->token_us[1].second, 2);
  EXPECT_EQ(again->FindMeasured("h100", "demo"), nullptr);
}

TEST(Devices, AnEntryOfTheSameNameIsReplaced) {
  DeviceFile file = DeviceFile::BuiltIn();
  const std::size_t count = file.devices.size();
  Device faster = **file.FindDevice("h100");
  faster.tflops = 5000;
  file.Put(faster);
  EXPECT_EQ(file.devices.size(), count);
  EXPECT_EQ((*file.FindDevice("h100"))->tflops, 5000);
  file.Put(Device{.name = "other"});
  EXPECT_EQ(file.devices.size(), count + 1);
}

TEST(Devices, ErrorsSayWhere) {
  const auto message = [](std::string_view text) {
    const auto file = DeviceFile::Parse(text, "my.json");
    return file ? std::string() : file.error().message;
  };
  EXPECT_EQ(message("{}"), "");
  EXPECT_NE(message("[]").find("no JSON object"), std::string::npos);
  EXPECT_NE(message(R"({"device": []})").find("there is no list \"device\""), std::string::npos);
  EXPECT_NE(
      message(R"({"devices": [{"name": "x", "memory_gb": 1, "tflops": 1}]})").find("device 1: bandwidth_gb_per_second"),
      std::string::npos);
  const std::string device =
      R"({"devices": [{"name": "x", "memory_gb": 1, "bandwidth_gb_per_second": 1, "tflops": 1, )";
  EXPECT_EQ(message(device + R"("step_overhead_us": 0}]})"), "");
  EXPECT_NE(message(device + R"("flops_efficiency": 1.5}]})").find("from 0.001 to 1"), std::string::npos);
  EXPECT_NE(message(device + R"("speed": 1}]})").find("there is no field \"speed\""), std::string::npos);
  EXPECT_NE(message(R"({"models": [{"name": "x", "vocab_size": 2.5}]})").find("an integer"), std::string::npos);
  const std::string measured = R"({"measured": [{"device": "a", "model": "b", "how": "c", "decode_context_us": 0,
                                   "chunk_pair_us": 0, "sample_us": [[1, 1]], "token_us": )";
  EXPECT_EQ(message(measured + "[[1, 2]]}]}"), "");
  for (const char* const wrong : {"[]", "[[1]]", "[[0, 1]]", "[[2, 1], [2, 1]]", "[[1, -1]]", "3"}) {
    EXPECT_NE(message(measured + wrong + "}]}").find("token_us must be pairs"), std::string::npos) << wrong;
  }
}

}  // namespace
}  // namespace quire::bench
