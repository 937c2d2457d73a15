#include "sched/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace quire::sched {
namespace {

bool Contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::ranges::find(ids, id) != ids.end();
}

}  // namespace

BeamSearch::BeamSearch(const SamplingParams& params, const StopCriteria& stop, std::vector<TokenId> eos_ids,
                       int max_tokens, std::unique_ptr<TextStop> text)
    : beam_(params.beam.value()),
      width_(static_cast<std::size_t>(beam_.width)),
      num_wanted_(static_cast<std::size_t>(params.n)),
      keeps_logprobs_(params.logprobs.has_value()),
      min_tokens_(stop.min_tokens),
      max_tokens_(max_tokens),
      eos_ids_(std::move(eos_ids)),
      stop_ids_(stop.stop_token_ids) {
  CHECK(num_wanted_ >= 1 && num_wanted_ <= width_ && max_tokens >= 1);
  for (const auto& [id, bias] : params.logit_bias) {
    bias_[id] += static_cast<double>(bias);
    may_gain_ = may_gain_ || bias > 0;
  }
  live_.emplace_back().text = std::move(text);
}

int BeamSearch::NumCandidates(const BeamParams& beam, const StopCriteria& stop, std::size_t num_ending_ids,
                              int vocab_size) {
  std::size_t count = static_cast<std::size_t>(beam.width) + num_ending_ids;
  // How many tokens complete a stop string is not known; as many again as live on are a guess that leaves beams to live
  // in all but strange cases. Then there are fewer beams for a while.
  if (!stop.stop_strings.empty()) count += static_cast<std::size_t>(beam.width);
  return static_cast<int>(std::min(count, static_cast<std::size_t>(vocab_size)));
}

void BeamSearch::SetCandidates(int beam, std::vector<TokenLogprob>* candidates, std::vector<TokenLogprob>* top) {
  Beam& taker = live_[static_cast<std::size_t>(beam)];
  CHECK(!is_done_ && taker.candidates.empty() && !candidates->empty());
  std::swap(taker.candidates, *candidates);
  std::swap(taker.top, *top);
  --num_waiting_;
}

void BeamSearch::ForgetCandidates() {
  for (Beam& beam : live_) beam.candidates.clear();
  num_waiting_ = num_live();
}

double BeamSearch::BiasOf(TokenId token) const {
  if (bias_.empty()) return 0;
  const auto found = bias_.find(token);
  return found == bias_.end() ? 0 : found->second;
}

double BeamSearch::Score(double logprob, int num_tokens) const {
  return logprob / std::pow(static_cast<double>(num_tokens), beam_.length_penalty);
}

void BeamSearch::RankExtensions() {
  extensions_.clear();
  for (int beam = 0; beam < num_live(); ++beam) {
    const auto& candidates = live_[static_cast<std::size_t>(beam)].candidates;
    for (int i = 0; i < static_cast<int>(candidates.size()); ++i) {
      const TokenLogprob& candidate = candidates[static_cast<std::size_t>(i)];
      const double gain = static_cast<double>(candidate.logprob) + BiasOf(candidate.id);
      extensions_.push_back({live(beam).logprob + gain, beam, i});
    }
  }
  std::ranges::sort(extensions_, [](const Extension& a, const Extension& b) {
    return std::tuple(-a.logprob, a.beam, a.candidate) < std::tuple(-b.logprob, b.beam, b.candidate);
  });
}

void BeamSearch::Advance() {
  CHECK(is_ready() && !is_done_);
  RankExtensions();
  num_next_ = 0;
  for (std::size_t rank = 0; rank < extensions_.size(); ++rank) {
    if (rank >= width_ && num_next_ >= width_) break;
    Follow(extensions_[rank], rank);
  }
  for (Beam& beam : live_) beam.candidates.clear();
  std::swap(live_, next_);
  // What is beyond the live beams goes, with its memory: they are as many as the search is wide but in strange cases.
  live_.resize(num_next_);
  num_waiting_ = num_live();
  is_done_ = !CanImprove();
  if (!is_done_) Settle();
}

void BeamSearch::Follow(const Extension& extension, std::size_t rank) {
  const Beam& from = live_[static_cast<std::size_t>(extension.beam)];
  const TokenLogprob& chosen = from.candidates[static_cast<std::size_t>(extension.candidate)];
  const int num_tokens = static_cast<int>(from.hypothesis.tokens.size()) + 1;
  const bool may_stop = num_tokens > min_tokens_;
  const bool is_eos = may_stop && Contains(eos_ids_, chosen.id);
  const bool is_stop_id = may_stop && Contains(stop_ids_, chosen.id);
  std::unique_ptr<TextStop> text;
  bool ends_by_text = false;
  if (from.text != nullptr && !is_eos && !is_stop_id) {
    text = from.text->Clone();
    ends_by_text = text->Push(chosen.id);
  }
  const bool ends = is_eos || is_stop_id || ends_by_text || num_tokens == max_tokens_;
  if (ends ? rank >= width_ : num_next_ >= width_) return;

  if (!ends && next_.size() == num_next_) next_.emplace_back();
  Hypothesis ended;
  Hypothesis& to = ends ? ended : next_[num_next_].hypothesis;
  to.tokens.assign(from.hypothesis.tokens.begin(), from.hypothesis.tokens.end());
  to.tokens.push_back(chosen.id);
  to.logprob = extension.logprob;
  if (keeps_logprobs_) {
    to.logprobs.assign(from.hypothesis.logprobs.begin(), from.hypothesis.logprobs.end());
    to.logprobs.push_back(std::make_shared<const PositionLogprobs>(PositionLogprobs{chosen, from.top}));
  }
  if (!ends) {
    next_[num_next_].text = std::move(text);
    next_[num_next_].parent = extension.beam;
    ++num_next_;
    return;
  }
  const bool stops = is_eos || is_stop_id || ends_by_text;
  to.score = Score(to.logprob, num_tokens);
  to.finish_reason = stops ? FinishReason::kStop : FinishReason::kLength;
  if (!is_eos && is_stop_id) to.stop_token = chosen.id;
  to.ended_by_text = ends_by_text;
  AddFinished(std::move(ended));
}

void BeamSearch::AddFinished(Hypothesis hypothesis) {
  const auto place = std::ranges::upper_bound(finished_, hypothesis.score, std::ranges::greater(), &Hypothesis::score);
  if (place == finished_.end() && finished_.size() == width_) return;
  finished_.insert(place, std::move(hypothesis));
  if (finished_.size() > width_) finished_.pop_back();
}

// Hugging Face's rules. A beam's logprob only falls, so that no continuation of it scores more than the beam itself would
// at the length that suits it best.
bool BeamSearch::CanImprove() const {
  if (live_.empty()) return false;
  const double best = live(0).logprob;
  const int length = static_cast<int>(live(0).tokens.size());
  switch (beam_.early_stopping) {
    case EarlyStopping::kOnceFull:
      return finished_.size() < width_;
    case EarlyStopping::kHeuristic:
      return finished_.size() < width_ || Score(best, length) > finished_.back().score;
    case EarlyStopping::kNever: {
      if (finished_.size() < num_wanted_ || may_gain_) return true;
      const int best_length = beam_.length_penalty > 0 ? max_tokens_ : length;
      return Score(best, best_length) > finished_[num_wanted_ - 1].score;
    }
  }
  return false;
}

int BeamSearch::num_common_tokens() const {
  const std::vector<TokenId>& first = live(0).tokens;
  std::size_t common = first.size();
  for (const Beam& beam : live_) {
    const std::vector<TokenId>& tokens = beam.hypothesis.tokens;
    const auto end = first.begin() + static_cast<std::ptrdiff_t>(common);
    common = static_cast<std::size_t>(std::mismatch(first.begin(), end, tokens.begin()).first - first.begin());
  }
  return static_cast<int>(common);
}

// What can be returned descends from a live beam, or is one of the best finished ones: others will not move up.
void BeamSearch::Settle() {
  const std::vector<TokenId>& first = live(0).tokens;
  const auto agrees = [&](const Hypothesis& hypothesis, std::size_t at) {
    return at < hypothesis.tokens.size() && hypothesis.tokens[at] == first[at];
  };
  const std::span best = std::span<const Hypothesis>(finished_).first(std::min(num_wanted_, finished_.size()));
  const auto all_agree = [&](std::size_t at) {
    return std::ranges::all_of(live_, [&](const Beam& beam) { return agrees(beam.hypothesis, at); }) &&
           std::ranges::all_of(best, [&](const Hypothesis& hypothesis) { return agrees(hypothesis, at); });
  };
  while (num_settled_ < static_cast<int>(first.size()) && all_agree(static_cast<std::size_t>(num_settled_))) {
    ++num_settled_;
  }
}

}  // namespace quire::sched
