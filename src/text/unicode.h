// What tokenizers ask of Unicode: categories, white space, word characters, lower case and normal forms. The
// tables are utf8proc's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quire::text {

// A set of general categories, one bit each.
using CategoryMask = std::uint32_t;

// The bit of the category of a code point.
CategoryMask CategoryOf(std::uint32_t code_point);
// The categories that `name` stands for: "L", "Lu", "Nd", …; 0 when there is no such category.
CategoryMask CategoriesNamed(std::string_view name);

bool IsWhiteSpace(std::uint32_t code_point);   // the property White_Space
bool IsPunctuation(std::uint32_t code_point);  // categories P*, and ASCII's $+<=>^`|~
bool IsNumeric(std::uint32_t code_point);      // categories N*
bool IsMark(std::uint32_t code_point);         // categories M*
// What \w means to Rust's regex crate: letters, marks, decimal digits, connectors, joiners.
bool IsWordCharacter(std::uint32_t code_point);

// Lower case, character by character (no special casing of a final sigma), as Rust's char::to_lowercase.
void AppendLowercase(std::uint32_t code_point, std::string* out);

enum class NormalForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// `text` is valid UTF-8. True when it is certainly in the form already; false when that takes a closer look.
bool IsQuicklyInForm(NormalForm form, std::string_view text);
std::string Normalize(NormalForm form, std::string_view text);

}  // namespace quire::text
