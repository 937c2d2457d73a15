#include "text/tokenizer_json.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "text/json_fields.h"
#include "text/pipeline_tokenizer.h"
#include "text/tokenizer.h"

namespace quire::text {
namespace {

// The longest added token; longer ones would make the search for them slow.
constexpr std::size_t kAddedTokenBytesMax = 4096;

class TokenizerJsonReader {
 public:
  explicit TokenizerJsonReader(std::string_view name) : name_(name) {}

  Result<std::unique_ptr<Tokenizer>> Read(std::string_view json_text) {
    QUIRE_TRY(const json::value root_value, ParseJson(json_text, name_, JsonLimits{.refuse_duplicate_keys = true}));
    QUIRE_TRY(const JsonFields root, JsonFields::Of(root_value, name_));
    const auto component = [&](std::string_view key) { return root.Has(key) ? **root.Get(key) : json::value(nullptr); };
    QUIRE_TRY_VOID(ReadModel(root));
    QUIRE_TRY(std::vector<NormalizerStep> normalizer, ParseNormalizer(component("normalizer"), name_));
    parts_.normalizer = Normalizer(std::move(normalizer));
    QUIRE_TRY(std::vector<PreTokenizerStep> steps, ParsePreTokenizer(component("pre_tokenizer"), name_));
    parts_.pre_tokenizer = PreTokenizer(std::move(steps));
    QUIRE_TRY(std::vector<TokenDecoderStep> decoder, ParseTokenDecoder(component("decoder"), name_));
    parts_.decoder = TokenDecoder(std::move(decoder));
    if (root.Has("added_tokens")) QUIRE_TRY_VOID(ReadAddedTokens(root));
    if (root.Has("post_processor")) QUIRE_TRY_VOID(ReadPostProcessor(**root.Get("post_processor")));
    // `truncation` and `padding` are of no account: the reference's users switch them off, too, before they
    // encode.
    return MakePipelineTokenizer(std::move(parts_), name_);
  }

 private:
  Result<> ReadModel(const JsonFields& root) {
    QUIRE_TRY(const json::value* value, root.Get("model"));
    QUIRE_TRY(const JsonFields model, JsonFields::Of(*value, name_ + ": model"));
    // Files from before the field existed are BPE when they have merges.
    QUIRE_TRY(const std::string_view type, model.StringOr("type", model.Has("merges") ? "BPE" : ""));
    if (type != "BPE") {
      return Fail(ErrorCode::kUnsupported, "{}: models of the type \"{}\" are not supported", name_, type);
    }
    if (model.Has("dropout")) {
      QUIRE_TRY(const json::value* dropout, model.Get("dropout"));
      if (!dropout->is_number() || dropout->to_number<double>() != 0.0) {
        return Fail(ErrorCode::kUnsupported, "{}: dropout is not supported; it would make ids random", model.where());
      }
    }
    QUIRE_TRY_VOID(ReadVocabulary(model));
    BpeOptions& bpe = parts_.bpe;
    QUIRE_TRY(bpe.ignore_merges, model.BoolOr("ignore_merges", false));
    QUIRE_TRY(bpe.fuse_unknown, model.BoolOr("fuse_unk", false));
    QUIRE_TRY(bpe.byte_fallback, model.BoolOr("byte_fallback", false));
    QUIRE_TRY(bpe.continuing_subword_prefix, model.StringOr("continuing_subword_prefix", ""));
    QUIRE_TRY(bpe.end_of_word_suffix, model.StringOr("end_of_word_suffix", ""));
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::optional<TokenId> id = parts_.vocabulary->Find(fmt::format("<0x{:02X}>", byte));
      bpe.byte_tokens[byte] = id.has_value() ? id->value() : -1;
    }
    if (model.Has("unk_token")) {
      QUIRE_TRY(const std::string_view unknown, model.String("unk_token"));
      bpe.unknown = parts_.vocabulary->Find(unknown);
      if (!bpe.unknown.has_value()) {
        return Fail(ErrorCode::kCorrupt, "{}: unk_token \"{}\" is not in the vocabulary", model.where(), unknown);
      }
    }
    return ReadMerges(model);
  }

  Result<> ReadVocabulary(const JsonFields& model) {
    QUIRE_TRY(const json::object* entries, model.Object("vocab"));
    parts_.vocabulary = std::make_unique<Vocabulary>();
    parts_.vocabulary->Reserve(entries->size(), 8 * entries->size());
    for (const auto& [text, id] : *entries) {
      if (!id.is_int64()) {
        return Fail(ErrorCode::kCorrupt, "{}: the id of the entry \"{}\" of vocab is not an integer", model.where(),
                    std::string_view(text.data(), text.size()));
      }
      QUIRE_TRY_VOID(parts_.vocabulary->Add(id.get_int64(), {text.data(), text.size()}, model.where()));
    }
    return parts_.vocabulary->CheckDensity(model.where());
  }

  // Merges stand as "left right" or as ["left", "right"].
  Result<> ReadMerges(const JsonFields& model) {
    QUIRE_TRY(const json::array* merges, model.Array("merges"));
    parts_.bpe.merges.reserve(merges->size());
    std::string result;
    for (const json::value& value : *merges) {
      std::string_view left, right;
      if (value.is_string()) {
        const std::string_view text(value.get_string().data(), value.get_string().size());
        const std::size_t space = text.find(' ');
        if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
          left = text.substr(0, space);
          right = text.substr(space + 1);
        }
      } else if (value.is_array() && value.get_array().size() == 2 && value.get_array()[0].is_string() &&
                 value.get_array()[1].is_string()) {
        const json::string& first = value.get_array()[0].get_string();
        const json::string& second = value.get_array()[1].get_string();
        left = {first.data(), first.size()};
        right = {second.data(), second.size()};
      }
      const auto rank = static_cast<std::uint32_t>(parts_.bpe.merges.size());
      if (left.empty() || right.empty()) {
        return Fail(ErrorCode::kCorrupt, "{}: merges[{}] is not a pair of entries", model.where(), rank);
      }
      // The second part has the prefix of continuing parts, which the merged entry has not.
      const std::string_view prefix = parts_.bpe.continuing_subword_prefix;
      if (right.size() < prefix.size()) {
        return Fail(ErrorCode::kCorrupt, "{}: merges[{}] has a part without the continuing_subword_prefix",
                    model.where(), rank);
      }
      result.assign(left).append(right.substr(prefix.size()));
      const std::optional<TokenId> left_id = parts_.vocabulary->Find(left);
      const std::optional<TokenId> right_id = parts_.vocabulary->Find(right);
      const std::optional<TokenId> result_id = parts_.vocabulary->Find(result);
      if (!left_id.has_value() || !right_id.has_value() || !result_id.has_value()) {
        return Fail(ErrorCode::kCorrupt, "{}: merges[{}] (\"{}\" and \"{}\") has parts or a result outside vocab",
                    model.where(), rank, left, right);
      }
      parts_.bpe.merges.push_back({left_id->value(), right_id->value(), result_id->value(), rank});
    }
    return {};
  }

  Result<> ReadAddedTokens(const JsonFields& root) {
    QUIRE_TRY(const json::array* tokens, root.Array("added_tokens"));
    std::unordered_map<std::string_view, std::size_t> by_content;
    std::unordered_map<std::int64_t, std::size_t> by_id;
    std::int64_t id_max = parts_.vocabulary->size();
    for (std::size_t i = 0; i < tokens->size(); ++i) {
      QUIRE_TRY(const JsonFields fields, JsonFields::Of((*tokens)[i], fmt::format("{}: added_tokens[{}]", name_, i)));
      QUIRE_TRY(const std::string_view content, fields.String("content"));
      QUIRE_TRY(std::int64_t id, fields.Integer("id"));
      if (content.empty()) continue;  // as the reference does
      if (content.size() > kAddedTokenBytesMax) {
        return Fail(ErrorCode::kOutOfRange, "{}: content has {} bytes; at most {} are allowed", fields.where(),
                    content.size(), kAddedTokenBytesMax);
      }
      // Of two opinions the vocabulary's counts, as in the reference.
      if (const std::optional<TokenId> known = parts_.vocabulary->Find(content)) id = known->value();
      if (id < 0 || id >= kVocabularySizeMax) {
        return Fail(ErrorCode::kCorrupt, "{}: the id {} is outside 0 to {}", fields.where(), id,
                    kVocabularySizeMax - 1);
      }
      id_max = std::max(id_max, id);
      if (!by_content.emplace(content, i).second || !by_id.emplace(id, i).second) {
        return Fail(ErrorCode::kCorrupt, "{}: the content \"{}\" or the id {} stands twice", fields.where(), content,
                    id);
      }
      AddedToken token{.id = TokenId(static_cast<std::int32_t>(id)), .content = std::string(content)};
      QUIRE_TRY(token.single_word, fields.BoolOr("single_word", false));
      QUIRE_TRY(token.lstrip, fields.BoolOr("lstrip", false));
      QUIRE_TRY(token.rstrip, fields.BoolOr("rstrip", false));
      QUIRE_TRY(token.special, fields.BoolOr("special", false));
      QUIRE_TRY(token.normalized, fields.BoolOr("normalized", !token.special));
      parts_.added_tokens.push_back(std::move(token));
    }
    if (id_max > 2 * static_cast<std::int64_t>(parts_.vocabulary->count() + tokens->size()) + 65536) {
      return Fail(ErrorCode::kCorrupt, "{}: added_tokens has the id {}, far beyond the {} entries of the vocabulary",
                  name_, id_max, parts_.vocabulary->count());
    }
    return {};
  }

  Result<> ReadPostProcessor(const json::value& value) {
    QUIRE_TRY(const JsonFields fields, JsonFields::Of(value, name_ + ": post_processor"));
    QUIRE_TRY(const std::string_view type, fields.String("type"));
    if (type == "ByteLevel") return {};  // changes offsets only
    if (type == "Sequence") {
      QUIRE_TRY(const json::array* processors, fields.Array("processors"));
      for (const json::value& processor : *processors) QUIRE_TRY_VOID(ReadPostProcessor(processor));
      return {};
    }
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      QUIRE_TRY(const TokenId cls, ReadProcessorToken(fields, "cls"));
      QUIRE_TRY(const TokenId sep, ReadProcessorToken(fields, "sep"));
      parts_.prefix.insert(parts_.prefix.begin(), cls);
      parts_.suffix.push_back(sep);
      return {};
    }
    if (type == "TemplateProcessing") return ReadTemplate(fields);
    return Fail(ErrorCode::kUnsupported, "{}: the type \"{}\" is not supported", fields.where(), type);
  }

  Result<TokenId> CheckTokenId(std::int64_t id, const JsonFields& fields) const {
    const auto is_added = [&](const AddedToken& token) { return token.id.value() == id; };
    if (id >= 0 && id < kVocabularySizeMax) {
      const TokenId token(static_cast<std::int32_t>(id));
      if (parts_.vocabulary->Contains(token) || std::ranges::any_of(parts_.added_tokens, is_added)) return token;
    }
    return Fail(ErrorCode::kCorrupt, "{}: there is no token with the id {}", fields.where(), id);
  }

  // ["[CLS]", 101]
  Result<TokenId> ReadProcessorToken(const JsonFields& fields, std::string_view key) const {
    QUIRE_TRY(const json::array* pair, fields.Array(key));
    if (pair->size() != 2 || !(*pair)[1].is_int64()) {
      return Fail(ErrorCode::kCorrupt, "{}: {} is not a pair of a text and an id", fields.where(), key);
    }
    return CheckTokenId((*pair)[1].get_int64(), fields);
  }

  // The template for one sequence: special tokens before and behind {"Sequence": {"id": "A"}}.
  Result<> ReadTemplate(const JsonFields& fields) {
    QUIRE_TRY(const json::array* pieces, fields.Array("single"));
    std::vector<TokenId> before, behind;
    bool sequence_seen = false;
    for (const json::value& value : *pieces) {
      QUIRE_TRY(const JsonFields piece, JsonFields::Of(value, fields.where() + ": single"));
      if (piece.Has("Sequence")) {
        if (std::exchange(sequence_seen, true)) {
          return Fail(ErrorCode::kUnsupported, "{}: single has its sequence twice", fields.where());
        }
        continue;
      }
      QUIRE_TRY(const json::value* special, piece.Get("SpecialToken"));
      QUIRE_TRY(const JsonFields special_fields, JsonFields::Of(*special, piece.where()));
      QUIRE_TRY(const std::string_view key, special_fields.String("id"));
      QUIRE_TRY_VOID(AppendTemplateToken(fields, key, sequence_seen ? &behind : &before));
    }
    if (!sequence_seen) return Fail(ErrorCode::kCorrupt, "{}: single has no sequence", fields.where());
    parts_.prefix.insert(parts_.prefix.begin(), before.begin(), before.end());
    parts_.suffix.insert(parts_.suffix.end(), behind.begin(), behind.end());
    return {};
  }

  Result<> AppendTemplateToken(const JsonFields& fields, std::string_view key, std::vector<TokenId>* out) const {
    QUIRE_TRY(const json::value* map_value, fields.Get("special_tokens"));
    QUIRE_TRY(const JsonFields map, JsonFields::Of(*map_value, fields.where() + ": special_tokens"));
    QUIRE_TRY(const json::value* entry_value, map.Get(key));
    QUIRE_TRY(const JsonFields entry, JsonFields::Of(*entry_value, map.where()));
    QUIRE_TRY(const json::array* ids, entry.Array("ids"));
    for (const json::value& id : *ids) {
      if (!id.is_int64()) return Fail(ErrorCode::kCorrupt, "{}: ids of \"{}\" are not integers", map.where(), key);
      QUIRE_TRY(const TokenId token, CheckTokenId(id.get_int64(), map));
      out->push_back(token);
    }
    return {};
  }

  std::string name_;
  TokenizerParts parts_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> LoadTokenizerJson(std::string_view json_text, std::string_view name) {
  return TokenizerJsonReader(name).Read(json_text);
}

}  // namespace quire::text
