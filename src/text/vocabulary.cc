#include "text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace quire::text {
namespace {

std::uint32_t Hash(std::string_view text) {
  const std::uint64_t hash = std::hash<std::string_view>()(text);
  return static_cast<std::uint32_t>(hash ^ hash >> 32);
}

}  // namespace

void Vocabulary::Reserve(std::size_t count, std::size_t bytes) {
  texts_.reserve(bytes);
  entries_.reserve(count);
  if (slots_.size() < 2 * count) {
    slots_.resize(std::bit_ceil(2 * count + 2));
  }
}

std::size_t Vocabulary::FindSlot(std::string_view text, std::uint32_t hash) const {
  std::size_t i = hash & (slots_.size() - 1);
  while (slots_[i].id >= 0) {
    if (slots_[i].hash == hash && Text(TokenId(slots_[i].id)) == text) break;
    i = (i + 1) & (slots_.size() - 1);
  }
  return i;
}

void Vocabulary::Grow() {
  std::vector<Slot> old(std::max<std::size_t>(16, 2 * slots_.size()));
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id < 0) continue;
    std::size_t i = slot.hash & (slots_.size() - 1);
    while (slots_[i].id >= 0) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }
}

Result<> Vocabulary::Add(std::int64_t id, std::string_view text, std::string_view name) {
  if (id < 0 || id >= kVocabularySizeMax) {
    return Fail(ErrorCode::kCorrupt, "{}: the id {} of an entry of the vocabulary is outside 0 to {}", name, id,
                kVocabularySizeMax - 1);
  }
  if (text.size() > UINT32_MAX) return Fail(ErrorCode::kCorrupt, "{}: the entry with id {} is too long", name, id);
  if (2 * (count_ + 1) > slots_.size()) Grow();
  const std::uint32_t hash = Hash(text);
  const std::size_t slot = FindSlot(text, hash);
  if (slots_[slot].id >= 0) {
    return Fail(ErrorCode::kCorrupt, "{}: the ids {} and {} have the same text", name, slots_[slot].id, id);
  }
  const auto index = static_cast<std::size_t>(id);
  if (index >= entries_.size()) entries_.resize(index + 1);
  if (entries_[index].present) {
    return Fail(ErrorCode::kCorrupt, "{}: two entries of the vocabulary have the id {}", name, id);
  }
  entries_[index] = {.offset = texts_.size(), .bytes = static_cast<std::uint32_t>(text.size()), .present = true};
  texts_.append(text);
  slots_[slot] = {.hash = hash, .id = static_cast<std::int32_t>(id)};
  ++count_;
  longest_entry_bytes_ = std::max(longest_entry_bytes_, text.size());
  return {};
}

Result<> Vocabulary::CheckDensity(std::string_view name) const {
  if (entries_.size() > 2 * count_ + 65536) {
    return Fail(ErrorCode::kCorrupt, "{}: the largest id is {}, but the vocabulary has {} entries", name,
                entries_.size() - 1, count_);
  }
  return {};
}

std::optional<TokenId> Vocabulary::Find(std::string_view text) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[FindSlot(text, Hash(text))];
  if (slot.id < 0) return std::nullopt;
  return TokenId(slot.id);
}

std::string_view Vocabulary::Text(TokenId id) const {
  if (id.value() < 0 || static_cast<std::size_t>(id.value()) >= entries_.size()) return {};
  const Entry& entry = entries_[static_cast<std::size_t>(id.value())];
  return std::string_view(texts_).substr(entry.offset, entry.bytes);
}

bool Vocabulary::Contains(TokenId id) const {
  return id.value() >= 0 && static_cast<std::size_t>(id.value()) < entries_.size() &&
         entries_[static_cast<std::size_t>(id.value())].present;
}

}  // namespace quire::text
