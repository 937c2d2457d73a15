// Zheng et al., "SGLang: efficient execution of structured language model programs", NeurIPS 2024: prompts that begin as
// earlier ones did are not computed again, and the order of service makes the most of that.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/counter_rng.h"
#include "bench/papers/paper.h"

namespace quire::bench {
namespace {

constexpr int kConcurrency = 16;
constexpr std::uint64_t kExamples = 1;     // contents: the examples that all prompts begin with …
constexpr std::uint64_t kOwn = 1'000'000;  // … and what is said once

// Questions behind the same examples.
RequestTrace FewShot() {
  RequestTrace trace{.description = "few-shot", .requests = {}};
  for (std::uint64_t i = 0; i < 96; ++i) {
    trace.requests.push_back({.segments = {{kExamples, 1024}, {kOwn + i, 48}}, .num_output_tokens = 8});
  }
  return trace;
}

// Conversations behind the same instructions: each turn repeats all before it. The turns of one are far enough apart that
// the one before has been answered.
RequestTrace MultiTurn() {
  constexpr int kConversations = 24, kTurns = 12;
  RequestTrace trace{.description = "multi-turn", .requests = {}};
  for (int turn = 0; turn < kTurns; ++turn) {
    for (int conversation = 0; conversation < kConversations; ++conversation) {
      TraceRequest request{.segments = {{kExamples, 512}}, .num_output_tokens = 8};
      for (int i = 0; i <= turn; ++i) {
        const auto own = kOwn + static_cast<std::uint64_t>(conversation * kTurns + i);
        request.segments.push_back({own, 72});
      }
      trace.requests.push_back(std::move(request));
    }
  }
  return trace;
}

// Each thought of a problem is asked to go on in several ways, level by level.
RequestTrace TreeOfThought() {
  constexpr int kProblems = 6, kBranches = 3, kLevels = 3, kThought = 48;
  RequestTrace trace{.description = "tree of thought", .requests = {}};
  int num_nodes = 1;  // of a level and problem
  for (int level = 0; level < kLevels; ++level, num_nodes *= kBranches) {
    for (int problem = 0; problem < kProblems; ++problem) {
      for (int node = 0; node < num_nodes * kBranches; ++node) {
        const auto own = kOwn * static_cast<std::uint64_t>(problem + 1);
        TraceRequest request{.segments = {{kExamples, 768}, {own, 64}}, .num_output_tokens = 8};
        // The path to the thought that is gone on from: the nodes above it have its number divided by the branches.
        int path = node / kBranches, width = num_nodes;
        for (int above = level; above > 0; --above, path /= kBranches, width /= kBranches) {
          const auto place = static_cast<std::uint64_t>(width + path);
          request.segments.insert(request.segments.begin() + 2, {own + place, kThought});
        }
        trace.requests.push_back(std::move(request));
      }
    }
  }
  return trace;
}

// Groups of requests with a prefix each, near each other in the queue but not in order, in a memory for a few prefixes.
RequestTrace Groups() {
  constexpr int kGroups = 24, kMembers = 8;
  constexpr double kDisorder = 40;  // places
  RequestTrace trace{.description = "groups", .requests = {}};
  std::vector<std::pair<double, TraceRequest>> places;
  for (int i = 0; i < kGroups * kMembers; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const PromptSegment prefix{kExamples + index / kMembers, 512};
    places.emplace_back(i + kDisorder * UniformDouble(5, index),
                        TraceRequest{.segments = {prefix, {kOwn + index, 32}}, .num_output_tokens = 8});
  }
  std::ranges::sort(places, {}, [](const auto& place) { return place.first; });
  for (auto& [place, request] : places) trace.requests.push_back(std::move(request));
  return trace;
}

sched::SchedulerConfig ConfigOf(PaperRig* rig) {
  sched::SchedulerConfig config = rig->BaseConfig();
  config.max_model_len = std::min(config.max_model_len, 2048);
  config.max_num_seqs = kConcurrency;
  return config;
}

Result<double> Throughput(PaperRig* rig, const RequestTrace& trace, bool caches, std::vector<PaperRow>* rows) {
  sched::SchedulerConfig config = ConfigOf(rig);
  config.num_blocks = 2 * BlocksForAll(config);
  config.enable_prefix_caching = caches;
  if (!caches) config.policy = sched::PolicyKind::kFcfs;
  QUIRE_TRY(const ReplaySamples samples, rig->Run(config, trace, {.replay = {.max_concurrency = kConcurrency}}));
  const double rate = samples.num_finished / samples.duration_seconds;
  PaperRow row;
  row.Set("workload", trace.description).Set("prefix_cache", caches ? "radix" : "off");
  row.Set("policy", std::string(sched::PolicyName(config.policy))).Set("requests_per_second", rate);
  row.Set("hit_percent", Percent(samples.hit_rate())).Set("ttft_p50_ms", 1e3 * Summary::Of(samples.ttft).p50);
  rows->push_back(std::move(row));
  return rate;
}

Result<double> HitRate(PaperRig* rig, sched::PolicyKind policy, std::vector<PaperRow>* rows) {
  sched::SchedulerConfig config = ConfigOf(rig);
  config.policy = policy;
  config.max_num_seqs = 4;
  config.num_blocks = 3500 / config.block_size;  // some six prefixes
  config.max_model_len = std::min(config.max_model_len, 1024);
  QUIRE_TRY(const ReplaySamples samples, rig->Run(config, Groups(), {}));
  PaperRow row;
  row.Set("workload", "24 prefixes, memory for six").Set("prefix_cache", "radix");
  row.Set("policy", std::string(sched::PolicyName(policy)));
  row.Set("requests_per_second", samples.num_finished / samples.duration_seconds);
  row.Set("hit_percent", Percent(samples.hit_rate())).Set("ttft_p50_ms", 1e3 * Summary::Of(samples.ttft).p50);
  rows->push_back(std::move(row));
  return samples.hit_rate();
}

}  // namespace

Result<PaperReport> RunRadix(PaperRig* rig) {
  PaperReport report;
  std::vector<std::string> gains;
  bool all_gain = true;
  for (const RequestTrace& trace : {FewShot(), MultiTurn(), TreeOfThought()}) {
    QUIRE_TRY(const double without, Throughput(rig, trace, false, &report.rows));
    QUIRE_TRY(const double with, Throughput(rig, trace, true, &report.rows));
    gains.push_back(fmt::format("{} {:.1f} x", trace.description, with / without));
    all_gain &= with / without >= 5;
  }
  std::vector<std::string> hits;
  bool in_order = true;
  double before = 1;
  for (const sched::PolicyKind policy :
       {sched::PolicyKind::kLpm, sched::PolicyKind::kFcfs, sched::PolicyKind::kRandom}) {
    QUIRE_TRY(const double rate, HitRate(rig, policy, &report.rows));
    hits.push_back(fmt::format("{} {:.0f} %", sched::PolicyName(policy), Percent(rate)));
    in_order &= rate < before;
    before = rate;
  }
  report.figure = fmt::format("{}; hit rates {}", fmt::join(gains, ", "), fmt::join(hits, ", "));
  report.claim_met = all_gain && in_order;
  return report;
}

}  // namespace quire::bench
