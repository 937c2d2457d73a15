// What a full block of keys and values is called outside the process: a hash of all that its bits depend on.
//
//   root   = SHA-256("root", identity, cache namespace)        identity: the model, its weights' and KV formats, the kernels
//   key[0] = SHA-256("next", root, tokens of block 0)
//   key[i] = SHA-256("next", key[i - 1], tokens of block i)
//
// A key thus stands for a whole prefix. Inside the process the radix cache compares tokens themselves; outside, only the
// key is at hand, so it must be a hash for which nobody finds two inputs (a salt isolates tenants from each other).
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong_id.h"

namespace quire::kv {

struct ContentKey {
  std::array<std::byte, 32> bytes{};

  std::string ToHex() const;
  friend bool operator==(const ContentKey&, const ContentKey&) = default;
};

// The bytes are a hash already.
struct ContentKeyHash {
  std::size_t operator()(const ContentKey& key) const {
    std::size_t hash;
    std::memcpy(&hash, key.bytes.data(), sizeof hash);
    return hash;
  }
};

// Makes keys; allocates nothing after it was made. One thread.
class ContentHasher {
 public:
  // `identity` says what, besides tokens and namespace, decides the bits of a block.
  explicit ContentHasher(std::string_view identity);

  ContentKey Root(std::string_view cache_namespace);
  ContentKey Next(const ContentKey& previous, std::span<const TokenId> block_tokens);
  // Of all full blocks of `tokens`.
  std::vector<ContentKey> Keys(std::string_view cache_namespace, std::span<const TokenId> tokens, int block_size);

 private:
  struct Free {
    void operator()(void* context) const;
  };
  void Begin(char tag);
  void Add(std::span<const std::byte> bytes);
  ContentKey End();

  const std::string identity_;
  std::unique_ptr<void, Free> context_;  // EVP_MD_CTX
};

}  // namespace quire::kv
