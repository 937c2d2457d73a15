// Request: what was asked, immutable. Sequence: one choice of it, or one beam, and how far it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/events.h"
#include "api/request.h"
#include "api/sampling_params.h"
#include "base/clock.h"
#include "base/strong_id.h"
#include "kv/kv_manager.h"

namespace quire::sched {

struct Request {
  RequestId id;
  SamplingParams sampling;
  StopCriteria stop;
  int num_prompt_tokens = 0;
  int max_num_tokens = 0;           // prompt and output, unless EOS or a stop id comes first
  std::string cache_namespace;      // whose cached blocks it may share
  Duration cache_retention{};       // of its prompt, once that is computed
  std::vector<TokenId> eos_ids;     // that end a choice; none with ignore_eos
  std::vector<TokenId> masked_ids;  // until min_tokens: eos_ids and stop_token_ids
  int num_seats = 1;                // of max_num_seqs that each listed sequence takes; with beams, as many as they are
  int num_beam_candidates = 0;      // that each beam proposes; 0: the request samples
  std::uint64_t arrival = 0;        // ordinal; the older is served first and preempted last
  TimePoint queued{};
  ServiceTerms terms;                        // as asked for; what follows has the defaults in it
  TimePoint queue_until = TimePoint::max();  // shed when it has not run by then
  TimePoint deadline = TimePoint::max();     // slo: of its first token
  bool has_deadline = false;                 // slo: somebody named it
  Duration tempo{};                          // slo: between its tokens; 0: whatever comes
  double predicted_work = 0;                 // sjf
};

enum class SequenceState : std::uint8_t {
  kWaiting,  // has no blocks; never ran, or was preempted
  kParked,   // a further choice or beam, until the first one has computed what they share
  kRunning,  // has blocks
  kFinished,
};

//   tokens()   prompt[0] … prompt[P-1] output[0] … output[O-1]
//              |--- num_computed_tokens ---|-- the gap ---|
//                  have keys and values       to be run
// There are no phases: a sequence closes the gap between num_tokens and num_computed_tokens, and the step
// that closes it samples the next token. Changed by the Scheduler only; what a step reads of it meanwhile is its request,
// which stays, and its tokens and blocks as the plan has them.
//
// With beams, each live beam has a sequence. The first sequence of the request stands for all of them: it alone is
// in the scheduler's lists, and `lanes` are the sequences that run, wait and are preempted with it.
class Sequence final {
 public:
  // Without tokens and memory. `request` outlives it.
  Sequence(const Request* request, int choice, kv::SequenceBlocks blocks);

  const Request& request() const { return *request_; }
  const SamplingParams& sampling() const { return request_->sampling; }
  int choice() const { return choice_; }  // 0 … n - 1
  SequenceState state() const { return state_; }

  // Empty while the sequence is parked.
  std::span<const TokenId> tokens() const { return tokens_; }
  std::span<const TokenId> prompt() const { return tokens().first(static_cast<std::size_t>(num_prompt_tokens())); }
  std::span<const TokenId> output() const { return tokens().subspan(static_cast<std::size_t>(num_prompt_tokens())); }
  int num_tokens() const { return static_cast<int>(tokens_.size()); }
  int num_prompt_tokens() const { return request_->num_prompt_tokens; }
  int num_output_tokens() const { return num_tokens() - num_prompt_tokens(); }
  int num_computed_tokens() const { return num_computed_tokens_; }
  int num_cached_tokens() const { return num_cached_tokens_; }
  const RequestTimes& times() const { return times_; }
  const kv::SequenceBlocks& blocks() const { return blocks_; }

  // Ids that must not be sampled next: those that end a choice, while the output is shorter than min_tokens.
  std::span<const TokenId> masked(int num_output_tokens) const;
  // Whether a token is to be sampled at all: max_tokens is not 0.
  bool wants_output() const { return request_->stop.max_tokens > 0; }
  // Whether prompt logprobs were asked for; those of the prompt are reported once, with choice 0.
  bool wants_prompt_logprobs() const { return choice_ == 0 && request_->sampling.prompt_logprobs.has_value(); }
  // How many of its tokens may be taken from the cache: the last token always runs, and so does every token
  // whose logits are still wanted.
  std::size_t num_cacheable_tokens() const;
  int num_overtakes() const { return num_overtakes_; }
  int num_held_back_steps() const { return num_held_back_steps_; }
  // The order of being served first and preempted last.
  static bool IsOlder(const Sequence* a, const Sequence* b);

 private:
  friend class Scheduler;

  bool AllPromptLogprobsKnown() const;
  // A token that a step in flight will tell.
  bool is_placeholder_at(int position) const {
    return position < num_tokens() && tokens_[static_cast<std::size_t>(position)].value() < 0;
  }
  void NoteChange(LifeChange change, TimePoint at);
  // A step that began and ended then ran some of its tokens.
  void NoteStep(TimePoint began, TimePoint ended);
  // Takes in what a slice that begins at `first_position` found; what was known before a preemption stays.
  void StorePromptLogprobs(int first_position, std::vector<PositionLogprobs>* found);

  const Request* request_;
  const int choice_;
  SequenceState state_ = SequenceState::kWaiting;
  std::vector<TokenId> tokens_;
  int num_computed_tokens_ = 0;
  int num_cached_tokens_ = 0;  // prompt tokens that the cache had when the sequence first ran
  kv::SequenceBlocks blocks_;
  // Of the tokens 0, 1, …, as far as known; the first has no value. Kept over preemptions.
  std::vector<std::optional<PositionLogprobs>> prompt_logprobs_;
  bool prompt_logprobs_reported_ = false;  // with the first event; they are gone then
  RequestTimes times_;
  bool is_aborted_ = false;      // and ends when no other choice needs it
  bool has_run_ = false;         // the times of scheduling are set
  int num_overtakes_ = 0;        // younger requests that were admitted first
  int num_held_back_steps_ = 0;  // steps in which it was held back
  int plan_index_ = -1;          // its place in the plan being made or run; once that is launched, in no plan
  bool is_in_flight_ = false;    // computes a beam in the step that is in flight
  int num_losses_ = 0;           // how often it lost its memory: what a step found before that can no longer be kept
  std::vector<Sequence*>
      lanes_;              // itself; with beams those of the live ones, best first, or none if it is not the first
  int fork_position_ = 0;  // tokens that it shares with lanes that are parked, once it has computed them
};

}  // namespace quire::sched
