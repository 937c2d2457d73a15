#include "server/model_backend.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace quire::server {
namespace {

// FNV-1a: a name for a configuration, not a secret.
std::uint64_t HashText(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

ModelBackend::ModelBackend(ServedModel model, const ServerConfig* config, Metrics* metrics, const Clock* clock,
                           std::function<void(bool is_gone)> on_change, Profiler* profiler)
    : model_(std::move(model)),
      config_(config),
      metrics_(metrics),
      profiler_(profiler),
      tracker_(model_.engine, clock,
               profiler != nullptr ? profiler->Lane("engine events of " + model_.names.front()) : nullptr),
      monitor_(model_.engine, metrics, [on_change] { on_change(false); }) {
  if (profiler_ != nullptr) profiler_->AddEngine("engine " + model_.names.front(), model_.engine);
  tracker_thread_ = std::thread([this, on_gone = std::move(on_change)] {
    tracker_.Run(stop_tracker_);
    if (tracker_.engine_gone()) on_gone(true);
  });
}

ModelBackend::~ModelBackend() {
  if (profiler_ != nullptr) profiler_->RemoveEngine(model_.engine);
  stop_tracker_.store(true, std::memory_order_relaxed);
  tracker_thread_.join();
  monitor_.Stop();
}

std::shared_ptr<const ModelContext> ModelBackend::Context() {
  const auto info = monitor_.info();
  if (info == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  if (context_ != nullptr && context_info_ == info) return context_;
  auto context = std::make_shared<ModelContext>();
  context->names = model_.names;
  context->tokenizer = model_.tokenizer;
  context->chat_template = model_.chat_template;
  context->defaults = model_.defaults;
  context->limits = {.vocab_size = info->vocab_size,
                     .max_model_len = model_.max_model_len > 0 ? std::min(model_.max_model_len, info->max_model_len)
                                                               : info->max_model_len,
                     .logprobs_max = config_->logprobs_max,
                     .scheduling_policy = info->scheduling_policy};
  for (int id = 0; id < model_.tokenizer->vocab_size(); ++id) {
    context->token_bytes_max = std::max(context->token_bytes_max, model_.tokenizer->TokenText(TokenId(id)).size());
  }
  context->system_fingerprint = fmt::format(
      "quire-{:016x}", HashText(fmt::format("{}|{}|{}|{}|{}|{}", QUIRE_VERSION, info->model_path, info->architecture,
                                            info->weight_formats, info->isa, info->kv_dtype)));
  context_info_ = info;
  context_ = std::move(context);
  return context_;
}

}  // namespace quire::server
