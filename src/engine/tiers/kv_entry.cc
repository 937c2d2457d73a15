#include "engine/tiers/kv_entry.h"

#include <xxhash.h>

#include <bit>
#include <cstdint>
#include <cstring>

namespace quire::engine {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[8] = {'Q', 'U', 'I', 'R', 'E', 'K', 'V', '1'};
constexpr std::size_t kSizeOffset = 8, kKeyOffset = 16, kBlockSumOffset = 48, kHeadSumOffset = 56;

void PutNumber(std::uint64_t number, std::size_t offset, KvEntryHead* head) {
  std::memcpy(head->data() + offset, &number, sizeof number);
}

}  // namespace

KvEntryHead MakeKvEntryHead(const kv::ContentKey& key, std::span<const std::byte> block) {
  KvEntryHead head{};
  std::memcpy(head.data(), kMagic, sizeof kMagic);
  PutNumber(block.size(), kSizeOffset, &head);
  std::memcpy(head.data() + kKeyOffset, key.bytes.data(), key.bytes.size());
  PutNumber(XXH3_64bits(block.data(), block.size()), kBlockSumOffset, &head);
  PutNumber(XXH3_64bits(head.data(), kHeadSumOffset), kHeadSumOffset, &head);
  return head;
}

bool IsIntactKvEntry(const kv::ContentKey& key, std::span<const std::byte> head, std::span<const std::byte> block) {
  if (head.size() != kKvEntryHeadBytes) return false;
  const KvEntryHead expected = MakeKvEntryHead(key, block);
  return std::memcmp(head.data(), expected.data(), expected.size()) == 0;
}

}  // namespace quire::engine
