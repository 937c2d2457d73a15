// A block of keys and values as it lies in a file or in a database: a head that says what it is, then the bytes.
//
//   offset  0  magic "QUIREKV1"        the number is that of this layout
//           8  bytes of the block      u64, little endian as all numbers
//          16  key                     32 bytes: an entry under another's name is found out
//          48  checksum of the block   XXH3, u64
//          56  checksum of the head    XXH3 of the 56 bytes before, u64
//          64  the block
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "kv/content_key.h"

namespace quire::engine {

inline constexpr std::size_t kKvEntryHeadBytes = 64;
using KvEntryHead = std::array<std::byte, kKvEntryHeadBytes>;

KvEntryHead MakeKvEntryHead(const kv::ContentKey& key, std::span<const std::byte> block);
// Whether `head` and `block` are what was written for `key`, whole and unchanged. Checksums find damage, not intent.
bool IsIntactKvEntry(const kv::ContentKey& key, std::span<const std::byte> head, std::span<const std::byte> block);

}  // namespace quire::engine
