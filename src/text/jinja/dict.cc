// Dicts: insertion order, and keys that are equal as Python's are (1, 1.0 and true are one).
#include <algorithm>
#include <cmath>

#include "text/jinja/value.h"

namespace quire::text::jinja {

namespace {
// Below this many entries a dict is searched from its beginning, which is faster than hashing.
constexpr std::size_t kIndexedFrom = 12;

bool KeyEqual(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return a.text() == b.text();
  if (a.is_string() || b.is_string()) return false;
  return HashKey(a) == HashKey(b);
}
}  // namespace

std::optional<std::string> HashKey(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return "n";
    case Kind::kString:
      return "s" + value.text();
    case Kind::kBool:
    case Kind::kInt:
      return fmt::format("i{}", value.integer());
    case Kind::kFloat: {
      // 1.0 and 1 are one key.
      const double real = value.real();
      if (std::trunc(real) == real && std::fabs(real) < 1e30) return fmt::format("i{}", static_cast<Int>(real));
      return fmt::format("f{}", real);
    }
    case Kind::kTuple: {
      std::string key = "t";
      for (const Value& item : value.items()) {
        const auto part = HashKey(item);
        if (!part) return std::nullopt;
        key += fmt::format("{}:{}", part->size(), *part);
      }
      return key;
    }
    case Kind::kUndefined:
      return "u";
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return fmt::format("o{}", static_cast<const void*>(value.object()));
    case Kind::kMissing:
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      return std::nullopt;
  }
  return std::nullopt;
}

const Value* DictObject::Find(const Value& key) const {
  if (key.is_string() && entries.size() < kIndexedFrom) return Find(key.text());
  const auto hash = HashKey(key);
  if (!hash) return nullptr;
  if (!index_.empty()) {
    const auto found = index_.find(*hash);
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  const auto found = std::ranges::find_if(entries, [&](const auto& entry) { return KeyEqual(entry.first, key); });
  return found == entries.end() ? nullptr : &found->second;
}

const Value* DictObject::Find(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(fmt::format("s{}", key));
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

bool DictObject::Set(const Value& key, Value value) {
  const auto hash = HashKey(key);
  if (!hash) return false;
  if (const Value* found = Find(key)) {
    *const_cast<Value*>(found) = std::move(value);
    return true;
  }
  entries.emplace_back(key, std::move(value));
  if (entries.size() == kIndexedFrom) {
    for (std::size_t i = 0; i < entries.size(); ++i) index_.emplace(*HashKey(entries[i].first), i);
  } else if (entries.size() > kIndexedFrom) {
    index_.emplace(*hash, entries.size() - 1);
  }
  return true;
}

}  // namespace quire::text::jinja
