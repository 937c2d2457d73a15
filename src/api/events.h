// What an engine tells the front end. Every choice of every request ends with exactly one event that has a finish
// reason; nothing about it follows.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/strong_id.h"

namespace quire {

enum class FinishReason : std::uint8_t {
  kNone,    // goes on
  kStop,    // EOS or a stop id
  kLength,  // max_tokens, or the model's context is full
  kAbort,   // the client asked
  kError,   // `error` says why; the request cannot be continued
  kShed,    // never ran: it would have come too late, or has waited too long; `error` says which
};

// Whether a choice with this reason has no output to show, but an `error`.
constexpr bool HasFailed(FinishReason reason) {
  return reason == FinishReason::kError || reason == FinishReason::kShed;
}

struct TokenLogprob {
  TokenId id;
  float logprob = 0;  // natural logarithm; may be -inf
  int rank = 0;       // 1 is the most likely token
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

// One position: the token that stands there, and the most likely ones, best first (ties: lower id first).
struct PositionLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
  friend bool operator==(const PositionLogprobs&, const PositionLogprobs&) = default;
};

// What happened to a choice after it first ran.
enum class LifeChange : std::uint8_t {
  kPreempted,
  kScheduled,  // again
};
struct LifeMark {
  LifeChange change = LifeChange::kPreempted;
  TimePoint at{};
  friend bool operator==(const LifeMark&, const LifeMark&) = default;
};
// Of one choice; what comes after these is only counted.
inline constexpr std::size_t kLifeMarksMax = 32;

// The life of one choice in stamps of the engine's monotonic clock; meaningless in another process except as
// differences (see intervals.h). Zero: it has not come to that.
struct RequestTimes {
  TimePoint queued{};
  TimePoint first_scheduled{};
  TimePoint last_scheduled{};   // later than first_scheduled after a preemption
  TimePoint inference_begin{};  // of the first step that ran it
  TimePoint inference_end{};    // of the last one so far
  TimePoint first_token{};
  TimePoint last_token{};
  TimePoint finished{};
  Duration longest_token_gap{};  // between two successive tokens
  int num_steps = 0;             // that ran it, chunks of its prompt included
  int num_preemptions = 0;
  std::vector<LifeMark> marks;  // preempted, scheduled again, …: the first kLifeMarksMax
  friend bool operator==(const RequestTimes&, const RequestTimes&) = default;
};

// Mostly one token, which needs no memory of its own.
using TokenList = boost::container::small_vector<TokenId, 4>;

struct EngineEvent {
  RequestId request;
  int choice = 0;
  TokenList tokens;                        // newly generated, in order; the stop id is among them
  std::vector<PositionLogprobs> logprobs;  // one per token when asked for
  // Once, with the first event of choice 0, when asked for: one entry per prompt token, the first without value.
  std::vector<std::optional<PositionLogprobs>> prompt_logprobs;
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<TokenId> stop_token;  // set when a stop_token_ids entry (not EOS) ended the choice
  bool ended_by_text = false;         // a stop string ended the choice, a beam; the last token's text completes it
  int num_cached_tokens = 0;          // prompt tokens that came from the prefix cache
  RequestTimes times;                 // as of this event; `finished` in finishing events
  std::string error;                  // with kError and kShed
  int retry_after_s = 0;              // with kShed: when it is worth another try
};

}  // namespace quire
