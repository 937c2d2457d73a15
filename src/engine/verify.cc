#include "engine/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/cpu_topology.h"
#include "engine/affinity_keeper.h"
#include "engine/engine.h"
#include "engine/loader.h"
#include "engine/model_runner.h"
#include "engine/tiers/kv_tiers.h"
#include "engine/tiers/memory_tier.h"
#include "engine/verify_workload.h"

namespace quire::engine {
namespace {

constexpr int kBlockSize = kernels::KvLayout::block_size;
// The budget of a step in most schedules: small, so that prompts meet in one step in many ways.
constexpr int kBatchedTokens = 256;
// Room for the longest prompt of the workload and what it generates; prompts are cut where the model allows less.
constexpr int kModelLength = 1024;
// Of schedules with a tier below the pool: blocks on their way there, and the time that it may take.
constexpr int kOutgoingBlocks = 16;
constexpr Duration kTierWait = std::chrono::seconds(10);
// Of the reference tier.
constexpr int kReferenceRequests = 3;
constexpr int kReferenceTokens = 6;

// kTier: emptied after a first pass, whose blocks lie in a tier below the pool.
enum class Cache : std::uint8_t { kOff, kCold, kWarm, kTier };
enum class Memory : std::uint8_t { kEnough, kScarce, kScarceWithSwap };
enum class Arrival : std::uint8_t { kAtOnce, kSpread };

struct Schedule {
  int max_num_seqs = 1;
  int chunk = 0;  // 0: whole prompts, within the budget
  Cache cache = Cache::kOff;
  Memory memory = Memory::kEnough;
  bool many_threads = false;
  sched::PolicyKind policy = sched::PolicyKind::kLpm;
  Arrival arrival = Arrival::kAtOnce;
  int batched_tokens = kBatchedTokens;
  bool on_reference = false;  // runs on the reference tier too
  int async_scheduling = 0;
};

constexpr Schedule kBaseline{.policy = sched::PolicyKind::kFcfs, .batched_tokens = 1024};

constexpr Schedule kSchedules[] = {
    {.max_num_seqs = 1, .chunk = 1},
    {.max_num_seqs = 1, .chunk = 7, .cache = Cache::kCold, .on_reference = true},
    {.max_num_seqs = 1, .many_threads = true},
    {.max_num_seqs = 32, .policy = sched::PolicyKind::kFcfs},
    {.max_num_seqs = 32, .chunk = 1, .cache = Cache::kCold},
    {.max_num_seqs = 32, .chunk = 7, .many_threads = true},
    {.max_num_seqs = 32, .chunk = 64, .cache = Cache::kCold},
    {.max_num_seqs = 32, .cache = Cache::kWarm, .many_threads = true, .on_reference = true},
    {.max_num_seqs = 32, .cache = Cache::kCold, .policy = sched::PolicyKind::kFcfs},
    {.max_num_seqs = 32, .memory = Memory::kScarce},
    {.max_num_seqs = 32, .chunk = 7, .cache = Cache::kWarm, .memory = Memory::kScarce, .many_threads = true},
    {.max_num_seqs = 32,
     .chunk = 64,
     .cache = Cache::kCold,
     .memory = Memory::kScarce,
     .policy = sched::PolicyKind::kFcfs},
    {.max_num_seqs = 32, .chunk = 7, .memory = Memory::kScarceWithSwap},
    {.max_num_seqs = 32, .cache = Cache::kWarm, .memory = Memory::kScarceWithSwap, .many_threads = true},
    {.max_num_seqs = 32, .chunk = 64, .cache = Cache::kTier, .on_reference = true},
    {.max_num_seqs = 32,
     .chunk = 7,
     .cache = Cache::kTier,
     .memory = Memory::kScarceWithSwap,
     .many_threads = true,
     .arrival = Arrival::kSpread},
    {.max_num_seqs = 32, .cache = Cache::kCold, .many_threads = true, .arrival = Arrival::kSpread},
    {.max_num_seqs = 5, .cache = Cache::kCold, .arrival = Arrival::kSpread, .batched_tokens = 19},
    // Policies that take time and memory from running requests, or choose the size of each step.
    {.max_num_seqs = 4,
     .chunk = 7,
     .cache = Cache::kCold,
     .memory = Memory::kScarce,
     .policy = sched::PolicyKind::kPriority,
     .arrival = Arrival::kSpread},
    {.max_num_seqs = 8, .cache = Cache::kCold, .policy = sched::PolicyKind::kSlo, .arrival = Arrival::kSpread},
    {.max_num_seqs = 3, .cache = Cache::kWarm, .policy = sched::PolicyKind::kDfsWeight, .arrival = Arrival::kSpread},
    // Steps that are planned before the one before them is over.
    {.max_num_seqs = 8, .chunk = 7, .cache = Cache::kCold, .arrival = Arrival::kSpread, .async_scheduling = 1},
    {.max_num_seqs = 32,
     .chunk = 64,
     .cache = Cache::kWarm,
     .memory = Memory::kScarceWithSwap,
     .many_threads = true,
     .async_scheduling = 2},
    {.max_num_seqs = 5, .memory = Memory::kScarce, .arrival = Arrival::kSpread, .async_scheduling = 2},
};

// What the policy goes by: different for each request.
ServiceTerms TermsFor(sched::PolicyKind policy, std::uint64_t request) {
  ServiceTerms terms;
  const auto step = static_cast<int>(request % 5);
  if (policy == sched::PolicyKind::kPriority) terms.priority = -step;  // the later ones displace the earlier ones
  if (policy == sched::PolicyKind::kSlo) {
    terms.ttft_ms = 100 - 20 * step;
    terms.tpot_ms = 1 + step;  // of the clock that ticks once a step: some can be kept and some cannot
  }
  return terms;
}

std::string Describe(const Schedule& schedule, int max_threads) {
  std::string text = schedule.max_num_seqs == 1 ? "1 at a time" : fmt::format("{} at a time", schedule.max_num_seqs);
  text += schedule.chunk == 0 ? ", whole prompts" : fmt::format(", chunks of {}", schedule.chunk);
  if (schedule.batched_tokens < kBatchedTokens) text += fmt::format(", {} tokens a step", schedule.batched_tokens);
  constexpr std::array kCacheNames{", no cache", ", cache cold", ", cache warm", ", cache from a tier"};
  text += kCacheNames[static_cast<std::size_t>(schedule.cache)];
  constexpr std::array kMemoryNames{"", ", scarce memory", ", scarce memory with swap"};
  text += kMemoryNames[static_cast<std::size_t>(schedule.memory)];
  if (schedule.arrival == Arrival::kSpread) text += ", spread arrivals";
  text += schedule.many_threads ? fmt::format(", {} threads", max_threads) : ", 1 thread";
  text += fmt::format(", {}", sched::PolicyName(schedule.policy));
  if (schedule.async_scheduling > 0) text += fmt::format(", planned ahead ({})", schedule.async_scheduling);
  return text;
}

// ---- What a schedule gives -----------------------------------------------------------------------------------------

struct ChoiceOutput {
  std::vector<TokenId> tokens;
  std::vector<PositionLogprobs> logprobs;
  std::vector<std::optional<PositionLogprobs>> prompt_logprobs;
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<TokenId> stop_token;
};

// By request and choice.
using Outputs = std::map<std::pair<std::uint64_t, int>, ChoiceOutput>;

bool SameBits(const TokenLogprob& a, const TokenLogprob& b) {
  return a.id == b.id && a.rank == b.rank &&
         std::bit_cast<std::uint32_t>(a.logprob) == std::bit_cast<std::uint32_t>(b.logprob);
}

std::string Show(const TokenLogprob& x) {
  return fmt::format("{} with logprob {} ({:#010x}), rank {}", x.id.value(), x.logprob,
                     std::bit_cast<std::uint32_t>(x.logprob), x.rank);
}

// "" when equal.
std::string CompareLogprobs(const PositionLogprobs& expected, const PositionLogprobs& got) {
  if (!SameBits(expected.chosen, got.chosen))
    return fmt::format("token {}, expected {}", Show(got.chosen), Show(expected.chosen));
  if (expected.top.size() != got.top.size()) {
    return fmt::format("{} alternatives, expected {}", got.top.size(), expected.top.size());
  }
  for (std::size_t i = 0; i < expected.top.size(); ++i) {
    if (!SameBits(expected.top[i], got.top[i])) {
      return fmt::format("alternative {} is {}, expected {}", i + 1, Show(got.top[i]), Show(expected.top[i]));
    }
  }
  return "";
}

std::string CompareChoice(const ChoiceOutput& expected, const ChoiceOutput& got) {
  for (std::size_t i = 0; i < std::min(expected.prompt_logprobs.size(), got.prompt_logprobs.size()); ++i) {
    const auto &a = expected.prompt_logprobs[i], &b = got.prompt_logprobs[i];
    const std::string difference = a && b ? CompareLogprobs(*a, *b) : a || b ? "only one of them has a value" : "";
    if (!difference.empty()) return fmt::format("prompt position {}: {}", i, difference);
  }
  for (std::size_t i = 0; i < std::min(expected.tokens.size(), got.tokens.size()); ++i) {
    if (expected.tokens[i] != got.tokens[i]) {
      return fmt::format("output position {}: token {}, expected {}", i, got.tokens[i].value(),
                         expected.tokens[i].value());
    }
    if (i >= expected.logprobs.size() || i >= got.logprobs.size()) continue;
    const std::string difference = CompareLogprobs(expected.logprobs[i], got.logprobs[i]);
    if (!difference.empty()) return fmt::format("output position {}: {}", i, difference);
  }
  const auto counts = [](const ChoiceOutput& output) {
    return std::array{output.tokens.size(), output.logprobs.size(), output.prompt_logprobs.size()};
  };
  if (counts(expected) != counts(got)) {
    return fmt::format("{} tokens, {} logprobs and {} prompt logprobs, expected {}, {} and {}", counts(got)[0],
                       counts(got)[1], counts(got)[2], counts(expected)[0], counts(expected)[1], counts(expected)[2]);
  }
  if (expected.finish_reason != got.finish_reason || expected.stop_token != got.stop_token) {
    return fmt::format("finish reason {} (stop token {}), expected {} ({})", static_cast<int>(got.finish_reason),
                       got.stop_token.value_or(TokenId(-1)).value(), static_cast<int>(expected.finish_reason),
                       expected.stop_token.value_or(TokenId(-1)).value());
  }
  return "";
}

// ---- Running a schedule --------------------------------------------------------------------------------------------

class Verifier {
 public:
  Verifier(const models::Model& model, const VerifyOptions& options) : model_(model), options_(options) {
    const CpuTopology topology = DetectCpuTopology();
    pool_one_ = std::make_unique<ThreadPool>(1);
    const auto wanted = static_cast<std::size_t>(options.max_threads);
    std::vector<int> cpus = topology.thread_cpus;
    cpus.resize(cpus.size() >= wanted ? wanted : 0);
    pool_many_ = std::make_unique<ThreadPool>(options.max_threads, std::move(cpus));
    max_model_len_ = std::min(ModelLengthMax(model.config()), kModelLength);
  }

  void RunTier(const kernels::KernelTable* kernels, VerifyReport* report) {
    const bool slow = kernels == &kernels::ReferenceKernels();
    const int num_requests = slow ? std::min(options_.num_requests, kReferenceRequests) : options_.num_requests;
    const int max_tokens = slow ? std::min(options_.max_tokens, kReferenceTokens) : options_.max_tokens;
    workload_ = MakeVerifyWorkload(model_.config(), num_requests, max_tokens, max_model_len_, options_.seed);
    Outputs baseline;
    VerifyRow row = RunSchedule(kernels, kBaseline, nullptr, &baseline);
    row.schedule = "baseline: " + row.schedule;
    const bool has_baseline = row.difference.empty();
    Add(std::move(row), report);
    if (!has_baseline) return;
    for (const Schedule& schedule : kSchedules) {
      if (slow && !schedule.on_reference) continue;
      Outputs ignored;
      Add(RunSchedule(kernels, schedule, &baseline, &ignored), report);
    }
  }

 private:
  void Add(VerifyRow row, VerifyReport* report) {
    if (options_.on_row) options_.on_row(row);
    report->rows.push_back(std::move(row));
  }

  // Of one choice, or of all beams: they share what they can of the prompt.
  static int NumBlocks(const GenerateRequest& request) {
    const int num_prompt = static_cast<int>(request.prompt.size());
    const int tokens = num_prompt + request.stop.max_tokens;
    const int alone = (tokens + kBlockSize - 1) / kBlockSize;
    if (!request.sampling.beam) return alone;
    const int shared = num_prompt / kBlockSize;
    return shared + (alone - shared) * request.sampling.beam->width;
  }

  // Enough for everything at once; or for the longest sequence alone and one block more, so that those that were
  // admitted together, if only the choices of one request, push each other out as they grow.
  int NumBlocks(const Schedule& schedule) const {
    int all = 0, longest = 0;
    for (const VerifyRequest& request : workload_) {
      const int alone = NumBlocks(request.request);
      all += (alone + 1) * request.request.sampling.n;
      longest = std::max(longest, alone);
    }
    return schedule.memory == Memory::kEnough ? all : longest + 1;
  }

  EngineConfig ConfigOf(const Schedule& schedule) const {
    EngineConfig config;
    config.scheduler.max_num_batched_tokens = schedule.batched_tokens;
    config.scheduler.max_num_seqs = schedule.max_num_seqs;
    config.scheduler.max_beam_width = config.scheduler.max_num_choices;  // also where one request runs at a time
    config.scheduler.max_model_len = max_model_len_;
    config.scheduler.num_blocks = NumBlocks(schedule);
    if (schedule.memory == Memory::kScarceWithSwap) {
      config.scheduler.num_swap_blocks = config.scheduler.num_blocks;
      config.scheduler.preemption_mode = sched::PreemptionMode::kSwap;
    }
    config.scheduler.block_size = kBlockSize;
    config.scheduler.vocab_size = model_.config().vocab_size;
    config.scheduler.policy = schedule.policy;
    if (schedule.cache == Cache::kTier) {
      config.scheduler.num_landing_blocks = 2 * kModelLength / kBlockSize;
      config.content_identity = "verify";
    }
    config.scheduler.enable_prefix_caching = schedule.cache != Cache::kOff;
    config.scheduler.max_chunk_tokens = schedule.chunk;
    config.scheduler.max_num_queued_requests = static_cast<int>(workload_.size()) + 1;
    config.async_scheduling = schedule.async_scheduling;
    config.eos_token_ids = model_.config().eos_token_ids;
    return config;
  }

  // Runs the workload once through `engine` and collects what comes.
  Result<Outputs> RunOnce(const Schedule& schedule, int pass, Engine* engine, KvTiers* tiers, ManualClock* clock) {
    Outputs outputs;
    std::vector<EngineEvent> events;
    std::size_t submitted = 0;
    const std::uint64_t id_offset = static_cast<std::uint64_t>(pass) * workload_.size();
    while (submitted < workload_.size() || engine->has_work()) {
      const std::size_t arrive = schedule.arrival == Arrival::kAtOnce ? workload_.size() : 2;
      for (std::size_t i = 0; i < arrive && submitted < workload_.size(); ++i, ++submitted) {
        GenerateRequest request = workload_[submitted].request;
        request.terms = TermsFor(schedule.policy, request.id.value());
        request.id = RequestId(request.id.value() + id_offset);
        QUIRE_TRY_VOID(engine->Add(std::move(request), clock->Now()));
      }
      clock->Advance(std::chrono::milliseconds(1));
      if (tiers != nullptr) tiers->WaitIdle(kTierWait);  // so that the schedule is the same each time
      QUIRE_TRY_VOID(engine->Step(&events));
      for (EngineEvent& event : events) {
        if (HasFailed(event.finish_reason)) return Fail(ErrorCode::kInternal, "{}", event.error);
        Take(id_offset, std::move(event), &outputs);
      }
      events.clear();
    }
    return outputs;
  }

  static void Take(std::uint64_t id_offset, EngineEvent event, Outputs* outputs) {
    ChoiceOutput& output = (*outputs)[{event.request.value() - id_offset, event.choice}];
    output.tokens.insert(output.tokens.end(), event.tokens.begin(), event.tokens.end());
    std::ranges::move(event.logprobs, std::back_inserter(output.logprobs));
    std::ranges::move(event.prompt_logprobs, std::back_inserter(output.prompt_logprobs));
    if (event.finish_reason == FinishReason::kNone) return;
    output.finish_reason = event.finish_reason;
    output.stop_token = event.stop_token;
  }

  std::string Compare(const Outputs& baseline, const Outputs& got) const {
    for (const auto& [key, expected] : baseline) {
      const auto found = got.find(key);
      const std::string difference = found == got.end() ? "no output" : CompareChoice(expected, found->second);
      if (difference.empty()) continue;
      const std::string& description = workload_[static_cast<std::size_t>(key.first) - 1].description;
      return fmt::format("request {} ({}), choice {}, {}", key.first, description, key.second, difference);
    }
    return got.size() == baseline.size() ? "" : "outputs of choices that nobody asked for";
  }

  // `baseline` is null for the baseline itself.
  VerifyRow RunSchedule(const kernels::KernelTable* kernels, const Schedule& schedule, const Outputs* baseline,
                        Outputs* outputs) {
    VerifyRow row;
    row.isa = kernels->isa;
    row.schedule = Describe(schedule, options_.max_threads);
    row.num_requests = static_cast<int>(workload_.size());
    const SteadyClock wall;
    const TimePoint start = wall.Now();
    const Result<> ran = Run(kernels, schedule, baseline, &row, outputs);
    if (!ran) row.difference = ran.error().message;
    row.seconds = Seconds(wall.Now() - start);
    return row;
  }

  Result<> Run(const kernels::KernelTable* kernels, const Schedule& schedule, const Outputs* baseline, VerifyRow* row,
               Outputs* outputs) {
    const EngineConfig config = ConfigOf(schedule);
    QUIRE_TRY_VOID(config.Validate());
    ThreadPool* pool = schedule.many_threads ? pool_many_.get() : pool_one_.get();
    QUIRE_TRY(const std::unique_ptr<ModelRunner> runner,
              ModelRunner::Create(&model_, kernels, pool,
                                  {.max_num_batched_tokens = schedule.batched_tokens,
                                   .num_blocks = config.scheduler.num_blocks + config.scheduler.num_swap_blocks +
                                                 config.scheduler.num_landing_blocks}));
    ManualClock clock;
    std::unique_ptr<KvTiers> tiers;
    if (schedule.cache == Cache::kTier) {
      std::vector<std::unique_ptr<KvTier>> memory;
      memory.push_back(std::make_unique<MemoryTier>(static_cast<std::size_t>(NumBlocks(Schedule()))));
      QUIRE_TRY(tiers,
                KvTiers::Create({.block_bytes = model_.kv_layout().block_bytes(), .num_outgoing = kOutgoingBlocks},
                                std::move(memory)));
    }
    Engine engine(config, runner.get(), &clock, tiers.get());
    const int passes = schedule.cache == Cache::kWarm || schedule.cache == Cache::kTier ? 2 : 1;
    for (int pass = 0; pass < passes; ++pass) {
      if (tiers && pass > 0) {
        engine.SaveRemaining(kTierWait);
        tiers->WaitIdle(kTierWait);
        engine.ResetPrefixCache();
      }
      QUIRE_TRY(*outputs, RunOnce(schedule, pass, &engine, tiers.get(), &clock));
      for (const auto& [key, output] : *outputs) row->num_tokens += static_cast<std::int64_t>(output.tokens.size());
      if (baseline != nullptr && row->difference.empty()) row->difference = Compare(*baseline, *outputs);
    }
    EngineStats stats;
    engine.scheduler().ReadStats(&stats);
    row->num_cached_tokens = static_cast<std::int64_t>(stats.prefix_cache_hits);
    row->num_restored_tokens = static_cast<std::int64_t>(stats.tier_hits);
    row->num_preemptions = static_cast<std::int64_t>(stats.preemptions);
    row->num_swaps = static_cast<std::int64_t>(stats.swap_preemptions);
    row->num_steps = static_cast<std::int64_t>(stats.steps);
    row->exercised = (schedule.cache != Cache::kTier || row->num_restored_tokens > 0) &&
                     (schedule.cache == Cache::kOff || row->num_cached_tokens > 0) &&
                     (schedule.memory == Memory::kEnough || row->num_preemptions > 0) &&
                     (schedule.memory != Memory::kScarceWithSwap || row->num_swaps > 0);
    return {};
  }

  const models::Model& model_;
  const VerifyOptions& options_;
  std::unique_ptr<ThreadPool> pool_one_, pool_many_;
  std::vector<VerifyRequest> workload_;
  int max_model_len_ = 0;
};

}  // namespace

Result<> VerifyOptions::Validate() const {
  const auto at_least = [](const char* name, int value, int least) -> Result<> {
    if (value >= least) return {};
    return FailParam(name, "{} is {}; it must be at least {}", name, value, least);
  };
  QUIRE_TRY_VOID(at_least("num_requests", num_requests, 1));
  QUIRE_TRY_VOID(at_least("max_tokens", max_tokens, 1));
  QUIRE_TRY_VOID(at_least("max_threads", max_threads, 2));
  return {};
}

bool VerifyReport::ok() const {
  return !rows.empty() && std::ranges::all_of(rows, [](const VerifyRow& row) { return row.ok(); });
}

std::string VerifyReport::ToTable() const {
  std::size_t isa_width = 4, schedule_width = 8;
  for (const VerifyRow& row : rows) {
    isa_width = std::max(isa_width, row.isa.size());
    schedule_width = std::max(schedule_width, row.schedule.size());
  }
  std::string table =
      fmt::format("{:{}}  {:{}}  requests  tokens  cached  restored  preempted  swapped  steps  seconds  result\n",
                  "tier", isa_width, "schedule", schedule_width);
  for (const VerifyRow& row : rows) {
    table += fmt::format("{:{}}  {:{}}  {:8}  {:6}  {:6}  {:8}  {:9}  {:7}  {:5}  {:7.2f}  {}\n", row.isa, isa_width,
                         row.schedule, schedule_width, row.num_requests, row.num_tokens, row.num_cached_tokens,
                         row.num_restored_tokens, row.num_preemptions, row.num_swaps, row.num_steps, row.seconds,
                         !row.difference.empty() ? row.difference
                         : row.exercised         ? "equal"
                                                 : "equal, but what it is for did not happen: give it more requests");
  }
  return table;
}

VerifyReport RunVerify(const models::Model& model, const VerifyOptions& options) {
  const AffinityKeeper keeper;
  VerifyReport report;
  Verifier verifier(model, options);
  std::vector<const kernels::KernelTable*> tiers = options.tiers;
  if (tiers.empty()) tiers.assign(kernels::AvailableKernels().begin(), kernels::AvailableKernels().end());
  for (const kernels::KernelTable* kernels : tiers) verifier.RunTier(kernels, &report);
  return report;
}

}  // namespace quire::engine
