#include "kv/cache_namespace.h"

namespace quire::kv {
namespace {

void AppendNumber(std::uint64_t value, std::string* key) {
  for (int shift = 0; shift < 64; shift += 8) key->push_back(static_cast<char>(value >> shift));
}

// tag, length in bytes, bytes
void AppendComponent(char tag, std::string_view bytes, std::string* key) {
  key->push_back(tag);
  AppendNumber(bytes.size(), key);
  key->append(bytes);
}

}  // namespace

std::string MakeCacheNamespace(std::string_view salt, std::optional<std::uint64_t> adapter_generation) {
  std::string key;
  if (!salt.empty()) AppendComponent('S', salt, &key);
  if (adapter_generation.has_value()) {
    std::string generation;
    AppendNumber(*adapter_generation, &generation);
    AppendComponent('A', generation, &key);
  }
  return key;
}

}  // namespace quire::kv
