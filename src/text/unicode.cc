#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "base/utf8.h"

namespace quire::text {
namespace {

constexpr CategoryMask Bit(utf8proc_category_t category) {
  return CategoryMask{1} << category;
}

struct NamedCategory {
  std::string_view name;
  CategoryMask mask;
};

constexpr auto kCategories = std::to_array<NamedCategory>({
    {"Cn", Bit(UTF8PROC_CATEGORY_CN)}, {"Lu", Bit(UTF8PROC_CATEGORY_LU)}, {"Ll", Bit(UTF8PROC_CATEGORY_LL)},
    {"Lt", Bit(UTF8PROC_CATEGORY_LT)}, {"Lm", Bit(UTF8PROC_CATEGORY_LM)}, {"Lo", Bit(UTF8PROC_CATEGORY_LO)},
    {"Mn", Bit(UTF8PROC_CATEGORY_MN)}, {"Mc", Bit(UTF8PROC_CATEGORY_MC)}, {"Me", Bit(UTF8PROC_CATEGORY_ME)},
    {"Nd", Bit(UTF8PROC_CATEGORY_ND)}, {"Nl", Bit(UTF8PROC_CATEGORY_NL)}, {"No", Bit(UTF8PROC_CATEGORY_NO)},
    {"Pc", Bit(UTF8PROC_CATEGORY_PC)}, {"Pd", Bit(UTF8PROC_CATEGORY_PD)}, {"Ps", Bit(UTF8PROC_CATEGORY_PS)},
    {"Pe", Bit(UTF8PROC_CATEGORY_PE)}, {"Pi", Bit(UTF8PROC_CATEGORY_PI)}, {"Pf", Bit(UTF8PROC_CATEGORY_PF)},
    {"Po", Bit(UTF8PROC_CATEGORY_PO)}, {"Sm", Bit(UTF8PROC_CATEGORY_SM)}, {"Sc", Bit(UTF8PROC_CATEGORY_SC)},
    {"Sk", Bit(UTF8PROC_CATEGORY_SK)}, {"So", Bit(UTF8PROC_CATEGORY_SO)}, {"Zs", Bit(UTF8PROC_CATEGORY_ZS)},
    {"Zl", Bit(UTF8PROC_CATEGORY_ZL)}, {"Zp", Bit(UTF8PROC_CATEGORY_ZP)}, {"Cc", Bit(UTF8PROC_CATEGORY_CC)},
    {"Cf", Bit(UTF8PROC_CATEGORY_CF)}, {"Cs", Bit(UTF8PROC_CATEGORY_CS)}, {"Co", Bit(UTF8PROC_CATEGORY_CO)},
});

// Hangul vowels and final consonants join the syllable before them by arithmetic, not by utf8proc's tables.
bool IsJoiningJamo(std::uint32_t c) {
  return (c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2);
}
bool IsHangulSyllable(std::uint32_t c) {
  return c >= 0xAC00 && c <= 0xD7A3;
}

// utf8proc's tables mark what may be the second of a composed pair with an index of at least 0x8000.
constexpr std::uint16_t kNoIndex = UINT16_MAX;
constexpr std::uint16_t kFirstSecondIndex = 0x8000;

bool IsInert(NormalForm form, std::uint32_t c) {
  const utf8proc_property_t& property = *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (property.combining_class != 0) return false;
  const bool composes = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  if (composes) {
    // A composed character stays as it is if the form is canonical and it composes back; utf8proc has no flag
    // for the exceptions (singletons, exclusions), so only Latin's composed letters, which have none, are let
    // through.
    const bool latin = form == NormalForm::kNfc && c >= 0xC0 && c < 0x250;
    if (property.decomp_seqindex != kNoIndex && !latin) return false;
    if (property.comb_index != kNoIndex && property.comb_index >= kFirstSecondIndex) return false;
    return !IsJoiningJamo(c);
  }
  return property.decomp_seqindex == kNoIndex && !IsHangulSyllable(c);
}

}  // namespace

CategoryMask CategoryOf(std::uint32_t code_point) {
  return CategoryMask{1} << utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

CategoryMask CategoriesNamed(std::string_view name) {
  CategoryMask mask = 0;
  for (const NamedCategory& category : kCategories) {
    if (name.size() <= 2 && !name.empty() && category.name.starts_with(name)) mask |= category.mask;
  }
  return mask;
}

bool IsWhiteSpace(std::uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsPunctuation(std::uint32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  constexpr CategoryMask kMask = Bit(UTF8PROC_CATEGORY_PC) | Bit(UTF8PROC_CATEGORY_PD) | Bit(UTF8PROC_CATEGORY_PS) |
                                 Bit(UTF8PROC_CATEGORY_PE) | Bit(UTF8PROC_CATEGORY_PI) | Bit(UTF8PROC_CATEGORY_PF) |
                                 Bit(UTF8PROC_CATEGORY_PO);
  return (CategoryOf(c) & kMask) != 0;
}

bool IsNumeric(std::uint32_t c) {
  constexpr CategoryMask kMask = Bit(UTF8PROC_CATEGORY_ND) | Bit(UTF8PROC_CATEGORY_NL) | Bit(UTF8PROC_CATEGORY_NO);
  return (CategoryOf(c) & kMask) != 0;
}

bool IsMark(std::uint32_t c) {
  constexpr CategoryMask kMask = Bit(UTF8PROC_CATEGORY_MN) | Bit(UTF8PROC_CATEGORY_MC) | Bit(UTF8PROC_CATEGORY_ME);
  return (CategoryOf(c) & kMask) != 0;
}

bool IsWordCharacter(std::uint32_t c) {
  constexpr CategoryMask kMask = Bit(UTF8PROC_CATEGORY_LU) | Bit(UTF8PROC_CATEGORY_LL) | Bit(UTF8PROC_CATEGORY_LT) |
                                 Bit(UTF8PROC_CATEGORY_LM) | Bit(UTF8PROC_CATEGORY_LO) | Bit(UTF8PROC_CATEGORY_MN) |
                                 Bit(UTF8PROC_CATEGORY_MC) | Bit(UTF8PROC_CATEGORY_ME) | Bit(UTF8PROC_CATEGORY_ND) |
                                 Bit(UTF8PROC_CATEGORY_NL) | Bit(UTF8PROC_CATEGORY_PC);
  if ((CategoryOf(c) & kMask) != 0) return true;
  // Join_Control, and the alphabetic symbols (letters in circles and squares).
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

void AppendLowercase(std::uint32_t c, std::string* out) {
  // The only character whose lower case is longer without regard to context: I with a dot above.
  if (c == 0x130) {
    out->append("i\u0307");
  } else {
    AppendUtf8(static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

bool IsQuicklyInForm(NormalForm form, std::string_view text) {
  // Below U+00A0 nothing decomposes; below U+0300 nothing combines.
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const Utf8Char character = DecodeUtf8(text.substr(i));
    if (!IsInert(form, character.code_point)) return false;
    i += character.size;
  }
  return true;
}

std::string Normalize(NormalForm form, std::string_view text) {
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::kNfc || form == NormalForm::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(options));
  struct Free {
    void operator()(utf8proc_uint8_t* p) const { std::free(p); }
  };
  const std::unique_ptr<utf8proc_uint8_t, Free> owner(mapped);
  // The text is valid UTF-8, so that nothing but memory can be missing.
  CHECK(size >= 0);
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(size));
}

}  // namespace quire::text
