#include "text/split_lexer.h"

#include <algorithm>
#include <bit>

#include "base/utf8.h"

namespace quire::text {

void CharacterClass::AddRange(std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t c = first; c <= last && c < 0x80; ++c) ascii_[c >> 6] |= std::uint64_t{1} << (c & 63);
  if (last >= 0x80) ranges_.emplace_back(first < 0x80 ? 0x80 : first, last);
}

void CharacterClass::AddCategories(CategoryMask categories) {
  for (std::uint32_t c = 0; c < 0x80; ++c) {
    if ((CategoryOf(c) & categories) != 0) AddCharacter(c);
  }
  categories_ |= categories;
}

void CharacterClass::AddWhiteSpace() {
  AddRange(9, 13);
  AddCharacter(0x85);
  AddCategories(CategoriesNamed("Z"));  // with U+0085 and these controls, the same as White_Space
}

void CharacterClass::Negate() {
  for (std::uint64_t& word : ascii_) word = ~word;
  negated_ = !negated_;
}

bool CharacterClass::FoldAsciiCase() {
  if (ReachesBeyondAscii()) return false;
  for (unsigned char lower = 'a'; lower <= 'z'; ++lower) {
    const auto upper = static_cast<unsigned char>(lower - 0x20);
    if (!ContainsAscii(lower) && !ContainsAscii(upper)) continue;
    AddCharacter(lower);
    AddCharacter(upper);
    if (lower == 's') AddCharacter(0x17F);   // long s
    if (lower == 'k') AddCharacter(0x212A);  // the sign for kelvin
  }
  return true;
}

bool CharacterClass::ContainsBeyondAscii(std::uint32_t code_point) const {
  bool found = categories_ != 0 && (CategoryOf(code_point) & categories_) != 0;
  for (const auto& [first, last] : ranges_) found |= code_point >= first && code_point <= last;
  return found != negated_;
}

SplitLexer::FirstSet SplitLexer::First(std::int32_t index) const {
  FirstSet set;
  if (index < 0) {
    set.empty = true;
    return set;
  }
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  const auto add = [&](const FirstSet& other) {
    for (std::size_t i = 0; i < set.ascii.size(); ++i) set.ascii[i] |= other.ascii[i];
    set.beyond_ascii |= other.beyond_ascii;
    set.empty |= other.empty;
  };
  switch (node.kind) {
    case Kind::kClass:
    case Kind::kPossessive: {
      const CharacterClass& char_class = classes_[node.char_class];
      for (unsigned char c = 0; c < 0x80; ++c) {
        if (char_class.ContainsAscii(c)) set.ascii[c >> 6] |= std::uint64_t{1} << (c & 63);
      }
      set.beyond_ascii = char_class.ReachesBeyondAscii();
      if (node.min == 0) add(First(node.next));
      return set;
    }
    case Kind::kChoice:
      for (const std::int32_t branch : node.branches) add(First(branch));
      return set;
    case Kind::kLookahead:
    case Kind::kNotLookahead:
      return First(node.next);
    case Kind::kAccept:
      set.empty = true;
      return set;
  }
  return set;
}

bool SplitLexer::PrepareDispatch() {
  if (branches_.empty() || branches_.size() > 64) return false;
  for (std::size_t i = 0; i < branches_.size(); ++i) {
    const FirstSet first = First(branches_[i]);
    if (first.empty) return false;
    const std::uint64_t bit = std::uint64_t{1} << i;
    for (std::size_t c = 0; c < 128; ++c) {
      if ((first.ascii[c >> 6] >> (c & 63) & 1) != 0) ascii_dispatch_[c] |= bit;
    }
    if (first.beyond_ascii) beyond_ascii_dispatch_ |= bit;
  }
  return true;
}

std::size_t SplitLexer::MatchRepeat(const Node& node, std::size_t at, Walk* walk) const {
  const CharacterClass& char_class = classes_[node.char_class];
  const std::string_view text = walk->text;
  std::size_t end = at;
  std::size_t least_end = at;  // where `min` characters end
  std::uint32_t count = 0;
  for (; count < node.max && end < text.size(); ++count) {
    const auto lead = static_cast<unsigned char>(text[end]);
    if (count == node.min) least_end = end;
    if (lead < 0x80) {
      if (!char_class.ContainsAscii(lead)) break;
      ++end;
    } else {
      const Utf8Char character = DecodeUtf8(text.substr(end));
      if (!char_class.Contains(character.code_point)) break;
      end += character.size;
    }
  }
  if (count < node.min) return kFailed;
  if (count == node.min) least_end = end;
  walk->steps_left -= std::min<std::uint64_t>(walk->steps_left, count);
  if (node.kind == Kind::kPossessive) return Match(node.next, end, walk);
  while (true) {
    const std::size_t match = Match(node.next, end, walk);
    if (match != kFailed || end == least_end || walk->steps_left == 0) return match;
    do {
      --end;
    } while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  }
}

std::size_t SplitLexer::Match(std::int32_t index, std::size_t at, Walk* walk) const {
  while (true) {
    if (walk->steps_left == 0) return kFailed;
    --walk->steps_left;
    const Node& node = nodes_[static_cast<std::size_t>(index)];
    switch (node.kind) {
      case Kind::kClass:
      case Kind::kPossessive:
        if (node.min != 1 || node.max != 1) return MatchRepeat(node, at, walk);
        {
          if (at >= walk->text.size()) return kFailed;
          const auto lead = static_cast<unsigned char>(walk->text[at]);
          if (lead < 0x80) {
            if (!classes_[node.char_class].ContainsAscii(lead)) return kFailed;
            ++at;
          } else {
            const Utf8Char character = DecodeUtf8(walk->text.substr(at));
            if (!classes_[node.char_class].Contains(character.code_point)) return kFailed;
            at += character.size;
          }
        }
        break;
      case Kind::kChoice:
        for (const std::int32_t branch : node.branches) {
          const std::size_t match = Match(branch, at, walk);
          if (match != kFailed) return match;
        }
        return kFailed;
      case Kind::kLookahead:
        if (Match(node.branches[0], at, walk) == kFailed) return kFailed;
        break;
      case Kind::kNotLookahead:
        if (Match(node.branches[0], at, walk) != kFailed) return kFailed;
        break;
      case Kind::kAccept:
        return at;
    }
    index = node.next;
  }
}

std::size_t SplitLexer::MatchAt(std::size_t at, Walk* walk) const {
  const auto lead = static_cast<unsigned char>(walk->text[at]);
  std::uint64_t candidates = lead < 0x80 ? ascii_dispatch_[lead] : beyond_ascii_dispatch_;
  for (; candidates != 0; candidates &= candidates - 1) {
    const std::int32_t branch = branches_[static_cast<std::size_t>(std::countr_zero(candidates))];
    const std::size_t end = Match(branch, at, walk);
    if (end != kFailed) return end;
  }
  return kFailed;
}

bool SplitLexer::FindAll(std::string_view text, std::uint64_t steps_max, std::vector<Span>* matches) const {
  Walk walk{.text = text, .steps_left = steps_max};
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = MatchAt(at, &walk);
    if (walk.steps_left == 0) return false;
    if (end == kFailed) {
      at += DecodeUtf8(text.substr(at)).size;
      continue;
    }
    matches->push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(end)});
    at = end;
  }
  return true;
}

}  // namespace quire::text
