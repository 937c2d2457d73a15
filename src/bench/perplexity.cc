#include "bench/perplexity.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "nn/exec_context.h"
#include "nn/kv_pool.h"

namespace quire::bench {
namespace {

constexpr int kBlockSize = kernels::KvLayout::block_size;
// Tokens of one forward pass: long windows go through in pieces of this size, which changes no bit of the result.
constexpr int kStepTokens = 512;
// Rows of logits held at a time, for each model: 32 rows of a vocabulary of 150,000 are 19 MB.
constexpr int kLogitRows = 32;

std::size_t FloatBytes(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns) * sizeof(float);
}

// A model with the memory to run one window at a time.
class WindowRunner {
 public:
  static Result<std::unique_ptr<WindowRunner>> Create(const ModelUnderTest& under_test, ThreadPool* pool, int context) {
    const models::Model& model = *under_test.model;
    const int num_blocks = (context + kBlockSize - 1) / kBlockSize;
    std::unique_ptr<WindowRunner> runner(new WindowRunner());
    runner->model_ = &model;
    QUIRE_TRY(runner->kv_, nn::KvPool::Create(model.kv_layout(), num_blocks));
    QUIRE_TRY(runner->workspace_, nn::Workspace::Create(model.WorkspaceBytes(*under_test.kernels, pool->num_threads(),
                                                                             kStepTokens, kLogitRows)));
    QUIRE_TRY(runner->hidden_, AlignedBuffer::Allocate(FloatBytes(kStepTokens, model.config().hidden_size)));
    QUIRE_TRY(runner->logits_, AlignedBuffer::Allocate(FloatBytes(kLogitRows, model.config().vocab_size)));
    for (int block = 0; block < num_blocks; ++block) runner->blocks_.emplace_back(block);
    runner->context_ = {.pool = pool, .kernels = under_test.kernels, .workspace = &runner->workspace_};
    return runner;
  }

  // Tokens [first, first + count) of a window whose earlier tokens have been run. `rows`, counted from `first`, are
  // those that Logits() can be asked for.
  void Run(std::span<const TokenId> window, int first, int count, std::span<const std::int32_t> rows) {
    const models::SequenceSlice slice{.num_tokens = count, .first_position = first, .blocks = blocks_};
    const auto tokens = window.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    model_->ForwardHidden(context_, {tokens, std::span(&slice, 1), rows}, &kv_, hidden_.as<float>().data());
  }

  // Of the last Run()'s rows [first, first + count), count ≤ kLogitRows; until the next call.
  void ComputeLogits(std::size_t first, std::size_t count) {
    const auto hidden_size = static_cast<std::size_t>(model_->config().hidden_size);
    model_->Logits(context_, hidden_.as<float>().data() + first * hidden_size, static_cast<int>(count),
                   logits_.as<float>().data());
  }
  std::span<const float> logits(std::size_t row) {
    const auto vocab_size = static_cast<std::size_t>(model_->config().vocab_size);
    return {logits_.as<float>().data() + row * vocab_size, vocab_size};
  }

 private:
  WindowRunner() = default;

  const models::Model* model_ = nullptr;
  nn::KvPool kv_;
  nn::Workspace workspace_;
  nn::ExecContext context_;
  AlignedBuffer hidden_;         // [kStepTokens, hidden_size]
  AlignedBuffer logits_;         // [kLogitRows, vocab_size]
  std::vector<BlockId> blocks_;  // all of kv_, in order
};

// ln Σ exp(x)
double LogSumExp(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

// One position of the text under both models.
struct TokenScore {
  double nll = 0;
  double reference_nll = 0;
  double kl = 0;
  bool same_top = false;
};

TokenScore ScoreAlone(std::span<const float> logits, TokenId next) {
  return {.nll = LogSumExp(logits) - logits[static_cast<std::size_t>(next.value())]};
}

TokenScore ScoreAgainst(std::span<const float> reference, std::span<const float> logits, TokenId next) {
  const auto token = static_cast<std::size_t>(next.value());
  const double log_sum = LogSumExp(logits), reference_log_sum = LogSumExp(reference);
  double kl = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double log_p = reference[i] - reference_log_sum;
    kl += std::exp(log_p) * (log_p - (logits[i] - log_sum));
  }
  const auto top = [](std::span<const float> x) { return std::max_element(x.begin(), x.end()) - x.begin(); };
  // Rounding can leave a sum of zero a little below it.
  return {log_sum - logits[token], reference_log_sum - reference[token], std::isnan(kl) ? kl : std::max(kl, 0.0),
          top(logits) == top(reference)};
}

// Mean and variance as values come (Welford 1962).
class RunningEstimate {
 public:
  void Add(double value) {
    ++count_;
    const double difference = value - mean_;
    mean_ += difference / static_cast<double>(count_);
    squares_ += difference * (value - mean_);
  }
  Estimate Get() const {
    const auto count = static_cast<double>(count_);
    return {mean_, count_ > 1 ? std::sqrt(squares_ / (count - 1) / count) : 0};
  }

 private:
  std::int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

class Measurement {
 public:
  explicit Measurement(const PerplexityRun& run) : run_(run) {}

  Result<PerplexityReport> Run() {
    QUIRE_TRY(model_, WindowRunner::Create(run_.model, run_.pool, run_.options.context));
    if (run_.reference) {
      QUIRE_TRY(reference_, WindowRunner::Create(*run_.reference, run_.pool, run_.options.context));
    }
    const auto num_tokens = static_cast<std::int64_t>(run_.tokens.size());
    const auto num_prefix = static_cast<int>(run_.prefix.size());
    const std::vector<TokenWindow> windows = MakeWindows(num_tokens, num_prefix, run_.options);
    for (const TokenWindow& window : windows) total_ += window.end - window.begin + num_prefix;
    for (const TokenWindow& window : windows) QUIRE_TRY_VOID(RunWindow(window));

    PerplexityReport report{.options = run_.options,
                            .num_prefix_tokens = num_prefix,
                            .num_text_tokens = num_tokens,
                            .num_scored_tokens = num_scored_,
                            .num_windows = static_cast<std::int64_t>(windows.size()),
                            .nll = nll_.Get()};
    if (reference_) report.divergence = Divergence();
    return report;
  }

 private:
  Result<> RunWindow(const TokenWindow& window) {
    std::vector<TokenId> tokens = run_.prefix;
    tokens.insert(tokens.end(), run_.tokens.begin() + window.begin, run_.tokens.begin() + window.end);
    const auto length = static_cast<int>(tokens.size());
    const int first_scored =
        static_cast<int>(window.first_scored - window.begin) + static_cast<int>(run_.prefix.size());
    for (int first = 0; first < length; first += kStepTokens) {
      const int count = std::min(kStepTokens, length - first);
      // The row of a position says what comes after it.
      std::vector<std::int32_t> rows;
      for (int i = std::max(0, first_scored - 1 - first); i < std::min(count, length - 1 - first); ++i)
        rows.push_back(i);
      model_->Run(tokens, first, count, rows);
      if (reference_) reference_->Run(tokens, first, count, rows);
      QUIRE_TRY_VOID(ScoreRows(std::span<const TokenId>(tokens).subspan(static_cast<std::size_t>(first)), rows));
      done_ += count;
      if (run_.progress) run_.progress(done_, total_);
    }
    return {};
  }

  // `rows` of the forward pass that has just been run; `tokens` are what it ran, and what comes after.
  Result<> ScoreRows(std::span<const TokenId> tokens, std::span<const std::int32_t> rows) {
    for (std::size_t first = 0; first < rows.size(); first += kLogitRows) {
      const std::size_t count = std::min<std::size_t>(kLogitRows, rows.size() - first);
      model_->ComputeLogits(first, count);
      if (reference_) reference_->ComputeLogits(first, count);
      std::vector<TokenScore> scores(count);
      // Relaxed: the counter hands out rows only; the pool orders what the tasks read and write.
      std::atomic<std::size_t> next_row{0};
      run_.pool->Run([&](int) {
        for (std::size_t i; (i = next_row.fetch_add(1, std::memory_order_relaxed)) < count;) {
          const TokenId next = tokens[static_cast<std::size_t>(rows[first + i]) + 1];
          scores[i] = reference_ ? ScoreAgainst(reference_->logits(i), model_->logits(i), next)
                                 : ScoreAlone(model_->logits(i), next);
        }
      });
      for (const TokenScore& score : scores) QUIRE_TRY_VOID(Add(score));
    }
    return {};
  }

  Result<> Add(const TokenScore& score) {
    ++num_scored_;
    if (!std::isfinite(score.nll) || !std::isfinite(score.reference_nll) || !std::isfinite(score.kl)) {
      return Fail(ErrorCode::kCorrupt, "the {} gives logits that are no numbers at scored token {} of the text",
                  std::isfinite(score.nll) ? "reference" : "model", num_scored_);
    }
    nll_.Add(score.nll);
    if (!reference_) return {};
    reference_nll_.Add(score.reference_nll);
    log_ratio_.Add(score.nll - score.reference_nll);
    const double change = std::exp(-score.nll) - std::exp(-score.reference_nll);
    p_change_.Add(change);
    p_change_square_.Add(change * change);
    same_top_.Add(score.same_top ? 1 : 0);
    kl_.Add(score.kl);
    kl_values_.push_back(score.kl);
    return {};
  }

  DivergenceReport Divergence() {
    return {.nll = reference_nll_.Get(),
            .log_ratio = log_ratio_.Get(),
            .kl = Summary::Of(std::move(kl_values_)),
            .kl_error = kl_.Get().error,
            .same_top = same_top_.Get(),
            .p_change = p_change_.Get(),
            .p_change_square = std::sqrt(p_change_square_.Get().mean)};
  }

  const PerplexityRun& run_;
  std::unique_ptr<WindowRunner> model_, reference_;
  std::int64_t done_ = 0, total_ = 0;  // tokens of all windows
  std::int64_t num_scored_ = 0;
  RunningEstimate nll_, reference_nll_, log_ratio_, p_change_, p_change_square_, same_top_, kl_;
  std::vector<double> kl_values_;
};

}  // namespace

Result<PerplexityOptions> PerplexityOptions::Complete(int model_length_max, int num_prefix_tokens) const {
  PerplexityOptions options = *this;
  if (options.context == 0) options.context = std::min(kContextDefault, model_length_max);
  const int context_min = num_prefix_tokens + 2;
  if (options.context < context_min || options.context > model_length_max) {
    return FailParam("context", "a window of {} tokens; this model can take {} to {}", options.context, context_min,
                     model_length_max);
  }
  const int stride_max = options.context - num_prefix_tokens;
  if (options.stride == 0) options.stride = std::max(1, options.context / 2);
  if (options.stride < 1 || options.stride > stride_max) {
    return FailParam("stride", "a stride of {} tokens; 1 to {} are possible in windows of {}{}", options.stride,
                     stride_max, options.context, num_prefix_tokens > 0 ? " with BOS" : "");
  }
  if (options.max_windows < 0) return FailParam("max-windows", "{} windows; 0 means all", options.max_windows);
  return options;
}

std::vector<TokenWindow> MakeWindows(std::int64_t num_tokens, int num_prefix_tokens, const PerplexityOptions& options) {
  CHECK(num_tokens >= 2 && options.stride >= 1 && options.stride <= options.context - num_prefix_tokens);
  const std::int64_t capacity = options.context - num_prefix_tokens;
  std::vector<TokenWindow> windows;
  std::int64_t scored_end = 0;
  for (std::int64_t begin = 0; scored_end < num_tokens; begin += options.stride) {
    if (options.max_windows > 0 && std::ssize(windows) == options.max_windows) break;
    const std::int64_t end = std::min(begin + capacity, num_tokens);
    // The first token of a window without BOS has nothing before it that could predict it.
    const std::int64_t first_scored = std::max(scored_end, num_prefix_tokens > 0 ? begin : begin + 1);
    if (first_scored < end) windows.push_back({begin, end, first_scored});
    scored_end = end;
  }
  return windows;
}

Result<PerplexityReport> MeasurePerplexity(const PerplexityRun& run) {
  CHECK(run.tokens.size() >= 2 && run.pool != nullptr);
  if (run.reference) CHECK(run.reference->model->config().vocab_size == run.model.model->config().vocab_size);
  return Measurement(run).Run();
}

}  // namespace quire::bench
