// What a server of several models is told at start: which there are, how each is had, and what they may take together.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/config.h"

namespace quire::server {

struct ModelsConfig {
  // Of weights, keys and values of all loaded models together. Never exceeded: what is idle makes room, and what is in
  // use is waited for.
  std::int64_t memory_bytes = 0;
  int loaded_max = 4;                               // models in memory at a time
  std::chrono::milliseconds wait_timeout{120'000};  // how long a request waits for its model, then it gets 503
  int waiting_max = 64;                             // requests that wait for their models; further ones get 503 at once
  std::chrono::milliseconds idle_timeout{0};        // a model without a request for so long is unloaded; 0: never

  // Says which field is wrong, and its range. memory_bytes 0 is for the caller to fill in.
  Result<> Validate() const;
};

// What a model takes while it is loaded.
struct ModelMemory {
  std::int64_t weight_bytes = 0;  // as far as it can be known before they are loaded
  std::int64_t kv_bytes = 0;
  std::int64_t total() const { return weight_bytes + kv_bytes; }
};

// A model that is loaded when it is needed. The functions may take long and are called from several threads, `load` from
// one at a time.
struct ModelSpec {
  std::vector<std::string> names;  // what clients may call it; the first is what responses say
  bool load_at_start = false;
  // From the heads of its files, which may have changed since; fails when there is no model, or it cannot fit.
  std::function<Result<ModelMemory>()> measure;
  // Reads tokenizer and template and starts an engine, which may still be loading when this returns. The model owns its
  // engine (own_engine) and needs no names.
  std::function<Result<ServedModel>()> load;
};

}  // namespace quire::server
