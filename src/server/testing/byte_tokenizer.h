// A tokenizer for tests: every byte is a token, and there are four special ones.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace quire::server::testing {

class ByteTokenizer final : public text::Tokenizer {
 public:
  static constexpr TokenId kBos{256}, kEos{257}, kImStart{258}, kImEnd{259};

  Result<std::vector<TokenId>> Encode(std::string_view text, const text::EncodeOptions& options) const override {
    std::vector<TokenId> ids;
    if (options.add_special_tokens) ids.push_back(kBos);
    while (!text.empty()) {
      const auto special = options.parse_special_tokens ? SpecialAt(text) : std::nullopt;
      ids.push_back(special.value_or(TokenId(static_cast<unsigned char>(text[0]))));
      text.remove_prefix(special ? TokenText(*special).size() : 1);
    }
    return ids;
  }
  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (id.value() >= 0 && id.value() < vocab_size() && !(skip_special_tokens && IsSpecial(id))) {
        text += TokenBytes(id);
      }
    }
    return text;
  }
  std::string TokenBytes(TokenId id) const override { return std::string(TokenText(id)); }
  bool StripsLeadingSpace() const override { return false; }
  std::string_view TokenText(TokenId id) const override { return texts_.at(static_cast<std::size_t>(id.value())); }
  std::optional<TokenId> FindToken(std::string_view token_text) const override {
    for (int id = 0; id < vocab_size(); ++id) {
      if (TokenText(TokenId(id)) == token_text) return TokenId(id);
    }
    return std::nullopt;
  }
  bool IsSpecial(TokenId id) const override { return id.value() >= kBos.value(); }
  int vocab_size() const override { return static_cast<int>(texts_.size()); }

 private:
  static std::array<std::string, 260> MakeTexts() {
    std::array<std::string, 260> texts;
    for (std::size_t i = 0; i < 256; ++i) texts[i] = std::string(1, static_cast<char>(i));
    texts[256] = "<s>";
    texts[257] = "</s>";
    texts[258] = "<|im_start|>";
    texts[259] = "<|im_end|>";
    return texts;
  }
  std::optional<TokenId> SpecialAt(std::string_view text) const {
    for (int id = kBos.value(); id < vocab_size(); ++id) {
      if (text.starts_with(TokenText(TokenId(id)))) return TokenId(id);
    }
    return std::nullopt;
  }

  const std::array<std::string, 260> texts_ = MakeTexts();
};

}  // namespace quire::server::testing
