// What Python's str does, on UTF-8: positions count characters, blanks and cases are Unicode's. All arguments are
// valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::text::jinja {

// -- characters
bool IsSpaceCharacter(std::uint32_t c);
bool IsPrintableCharacter(std::uint32_t c);
// Bytes of white space at the beginning or the end of `text`.
std::size_t LeadingSpace(std::string_view text);
std::size_t TrailingSpace(std::string_view text);

// -- positions
std::size_t CharacterCount(std::string_view text);
// The byte offset of character `index`; the size of the text when it has fewer.
std::size_t ByteOffset(std::string_view text, std::size_t index);
std::vector<std::string_view> Characters(std::string_view text);

// -- identifiers, as Python reads them
// Bytes at the beginning of `text` that may be part of a name; a digit may come first.
std::size_t IdentifierSize(std::string_view text);
bool IsIdentifier(std::string_view text);

// -- cases
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalize(std::string_view text);
std::string CaseFold(std::string_view text);
std::string SwapCase(std::string_view text);
std::string Title(std::string_view text);  // str.title(): every run of letters

// -- predicates of a whole text; false for an empty one
bool IsAlpha(std::string_view text);
bool IsDecimal(std::string_view text);
bool IsDigit(std::string_view text);
bool IsNumeric(std::string_view text);
bool IsAlnum(std::string_view text);
bool IsSpace(std::string_view text);
bool IsLower(std::string_view text);
bool IsUpper(std::string_view text);
bool IsPrintable(std::string_view text);  // true for an empty one
bool IsTitle(std::string_view text);

// -- cutting
// Without the characters of `set` (white space without one) at the chosen ends.
std::string_view Strip(std::string_view text, const std::optional<std::string_view>& set, bool left, bool right);
// At runs of white space, at most `max_splits` times (negative: always), counted from the left or the right.
std::vector<std::string_view> SplitSpace(std::string_view text, std::int64_t max_splits, bool from_right);
std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, std::int64_t max_splits,
                                      bool from_right);
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);
// At most `count` times (negative: always).
std::string Replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t count);
// How often it occurs, without overlaps.
std::size_t CountOccurrences(std::string_view text, std::string_view part);

// -- HTML
std::string EscapeHtml(std::string_view text);

}  // namespace quire::text::jinja
