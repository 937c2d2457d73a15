// One row of logits to one token. Rows are independent of each other and of the batch: the draw is keyed by
// (seed, choice, position), and every reduction has a fixed order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "api/events.h"
#include "api/sampling_params.h"
#include "base/strong_id.h"
#include "kernels/kernel_table.h"

namespace quire::sample {

struct SampleRequest {
  const SamplingParams* params = nullptr;
  int choice = 0;
  std::span<const TokenId> prompt;  // for the penalties
  std::span<const TokenId> output;  // so far
  // These cannot be sampled. The caller passes the end-of-sequence and stop ids while output.size() <
  // min_tokens.
  std::span<const TokenId> masked;
};

struct Sampled {
  TokenId token;
  std::optional<PositionLogprobs> logprobs;  // when params->logprobs is set; of the raw logits
};

// The order is vLLM's: logit_bias, masked ids, repetition penalty (prompt and output), frequency and presence
// penalty (output only), temperature, min_p, top_k, top_p, draw. Each filter works on the renormalised
// survivors of the one before, and none ever removes the most likely token. Greedy (temperature below 1e-5,
// as in vLLM) takes the largest value, of equals the lowest id. Wherever a filter must choose among equal
// logits, lower ids come first: top_k keeps exactly k tokens.
class Sampler {
 public:
  // Scratch for one row of `vocab_size`; one Sampler per thread.
  Sampler(const kernels::KernelTable* kernels, int vocab_size);

  // `logits` [vocab_size] is changed in place. Ids outside the vocabulary in the request have no effect.
  // Infinite or NaN logits never lead to a NaN: such a row falls back to its largest value.
  Sampled Sample(std::span<float> logits, const SampleRequest& request);

  // For beam search: the `count` tokens that are likeliest after logit_bias and masking, best first, with logprobs and
  // ranks of the raw logits. Fewer when no more are possible, but at least one. When params->logprobs is set,
  // `alternatives` gets the likeliest of the raw logits. `logits` is changed in place.
  void Propose(std::span<float> logits, const SampleRequest& request, int count, std::vector<TokenLogprob>* proposed,
               std::vector<TokenLogprob>* alternatives);

  // Log-softmax of `logits` at `token` with the `num_top` most likely tokens; -1: all of them.
  PositionLogprobs Logprobs(std::span<const float> logits, TokenId token, int num_top);

 private:
  struct Candidate {
    float logit = 0;
    std::int32_t id = 0;
    double weight = 0;  // exp((logit − max) · scale), once WeighCandidates has run
  };
  // The order of preference everywhere: larger logit, then lower id.
  static bool Before(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }

  // Logarithms of probabilities from logits.
  struct LogSoftmax {
    float max = 0;
    double log_sum = 0;
    // With an infinite or NaN logit in the row the sum says nothing: the largest value has all the probability.
    bool is_usable = false;

    float operator()(float x) const;
  };
  // Sets chunk_max_, which RankOf and TopOf need.
  LogSoftmax MakeLogSoftmax(std::span<const float> logits);
  int RankOf(std::span<const float> logits, TokenId token) const;
  std::vector<TokenLogprob> TopOf(std::span<const float> logits, const LogSoftmax& logprob, int num_top);

  void ApplyBiasAndMask(std::span<float> logits, const SampleRequest& request) const;
  void ApplyPenalties(std::span<float> logits, const SampleRequest& request);

  // Sets chunk_max_ and returns the largest value with its lowest index.
  Candidate FindMax(std::span<const float> logits);
  // Sets chunk_mass_ and returns the sum of all weights exp((x − max) · scale).
  double SumWeights(std::span<const float> logits, float max, float scale);
  // Calls body(logit, id) for every logit ≥ floor, in the order of ids; what it returns is the floor from there on. Needs
  // chunk_max_.
  template <typename Body>
  void ForEachFrom(std::span<const float> logits, float floor, Body body) const;
  // What at least `count` logits reach, as far as chunk_max_ tells: the best of `count` chunks each.
  float FloorOfBest(std::size_t count);
  // Appends to candidates_ everything in [floor, ceiling) but −∞, in the order of ids. Needs chunk_max_.
  void Gather(std::span<const float> logits, double floor, double ceiling);
  // candidates_ = the `count` best of those at or above `floor`, best first. Needs chunk_max_.
  void SelectTop(std::span<const float> logits, std::size_t count, double floor);

  std::int32_t Draw(std::span<const float> logits, const SampleRequest& request);
  std::int32_t DrawFromAll(std::span<const float> logits, Candidate best, float scale, double uniform);
  std::int32_t DrawFromCandidates(double mass, double uniform) const;
  // Sets the weights of candidates_ from index `first` on and returns their sum.
  double WeighCandidates(std::size_t first, float max, float scale);
  // candidates_ = a superset of the shortest prefix (best first) whose mass reaches `target`, weighed.
  void GatherMass(std::span<const float> logits, double target, float max, float scale);
  // Cuts the weighed candidates_ to that prefix, in any order; returns its mass.
  double CutToMass(double target);

  const kernels::KernelTable* kernels_;
  int vocab_size_;
  std::vector<float> raw_;             // [vocab_size] the logits as they came, for logprobs
  std::vector<Candidate> candidates_;  // capacity vocab_size
  std::vector<float> chunk_max_;       // of kChunk logits each
  std::vector<float> sorted_max_;      // likewise, partly sorted
  std::vector<double> chunk_mass_;     // likewise
  // Occurrences of a token: valid where its stamp is the current one, so that nothing is cleared between
  // rows.
  std::vector<std::uint32_t> stamp_, count_;  // [vocab_size]
  std::uint32_t current_stamp_ = 0;
};

}  // namespace quire::sample
