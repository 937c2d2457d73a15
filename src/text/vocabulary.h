// The entries of a vocabulary: text to id and id to text. Filled once, then read by any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/strong_id.h"

namespace quire::text {

// No model has more; a file that says otherwise would have us allocate for it.
inline constexpr std::int64_t kVocabularySizeMax = 10'000'000;

class Vocabulary {
 public:
  // Makes room for `count` entries of about `bytes` bytes.
  void Reserve(std::size_t count, std::size_t bytes);
  // Adds an entry. Ids may come in any order and leave gaps. `name` stands in errors: a second text for one
  // id, a second id for one text, an id out of range.
  Result<> Add(std::int64_t id, std::string_view text, std::string_view name);
  // Ids must be dense enough: the largest below twice the number of entries plus 65,536.
  Result<> CheckDensity(std::string_view name) const;

  std::optional<TokenId> Find(std::string_view text) const;
  // "" for ids that are out of range or in a gap.
  std::string_view Text(TokenId id) const;
  bool Contains(TokenId id) const;
  // One more than the largest id.
  int size() const { return static_cast<int>(entries_.size()); }
  std::size_t count() const { return count_; }
  std::size_t longest_entry_bytes() const { return longest_entry_bytes_; }

 private:
  struct Entry {
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    bool present = false;
  };
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = -1;  // −1: free
  };

  std::size_t FindSlot(std::string_view text, std::uint32_t hash) const;
  void Grow();

  std::string texts_;           // all entries, one after the other
  std::vector<Entry> entries_;  // [size()]
  std::vector<Slot> slots_;     // open addressing, a power of two, at most half full
  std::size_t count_ = 0;
  std::size_t longest_entry_bytes_ = 0;
};

}  // namespace quire::text
