#include "engine/tiers/open_tiers.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "engine/tiers/disk_tier.h"
#include "engine/tiers/redis_tier.h"
#include "weights/packed_file.h"
#include "weights/quantizing_matrix.h"

namespace quire::engine {
namespace {

// Raised with each change of what a block's bytes mean that the program's own hash would not show.
constexpr int kContentVersion = 1;

}  // namespace

bool HasTiers(const EngineOptions& options) {
  return !options.kv_disk.empty() || !options.kv_redis.empty();
}

Result<TransferPlan> PlanTransfer(const EngineOptions& options, std::size_t block_bytes) {
  const std::int64_t blocks = options.kv_transfer_bytes / static_cast<std::int64_t>(block_bytes);
  if (blocks < 2) {
    return FailParam("kv_transfer_bytes", "kv_transfer_bytes is {}; two blocks of keys and values take {}",
                     options.kv_transfer_bytes, 2 * block_bytes);
  }
  // Reading is what somebody waits for; what cannot be written at once stays in the pool.
  const std::int64_t outgoing = std::max<std::int64_t>(1, blocks / 4);
  constexpr std::int64_t kMost = INT32_MAX / 4;
  return TransferPlan{static_cast<int>(std::min(blocks - outgoing, kMost)),
                      static_cast<int>(std::min(outgoing, kMost))};
}

Result<std::string> ContentIdentity(const EngineOptions& options, std::string_view isa) {
  QUIRE_TRY(const std::string model, weights::ModelContentDigest(options.model));
  QUIRE_TRY(const MappedFile program, MappedFile::Open("/proc/self/exe"));
  return fmt::format("version={} model={} program={:016x} isa={} kv={} quantization={} max_model_len={}",
                     kContentVersion, model, XXH3_64bits(program.bytes().data(), program.bytes().size()), isa,
                     KvDtypeName(options.kv_dtype), weights::QuantizationName(options.quantization),
                     options.max_model_len);
}

Result<std::unique_ptr<KvTiers>> OpenTiers(const EngineOptions& options, const std::string& identity,
                                           std::size_t block_bytes, int num_outgoing_blocks, const Clock* clock) {
  std::vector<std::unique_ptr<KvTier>> tiers;
  if (!options.kv_disk.empty()) {
    QUIRE_TRY(std::unique_ptr<DiskTier> disk,
              DiskTier::Open({.folder = options.kv_disk,
                              .identity = fmt::format("{:016x}", XXH3_64bits(identity.data(), identity.size())),
                              .bytes_max = options.kv_disk_bytes,
                              .block_bytes = block_bytes},
                             clock));
    tiers.push_back(std::move(disk));
  }
  if (!options.kv_redis.empty()) {
    QUIRE_TRY(RedisAddress address, RedisAddress::Parse(options.kv_redis));
    tiers.push_back(std::make_unique<RedisTier>(
        RedisTier::Config{.address = std::move(address),
                          .block_bytes = block_bytes,
                          .timeout = options.kv_redis_timeout,
                          .time_to_live = std::chrono::duration_cast<std::chrono::seconds>(options.kv_redis_ttl)},
        clock));
  }
  return KvTiers::Create({.block_bytes = block_bytes, .num_outgoing = num_outgoing_blocks}, std::move(tiers));
}

}  // namespace quire::engine
