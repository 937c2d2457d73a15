#include "engine/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "engine/memory_budget.h"
#include "engine/text_side.h"
#include "weights/quantize.h"

namespace quire::engine {
namespace {

const std::string kDemo = std::string(QUIRE_SOURCE_DIR) + "/models/demo";

// ---- Memory --------------------------------------------------------------------------------------------------------

TEST(MemoryBudgetTest, ReadsMeminfo) {
  EXPECT_EQ(ParseMemAvailable("MemTotal:  100 kB\nMemAvailable:   24 kB\n"), 24 * 1024);
  EXPECT_EQ(ParseMemAvailable("MemTotal:  100 kB\n"), std::nullopt);
  EXPECT_EQ(ParseMemAvailable("MemAvailable:\n"), std::nullopt);
  EXPECT_EQ(ParseMemAvailable("MemAvailable: 99999999999999999999 kB"), std::nullopt);
  EXPECT_GT(AvailableMemoryBytes().value_or(0), 0);
}

TEST(MemoryBudgetTest, TheTightestControlGroupCounts) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("quire_cgroup_" + std::to_string(::getpid()));
  const auto write = [&](const std::filesystem::path& file, std::string_view text) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  };
  write("memory.max", "max\n");
  write("a/memory.max", "1000000\n");
  write("a/memory.current", "300000\n");
  write("a/memory.stat", "anon 1\ninactive_file 100000\nactive_file 50000\n");
  write("a/b/memory.max", "max\n");
  write("a/b/memory.current", "200\n");
  EXPECT_EQ(CgroupMemoryRoom(root, "0::/a/b\n"), 1000000 - (300000 - 150000));
  write("a/b/memory.max", "900\n");
  EXPECT_EQ(CgroupMemoryRoom(root, "0::/a/b\n"), 700);
  write("a/b/memory.current", "2000\n");
  EXPECT_EQ(CgroupMemoryRoom(root, "0::/a/b\n"), 0);
  EXPECT_EQ(CgroupMemoryRoom(root, "1:memory:/a\n"), std::nullopt);
  std::filesystem::remove_all(root);
}

TEST(PlanMemoryTest, TakesWhatIsUsefulAndFits) {
  const MemoryQuestion question{
      .available_bytes = 1000 << 20, .block_bytes = 1 << 20, .model_length_max = 4096, .model_length_default = 2048};
  EngineOptions options{.model = "m", .kv_memory_fraction = 0.5, .max_num_seqs = 2};
  auto plan = PlanMemory(options, question);
  EXPECT_EQ(plan->num_blocks, 2 * (128 + 1));  // two choices at full length need no more
  EXPECT_EQ(plan->max_model_len, 2048);
  options.max_num_seqs = 100;
  EXPECT_EQ(PlanMemory(options, question)->num_blocks, 500);
  options.max_model_len = 4096;
  EXPECT_EQ(PlanMemory(options, question)->max_model_len, 4096);
  options.max_model_len = 4097;
  EXPECT_EQ(PlanMemory(options, question).error().param, "max_model_len");

  options.max_model_len = 0;
  options.kv_memory_bytes = 10 << 20;
  EXPECT_EQ(PlanMemory(options, question)->max_model_len, 160);  // nobody asked for more: what fits
  options.max_model_len = 161;
  EXPECT_THAT(PlanMemory(options, question).error().message, testing::HasSubstr("161"));
  options.kv_memory_bytes = std::int64_t{1001} << 20;
  EXPECT_EQ(PlanMemory(options, question).error().param, "kv_memory_bytes");
  options.kv_memory_bytes = 100;
  options.max_model_len = 0;
  EXPECT_FALSE(PlanMemory(options, question));
}

TEST(EngineOptionsTest, EveryRangeIsChecked) {
  const auto blame = [](auto change) {
    EngineOptions options{.model = "m"};
    change(&options);
    const auto valid = options.Validate();
    return valid ? std::string() : valid.error().param;
  };
  EXPECT_EQ(blame([](EngineOptions*) {}), "");
  EXPECT_EQ(blame([](EngineOptions* o) { o->model = ""; }), "model");
  EXPECT_EQ(blame([](EngineOptions* o) { o->num_threads = -1; }), "num_threads");
  EXPECT_EQ(blame([](EngineOptions* o) { o->kv_memory_bytes = -1; }), "kv_memory_bytes");
  EXPECT_EQ(blame([](EngineOptions* o) { o->kv_memory_fraction = 0; }), "kv_memory_fraction");
  EXPECT_EQ(blame([](EngineOptions* o) { o->kv_memory_fraction = std::nan(""); }), "kv_memory_fraction");
  EXPECT_EQ(blame([](EngineOptions* o) { o->quantization_report = "file"; }), "quantization_report");
  EXPECT_EQ(blame([](EngineOptions* o) { o->max_model_len = 1; }), "max_model_len");
  EXPECT_EQ(blame([](EngineOptions* o) { o->max_num_seqs = 0; }), "max_num_seqs");
  EXPECT_EQ(blame([](EngineOptions* o) { o->max_num_batched_tokens = 0; }), "max_num_batched_tokens");
  EXPECT_EQ(blame([](EngineOptions* o) { o->max_chunk_tokens = -1; }), "max_chunk_tokens");
  EXPECT_EQ(blame([](EngineOptions* o) { o->max_num_queued_requests = 0; }), "max_num_queued_requests");
  EXPECT_EQ(blame([](EngineOptions* o) { o->max_num_queued_tokens = 0; }), "max_num_queued_tokens");
  EXPECT_EQ(blame([](EngineOptions* o) { o->queue_timeout = std::chrono::milliseconds(-1); }), "queue_timeout");
  EXPECT_EQ(blame([](EngineOptions* o) { o->default_tpot_ms = 20; }), "default_tpot_ms");
  EXPECT_EQ(blame([](EngineOptions* o) { o->shed_unmeetable = true; }), "shed_unmeetable");
  EXPECT_EQ(blame([](EngineOptions* o) { o->input_token_weight = 0; }), "input_token_weight");
  const auto with_slo = [&](auto change) {
    return blame([&](EngineOptions* o) {
      o->policy = sched::PolicyKind::kSlo;
      change(o);
    });
  };
  EXPECT_EQ(with_slo([](EngineOptions* o) { o->default_tpot_ms = 20; }), "");
  EXPECT_EQ(with_slo([](EngineOptions* o) { o->default_ttft_ms = -1; }), "default_ttft_ms");
  EXPECT_EQ(with_slo([](EngineOptions* o) { o->enable_fairness = true; }), "enable_fairness");
  for (const kernels::KvDtype dtype : kernels::kKvDtypes) EXPECT_EQ(*ParseKvDtype(KvDtypeName(dtype)), dtype);
  EXPECT_EQ(*ParseKvDtype("auto"), kernels::KvDtype::kBf16);
  EXPECT_EQ(*ParseKvDtype("bfloat16"), kernels::KvDtype::kBf16);
  EXPECT_EQ(*ParseKvDtype("float32"), kernels::KvDtype::kF32);
  EXPECT_EQ(*ParseKvDtype("fp8"), kernels::KvDtype::kFp8E4m3);
  EXPECT_THAT(ParseKvDtype("f8").error().message, testing::HasSubstr("\"f8\""));
}

TEST(ModelLengthTest, ScalingStretchesWhatTheModelWasTrainedFor) {
  weights::ModelConfig config;
  config.max_position_embeddings = 4096;
  EXPECT_EQ(ModelLengthMax(config), 4096);
  config.rope.factor = 4;
  config.rope.type = weights::RopeType::kLlama3;
  EXPECT_EQ(ModelLengthMax(config), 4096);
  config.rope.type = weights::RopeType::kDynamic;
  EXPECT_EQ(ModelLengthMax(config), 16384);
  EXPECT_EQ(ModelLengthDefault(config), 4096);
  config.rope.type = weights::RopeType::kYarn;
  config.rope.original_max_position_embeddings = 2048;
  EXPECT_EQ(ModelLengthMax(config), 8192);
}

// ---- The demo model, whole -----------------------------------------------------------------------------------------

TEST(LoadEngineTest, TheDemoModelAnswersAsItShould) {
  cpu_set_t before, after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  std::int64_t done = 0, total = 0;
  auto loaded = LoadEngine({.model = kDemo, .num_threads = 2, .max_num_seqs = 4},
                           [&](std::int64_t d, std::int64_t t, std::string_view) { done = d, total = t; });
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(done, total);
  ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after)) << "the caller keeps its CPUs";
  EXPECT_EQ(loaded->info.vocab_size, 4096);
  EXPECT_EQ(loaded->info.max_model_len, 2048);
  EXPECT_EQ(loaded->info.num_threads, 2);
  EXPECT_EQ(loaded->info.weight_formats, "BF16");
  EXPECT_EQ(loaded->info.kv_dtype, "bf16");

  const std::string golden_text = *ReadFile(kDemo + "/golden.json", 1 << 20);
  const json::value golden = *ParseJson(golden_text, "golden.json");
  std::uint64_t id = 0;
  for (const json::value& entry : golden.as_array()) {
    std::vector<TokenId> expected, got;
    for (const json::value& token : entry.at("greedy_ids").as_array())
      expected.push_back(TokenId(static_cast<std::int32_t>(token.as_int64())));
    GenerateRequest request;
    request.id = RequestId(++id);
    for (const json::value& token : entry.at("prompt_ids").as_array())
      request.prompt.push_back(TokenId(static_cast<std::int32_t>(token.as_int64())));
    request.sampling.temperature = 0;
    request.stop = {.max_tokens = static_cast<int>(expected.size()), .ignore_eos = true};
    ASSERT_TRUE(loaded->engine->Submit(std::move(request)));
    FinishReason finish = FinishReason::kNone;
    for (int tries = 0; finish == FinishReason::kNone && tries < 2000; ++tries) {
      const auto events = loaded->engine->Next(std::chrono::milliseconds(100));
      ASSERT_TRUE(events);
      for (const EngineEvent& event : *events) {
        got.insert(got.end(), event.tokens.begin(), event.tokens.end());
        finish = event.finish_reason;
      }
    }
    EXPECT_EQ(finish, FinishReason::kLength);
    EXPECT_EQ(got, expected) << entry.at("name");
  }
}

// The same memory holds more tokens, by as much as the blocks are smaller: 64 dimensions of a key and a value take 256
// bytes in BF16, 512 in F32, 128 in FP8, 136 in INT8 and 76 in INT4.
TEST(LoadEngineTest, SmallerTypesHoldMoreTokensInTheSameMemory) {
  constexpr std::int64_t kBytes = 1 << 20;
  for (const auto& [dtype, bytes] : std::map<kernels::KvDtype, int>{{kernels::KvDtype::kF32, 512},
                                                                    {kernels::KvDtype::kBf16, 256},
                                                                    {kernels::KvDtype::kFp8E4m3, 128},
                                                                    {kernels::KvDtype::kInt8, 136},
                                                                    {kernels::KvDtype::kInt4, 76}}) {
    const auto loaded = LoadEngine({.model = kDemo, .num_threads = 1, .kv_dtype = dtype, .kv_memory_bytes = kBytes});
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(loaded->info.kv_dtype, KvDtypeName(dtype));
    EXPECT_EQ(loaded->info.num_blocks, kBytes / (bytes * 6 * 2 * 16)) << KvDtypeName(dtype);  // 6 layers, 2 KV heads
  }
}

TEST(LoadEngineTest, ErrorsSayWhatIsWrong) {
  EXPECT_THAT(LoadEngine({.model = kDemo + "/nowhere"}).error().message, testing::HasSubstr("nowhere"));
  EXPECT_THAT(LoadEngine({.model = kDemo, .isa = "sse9"}).error().message, testing::HasSubstr("sse9"));
  EXPECT_EQ(LoadEngine({.model = kDemo, .max_model_len = 4096}).error().param, "max_model_len");
  EXPECT_EQ(LoadEngine({.model = kDemo, .max_num_seqs = 0}).error().param, "max_num_seqs");
}

TEST(LoadModelTest, QuantisesAndReports) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("quire_quantization_{}", ::getpid());
  std::filesystem::create_directories(folder);
  EngineOptions options{.model = kDemo,
                        .num_threads = 2,
                        .quantization = weights::Quantization::kInt4,
                        .quantization_report = (folder / "errors.tsv").string()};
  const auto loaded = LoadModel(options, {});
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->model->weight_formats(), "Q4_K + Q6_K");
  EXPECT_EQ(loaded->quantization_errors.size(), 43u);  // 6 layers of 7, and the embedding, which is the head too
  const auto report = ReadFile(folder / "errors.tsv", 1 << 20);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(*report, weights::QuantizationTable(loaded->quantization_errors));
  EXPECT_THAT(DescribeQuantization(options, *loaded), testing::StartsWith("43 matrices quantised to int4, relative"));
  // It is the same with any number of threads.
  options.num_threads = 1;
  ASSERT_TRUE(LoadModel(options, {}));
  EXPECT_EQ(*ReadFile(folder / "errors.tsv", 1 << 20), *report);

  ThreadPool pool(2);
  options.model = folder / "q8_0.gguf";
  ASSERT_TRUE(weights::QuantizeModel(kDemo, options.model, {}, &pool));
  const auto again = LoadModel(options, {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().param, "quantization");
  EXPECT_THAT(again.error().message, testing::HasSubstr("Q8_0 already"));
  EXPECT_EQ(*ReadFile(folder / "errors.tsv", 1 << 20), *report);  // nothing replaced it

  options.quantization_report = (folder / "nowhere" / "errors.tsv").string();
  EXPECT_THAT(LoadModel(options, {}).error().message, testing::HasSubstr("nowhere"));
  std::filesystem::remove_all(folder);
}

TEST(LoadTextSideTest, TheDemoModelsTextSide) {
  const auto side = LoadTextSide(kDemo + "/");
  ASSERT_TRUE(side) << side.error().message;
  EXPECT_EQ(side->name, "demo");
  EXPECT_TRUE(side->has_own_template);
  EXPECT_EQ(side->generation_config.temperature, 0.7);
  EXPECT_EQ(side->config.vocab_size, 4096);
  const std::string golden_text = *ReadFile(kDemo + "/golden.json", 1 << 20);
  const json::value golden = *ParseJson(golden_text, "golden.json");
  for (const json::value& entry : golden.as_array()) {
    text::ChatTemplateInput input{
        .messages = entry.at("messages").as_array(), .tools = entry.at("tools"), .kwargs = {}};
    const auto prompt = side->chat_template.Render(input);
    ASSERT_TRUE(prompt) << prompt.error().message;
    EXPECT_EQ(*prompt, std::string_view(entry.at("prompt").as_string()));
    std::vector<TokenId> expected;
    for (const json::value& token : entry.at("prompt_ids").as_array())
      expected.push_back(TokenId(static_cast<std::int32_t>(token.as_int64())));
    EXPECT_EQ(*side->tokenizer->Encode(*prompt, {}), expected);
  }
}

TEST(LoadTextSideTest, AGgufFileWithoutTemplate) {
  const std::string path = std::string(QUIRE_SOURCE_DIR) + "/../shared/models/stories260K/stories260K-f32.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto side = LoadTextSide(path);
  ASSERT_TRUE(side) << side.error().message;
  EXPECT_EQ(side->name, "stories260K-f32");
  EXPECT_FALSE(side->has_own_template);
  const auto ids = side->tokenizer->Encode("Once upon a time", {});
  ASSERT_TRUE(ids);
  EXPECT_EQ(side->tokenizer->Decode(*ids, true), "Once upon a time");
}

}  // namespace
}  // namespace quire::engine
