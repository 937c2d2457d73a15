// From the options to the tiers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/tiers/kv_tiers.h"

namespace quire::engine {

bool HasTiers(const EngineOptions& options);

// How EngineOptions::kv_transfer_bytes is cut: blocks that are read, and blocks that wait to be written.
struct TransferPlan {
  int num_landing_blocks = 0;
  int num_outgoing_blocks = 0;
};
Result<TransferPlan> PlanTransfer(const EngineOptions& options, std::size_t block_bytes);

// What decides the bits of a block besides its tokens and their namespace: the contents of the model's files, how its
// weights and its keys and values are stored, the kernels, and this very program, whose next version may compute
// otherwise. Reads the model's files.
Result<std::string> ContentIdentity(const EngineOptions& options, std::string_view isa);

// `clock` outlives them.
Result<std::unique_ptr<KvTiers>> OpenTiers(const EngineOptions& options, const std::string& identity,
                                           std::size_t block_bytes, int num_outgoing_blocks, const Clock* clock);

}  // namespace quire::engine
