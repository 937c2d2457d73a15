#include "kv/content_key.h"

#include <openssl/evp.h>

#include <bit>
#include <cstdint>

#include "base/check.h"

namespace quire::kv {
namespace {

// Tokens are hashed as they lie in memory.
static_assert(sizeof(TokenId) == 4 && std::endian::native == std::endian::little);

EVP_MD_CTX* Context(void* context) {
  return static_cast<EVP_MD_CTX*>(context);
}

}  // namespace

std::string ContentKey::ToHex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text.push_back(kDigits[std::to_integer<unsigned>(byte) >> 4]);
    text.push_back(kDigits[std::to_integer<unsigned>(byte) & 15]);
  }
  return text;
}

void ContentHasher::Free::operator()(void* context) const {
  EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context));
}

ContentHasher::ContentHasher(std::string_view identity) : identity_(identity), context_(EVP_MD_CTX_new()) {
  CHECK(context_ != nullptr);
  CHECK(EVP_DigestInit_ex(Context(context_.get()), EVP_sha256(), nullptr) == 1);
}

// Without a digest OpenSSL takes the context's own, for which it has memory already.
void ContentHasher::Begin(char tag) {
  CHECK(EVP_DigestInit_ex(Context(context_.get()), nullptr, nullptr) == 1);
  Add(std::as_bytes(std::span(&tag, 1)));
}

void ContentHasher::Add(std::span<const std::byte> bytes) {
  CHECK(EVP_DigestUpdate(Context(context_.get()), bytes.data(), bytes.size()) == 1);
}

ContentKey ContentHasher::End() {
  ContentKey key;
  unsigned size = 0;
  CHECK(EVP_DigestFinal_ex(Context(context_.get()), reinterpret_cast<unsigned char*>(key.bytes.data()), &size) == 1);
  CHECK(size == key.bytes.size());
  return key;
}

ContentKey ContentHasher::Root(std::string_view cache_namespace) {
  Begin('R');
  const std::uint64_t size = identity_.size();  // so that no identity runs into a namespace
  Add(std::as_bytes(std::span(&size, 1)));
  Add(std::as_bytes(std::span(identity_)));
  Add(std::as_bytes(std::span(cache_namespace)));
  return End();
}

ContentKey ContentHasher::Next(const ContentKey& previous, std::span<const TokenId> block_tokens) {
  Begin('N');
  Add(previous.bytes);
  Add(std::as_bytes(block_tokens));
  return End();
}

std::vector<ContentKey> ContentHasher::Keys(std::string_view cache_namespace, std::span<const TokenId> tokens,
                                            int block_size) {
  const auto size = static_cast<std::size_t>(block_size);
  std::vector<ContentKey> keys;
  keys.reserve(tokens.size() / size);
  ContentKey key = Root(cache_namespace);
  for (; tokens.size() >= size; tokens = tokens.subspan(size)) {
    key = Next(key, tokens.first(size));
    keys.push_back(key);
  }
  return keys;
}

}  // namespace quire::kv
