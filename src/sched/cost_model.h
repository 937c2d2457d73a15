// How long a step takes, learnt from the steps so far.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sched/batch_plan.h"

namespace quire::sched {

// What a step consists of, as far as its time depends on it.
struct StepWork {
  double prefill_tokens = 0;   // tokens of slices of more than one
  double rows = 0;             // slices of one token
  double row_context = 0;      // positions before those tokens, in all: keys and values that attention reads
  double prefill_context = 0;  // for each token of a slice, the positions before it, in all

  void Add(int first_position, int num_tokens);
};

// time = base + Σ coefficient · work, with no coefficient below 0, fitted by recursive least squares: a Kalman filter
// whose coefficients drift a little with each step, but never become less certain than "about as large as it was". Its
// memory is 5 × 5 numbers, whatever was observed. Errors are taken relative to the time, so that short steps, on which
// streams depend, are met as well as long ones; and an error beyond three times the usual one counts no more than that
// (Huber), so that a step which something else held up does not spoil the fit, while a machine that has become slower
// does change it within some dozen steps. All times in seconds.
class CostModel final {
 public:
  CostModel();

  void Observe(const StepWork& work, double seconds);
  // Whether enough was seen, of prompts too, for predictions to mean something.
  bool is_ready() const { return num_prefills_ >= kLeastPrefills && num_steps_ >= kLeastSteps; }

  double Predict(const StepWork& work) const;
  // What a slice adds to a step.
  double CostOf(int first_position, int num_tokens) const;
  double base() const { return Coefficient(kBase); }
  // The largest slice from that position on which adds at most `seconds`, and has at most `most` tokens; ≥ 0.
  int TokensWithin(double seconds, int first_position, int most) const;
  // The usual relative error of a prediction: 0.05 is 5 %.
  double usual_error() const { return usual_error_; }

 private:
  enum Term : std::size_t { kBase, kPrefill, kRow, kRowContext, kPrefillContext, kNumTerms };
  using Vector = std::array<double, kNumTerms>;

  static constexpr int kLeastSteps = 16;
  static constexpr int kLeastPrefills = 3;

  static Vector TermsOf(const StepWork& work);
  double Coefficient(Term term) const;
  void ForbidNegatives();

  Vector coefficients_{};                       // in the units of TermsOf
  std::array<Vector, kNumTerms> covariance_{};  // symmetric
  double usual_error_ = 0;
  std::int64_t num_steps_ = 0;
  std::int64_t num_prefills_ = 0;
};

}  // namespace quire::sched
