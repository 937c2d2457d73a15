// The experiments in simulated time: on a device where reading the weights is most of a step, each claim holds by far.
#include "bench/papers/paper.h"

#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "bench/simulation/simulated_runner.h"

namespace quire::bench {
namespace {

class SimulatedRig final : public PaperRig {
 public:
  SimulatedRig() {
    const DeviceFile file = DeviceFile::BuiltIn();
    model_ = **file.FindModel("llama-2-7b");
    cost_ = std::make_unique<RooflineCost>(**file.FindDevice("h100"), model_);
  }
  sched::SchedulerConfig BaseConfig() const override {
    sched::SchedulerConfig config;
    config.vocab_size = model_.vocab_size;
    config.max_model_len = model_.max_model_len;
    return config;
  }
  Result<ReplaySamples> Run(const sched::SchedulerConfig& config, const RequestTrace& trace,
                            const RunOptions& options) override {
    // Steps one after another: planning takes no simulated time, so there would be nothing to hide.
    const engine::EngineConfig engine{.scheduler = config, .eos_token_ids = {}};
    QUIRE_TRY_VOID(engine.Validate());
    SimulatedTimeline timeline;
    SimulatedRunner runner(cost_.get(), config.vocab_size, &timeline);
    QUIRE_TRY(const ReplaySamples samples, Replay(engine, &runner, &timeline, trace.requests, options.replay));
    EXPECT_EQ(samples.num_finished, samples.num_requests);  // an experiment must not lose what it compares
    return samples;
  }

 private:
  ModelShape model_;
  std::unique_ptr<RooflineCost> cost_;
};

double CellOf(const PaperReport& report, std::size_t row, std::string_view key) {
  for (const auto& [name, cell] : report.rows.at(row).cells) {
    if (name == key) return std::get<double>(cell);
  }
  ADD_FAILURE() << "no cell " << key;
  return 0;
}

PaperReport RunNamed(std::string_view name) {
  SimulatedRig rig;
  auto report = RunPaperExperiment(name, &rig);
  EXPECT_TRUE(report) << report.error().message;
  return report.value_or(PaperReport{});
}

TEST(Papers, EveryReportIsComplete) {
  for (const PaperExperiment& experiment : PaperExperiments()) {
    const PaperReport report = RunNamed(experiment.name);
    EXPECT_EQ(report.name, experiment.name);
    EXPECT_FALSE(report.figure.empty());
    ASSERT_GE(report.rows.size(), 2u);
    for (const PaperRow& row : report.rows) {
      ASSERT_EQ(row.cells.size(), report.rows[0].cells.size());
      for (std::size_t i = 0; i < row.cells.size(); ++i) EXPECT_EQ(row.cells[i].first, report.rows[0].cells[i].first);
    }
    const auto json = ParseJson(report.ToJson(), "report");
    ASSERT_TRUE(json) << json.error().message;
    std::set<std::string> keys;
    for (const auto& entry : json->as_object()) keys.insert(entry.key());
    EXPECT_EQ(keys, (std::set<std::string>{"name", "claim", "figure", "claim_met", "rows"}));
    EXPECT_NE(report.ToTable().find(report.figure), std::string::npos);
  }
}

TEST(Papers, PagedKv) {
  const PaperReport report = RunNamed("paged-kv");
  EXPECT_TRUE(report.claim_met) << report.ToTable();
  EXPECT_EQ(CellOf(report, 0, "sequences_max"), 2);
  EXPECT_GT(CellOf(report, 1, "sequences_mean"), 6);
  EXPECT_LT(CellOf(report, 1, "waste_percent"), 4);
}

TEST(Papers, ContinuousBatching) {
  const PaperReport report = RunNamed("continuous-batching");
  EXPECT_TRUE(report.claim_met) << report.ToTable();
  EXPECT_LT(CellOf(report, 1, "sequences_mean"), CellOf(report, 2, "sequences_mean"));
}

TEST(Papers, ChunkedPrefill) {
  const PaperReport report = RunNamed("chunked-prefill");
  EXPECT_TRUE(report.claim_met) << report.ToTable();
}

TEST(Papers, Radix) {
  const PaperReport report = RunNamed("radix");
  for (const std::size_t with_cache : {1, 3, 5}) EXPECT_GT(CellOf(report, with_cache, "hit_percent"), 70);
  EXPECT_GT(CellOf(report, 6, "hit_percent"), CellOf(report, 7, "hit_percent")) << report.ToTable();  // LPM, FCFS
}

TEST(Papers, Sharing) {
  const PaperReport report = RunNamed("sharing");
  EXPECT_TRUE(report.claim_met) << report.ToTable();
  EXPECT_GT(CellOf(report, 0, "saved_percent"), 6) << report.ToTable();
  EXPECT_GT(CellOf(report, 2, "saved_percent"), CellOf(report, 0, "saved_percent"));
  for (const std::size_t beams : {3, 4, 5}) {
    EXPECT_GT(CellOf(report, beams, "saved_percent"), CellOf(report, beams - 3, "saved_percent")) << report.ToTable();
  }
}

TEST(Papers, AnotherNameIsRefused) {
  EXPECT_NE(FindPaperExperiment("magic").error().message.find("known are paged-kv, radix"), std::string::npos);
}

}  // namespace
}  // namespace quire::bench
