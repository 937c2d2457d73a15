#include "sched/step_pacer.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire::sched {
namespace {

constexpr double kForEver = std::numeric_limits<double>::infinity();
// Prompt tokens beside streams with a target, until it is known what they cost.
constexpr int kProbeTokens = 64;

}  // namespace

StepPacer::StepPacer(const SchedulerConfig& config) : config_(config), tempo_s_(kForEver), limit_s_(kForEver) {}

bool StepPacer::is_limited() const {
  return std::isfinite(limit_s_);
}

// Of a limit, what is planned with: an error of twice the usual size still stays within it.
double StepPacer::UsableOf(double seconds) const {
  return seconds * (1 - std::clamp(2 * costs_.usual_error(), 0.05, 0.5));
}

void StepPacer::Begin(std::span<Sequence* const> running, TimePoint now) {
  tempo_s_ = kForEver;
  limit_s_ = kForEver;
  planned_s_ = costs_.base();
  rows_s_ = 0;
  prefill_tokens_ = 0;
  for (const Sequence* const sequence : running) {
    const Duration tempo = sequence->request().tempo;
    if (tempo == Duration::zero() || sequence->num_output_tokens() == 0) continue;
    tempo_s_ = std::min(tempo_s_, Seconds(tempo));
    limit_s_ = std::min(limit_s_, Seconds(tempo - (now - sequence->times().last_token)));
  }
  if (is_limited()) limit_s_ = UsableOf(std::max(limit_s_, 0.0));
}

int StepPacer::TokensFor(int first_position, int most) const {
  if (!is_limited()) return most;
  const int least = std::max(0, std::min(most, config_.min_prefill_tokens - prefill_tokens_));
  if (!costs_.is_ready()) return std::max(least, std::min(most, kProbeTokens - prefill_tokens_));
  return std::max(least, costs_.TokensWithin(limit_s_ - planned_s_, first_position, most));
}

void StepPacer::Add(int first_position, int num_tokens) {
  const double cost = costs_.CostOf(first_position, num_tokens);
  planned_s_ += cost;
  if (num_tokens == 1) {
    rows_s_ += cost;
  } else {
    prefill_tokens_ += num_tokens;
  }
}

void StepPacer::Remove(int first_position, int num_tokens) {
  const double cost = costs_.CostOf(first_position, num_tokens);
  planned_s_ -= cost;
  if (num_tokens == 1) {
    rows_s_ -= cost;
  } else {
    prefill_tokens_ -= num_tokens;
  }
}

void StepPacer::EndWithin(double seconds) {
  if (!costs_.is_ready()) return;
  const double usable = UsableOf(seconds);
  if (usable >= planned_s_) limit_s_ = std::min(limit_s_, usable);
}

bool StepPacer::HasRoomFor(const Sequence& candidate, std::span<Sequence* const> running) const {
  if (running.empty() || !costs_.is_ready()) return true;
  const Duration tempo = candidate.request().tempo;
  const double strictest = tempo == Duration::zero() ? tempo_s_ : std::min(tempo_s_, Seconds(tempo));
  if (!std::isfinite(strictest)) return true;
  StepWork work;
  const auto add = [&work](const Sequence& sequence) {
    for (int seat = 0; seat < sequence.request().num_seats; ++seat) work.Add(sequence.num_tokens(), 1);
  };
  add(candidate);
  for (const Sequence* const sequence : running) add(*sequence);
  return costs_.Predict(work) <= UsableOf(strictest);
}

void StepPacer::Observe(const BatchPlan& plan, Duration duration) {
  StepWork work;
  for (const ScheduledSequence& scheduled : plan.sequences) work.Add(scheduled.first_position, scheduled.num_tokens);
  costs_.Observe(work, Seconds(duration));
}

double StepPacer::PrefillSeconds(std::int64_t num_tokens) const {
  const int budget = config_.max_chunk_tokens > 0 ? std::min(config_.max_num_batched_tokens, config_.max_chunk_tokens)
                                                  : config_.max_num_batched_tokens;
  int chunk = static_cast<int>(std::min<std::int64_t>(num_tokens, budget));
  if (std::isfinite(tempo_s_)) {
    const double free_s = UsableOf(tempo_s_) - costs_.base() - rows_s_;
    chunk = std::clamp(costs_.TokensWithin(free_s, 0, budget), std::min(config_.min_prefill_tokens, budget), budget);
    chunk = static_cast<int>(std::min<std::int64_t>(chunk, num_tokens));
  }
  if (chunk <= 0) return 0;
  const double step_s = costs_.base() + rows_s_ + costs_.CostOf(0, chunk);
  return step_s * std::ceil(static_cast<double>(num_tokens) / chunk);
}

}  // namespace quire::sched
