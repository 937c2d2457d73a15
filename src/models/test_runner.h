// For tests: a model with a pool, a workspace and one context per call, driven token by token or in chunks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"

namespace quire::models {

class TestRunner {
 public:
  static constexpr int kMaxTokens = 512;
  static constexpr int kNumBlocks = 256;

  TestRunner(const std::filesystem::path& path, const kernels::KernelTable& kernels, int num_threads,
             kernels::KvDtype kv_dtype, weights::Quantization quantization = weights::Quantization::kNone,
             const weights::PackedReader* packed = nullptr)
      : pool_(num_threads), kernels_(kernels) {
    auto source = weights::ModelSource::Open(path);
    if (!source) {
      error_ = source.error().message;
      return;
    }
    auto model =
        Model::Load(**source, {.kv_dtype = kv_dtype, .quantization = quantization, .packed = packed}, &pool_, kernels);
    if (!model) {
      error_ = model.error().message;
      return;
    }
    model_ = *std::move(model);
    kv_ = *nn::KvPool::Create(model_->kv_layout(), kNumBlocks);
    workspace_ = *nn::Workspace::Create(model_->WorkspaceBytes(kernels, num_threads, kMaxTokens, kMaxTokens));
  }

  const std::string& error() const { return error_; }
  const Model& model() const { return *model_; }
  nn::KvPool& kv() { return kv_; }
  nn::ExecContext context() { return {&pool_, &kernels_, &workspace_}; }

  // Logits [num_tokens, vocab_size] of tokens [first, first + count) of a sequence whose blocks are
  // first_block, first_block + 1, …
  std::vector<float> Run(std::span<const TokenId> tokens, int first, int count, int first_block = 0) {
    std::vector<BlockId> blocks;
    for (int b = 0; b * kernels::KvLayout::block_size < first + count; ++b) blocks.push_back(BlockId(first_block + b));
    const SequenceSlice slice{0, count, first, blocks};
    std::vector<std::int32_t> rows(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) rows[static_cast<std::size_t>(i)] = i;
    std::vector<float> logits(static_cast<std::size_t>(count) * static_cast<std::size_t>(vocab_size()));
    model_->Forward(
        context(),
        {tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), std::span(&slice, 1), rows},
        &kv_, logits.data());
    return logits;
  }

  // `count` tokens after `prompt`, each the most likely one.
  std::vector<TokenId> Greedy(std::vector<TokenId> tokens, int count) {
    const std::size_t prompt = tokens.size();
    for (int i = 0; i < count; ++i) {
      const int first = i == 0 ? 0 : static_cast<int>(tokens.size()) - 1;
      const int num_tokens = static_cast<int>(tokens.size()) - first;
      const std::vector<float> logits = Run(tokens, first, num_tokens);
      const auto last = logits.end() - vocab_size();
      tokens.push_back(TokenId(static_cast<std::int32_t>(std::max_element(last, logits.end()) - last)));
    }
    return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end()};
  }

  int vocab_size() const { return model_->config().vocab_size; }

 private:
  ThreadPool pool_;
  const kernels::KernelTable& kernels_;
  std::string error_;
  std::unique_ptr<Model> model_;
  nn::KvPool kv_;
  nn::Workspace workspace_;
};

}  // namespace quire::models
