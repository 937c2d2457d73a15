#include "engine/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "engine/loader.h"
#include "models/model_decorator.h"
#include "models/planted_outliers.h"
#include "nn/attention.h"

namespace quire::engine {
namespace {

const std::string kDemo = std::string(QUIRE_SOURCE_DIR) + "/models/demo";

LoadedModel LoadDemo(kernels::KvDtype kv_dtype = kernels::KvDtype::kBf16,
                     weights::Quantization quantization = weights::Quantization::kNone) {
  auto loaded = LoadModel({.model = kDemo, .num_threads = 2, .kv_dtype = kv_dtype, .quantization = quantization}, {});
  EXPECT_TRUE(loaded) << loaded.error().message;
  return *std::move(loaded);
}

const kernels::KernelTable* BestTier() {
  return kernels::AvailableKernels().back();
}

// DET-01, DET-03, PFX-10, LOGP-06, SEED-01, SEED-03: the promise, on the demo model.
TEST(VerifyTest, TheDemoModelKeepsThePromiseOnTheBestTier) {
  const LoadedModel loaded = LoadDemo();
  const VerifyReport report = RunVerify(*loaded.model, {.tiers = {BestTier()}});
  std::printf("%s", report.ToTable().c_str());
  EXPECT_TRUE(report.ok());
  std::int64_t preemptions = 0, cached = 0;
  for (const VerifyRow& row : report.rows) {
    preemptions += row.num_preemptions;
    cached += row.num_cached_tokens;
  }
  EXPECT_GE(preemptions, 3);
  EXPECT_GE(cached, 1000);
}

// CPU-05: each feature level is a tier of its own, and can be forced.
TEST(VerifySlowTest, TheDemoModelKeepsThePromiseOnEveryTier) {
  const LoadedModel loaded = LoadDemo();
  const VerifyReport report = RunVerify(*loaded.model, {});
  std::printf("%s", report.ToTable().c_str());
  EXPECT_TRUE(report.ok());
}

// What is stored for a token depends on that token alone in every type, so chunks, preemption and shared blocks change
// nothing.
void ExpectPromiseWith(kernels::KvDtype dtype, VerifyOptions options) {
  const LoadedModel loaded = LoadDemo(dtype);
  const VerifyReport report = RunVerify(*loaded.model, options);
  EXPECT_TRUE(report.ok()) << KvDtypeName(dtype) << '\n' << report.ToTable();
}

TEST(VerifyTest, QuantisedKeysAndValuesKeepThePromise) {
  for (const kernels::KvDtype dtype : {kernels::KvDtype::kInt8, kernels::KvDtype::kInt4}) {
    ExpectPromiseWith(dtype, {.tiers = {BestTier()}, .num_requests = 12});
  }
}

TEST(VerifySlowTest, EveryTypeOfKeysAndValuesKeepsThePromiseOnEveryTier) {
  for (const kernels::KvDtype dtype : kernels::kKvDtypes) ExpectPromiseWith(dtype, {});
}

TEST(VerifyTest, WeightsQuantisedWhileLoadingKeepThePromise) {
  for (const weights::Quantization quantization : {weights::Quantization::kInt4, weights::Quantization::kFp8}) {
    const LoadedModel loaded = LoadDemo(kernels::KvDtype::kBf16, quantization);
    const VerifyReport report = RunVerify(*loaded.model, {.tiers = {BestTier()}, .num_requests = 12});
    EXPECT_TRUE(report.ok()) << weights::QuantizationName(quantization) << '\n' << report.ToTable();
  }
}

// And where columns of the weights are kept apart.
void ExpectPromiseWithOutlierColumns(weights::Quantization quantization, VerifyOptions options) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("quire_verify_outliers_{}", ::getpid());
  models::PlantedOutliers::Copy(kDemo, folder);
  auto loaded = LoadModel({.model = folder, .num_threads = 2, .quantization = quantization}, {});
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_GT(weights::SumErrors(loaded->quantization_errors).num_outlier_columns, 0);
  const VerifyReport report = RunVerify(*loaded->model, options);
  EXPECT_TRUE(report.ok()) << weights::QuantizationName(quantization) << '\n' << report.ToTable();
}

TEST(VerifyTest, OutlierColumnsKeepThePromise) {
  ExpectPromiseWithOutlierColumns(weights::Quantization::kInt4, {.tiers = {BestTier()}, .num_requests = 12});
}

TEST(VerifySlowTest, OutlierColumnsKeepThePromiseOnEveryTier) {
  ExpectPromiseWithOutlierColumns(weights::Quantization::kInt8, {.tiers = {BestTier()}});
  ExpectPromiseWithOutlierColumns(weights::Quantization::kInt4, {});
}

// PFX-06: the same where half of the layers see a window that is shorter than the prompts, whether those hit the cache
// or not.
TEST(VerifyTest, SlidingWindowsKeepThePromise) {
  const auto folder = std::filesystem::temp_directory_path() / "quire_verify_window";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(kDemo, folder);
  std::stringstream config;
  config << std::ifstream(folder / "config.json").rdbuf();
  auto parsed = ParseJson(config.str(), "config.json");
  ASSERT_TRUE(parsed);
  parsed->as_object()["use_sliding_window"] = true;
  parsed->as_object()["sliding_window"] = 20;
  parsed->as_object()["max_window_layers"] = 3;
  std::ofstream(folder / "config.json") << ToJson(*parsed);
  auto loaded = LoadModel({.model = folder.string(), .num_threads = 2}, {});
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->model->config().sliding_window, 20);
  const VerifyReport report = RunVerify(*loaded->model, {.tiers = {BestTier()}, .num_requests = 12});
  std::printf("%s", report.ToTable().c_str());
  EXPECT_TRUE(report.ok());
  std::int64_t cached = 0;
  for (const VerifyRow& row : report.rows) cached += row.num_cached_tokens;
  EXPECT_GT(cached, 0);
  std::filesystem::remove_all(folder);
}

// A model whose forward passes are watched, or disturbed.
class WatchedModel final : public models::ModelDecorator {
 public:
  // Called after each pass; `hidden` is what it made.
  using AfterForward = std::function<void(const nn::ExecContext&, const models::ForwardBatch&, float* hidden)>;
  WatchedModel(const models::Model* model, AfterForward after_forward)
      : ModelDecorator(model), after_forward_(std::move(after_forward)) {}

  void ForwardHidden(const nn::ExecContext& context, const models::ForwardBatch& batch, nn::KvPool* kv,
                     float* hidden) const override {
    ModelDecorator::ForwardHidden(context, batch, kv, hidden);
    after_forward_(context, batch, hidden);
  }

 private:
  AfterForward after_forward_;
};

// For each sequence that a step computes together with the one before it: the partitions that both have in the same
// blocks. Planned as the model does it.
std::vector<std::int32_t> JoinedPartitions(const nn::ExecContext& context, const models::ForwardBatch& batch,
                                           const weights::ModelConfig& config) {
  std::vector<nn::AttentionSequence> sequences;
  for (const models::SequenceSlice& slice : batch.sequences) {
    sequences.push_back({.token_begin = slice.token_begin,
                         .num_tokens = slice.num_tokens,
                         .first_position = slice.first_position,
                         .blocks = slice.blocks.data()});
  }
  const nn::AttentionHeads heads{.num_heads = config.num_heads, .num_kv_heads = config.num_kv_heads};
  std::vector<nn::AttentionTask> memory(
      nn::MaxAttentionTasks(static_cast<std::int64_t>(batch.tokens.size()), heads.num_kv_heads));
  std::vector<std::int32_t> joined;
  for (const nn::AttentionTask& task :
       nn::PlanAttention(sequences, heads, context.pool->num_threads(), memory.data())) {
    if (task.kv_head != 0) continue;
    for (std::int32_t s = task.sequence + 1; s < task.sequence + task.num_sequences; ++s) {
      joined.push_back(sequences[static_cast<std::size_t>(s)].shared_partitions);
    }
  }
  return joined;
}

// What the workload has its long prefixes for: in most schedules sequences in the same blocks attend to them together,
// also to prefixes of different depths in one step, and in the baseline that all are compared with none does.
TEST(VerifyTest, SequencesWithACommonPrefixAreComputedTogether) {
  const LoadedModel loaded = LoadDemo();
  std::vector<int> joined_by_schedule(1);
  int trees = 0;
  const WatchedModel watched(
      loaded.model.get(), [&](const nn::ExecContext& context, const models::ForwardBatch& batch, float*) {
        const std::vector<std::int32_t> joined = JoinedPartitions(context, batch, loaded.model->config());
        joined_by_schedule.back() += static_cast<int>(joined.size());
        trees += std::ranges::count(joined, 1) > 0 && std::ranges::count(joined, 2) > 0;
      });
  const VerifyReport report =
      RunVerify(watched, {.tiers = {BestTier()}, .num_requests = 12, .max_tokens = 8, .on_row = [&](const VerifyRow&) {
                            joined_by_schedule.push_back(0);
                          }});
  joined_by_schedule.pop_back();
  EXPECT_TRUE(report.ok()) << report.ToTable();
  ASSERT_EQ(joined_by_schedule.size(), report.rows.size());
  int schedules = 0;
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    std::printf("%6d joined  %s\n", joined_by_schedule[i], report.rows[i].schedule.c_str());
    if (report.rows[i].schedule.contains("1 at a time")) {
      EXPECT_EQ(joined_by_schedule[i], 0) << report.rows[i].schedule;
    }
    schedules += joined_by_schedule[i] > 0;
  }
  EXPECT_GE(schedules, 8);
  EXPECT_GE(trees, 8);
}

// What this model computes depends a little on how many tokens run together: it breaks the promise.
TEST(VerifyTest, FindsASmallDifferenceThatDependsOnTheBatch) {
  const LoadedModel loaded = LoadDemo();
  const WatchedModel fickle(loaded.model.get(),
                            [](const nn::ExecContext&, const models::ForwardBatch& batch, float* hidden) {
                              if (batch.tokens.size() < 20 || batch.logit_rows.empty()) return;
                              hidden[0] *= 1.01f;  // one of 256 elements of one row: most tokens stay the same
                            });
  const VerifyReport report = RunVerify(fickle, {.tiers = {BestTier()}, .num_requests = 4, .max_tokens = 8});
  EXPECT_FALSE(report.ok());
  int differences = 0;
  for (const VerifyRow& row : report.rows) {
    if (row.difference.empty()) continue;
    ++differences;
    EXPECT_THAT(row.difference, testing::StartsWith("request "));
    EXPECT_THAT(row.difference, testing::ContainsRegex("choice [0-9], output position "));
  }
  EXPECT_GE(differences, 1);
  EXPECT_THAT(report.ToTable(), testing::HasSubstr("expected"));
}

TEST(VerifyTest, OptionsAreChecked) {
  EXPECT_TRUE(VerifyOptions{}.Validate());
  EXPECT_EQ(VerifyOptions{.num_requests = 0}.Validate().error().param, "num_requests");
  EXPECT_EQ(VerifyOptions{.max_tokens = 0}.Validate().error().param, "max_tokens");
  EXPECT_EQ(VerifyOptions{.max_threads = 1}.Validate().error().param, "max_threads");
}

}  // namespace
}  // namespace quire::engine
