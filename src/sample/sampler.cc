#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/counter_rng.h"

namespace quire::sample {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kNoBound = std::numeric_limits<double>::infinity();
// Logits are reduced in chunks of this many: few enough that a draw ends with a short scalar walk, enough
// that the vector kernels run at full speed.
constexpr std::size_t kChunk = 1024;
// vLLM's _SAMPLING_EPS: a temperature below it means greedy.
constexpr double kGreedyTemperature = 1e-5;
// Logits of a chunk that has some of interest are looked at in groups of this many before one by one.
constexpr std::size_t kGroup = 64;
// Up to this many, the best logits are found with a heap in one pass; more are gathered and partitioned.
constexpr std::size_t kHeapMax = 256;

std::size_t NumChunks(std::size_t n) {
  return (n + kChunk - 1) / kChunk;
}

std::span<const float> Chunk(std::span<const float> logits, std::size_t index) {
  const std::size_t begin = index * kChunk;
  return logits.subspan(begin, std::min(kChunk, logits.size() - begin));
}

// The least float that is not below `bound`.
float FloatFrom(double bound) {
  const auto nearest = static_cast<float>(bound);
  return static_cast<double>(nearest) < bound ? std::nextafter(nearest, kInfinity) : nearest;
}

// Whether any logit is ≥ floor. Without a branch, so that the compiler compares several at a time.
bool AnyFrom(std::span<const float> group, float floor) {
  int count = 0;
  for (const float x : group) count += x >= floor;
  return count > 0;
}

double Weight(float x, float max, float scale) {
  return std::exp((static_cast<double>(x) - static_cast<double>(max)) * static_cast<double>(scale));
}

}  // namespace

Sampler::Sampler(const kernels::KernelTable* kernels, int vocab_size) : kernels_(kernels), vocab_size_(vocab_size) {
  CHECK(vocab_size >= 1);
  const auto size = static_cast<std::size_t>(vocab_size);
  raw_.resize(size);
  candidates_.reserve(size);
  chunk_max_.resize(NumChunks(size));
  sorted_max_.resize(NumChunks(size));
  chunk_mass_.resize(NumChunks(size));
  stamp_.resize(size);
  count_.resize(size);
}

Sampled Sampler::Sample(std::span<float> logits, const SampleRequest& request) {
  CHECK(static_cast<int>(logits.size()) == vocab_size_);
  const SamplingParams& params = *request.params;
  std::span<const float> raw = logits;
  const bool changes = !params.logit_bias.empty() || !request.masked.empty() || params.repetition_penalty != 1 ||
                       params.presence_penalty != 0 || params.frequency_penalty != 0;
  if (changes) {
    if (params.logprobs) {
      std::ranges::copy(logits, raw_.begin());
      raw = raw_;
    }
    ApplyBiasAndMask(logits, request);
    ApplyPenalties(logits, request);
  }
  Sampled sampled{TokenId(Draw(logits, request)), std::nullopt};
  if (params.logprobs) sampled.logprobs = Logprobs(raw, sampled.token, *params.logprobs);
  return sampled;
}

// ---- What changes the logits
// ---------------------------------------------------------------------------------------

void Sampler::ApplyBiasAndMask(std::span<float> logits, const SampleRequest& request) const {
  const auto in_range = [&](TokenId id) { return id.value() >= 0 && id.value() < vocab_size_; };
  for (const auto& [id, bias] : request.params->logit_bias) {
    if (in_range(id)) logits[static_cast<std::size_t>(id.value())] += bias;
  }
  for (const TokenId id : request.masked) {
    if (in_range(id)) logits[static_cast<std::size_t>(id.value())] = -kInfinity;
  }
}

void Sampler::ApplyPenalties(std::span<float> logits, const SampleRequest& request) {
  const auto repetition = static_cast<float>(request.params->repetition_penalty);
  const auto frequency = static_cast<float>(request.params->frequency_penalty);
  const auto presence = static_cast<float>(request.params->presence_penalty);
  if (repetition == 1 && frequency == 0 && presence == 0) return;
  if (++current_stamp_ == 0) {  // after 2³² rows old stamps would look new
    std::ranges::fill(stamp_, 0);
    current_stamp_ = 1;
  }
  const auto see = [&](TokenId id, std::uint32_t occurrences) {
    if (id.value() < 0 || id.value() >= vocab_size_) return;
    const auto i = static_cast<std::size_t>(id.value());
    if (stamp_[i] != current_stamp_) {
      stamp_[i] = current_stamp_;
      count_[i] = 0;
    }
    count_[i] += occurrences;
  };
  for (const TokenId id : request.output) see(id, 1);
  if (repetition != 1) {
    for (const TokenId id : request.prompt) see(id, 0);
  }
  constexpr std::uint32_t kApplied = std::numeric_limits<std::uint32_t>::max();
  const auto apply = [&](TokenId id) {
    if (id.value() < 0 || id.value() >= vocab_size_) return;
    const auto i = static_cast<std::size_t>(id.value());
    const std::uint32_t count = count_[i];
    if (stamp_[i] != current_stamp_ || count == kApplied) return;
    float& logit = logits[i];
    logit = logit > 0 ? logit / repetition : logit * repetition;
    logit -= frequency * static_cast<float>(count);
    if (count > 0) logit -= presence;
    count_[i] = kApplied;
  };
  for (const TokenId id : request.output) apply(id);
  for (const TokenId id : request.prompt) apply(id);
}

// ---- Reductions and selections
// -------------------------------------------------------------------------------------

Sampler::Candidate Sampler::FindMax(std::span<const float> logits) {
  Candidate best{-kInfinity, 0};
  for (std::size_t c = 0; c < chunk_max_.size(); ++c) {
    const std::span<const float> chunk = Chunk(logits, c);
    std::int64_t index = 0;
    chunk_max_[c] = kernels_->max_value(chunk.data(), static_cast<std::int64_t>(chunk.size()), &index);
    if (chunk_max_[c] > best.logit)
      best = {chunk_max_[c], static_cast<std::int32_t>(c * kChunk) + static_cast<std::int32_t>(index)};
  }
  return best;
}

double Sampler::SumWeights(std::span<const float> logits, float max, float scale) {
  double total = 0;
  for (std::size_t c = 0; c < chunk_mass_.size(); ++c) {
    const std::span<const float> chunk = Chunk(logits, c);
    chunk_mass_[c] = kernels_->sum_exp(chunk.data(), static_cast<std::int64_t>(chunk.size()), max, scale);
    total += chunk_mass_[c];
  }
  return total;
}

template <typename Body>
void Sampler::ForEachFrom(std::span<const float> logits, float floor, Body body) const {
  for (std::size_t c = 0; c < chunk_max_.size(); ++c) {
    if (!(chunk_max_[c] >= floor)) continue;
    const std::span<const float> chunk = Chunk(logits, c);
    for (std::size_t begin = 0; begin < chunk.size(); begin += kGroup) {
      const std::span<const float> group = chunk.subspan(begin, std::min(kGroup, chunk.size() - begin));
      if (!AnyFrom(group, floor)) continue;
      const auto first = static_cast<std::int32_t>(c * kChunk + begin);
      for (std::size_t i = 0; i < group.size(); ++i) {
        if (group[i] >= floor) floor = body(group[i], first + static_cast<std::int32_t>(i));
      }
    }
  }
}

float Sampler::FloorOfBest(std::size_t count) {
  if (count == 0 || count > chunk_max_.size()) return -kInfinity;
  std::ranges::transform(chunk_max_, sorted_max_.begin(), [](float x) { return std::isnan(x) ? -kInfinity : x; });
  const auto last = sorted_max_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::ranges::nth_element(sorted_max_, last, std::ranges::greater());
  return *last;
}

void Sampler::Gather(std::span<const float> logits, double floor, double ceiling) {
  const float from = FloatFrom(floor);
  ForEachFrom(logits, from, [&](float logit, std::int32_t id) {
    if (logit > -kInfinity && static_cast<double>(logit) < ceiling) candidates_.push_back({logit, id, 0});
    return from;
  });
}

void Sampler::SelectTop(std::span<const float> logits, std::size_t count, double floor) {
  candidates_.clear();
  if (count == 0) return;
  const float from = std::max(FloatFrom(floor), FloorOfBest(count));
  if (count > kHeapMax) {
    Gather(logits, static_cast<double>(from), kNoBound);
    if (candidates_.size() > count) {
      std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(count), candidates_.end(),
                       Before);
      candidates_.resize(count);
    }
    std::ranges::sort(candidates_, Before);
    return;
  }
  // The heap's front is the worst of the best so far. Ids ascend, so an equal logit never displaces an
  // earlier one.
  ForEachFrom(logits, from, [&](float logit, std::int32_t id) {
    if (logit == -kInfinity) return from;
    if (candidates_.size() == count) {
      if (!(logit > candidates_.front().logit)) return candidates_.front().logit;
      std::ranges::pop_heap(candidates_, Before);
      candidates_.pop_back();
    }
    candidates_.push_back({logit, id, 0});
    std::ranges::push_heap(candidates_, Before);
    return candidates_.size() == count ? candidates_.front().logit : from;
  });
  std::ranges::sort_heap(candidates_, Before);
}

// ---- Drawing
// -------------------------------------------------------------------------------------------------------

std::int32_t Sampler::Draw(std::span<const float> logits, const SampleRequest& request) {
  const SamplingParams& params = *request.params;
  const Candidate best = FindMax(logits);
  const bool greedy = params.temperature < kGreedyTemperature || params.top_k == 1 || params.top_p <= 0;
  if (greedy || !std::isfinite(best.logit)) return best.id;

  const double uniform = UniformDouble(params.seed, request.prompt.size() + request.output.size(),
                                       static_cast<std::uint32_t>(request.choice));
  const auto scale = static_cast<float>(1.0 / params.temperature);
  const float max = best.logit;
  const double floor =
      params.min_p > 0 ? static_cast<double>(max) + std::log(params.min_p) / static_cast<double>(scale) : -kNoBound;
  if (params.top_k > 0 && params.top_k < vocab_size_) {
    SelectTop(logits, static_cast<std::size_t>(params.top_k), floor);
  } else if (params.min_p > 0) {
    candidates_.clear();
    Gather(logits, floor, kNoBound);
  } else if (params.top_p < 1) {
    const double total = SumWeights(logits, max, scale);
    if (!std::isfinite(total)) return best.id;
    GatherMass(logits, params.top_p * total, max, scale);
    return DrawFromCandidates(CutToMass(params.top_p * total), uniform);
  } else {
    return DrawFromAll(logits, best, scale, uniform);
  }
  double mass = WeighCandidates(0, max, scale);
  if (params.top_p < 1) mass = CutToMass(params.top_p * mass);
  return DrawFromCandidates(mass, uniform);
}

std::int32_t Sampler::DrawFromAll(std::span<const float> logits, Candidate best, float scale, double uniform) {
  const double total = SumWeights(logits, best.logit, scale);
  if (!std::isfinite(total)) return best.id;
  // The chunk in which the running sum passes the target; if rounding lets none pass, the last one with any
  // weight.
  double rest = uniform * total;
  std::size_t chosen = 0;
  for (std::size_t c = 0; c < chunk_mass_.size(); ++c) {
    if (chunk_mass_[c] <= 0) continue;
    chosen = c;
    if (rest < chunk_mass_[c]) break;
    rest -= chunk_mass_[c];
  }
  const std::span<const float> chunk = Chunk(logits, chosen);
  std::int32_t token = best.id;
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    const double weight = Weight(chunk[i], best.logit, scale);
    if (!(weight > 0)) continue;
    token = static_cast<std::int32_t>(chosen * kChunk + i);
    if (rest < weight) break;
    rest -= weight;
  }
  return token;
}

double Sampler::WeighCandidates(std::size_t first, float max, float scale) {
  double mass = 0;
  for (std::size_t i = first; i < candidates_.size(); ++i) {
    candidates_[i].weight = Weight(candidates_[i].logit, max, scale);
    mass += candidates_[i].weight;
  }
  return mass;
}

void Sampler::GatherMass(std::span<const float> logits, double target, float max, float scale) {
  // Most of the probability usually lies within a few units of the best logit: take one band after the other, and
  // weigh each token once.
  candidates_.clear();
  double mass = 0, ceiling = kNoBound;
  for (const double depth : {4.0, 6.0, 8.0, 11.0, 15.0, kNoBound}) {
    const std::size_t first = candidates_.size();
    const double floor = static_cast<double>(max) - depth / static_cast<double>(scale);
    Gather(logits, floor, ceiling);
    mass += WeighCandidates(first, max, scale);
    if (mass >= target) return;
    ceiling = floor;
  }
}

double Sampler::CutToMass(double target) {
  // Halves the range in which the prefix ends, as a selection by weight: linear in the candidates, where sorting a
  // flat distribution of the whole vocabulary would cost milliseconds.
  constexpr std::ptrdiff_t kFewEnoughToSort = 64;
  auto begin = candidates_.begin(), end = candidates_.end();  // the prefix ends in [begin, end]
  double mass = 0;                                            // of everything before `begin`
  while (end - begin > kFewEnoughToSort) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, Before);
    double half = 0;
    for (auto candidate = begin; candidate != middle; ++candidate) half += candidate->weight;
    if (mass + half >= target) {
      end = middle;
    } else {
      mass += half;
      begin = middle;
    }
  }
  std::sort(begin, end, Before);
  while (begin != end) {
    mass += begin->weight;
    ++begin;
    if (mass >= target) break;
  }
  candidates_.erase(begin, candidates_.end());
  return mass;
}

std::int32_t Sampler::DrawFromCandidates(double mass, double uniform) const {
  CHECK(!candidates_.empty());  // the best logit passes every filter
  double rest = uniform * mass;
  std::int32_t token = candidates_.front().id;
  for (const Candidate& candidate : candidates_) {
    if (!(candidate.weight > 0)) continue;
    token = candidate.id;
    if (rest < candidate.weight) break;
    rest -= candidate.weight;
  }
  return token;
}

// ---- Log-probabilities
// ---------------------------------------------------------------------------------------------

float Sampler::LogSoftmax::operator()(float x) const {
  if (!is_usable) return x == max ? 0.0f : -kInfinity;
  if (std::isnan(x)) return -kInfinity;
  return static_cast<float>(static_cast<double>(x) - static_cast<double>(max) - log_sum);
}

Sampler::LogSoftmax Sampler::MakeLogSoftmax(std::span<const float> logits) {
  const Candidate best = FindMax(logits);
  const double log_sum = std::log(SumWeights(logits, best.logit, 1.0f));
  return {best.logit, log_sum, std::isfinite(best.logit) && std::isfinite(log_sum)};
}

int Sampler::RankOf(std::span<const float> logits, TokenId token) const {
  const float chosen = logits[static_cast<std::size_t>(token.value())];
  int rank = 1;
  ForEachFrom(logits, chosen, [&](float logit, std::int32_t id) {
    rank += logit > chosen || id < token.value();
    return chosen;
  });
  return rank;
}

std::vector<TokenLogprob> Sampler::TopOf(std::span<const float> logits, const LogSoftmax& logprob, int num_top) {
  const auto count = static_cast<std::size_t>(num_top < 0 ? vocab_size_ : std::min(num_top, vocab_size_));
  SelectTop(logits, count, -kNoBound);
  std::vector<TokenLogprob> top;
  top.reserve(candidates_.size());
  for (const Candidate& candidate : candidates_) {
    top.push_back({TokenId(candidate.id), logprob(candidate.logit), static_cast<int>(top.size()) + 1});
  }
  return top;
}

PositionLogprobs Sampler::Logprobs(std::span<const float> logits, TokenId token, int num_top) {
  const LogSoftmax logprob = MakeLogSoftmax(logits);
  const float chosen = logits[static_cast<std::size_t>(token.value())];
  PositionLogprobs result;
  result.chosen = {token, logprob(chosen), RankOf(logits, token)};
  result.top = TopOf(logits, logprob, num_top);
  return result;
}

// ---- Beam search
// ---------------------------------------------------------------------------------------------------

void Sampler::Propose(std::span<float> logits, const SampleRequest& request, int count,
                      std::vector<TokenLogprob>* proposed, std::vector<TokenLogprob>* alternatives) {
  CHECK(static_cast<int>(logits.size()) == vocab_size_ && count >= 1);
  const LogSoftmax logprob = MakeLogSoftmax(logits);
  const std::optional<int> num_top = request.params->logprobs;
  if (num_top) *alternatives = TopOf(logits, logprob, *num_top);
  const bool changes = !request.params->logit_bias.empty() || !request.masked.empty();
  std::span<const float> raw = logits;
  if (changes) {
    std::ranges::copy(logits, raw_.begin());
    raw = raw_;
    ApplyBiasAndMask(logits, request);
    FindMax(logits);  // for SelectTop
  }
  SelectTop(logits, static_cast<std::size_t>(count), -kNoBound);
  proposed->clear();
  for (const Candidate& candidate : candidates_) {
    const TokenId id(candidate.id);
    proposed->push_back(
        {id, logprob(raw[static_cast<std::size_t>(candidate.id)]), static_cast<int>(proposed->size()) + 1});
  }
  // Nothing is possible: as in Sample(), the row falls back to its largest value.
  if (proposed->empty()) proposed->push_back({TokenId(FindMax(logits).id), -kInfinity, 1});
  if (!changes || !num_top) return;
  FindMax(raw);
  for (TokenLogprob& token : *proposed) token.rank = RankOf(raw, token.id);
}

}  // namespace quire::sample
