// Beam search once more, for tests: as the definition reads, without a thought for speed. Everything is extended,
// sorted and compared from scratch in each step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "sched/beam_search.h"

namespace quire::sched {

// Largest first; equals stay in order. (std::stable_sort uses what C++17 deprecates.)
template <typename T, typename Key>
void SortDown(std::vector<T>* items, Key key) {
  std::vector<T> sorted;
  for (T& item : *items) {
    const auto place = std::ranges::upper_bound(sorted, std::invoke(key, item), std::ranges::greater(), key);
    sorted.insert(place, std::move(item));
  }
  *items = std::move(sorted);
}

struct BeamProblem {
  SamplingParams sampling;  // beam and n; biases are part of `propose`
  StopCriteria stop;
  std::vector<TokenId> eos_ids;
  int max_tokens = 1;
  // All that may follow an output, best first.
  std::function<std::vector<TokenLogprob>(std::span<const TokenId> output)> propose;
  std::function<bool(std::span<const TokenId> output)> ends_by_text = [](auto) { return false; };
};

inline double ReferenceScore(const BeamProblem& problem, const Hypothesis& hypothesis) {
  return hypothesis.logprob /
         std::pow(static_cast<double>(hypothesis.tokens.size()), problem.sampling.beam->length_penalty);
}

// `from` with one token more, and whether it ends there.
inline Hypothesis ReferenceExtend(const BeamProblem& problem, const Hypothesis& from, const TokenLogprob& next) {
  const auto contains = [&](const std::vector<TokenId>& ids) { return std::ranges::find(ids, next.id) != ids.end(); };
  Hypothesis to = from;
  to.tokens.push_back(next.id);
  to.logprob += static_cast<double>(next.logprob);
  const int length = static_cast<int>(to.tokens.size());
  if (length > problem.stop.min_tokens && contains(problem.eos_ids)) {
    to.finish_reason = FinishReason::kStop;
  } else if (length > problem.stop.min_tokens && contains(problem.stop.stop_token_ids)) {
    to.finish_reason = FinishReason::kStop;
    to.stop_token = next.id;
  } else if (problem.ends_by_text(to.tokens)) {
    to.finish_reason = FinishReason::kStop;
    to.ended_by_text = true;
  } else if (length == problem.max_tokens) {
    to.finish_reason = FinishReason::kLength;
  }
  to.score = ReferenceScore(problem, to);
  return to;
}

// The n best, or as many as there are.
inline std::vector<Hypothesis> ReferenceBeamSearch(const BeamProblem& problem, std::size_t num_candidates) {
  const BeamParams& beam = *problem.sampling.beam;
  const auto width = static_cast<std::size_t>(beam.width);
  const auto num_wanted = static_cast<std::size_t>(problem.sampling.n);
  std::vector<Hypothesis> live(1), finished;
  while (!live.empty()) {
    std::vector<Hypothesis> all;
    for (const Hypothesis& from : live) {
      const std::vector<TokenLogprob> proposed = problem.propose(from.tokens);
      for (std::size_t i = 0; i < std::min(num_candidates, proposed.size()); ++i) {
        all.push_back(ReferenceExtend(problem, from, proposed[i]));
      }
    }
    SortDown(&all, &Hypothesis::logprob);
    live.clear();
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].finish_reason == FinishReason::kNone) {
        if (live.size() < width) live.push_back(all[rank]);
      } else if (rank < width) {
        finished.push_back(all[rank]);
      }
    }
    SortDown(&finished, &Hypothesis::score);
    if (finished.size() > width) finished.resize(width);
    if (live.empty()) break;
    const bool is_full = finished.size() == width;
    if (beam.early_stopping == EarlyStopping::kOnceFull && is_full) break;
    if (beam.early_stopping == EarlyStopping::kHeuristic && is_full &&
        finished.back().score >= ReferenceScore(problem, live.front())) {
      break;
    }
    // kNever: to the end, so that what the search leaves out is shown to make no difference.
  }
  finished.resize(std::min(finished.size(), num_wanted));
  return finished;
}

}  // namespace quire::sched
