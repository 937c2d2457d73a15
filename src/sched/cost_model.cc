#include "sched/cost_model.h"

#include <algorithm>
#include <cmath>

namespace quire::sched {
namespace {

// One unit of each term, chosen so that all coefficients have about the size of a millisecond: base, 64 tokens, a row,
// 4096 positions read, 64 tokens with 4096 positions each.
constexpr double kUnits[] = {1, 64, 1, 4096, 64 * 4096};
constexpr double kMilliseconds = 1e3;
// How large the coefficients may be, before anything is known: in times of the first step. Attention shows only in long
// contexts, and must not be made responsible for the noise of short ones.
constexpr double kFirstSizes[] = {10, 10, 10, 1, 1};
constexpr double kNoise = 0.05;   // relative, of one observation
constexpr double kDrift = 0.005;  // relative, of a coefficient in one step; with kNoise, a memory of about ten steps
constexpr double kHuberFactor = 3;
constexpr double kErrorMemory = 0.95;
constexpr double kFirstError = 0.1;
constexpr double kLeastError = 0.02;  // however well all goes: otherwise a change would look like an outlier for ever
constexpr double kTiny = 1e-30;       // taken for 0, before it becomes so small that computing with it is slow

}  // namespace

void StepWork::Add(int first_position, int num_tokens) {
  const double first = first_position, count = num_tokens;
  if (num_tokens == 1) {
    rows += 1;
    row_context += first;
  } else {
    prefill_tokens += count;
    prefill_context += count * first + count * (count - 1) / 2;
  }
}

CostModel::CostModel() : usual_error_(kFirstError) {}

CostModel::Vector CostModel::TermsOf(const StepWork& work) {
  Vector terms = {1, work.prefill_tokens, work.rows, work.row_context, work.prefill_context};
  for (std::size_t i = 0; i < kNumTerms; ++i) terms[i] /= kUnits[i];
  return terms;
}

double CostModel::Coefficient(Term term) const {
  return coefficients_[term] / kUnits[term] / kMilliseconds;
}

double CostModel::Predict(const StepWork& work) const {
  const Vector terms = TermsOf(work);
  double sum = 0;
  for (std::size_t i = 0; i < kNumTerms; ++i) sum += coefficients_[i] * terms[i];
  return sum / kMilliseconds;
}

double CostModel::CostOf(int first_position, int num_tokens) const {
  StepWork work;
  work.Add(first_position, num_tokens);
  return Predict(work) - base();
}

int CostModel::TokensWithin(double seconds, int first_position, int most) const {
  if (most <= 0 || seconds <= 0) return 0;
  // c · (n · first + n (n - 1) / 2) + p · n = seconds, for n.
  const double quadratic = Coefficient(kPrefillContext) / 2;
  const double linear = Coefficient(kPrefill) + Coefficient(kPrefillContext) * (first_position - 0.5);
  double tokens = most;
  if (quadratic > 0) {
    tokens = (std::sqrt(linear * linear + 4 * quadratic * seconds) - linear) / (2 * quadratic);
  } else if (linear > 0) {
    tokens = seconds / linear;
  }
  return tokens >= most ? most : static_cast<int>(tokens);
}

void CostModel::Observe(const StepWork& work, double seconds) {
  if (!(seconds > 0) || !std::isfinite(seconds)) return;  // a clock that jumped
  if (num_steps_ == 0) {
    for (std::size_t i = 0; i < kNumTerms; ++i)
      covariance_[i][i] = std::pow(kFirstSizes[i] * seconds * kMilliseconds, 2);
  }
  ++num_steps_;
  if (work.prefill_tokens > 0) ++num_prefills_;
  const double observed = seconds * kMilliseconds;
  const double predicted = Predict(work) * kMilliseconds;
  const double scale = std::max(observed, predicted);
  Vector terms = TermsOf(work);
  for (double& term : terms) term /= scale;
  const double error = (observed - predicted) / scale;

  // The first predictions are wrong because nothing is known, not because something went wrong.
  const bool is_learning = num_steps_ < kLeastSteps;
  const double error_max = kHuberFactor * usual_error_;
  const double weight = is_learning || std::abs(error) <= error_max ? 1 : error_max / std::abs(error);
  if (!is_learning) {
    const double counted = std::min(std::abs(error), error_max);
    usual_error_ = std::max(kLeastError, kErrorMemory * usual_error_ + (1 - kErrorMemory) * counted);
  }

  const double largest = *std::ranges::max_element(coefficients_);
  Vector gain{};
  double excitation = 0;
  for (std::size_t i = 0; i < kNumTerms; ++i) {
    const double size = std::max(coefficients_[i], 0.01 * largest);
    if (covariance_[i][i] < size * size) covariance_[i][i] += kDrift * kDrift * size * size;
  }
  for (std::size_t i = 0; i < kNumTerms; ++i) {
    for (std::size_t j = 0; j < kNumTerms; ++j) gain[i] += covariance_[i][j] * terms[j];
    excitation += gain[i] * terms[i];
  }
  const double divisor = kNoise * kNoise / weight + excitation;
  for (std::size_t i = 0; i < kNumTerms; ++i) {
    coefficients_[i] += gain[i] / divisor * error;
    for (std::size_t j = 0; j < kNumTerms; ++j) {
      covariance_[i][j] -= gain[i] * gain[j] / divisor;
      if (std::abs(covariance_[i][j]) < kTiny) covariance_[i][j] = 0;
    }
  }
  if (!is_learning) ForbidNegatives();  // the first steps are too few to tell the terms apart
}

// Moves to the likeliest coefficients of which none is below 0. To cut one off alone would be wrong: the others were
// fitted together with it, and take over what it explained.
void CostModel::ForbidNegatives() {
  constexpr int kRoundsMax = 8;  // each may push another one below 0
  for (int round = 0; round < kRoundsMax; ++round) {
    const auto worst = static_cast<std::size_t>(std::ranges::min_element(coefficients_) - coefficients_.begin());
    const double value = coefficients_[worst], variance = covariance_[worst][worst];
    if (value >= 0) return;
    for (std::size_t i = 0; i < kNumTerms && variance > 0; ++i) {
      coefficients_[i] -= covariance_[i][worst] / variance * value;
    }
    coefficients_[worst] = 0;
  }
  for (double& coefficient : coefficients_) coefficient = std::max(0.0, coefficient);
}

}  // namespace quire::sched
