// Prints what quire computes, for comparison with another implementation.
//   reference_logits MODEL ISA KV_DTYPE CHUNK MAX_MODEL_LEN THREADS logits ID…   → floats [ids, vocab_size], binary
//   reference_logits MODEL ISA KV_DTYPE CHUNK MAX_MODEL_LEN THREADS greedy COUNT ID…  → ids, one a line
// CHUNK is the number of tokens of a forward pass; 0: all at once.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace quire {
namespace {

class Program {
 public:
  Program(std::unique_ptr<models::Model> model, const kernels::KernelTable* kernels, ThreadPool* pool, int num_tokens)
      : model_(std::move(model)), num_tokens_(num_tokens) {
    const int num_blocks = num_tokens / kernels::KvLayout::block_size + 1;
    kv_ = *nn::KvPool::Create(model_->kv_layout(), num_blocks);
    workspace_ = *nn::Workspace::Create(model_->WorkspaceBytes(*kernels, pool->num_threads(), num_tokens, num_tokens));
    context_ = {pool, kernels, &workspace_};
    // Backwards: a result must not depend on where a block lies.
    for (int block = num_blocks; block-- > 0;) blocks_.push_back(BlockId(block));
  }

  // Appends the logits of tokens [first, first + count).
  void Run(std::span<const TokenId> tokens, int first, int count, std::vector<float>* logits) {
    const models::SequenceSlice slice{0, count, first, blocks_};
    std::vector<std::int32_t> rows;
    for (int row = 0; row < count; ++row) rows.push_back(row);
    const std::size_t begin = logits->size();
    logits->resize(begin + static_cast<std::size_t>(count) * static_cast<std::size_t>(vocab_size()));
    model_->Forward(
        context_,
        {tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), std::span(&slice, 1), rows},
        &kv_, logits->data() + begin);
  }

  int vocab_size() const { return model_->config().vocab_size; }
  int num_tokens() const { return num_tokens_; }

 private:
  std::unique_ptr<models::Model> model_;
  nn::KvPool kv_;
  nn::Workspace workspace_;
  nn::ExecContext context_;
  std::vector<BlockId> blocks_;
  int num_tokens_;
};

void PrintLogits(Program* program, std::span<const TokenId> tokens, int chunk) {
  std::vector<float> logits;
  const int count = static_cast<int>(tokens.size()), step = chunk > 0 ? chunk : count;
  for (int first = 0; first < count; first += step) {
    program->Run(tokens, first, std::min(step, count - first), &logits);
  }
  std::fwrite(logits.data(), sizeof(float), logits.size(), stdout);
}

void PrintGreedy(Program* program, std::vector<TokenId> tokens, int count) {
  std::vector<float> logits;
  int computed = 0;
  for (int i = 0; i < count; ++i) {
    logits.clear();
    program->Run(tokens, computed, static_cast<int>(tokens.size()) - computed, &logits);
    computed = static_cast<int>(tokens.size());
    const auto last = logits.end() - program->vocab_size();
    tokens.push_back(TokenId(static_cast<std::int32_t>(std::max_element(last, logits.end()) - last)));
    fmt::print("{}\n", tokens.back());
  }
}

int Fail(std::string_view message) {
  fmt::print(stderr, "reference_logits: {}\n", message);
  return 1;
}

int Main(std::span<char* const> arguments) {
  if (arguments.size() < 9) return Fail("too few arguments; see the top of logits_main.cc");
  const auto kernels = kernels::SelectKernels(arguments[2]);
  if (!kernels) return Fail(kernels.error().message);
  const int chunk = std::atoi(arguments[4]), max_model_len = std::atoi(arguments[5]);
  const bool greedy = std::string_view(arguments[7]) == "greedy";
  const int count = greedy ? std::atoi(arguments[8]) : 0;
  std::vector<TokenId> tokens;
  for (const char* id : arguments.subspan(greedy ? 9 : 8)) tokens.push_back(TokenId(std::atoi(id)));

  ThreadPool pool(std::max(1, std::atoi(arguments[6])));
  const auto source = weights::ModelSource::Open(arguments[1]);
  if (!source) return Fail(source.error().message);
  models::LoadOptions options{.max_model_len = max_model_len};
  if (std::string_view(arguments[3]) == "f32") options.kv_dtype = kernels::KvDtype::kF32;
  auto model = models::Model::Load(**source, options, &pool, **kernels);
  if (!model) return Fail(model.error().message);
  Program program(*std::move(model), *kernels, &pool, static_cast<int>(tokens.size()) + count);
  if (greedy) {
    PrintGreedy(&program, tokens, count);
  } else {
    PrintLogits(&program, tokens, chunk);
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main({argv, static_cast<std::size_t>(argc)});
}
