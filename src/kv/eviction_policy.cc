#include "kv/eviction_policy.h"

#include "base/parse_name.h"

namespace quire::kv {

std::string_view EvictionPolicyName(EvictionPolicy policy) {
  switch (policy) {
    case EvictionPolicy::kLru:
      return "lru";
    case EvictionPolicy::kLfu:
      return "lfu";
    case EvictionPolicy::kSizeAware:
      return "size-aware";
  }
  return "";
}

Result<EvictionPolicy> ParseEvictionPolicy(std::string_view name) {
  return ParseName<EvictionPolicy>("eviction policy", name, kEvictionPolicies, EvictionPolicyName);
}

}  // namespace quire::kv
