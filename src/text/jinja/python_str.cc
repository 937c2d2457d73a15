#include "text/jinja/python_str.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/utf8.h"

namespace quire::text::jinja {
namespace {

// Characters whose upper case is several characters (Unicode's SpecialCasing.txt, unconditional part without the
// Greek letters with iota below, which are handled by range).
struct SpecialUpper {
  std::uint32_t code_point;
  std::string_view upper;
  std::string_view title;
};
constexpr auto kSpecialUpper = std::to_array<SpecialUpper>({
#include "text/jinja/special_casing.inc"
});

utf8proc_category_t Category(std::uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool IsLetter(std::uint32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsLowerCharacter(std::uint32_t c) {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool IsUpperCharacter(std::uint32_t c) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool IsTitleCharacter(std::uint32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LT;
}
bool IsCased(std::uint32_t c) {
  return IsLowerCharacter(c) || IsUpperCharacter(c) || IsTitleCharacter(c);
}

bool IsDecimalCharacter(std::uint32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_ND;
}

// Numeric_Type=Digit: superscripts, subscripts and circled digits.
bool IsDigitCharacter(std::uint32_t c) {
  return IsDecimalCharacter(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490) || c == 0x24EA || (c >= 0x24F5 && c <= 0x24FD) || c == 0x24FF ||
         (c >= 0x2776 && c <= 0x277E) || (c >= 0x2780 && c <= 0x2788) || (c >= 0x278A && c <= 0x2792) ||
         (c >= 0x1369 && c <= 0x1371) || (c >= 0x1F100 && c <= 0x1F10A);
}

bool IsNumericCharacter(std::uint32_t c) {
  const auto category = Category(c);
  if (category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO)
    return true;
  // The Chinese numerals that Unicode gives a numeric value.
  static constexpr std::u32string_view kHan =
      U"一七万三九二五亿億八六兆十千半卅百零四壹贰叁肆伍陆柒捌玖拾佰仟萬貳參陸〇両两";
  return kHan.find(static_cast<char32_t>(c)) != std::u32string_view::npos;
}

bool IsAlnumCharacter(std::uint32_t c) {
  return IsLetter(c) || IsNumericCharacter(c);
}

bool IsIdentifierPart(std::uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  const auto category = Category(c);
  return IsLetter(c) || category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC ||
         c == 0xB7 || c == 0x387;
}

template <typename Predicate>
bool All(std::string_view text, Predicate predicate) {
  if (text.empty()) return false;
  while (!text.empty()) {
    const Utf8Char character = DecodeUtf8(text);
    if (!predicate(character.code_point)) return false;
    text.remove_prefix(character.size);
  }
  return true;
}

// Every character through `append(code point, out)`.
template <typename Append>
std::string Map(std::string_view text, Append append) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char character = DecodeUtf8(text);
    append(character.code_point, &out);
    text.remove_prefix(character.size);
  }
  return out;
}

const SpecialUpper* FindSpecial(std::uint32_t c) {
  const auto found = std::ranges::lower_bound(kSpecialUpper, c, {}, &SpecialUpper::code_point);
  return found != kSpecialUpper.end() && found->code_point == c ? &*found : nullptr;
}

void AppendUpper(std::uint32_t c, std::string* out) {
  if (const SpecialUpper* special = FindSpecial(c)) {
    out->append(special->upper);
  } else {
    AppendUtf8(static_cast<std::uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendTitle(std::uint32_t c, std::string* out) {
  if (const SpecialUpper* special = FindSpecial(c)) {
    out->append(special->title);
  } else {
    AppendUtf8(static_cast<std::uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

constexpr std::uint32_t kCapitalSigma = 0x3A3;

// The lower case of the capital sigma depends on its place: at the end of a word it is the final one. `before` and
// `after` are the text around it.
bool IsFinalSigma(std::string_view before, std::string_view after) {
  const auto ignorable = [](std::uint32_t c) {
    const auto category = Category(c);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' ||
           c == 0xB7 || c == 0x2018 || c == 0x2019;
  };
  bool cased_before = false;
  while (!before.empty()) {
    std::size_t start = before.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(before[start]) & 0xC0) == 0x80) --start;
    const std::uint32_t c = DecodeUtf8(before.substr(start)).code_point;
    before = before.substr(0, start);
    if (ignorable(c)) continue;
    cased_before = IsCased(c);
    break;
  }
  if (!cased_before) return false;
  while (!after.empty()) {
    const Utf8Char character = DecodeUtf8(after);
    after.remove_prefix(character.size);
    if (!ignorable(character.code_point)) return !IsCased(character.code_point);
  }
  return true;
}

// `position` is where the character, of `size` bytes, stands in `text`.
void AppendLower(std::string_view text, std::size_t position, const Utf8Char& character, std::string* out) {
  const std::uint32_t c = character.code_point;
  if (c == kCapitalSigma) {
    AppendUtf8(IsFinalSigma(text.substr(0, position), text.substr(position + character.size)) ? 0x3C2 : 0x3C3, out);
  } else if (c == 0x130) {  // İ
    out->append("i\xCC\x87");
  } else {
    AppendUtf8(static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

}  // namespace

bool IsSpaceCharacter(std::uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsPrintableCharacter(std::uint32_t c) {
  if (c == ' ') return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::size_t LeadingSpace(std::string_view text) {
  std::size_t size = 0;
  while (size < text.size()) {
    const Utf8Char character = DecodeUtf8(text.substr(size));
    if (!IsSpaceCharacter(character.code_point)) break;
    size += character.size;
  }
  return size;
}

std::size_t TrailingSpace(std::string_view text) {
  return text.size() - Strip(text, std::nullopt, /*left=*/false, /*right=*/true).size();
}

std::size_t CharacterCount(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::size_t ByteOffset(std::string_view text, std::size_t index) {
  std::size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) {
    do ++offset;
    while (offset < text.size() && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80);
  }
  return offset;
}

std::vector<std::string_view> Characters(std::string_view text) {
  std::vector<std::string_view> characters;
  characters.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = ByteOffset(text, 1);
    characters.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return characters;
}

std::size_t IdentifierSize(std::string_view text) {
  std::size_t size = 0;
  while (size < text.size()) {
    const Utf8Char character = DecodeUtf8(text.substr(size));
    if (!IsIdentifierPart(character.code_point)) break;
    size += character.size;
  }
  return size;
}

bool IsIdentifier(std::string_view text) {
  if (text.empty() || IdentifierSize(text) != text.size()) return false;
  const std::uint32_t first = DecodeUtf8(text).code_point;
  return first == '_' || IsLetter(first) || Category(first) == UTF8PROC_CATEGORY_NL;
}

std::string Upper(std::string_view text) {
  return Map(text, AppendUpper);
}

std::string Lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = DecodeUtf8(text.substr(i));
    AppendLower(text, i, character, &out);
    i += character.size;
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  if (text.empty()) return "";
  const Utf8Char first = DecodeUtf8(text);
  std::string out;
  AppendTitle(first.code_point, &out);
  for (std::size_t i = first.size; i < text.size();) {
    const Utf8Char character = DecodeUtf8(text.substr(i));
    AppendLower(text, i, character, &out);
    i += character.size;
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = DecodeUtf8(text.substr(i));
    if (IsUpperCharacter(character.code_point)) {
      AppendLower(text, i, character, &out);
    } else if (IsLowerCharacter(character.code_point)) {
      AppendUpper(character.code_point, &out);
    } else {
      AppendUtf8(character.code_point, &out);
    }
    i += character.size;
  }
  return out;
}

std::string Title(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = DecodeUtf8(text.substr(i));
    after_cased ? AppendLower(text, i, character, &out) : AppendTitle(character.code_point, &out);
    after_cased = IsCased(character.code_point);
    i += character.size;
  }
  return out;
}

std::string CaseFold(std::string_view text) {
  utf8proc_uint8_t* folded = nullptr;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = utf8proc_map(bytes, static_cast<utf8proc_ssize_t>(text.size()), &folded, UTF8PROC_CASEFOLD);
  if (size < 0) return std::string(text);
  std::string out(reinterpret_cast<const char*>(folded), static_cast<std::size_t>(size));
  std::free(folded);  // utf8proc allocates with malloc
  return out;
}

bool IsAlpha(std::string_view text) {
  return All(text, IsLetter);
}
bool IsDecimal(std::string_view text) {
  return All(text, IsDecimalCharacter);
}
bool IsDigit(std::string_view text) {
  return All(text, IsDigitCharacter);
}
bool IsNumeric(std::string_view text) {
  return All(text, IsNumericCharacter);
}
bool IsAlnum(std::string_view text) {
  return All(text, IsAlnumCharacter);
}
bool IsPrintable(std::string_view text) {
  return text.empty() || All(text, IsPrintableCharacter);
}
bool IsSpace(std::string_view text) {
  return All(text, IsSpaceCharacter);
}

bool IsLower(std::string_view text) {
  bool cased = false;
  const auto fits = [&](std::uint32_t c) {
    cased = cased || IsLowerCharacter(c);
    return !IsUpperCharacter(c) && !IsTitleCharacter(c);
  };
  return All(text, fits) && cased;
}

bool IsUpper(std::string_view text) {
  bool cased = false;
  const auto fits = [&](std::uint32_t c) {
    cased = cased || IsUpperCharacter(c);
    return !IsLowerCharacter(c) && !IsTitleCharacter(c);
  };
  return All(text, fits) && cased;
}

bool IsTitle(std::string_view text) {
  bool cased = false;
  bool after_cased = false;
  const auto fits = [&](std::uint32_t c) {
    if (IsUpperCharacter(c) || IsTitleCharacter(c)) {
      if (after_cased) return false;
      cased = after_cased = true;
    } else if (IsLowerCharacter(c)) {
      if (!after_cased) return false;
      cased = true;
    } else {
      after_cased = false;
    }
    return true;
  };
  return All(text, fits) && cased;
}

}  // namespace quire::text::jinja
