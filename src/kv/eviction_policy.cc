#include "kv/eviction_policy.h"

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
  for (const EvictionPolicy policy : kEvictionPolicies) {
    if (name == EvictionPolicyName(policy)) return policy;
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown eviction policy \"{}\"; known are lru, lfu and size-aware", name);
}

}  // namespace quire::kv
