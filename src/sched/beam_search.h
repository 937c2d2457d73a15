// Beam search over the continuations of one prompt: a pure function of the candidates that it is shown. It knows
// neither blocks nor time, so that it can be held against an enumeration of everything.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "api/events.h"
#include "api/sampling_params.h"
#include "base/strong_id.h"
#include "sched/text_stop.h"

namespace quire::sched {

// A beam, or what became of one. `tokens` are of the output.
struct Hypothesis {
  std::vector<TokenId> tokens;
  // One for each token, when logprobs were asked for. Shared by the hypotheses that begin with the same tokens.
  std::vector<std::shared_ptr<const PositionLogprobs>> logprobs;
  double logprob = 0;  // cumulative, with logit biases
  // Of finished ones.
  double score = 0;
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<TokenId> stop_token;  // as in EngineEvent
  bool ended_by_text = false;         // likewise
};

// A step of the search: each live beam is given its candidates, in any order, then Advance() goes from all of them to
// the next beams. Ties are broken by the better parent, then by the order of the candidates, so that nothing depends on
// who computed what when.
//
// Of all extensions, by cumulative logprob, the first `width` that do not end live on; one that ends is finished when it
// is among the first `width` of all. The finished are ranked by score, and `width` of them are kept.
class BeamSearch final {
 public:
  // `params.beam` is set; `max_tokens` ≥ 1 bounds the output. `eos_ids` and stop.stop_token_ids end a hypothesis: the
  // caller sees to it that they are no candidates before min_tokens. `text` is null without stop strings.
  BeamSearch(const SamplingParams& params, const StopCriteria& stop, std::vector<TokenId> eos_ids, int max_tokens,
             std::unique_ptr<TextStop> text);

  // How many candidates a beam must propose: so many live on however many end.
  static int NumCandidates(const BeamParams& beam, const StopCriteria& stop, std::size_t num_ending_ids,
                           int vocab_size);

  int num_live() const { return static_cast<int>(live_.size()); }
  // Live beams, best first; at first the empty output alone.
  const Hypothesis& live(int beam) const { return live_[static_cast<std::size_t>(beam)].hypothesis; }
  // Which beam before the last Advance() it continues.
  int parent(int beam) const { return live_[static_cast<std::size_t>(beam)].parent; }

  // The likeliest tokens after a live beam, best first, at least one, with raw logprobs; `top` are the alternatives that
  // are reported at this position. Both are taken.
  void SetCandidates(int beam, std::vector<TokenLogprob>* candidates, std::vector<TokenLogprob>* top);
  bool has_candidates(int beam) const { return !live_[static_cast<std::size_t>(beam)].candidates.empty(); }
  // Every live beam has its candidates.
  bool is_ready() const { return num_waiting_ == 0; }
  void ForgetCandidates();
  void Advance();

  bool is_done() const { return is_done_; }
  // By score, best first; the first n are the result, or as many as there are.
  std::span<const Hypothesis> finished() const { return finished_; }
  // So many tokens are common to all live beams.
  int num_common_tokens() const;
  // So many tokens are the same in whatever will be returned; until it is done. live(0) has them.
  int num_settled_tokens() const { return num_settled_; }

 private:
  struct Beam {
    Hypothesis hypothesis;
    std::unique_ptr<TextStop> text;
    int parent = 0;
    std::vector<TokenLogprob> candidates;
    std::vector<TokenLogprob> top;
  };
  // A live beam with one of its candidates behind it.
  struct Extension {
    double logprob = 0;
    int beam = 0;
    int candidate = 0;
  };

  void RankExtensions();
  // Fills beams of next_ or finished_; `rank` is the extension's among all.
  void Follow(const Extension& extension, std::size_t rank);
  void AddFinished(Hypothesis hypothesis);
  double Score(double logprob, int num_tokens) const;
  bool CanImprove() const;
  void Settle();
  double BiasOf(TokenId token) const;

  const BeamParams beam_;
  const std::size_t width_;
  const std::size_t num_wanted_;  // n
  const bool keeps_logprobs_;
  const int min_tokens_, max_tokens_;
  const std::vector<TokenId> eos_ids_, stop_ids_;
  std::unordered_map<TokenId, double> bias_;
  bool may_gain_ = false;  // some bias is above 0: a logprob may rise

  std::vector<Beam> live_;
  std::vector<Beam> next_;             // the beams that Advance() makes; then what live_ was, to be used again
  std::size_t num_next_ = 0;           // of next_, while it is made
  std::vector<Extension> extensions_;  // reused
  std::vector<Hypothesis> finished_;
  int num_waiting_ = 1;  // live beams without candidates
  int num_settled_ = 0;
  bool is_done_ = false;
};

}  // namespace quire::sched
