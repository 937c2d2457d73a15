#include "bench/simulation/replay.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"

namespace quire::bench {
namespace {

// One replay under way.
class Player {
 public:
  Player(const engine::EngineConfig& config, engine::Runner* runner, Timeline* timeline,
         std::span<const TraceRequest> requests, const ReplayOptions& options)
      : timeline_(timeline),
        requests_(requests),
        options_(options),
        vocab_size_(config.scheduler.vocab_size),
        runner_(runner, &timeline->clock(), options.counts_distinct_blocks ? config.scheduler.num_blocks : 0),
        engine_(config, &runner_, &timeline->clock()),
        start_(timeline->clock().Now()),
        last_token_(start_),
        progress_(requests.size()) {}

  Result<ReplaySamples> Run() {
    samples_.num_requests = static_cast<int>(requests_.size());
    while (next_ < requests_.size() || engine_.has_work()) {
      Submit();
      if (!engine_.has_work()) {
        if (next_ < requests_.size()) timeline_->WaitUntil(ArrivalOf(next_));
        continue;
      }
      const TimePoint before = Now();
      QUIRE_TRY_VOID(engine_.Step(&events_));
      const double pool_used = UsedShare();
      samples_.pool_seconds += pool_used * Seconds(Now() - before);
      samples_.pool_used_max = std::max(samples_.pool_used_max, pool_used);
      for (const EngineEvent& event : events_) Take(event);
      events_.clear();
    }
    EngineStats stats;
    engine_.scheduler().ReadStats(&stats);
    samples_.num_looked_up_tokens = stats.prefix_cache_queries;
    samples_.num_hit_tokens = stats.prefix_cache_hits;
    samples_.num_preemptions = stats.preemptions;
    samples_.num_evicted_blocks = stats.prefix_cache_evicted_blocks;
    samples_.duration_seconds = Seconds(last_token_ - start_);
    samples_.steps = runner_.sums();
    return std::move(samples_);
  }

 private:
  // Of a request that was submitted; its choices together, but for the times between tokens, which are the first one's.
  struct Progress {
    TimePoint submitted{}, first_token{}, last_token{};
    int num_tokens = 0;        // of the first choice
    int num_other_tokens = 0;  // of the others
    int num_unfinished = 0;    // choices
  };

  TimePoint Now() const { return timeline_->clock().Now(); }
  TimePoint ArrivalOf(std::size_t index) const {
    return start_ + std::chrono::round<Duration>(std::chrono::duration<double>(requests_[index].arrival_seconds));
  }
  bool MaySubmit() const {
    if (next_ == requests_.size() || ArrivalOf(next_) > Now()) return false;
    return options_.max_concurrency == 0 || num_running_ < options_.max_concurrency;
  }

  void Submit() {
    for (; MaySubmit(); ++next_) {
      const TraceRequest& request = requests_[next_];
      // With a limit, a request is asked when there is a place for it.
      const TimePoint submitted = options_.max_concurrency == 0 ? ArrivalOf(next_) : Now();
      const Result<> added = engine_.Add(MakeRequest(request, next_ + 1, vocab_size_), submitted);
      if (!added) {
        ++(added.error().code == ErrorCode::kUnavailable ? samples_.num_refused : samples_.num_too_long);
        continue;
      }
      progress_[next_] = {.submitted = submitted, .num_unfinished = request.num_choices};
      ++num_running_;
    }
  }

  double UsedShare() const {
    const kv::KvManager& kv = engine_.scheduler().kv();
    return static_cast<double>(kv.num_blocks() - kv.num_available_blocks()) / kv.num_blocks();
  }

  void Take(const EngineEvent& event) {
    const std::size_t index = event.request.value() - 1;
    Progress& progress = progress_[index];
    const int count = static_cast<int>(event.tokens.size());
    if (count > 0) last_token_ = Now();
    if (event.choice != 0) {
      progress.num_other_tokens += count;
    } else if (count > 0) {
      if (progress.num_tokens == 0) {
        progress.first_token = Now();
      } else {
        samples_.itl.push_back(Seconds(Now() - progress.last_token));
      }
      progress.last_token = Now();
      progress.num_tokens += count;
    }
    if (event.finish_reason != FinishReason::kNone && --progress.num_unfinished == 0)
      Finish(requests_[index], progress);
  }

  void Finish(const TraceRequest& request, const Progress& progress) {
    --num_running_;
    if (progress.num_tokens == 0) {
      ++samples_.num_refused;
      return;
    }
    ++samples_.num_finished;
    samples_.num_input_tokens += request.num_prompt_tokens();
    samples_.num_output_tokens += progress.num_tokens + progress.num_other_tokens;
    samples_.ttft.push_back(Seconds(progress.first_token - progress.submitted));
    samples_.latency.push_back(Seconds(Now() - progress.submitted));
    if (progress.num_tokens > 1) {
      samples_.tpot.push_back(Seconds(progress.last_token - progress.first_token) / (progress.num_tokens - 1));
    }
  }

  Timeline* const timeline_;
  const std::span<const TraceRequest> requests_;
  const ReplayOptions options_;
  const int vocab_size_;
  MeteredRunner runner_;
  engine::Engine engine_;
  const TimePoint start_;
  TimePoint last_token_;
  std::vector<Progress> progress_;  // [requests_.size()]
  std::vector<EngineEvent> events_;
  std::size_t next_ = 0;  // to be submitted
  int num_running_ = 0;   // requests
  ReplaySamples samples_;
};

}  // namespace

void SteadyTimeline::WaitUntil(TimePoint time) {
  for (TimePoint now = clock_.Now(); now < time; now = clock_.Now()) std::this_thread::sleep_for(time - now);
}

void StepSums::Add(const StepSums& other) {
  num_steps += other.num_steps;
  seconds += other.seconds;
  sequences += other.sequences;
  tokens += other.tokens;
  blocks += other.blocks;
  distinct_blocks += other.distinct_blocks;
  max_sequences = std::max(max_sequences, other.max_sequences);
  max_tokens = std::max(max_tokens, other.max_tokens);
}

MeteredRunner::MeteredRunner(engine::Runner* runner, const Clock* clock, int num_blocks)
    : runner_(runner), clock_(clock), last_seen_(static_cast<std::size_t>(num_blocks), -1) {}

Result<> MeteredRunner::Run(const sched::BatchPlan& plan, sched::StepResult* result) {
  const TimePoint start = clock_->Now();
  QUIRE_TRY_VOID(runner_->Run(plan, result));
  const double seconds = Seconds(clock_->Now() - start);
  const auto num_sequences = static_cast<int>(plan.sequences.size());
  double tokens = 0, blocks = 0, distinct_blocks = 0;
  for (const sched::ScheduledSequence& scheduled : plan.sequences) {
    tokens += scheduled.first_position + scheduled.num_tokens;
    blocks += static_cast<double>(scheduled.blocks.size());
    if (last_seen_.empty()) continue;
    for (const BlockId block : scheduled.blocks) {
      if (std::exchange(last_seen_[static_cast<std::size_t>(block.value())], sums_.num_steps) != sums_.num_steps) {
        ++distinct_blocks;
      }
    }
  }
  sums_.Add({.num_steps = 1,
             .seconds = seconds,
             .sequences = num_sequences * seconds,
             .tokens = tokens * seconds,
             .blocks = blocks * seconds,
             .distinct_blocks = distinct_blocks * seconds,
             .max_sequences = num_sequences,
             .max_tokens = plan.num_tokens});
  return {};
}

void ReplaySamples::Add(const ReplaySamples& other) {
  num_requests += other.num_requests;
  num_finished += other.num_finished;
  num_too_long += other.num_too_long;
  num_refused += other.num_refused;
  num_input_tokens += other.num_input_tokens;
  num_output_tokens += other.num_output_tokens;
  num_looked_up_tokens += other.num_looked_up_tokens;
  num_hit_tokens += other.num_hit_tokens;
  num_preemptions += other.num_preemptions;
  num_evicted_blocks += other.num_evicted_blocks;
  duration_seconds = std::max(duration_seconds, other.duration_seconds);
  pool_seconds += other.pool_seconds;
  pool_used_max = std::max(pool_used_max, other.pool_used_max);
  const auto append = [](const std::vector<double>& from, std::vector<double>* to) {
    to->insert(to->end(), from.begin(), from.end());
  };
  append(other.ttft, &ttft);
  append(other.tpot, &tpot);
  append(other.itl, &itl);
  append(other.latency, &latency);
  steps.Add(other.steps);
}

double ReplaySamples::hit_rate() const {
  return num_looked_up_tokens == 0 ? 0
                                   : static_cast<double>(num_hit_tokens) / static_cast<double>(num_looked_up_tokens);
}

double ReplaySamples::output_tokens_per_second() const {
  return duration_seconds == 0 ? 0 : static_cast<double>(num_output_tokens) / duration_seconds;
}

Result<ReplaySamples> Replay(const engine::EngineConfig& config, engine::Runner* runner, Timeline* timeline,
                             std::span<const TraceRequest> requests, const ReplayOptions& options) {
  CHECK(config.Validate().has_value());
  return Player(config, runner, timeline, requests, options).Run();
}

}  // namespace quire::bench
