// Models for tests of loading and unloading, each with a scripted engine. Counts what they take while they are in memory,
// from the moment they are loaded until their engine has gone.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/models_config.h"
#include "server/testing/byte_tokenizer.h"
#include "server/testing/scripted_engine.h"

namespace quire::server::testing {

class ModelPark {
 public:
  struct Model {
    std::int64_t bytes = 100;     // as measured
    std::int64_t real_bytes = 0;  // as the engine says when it is ready; 0: the same
    bool load_at_start = false;
    std::atomic<bool> is_missing{false};  // its files are
    std::atomic<bool> is_broken{false};   // its files are there and cannot be loaded
    std::atomic<bool> is_slow{false};     // its engine is ready when Finish is called, and not before
    std::atomic<int> num_loads{0};        // engines started so far
  };

  // `says`: what every request gets, after the model's name and a colon.
  explicit ModelPark(std::string says = " hello") : says_(std::move(says)) {}

  Model& Add(const std::string& name, std::int64_t bytes) {
    auto& model = models_[name];
    model = std::make_unique<Model>();
    model->bytes = bytes;
    return *model;
  }
  Model& model(const std::string& name) { return *models_.at(name); }

  std::vector<ModelSpec> Specs() {
    std::vector<ModelSpec> specs;
    for (const auto& [name, model] : models_) {
      specs.push_back({.names = {name},
                       .load_at_start = model->load_at_start,
                       .measure = [raw = model.get()]() -> Result<ModelMemory> {
                         if (raw->is_missing.load()) return Fail(ErrorCode::kNotFound, "there is no such file");
                         return ModelMemory{.weight_bytes = raw->bytes, .kv_bytes = 0};
                       },
                       .load = [this, name, raw = model.get()] { return Load(name, raw); }});
    }
    return specs;
  }

  // Does something to the engine of a model, if it has one.
  bool WithEngine(const std::string& name, const std::function<void(ScriptedEngine&)>& action) {
    const std::lock_guard lock(mutex_);
    const auto found = engines_.find(name);
    if (found == engines_.end()) return false;
    action(*found->second);
    return true;
  }
  // A slow model's engine is ready.
  void Finish(const std::string& name) {
    WithEngine(name, [](ScriptedEngine& engine) { engine.Revive(); });
  }

  std::int64_t bytes_now() const { return bytes_now_.load(); }
  std::int64_t bytes_peak() const { return bytes_peak_.load(); }
  int models_peak() const { return models_peak_.load(); }

 private:
  // Is counted while it is there.
  class Engine final : public EngineClient {
   public:
    Engine(ModelPark* park, std::string name, std::int64_t bytes, std::unique_ptr<ScriptedEngine> engine)
        : park_(park), name_(std::move(name)), bytes_(bytes), engine_(std::move(engine)) {
      park_->Count(bytes_, 1);
      const std::lock_guard lock(park_->mutex_);
      park_->engines_[name_] = engine_.get();
    }
    ~Engine() override {
      {
        const std::lock_guard lock(park_->mutex_);
        park_->engines_.erase(name_);
      }
      park_->Count(-bytes_, -1);
    }
    Result<> Submit(GenerateRequest request) override { return engine_->Submit(std::move(request)); }
    void Abort(RequestId id, std::optional<int> choice) override { engine_->Abort(id, choice); }
    std::optional<std::vector<EngineEvent>> Next(std::chrono::nanoseconds timeout) override {
      return engine_->Next(timeout);
    }
    Result<EngineInfo> Info() override {
      auto info = engine_->Info();
      if (info) info->weight_bytes = bytes_;
      return info;
    }
    Result<EngineStats> Stats() override { return engine_->Stats(); }
    Result<> ResetPrefixCache() override { return engine_->ResetPrefixCache(); }
    Result<TraceBatch> Trace(TraceCommand command) override { return engine_->Trace(command); }

   private:
    ModelPark* park_;
    const std::string name_;
    const std::int64_t bytes_;
    const std::unique_ptr<ScriptedEngine> engine_;
  };

  Result<ServedModel> Load(const std::string& name, Model* model) {
    ++model->num_loads;
    if (model->is_broken.load()) return Fail(ErrorCode::kCorrupt, "the tokenizer is broken");
    const std::vector<TokenId> says = *ByteTokenizer().Encode(name + ":" + says_, {.add_special_tokens = false});
    auto scripted = std::make_unique<ScriptedEngine>(
        ScriptedEngine::Options{}, [says](const GenerateRequest&, int) { return Script{.tokens = says}; });
    if (model->is_slow.load()) scripted->Die();
    ServedModel served{.names = {}, .tokenizer = std::make_shared<ByteTokenizer>()};
    served.own_engine = std::make_unique<Engine>(this, name, model->real_bytes > 0 ? model->real_bytes : model->bytes,
                                                 std::move(scripted));
    served.engine = served.own_engine.get();
    return served;
  }

  void Count(std::int64_t bytes, int models) {
    const auto raise = [](auto* peak, auto value) {
      for (auto seen = peak->load(); value > seen && !peak->compare_exchange_weak(seen, value);) {
      }
    };
    raise(&bytes_peak_, bytes_now_.fetch_add(bytes) + bytes);
    raise(&models_peak_, models_now_.fetch_add(models) + models);
  }

  const std::string says_;
  std::map<std::string, std::unique_ptr<Model>> models_;
  std::atomic<std::int64_t> bytes_now_{0}, bytes_peak_{0};
  std::atomic<int> models_now_{0}, models_peak_{0};
  std::mutex mutex_;  // guards engines_
  std::map<std::string, ScriptedEngine*> engines_;
};

}  // namespace quire::server::testing
