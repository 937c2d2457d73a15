// A model that passes everything on to another one: what watches, times or disturbs a model overrides what it is about.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "models/model.h"

namespace quire::models {

class ModelDecorator : public Model {
 public:
  const weights::ModelConfig& config() const final { return model_->config(); }
  std::int64_t num_parameters() const final { return model_->num_parameters(); }
  std::int64_t weight_bytes() const final { return model_->weight_bytes(); }
  std::string weight_formats() const final { return model_->weight_formats(); }
  kernels::KvLayout kv_layout() const final { return model_->kv_layout(); }
  std::size_t WorkspaceBytes(const kernels::KernelTable& kernels, int num_threads, int num_tokens,
                             int num_logit_rows) const final {
    return model_->WorkspaceBytes(kernels, num_threads, num_tokens, num_logit_rows);
  }
  void ForwardHidden(const nn::ExecContext& context, const ForwardBatch& batch, nn::KvPool* kv,
                     float* hidden) const override {
    model_->ForwardHidden(context, batch, kv, hidden);
  }
  void Logits(const nn::ExecContext& context, const float* hidden, int num_rows, float* logits) const override {
    model_->Logits(context, hidden, num_rows, logits);
  }

 protected:
  // `model` outlives it.
  explicit ModelDecorator(const Model* model) : model_(model) {}

 private:
  const Model* const model_;
};

}  // namespace quire::models
