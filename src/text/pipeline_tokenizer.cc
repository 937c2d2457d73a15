#include "text/pipeline_tokenizer.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"

namespace quire::text {
namespace {

class PipelineTokenizer final : public Tokenizer {
 public:
  PipelineTokenizer(TokenizerParts parts, std::vector<std::string> normalized_contents);

  Result<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const override;
  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const override;
  std::string TokenBytes(TokenId id) const override { return parts_.decoder.Decode(DecodedEntry(id), false); }
  std::string FirstTokenBytes(TokenId id) const override { return parts_.decoder.Decode(DecodedEntry(id), true); }
  bool StripsLeadingSpace() const override { return parts_.decoder.StripsLeadingSpace(); }
  std::string_view TokenText(TokenId id) const override;
  std::optional<TokenId> FindToken(std::string_view token_text) const override;
  bool IsSpecial(TokenId id) const override;
  int vocab_size() const override { return static_cast<int>(added_by_id_.size()); }

 private:
  // What one Encode works in.
  struct Work {
    bool find_special = true;
    BpeModel::Scratch scratch;
    PreTokenizer::Pieces pieces;
    std::string normalized;
    std::vector<AddedTokenFinder::Segment> segments, inner_segments;
    std::vector<TokenId> ids;
  };

  Result<> EncodeUnnormalized(std::string_view text, bool at_origin, Work* work) const;
  Result<> EncodeNormalized(std::string_view text, bool at_origin, Work* work) const;
  bool Exists(TokenId id) const;
  // The index in parts_.added_tokens, or −1.
  std::int32_t AddedIndex(TokenId id) const;
  // The text that the decoder gets: that of an added token as it is searched.
  std::string_view DecodedEntry(TokenId id) const;

  TokenizerParts parts_;
  std::optional<BpeModel> model_;
  std::vector<std::string> normalized_contents_;  // of each added token
  AddedTokenFinder before_normalizer_, after_normalizer_;
  std::vector<std::int32_t> added_by_id_;  // [vocab_size()], −1: not an added token
  std::unordered_map<std::string_view, TokenId> added_by_content_;
};

PipelineTokenizer::PipelineTokenizer(TokenizerParts parts, std::vector<std::string> normalized_contents)
    : parts_(std::move(parts)), normalized_contents_(std::move(normalized_contents)) {
  const bool takes_bytes =
      BpeModel::CanTakeBytes(*parts_.vocabulary, parts_.bpe) && parts_.pre_tokenizer.TakeFinalByteMapping();
  model_.emplace(parts_.vocabulary.get(), std::move(parts_.bpe), takes_bytes);

  added_by_id_.assign(static_cast<std::size_t>(parts_.vocabulary->size()), -1);
  std::vector<AddedToken> before, after;
  std::vector<std::string> before_patterns, after_patterns;
  for (std::size_t i = 0; i < parts_.added_tokens.size(); ++i) {
    const AddedToken& token = parts_.added_tokens[i];
    const auto id = static_cast<std::size_t>(token.id.value());
    if (id >= added_by_id_.size()) added_by_id_.resize(id + 1, -1);
    added_by_id_[id] = static_cast<std::int32_t>(i);
    added_by_content_[token.content] = token.id;
    // A normalizer may leave nothing of a token; it is never found then.
    if (normalized_contents_[i].empty()) continue;
    (token.normalized ? after : before).push_back(token);
    (token.normalized ? after_patterns : before_patterns).push_back(normalized_contents_[i]);
  }
  before_normalizer_ = AddedTokenFinder(std::move(before), before_patterns);
  after_normalizer_ = AddedTokenFinder(std::move(after), after_patterns);
}

Result<std::vector<TokenId>> PipelineTokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kTextBytesMax) {
    return Fail(ErrorCode::kOutOfRange, "a text of {} bytes; at most {} can be encoded at once", text.size(),
                kTextBytesMax);
  }
  std::string sanitized;
  if (!IsValidUtf8(text)) {
    sanitized = SanitizeUtf8(text);
    text = sanitized;
  }
  Work work;
  work.find_special = options.parse_special_tokens;
  if (options.add_special_tokens) work.ids = parts_.prefix;
  before_normalizer_.Split(text, work.find_special, &work.segments);
  for (const AddedTokenFinder::Segment& segment : work.segments) {
    if (segment.id.has_value()) {
      work.ids.push_back(*segment.id);
    } else {
      QUIRE_TRY_VOID(
          EncodeUnnormalized(text.substr(segment.begin, segment.end - segment.begin), segment.begin == 0, &work));
    }
  }
  if (options.add_special_tokens) work.ids.insert(work.ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  return std::move(work.ids);
}

Result<> PipelineTokenizer::EncodeUnnormalized(std::string_view text, bool at_origin, Work* work) const {
  QUIRE_TRY(text, parts_.normalizer.Apply(text, &work->normalized, &at_origin));
  if (after_normalizer_.empty()) return EncodeNormalized(text, at_origin, work);
  after_normalizer_.Split(text, work->find_special, &work->inner_segments);
  for (const AddedTokenFinder::Segment& segment : work->inner_segments) {
    if (segment.id.has_value()) {
      work->ids.push_back(*segment.id);
    } else {
      QUIRE_TRY_VOID(EncodeNormalized(text.substr(segment.begin, segment.end - segment.begin),
                                      at_origin && segment.begin == 0, work));
    }
  }
  return {};
}

Result<> PipelineTokenizer::EncodeNormalized(std::string_view text, bool at_origin, Work* work) const {
  QUIRE_TRY_VOID(parts_.pre_tokenizer.Run(text, at_origin, &work->pieces));
  for (const Span& word : work->pieces.spans) {
    model_->Encode(word.Of(work->pieces.text), &work->scratch, &work->ids);
  }
  return {};
}

std::string PipelineTokenizer::Decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string text;
  bool first = true;
  for (const TokenId id : ids) {
    if (!Exists(id) || (skip_special_tokens && IsSpecial(id))) continue;
    std::string bytes = TokenBytes(id);
    if (bytes.empty()) continue;
    text.append(std::exchange(first, false) ? FirstTokenBytes(id) : bytes);
  }
  return text;
}

std::int32_t PipelineTokenizer::AddedIndex(TokenId id) const {
  if (id.value() < 0 || static_cast<std::size_t>(id.value()) >= added_by_id_.size()) return -1;
  return added_by_id_[static_cast<std::size_t>(id.value())];
}

bool PipelineTokenizer::Exists(TokenId id) const {
  return AddedIndex(id) >= 0 || parts_.vocabulary->Contains(id);
}

std::string_view PipelineTokenizer::TokenText(TokenId id) const {
  const std::int32_t index = AddedIndex(id);
  return index >= 0 ? std::string_view(parts_.added_tokens[static_cast<std::size_t>(index)].content)
                    : parts_.vocabulary->Text(id);
}

std::string_view PipelineTokenizer::DecodedEntry(TokenId id) const {
  const std::int32_t index = AddedIndex(id);
  return index >= 0 ? std::string_view(normalized_contents_[static_cast<std::size_t>(index)])
                    : parts_.vocabulary->Text(id);
}

std::optional<TokenId> PipelineTokenizer::FindToken(std::string_view token_text) const {
  const auto added = added_by_content_.find(token_text);
  if (added != added_by_content_.end()) return added->second;
  return parts_.vocabulary->Find(token_text);
}

bool PipelineTokenizer::IsSpecial(TokenId id) const {
  const std::int32_t index = AddedIndex(id);
  return index >= 0 && parts_.added_tokens[static_cast<std::size_t>(index)].special;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakePipelineTokenizer(TokenizerParts parts, std::string_view name) {
  QUIRE_TRY_VOID(parts.vocabulary->CheckDensity(name));
  std::vector<std::string> contents;
  for (const AddedToken& token : parts.added_tokens) {
    // Anything else could be found inside a character and cut it in two.
    if (!IsValidUtf8(token.content)) {
      return Fail(ErrorCode::kCorrupt, "{}: the text of the token {}, which is searched in texts, is not valid UTF-8",
                  name, token.id);
    }
    std::string buffer;
    bool at_origin = true;
    if (token.normalized) {
      QUIRE_TRY(const std::string_view content, parts.normalizer.Apply(token.content, &buffer, &at_origin));
      contents.emplace_back(content);
    } else {
      contents.push_back(token.content);
    }
  }
  return std::make_unique<PipelineTokenizer>(std::move(parts), std::move(contents));
}

}  // namespace quire::text
