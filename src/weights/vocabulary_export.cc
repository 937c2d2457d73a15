#include "weights/vocabulary_export.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "weights/json_fields.h"

namespace quire::weights {
namespace {

// Kinds of tokens in tokenizer.ggml.token_type.
enum TokenKind : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct KnownPattern {
  std::string_view regex, pre;
};
// Split patterns by which tokenizer.json files cut texts before byte-level BPE, and their names in GGUF.
constexpr std::array<KnownPattern, 4> kKnownPatterns = {{
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "tekken"},
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", "gpt-2"},
}};

const json::value* Member(const json::value* value, std::string_view key) {
  const json::object* object = value ? value->if_object() : nullptr;
  const json::value* member = object ? object->if_contains(key) : nullptr;
  return member && !member->is_null() ? member : nullptr;
}

std::string_view StringMember(const json::value* value, std::string_view key) {
  const json::value* member = Member(value, key);
  return member && member->is_string() ? std::string_view(member->get_string()) : std::string_view();
}

bool BoolMember(const json::value* value, std::string_view key, bool otherwise) {
  const json::value* member = Member(value, key);
  return member && member->is_bool() ? member->get_bool() : otherwise;
}

// The steps of a component that may be a Sequence of others.
std::vector<const json::value*> Steps(const json::value* component, std::string_view list) {
  if (!component) return {};
  if (StringMember(component, "type") != "Sequence") return {component};
  std::vector<const json::value*> steps;
  if (const json::value* members = Member(component, list); members && members->is_array()) {
    for (const json::value& step : members->get_array()) steps.push_back(&step);
  }
  return steps;
}

class VocabularyExporter {
 public:
  VocabularyExporter(const json::value& root, const TextAssets& assets, std::string_view name,
                     const ModelConfig& config)
      : root_(root), assets_(assets), name_(name), config_(config) {}

  Result<GgufVocabulary> Export() {
    model_ = Member(&root_, "model");
    if (StringMember(model_, "type") != "BPE") {
      return Fail(ErrorCode::kUnsupported, "{}: a tokenizer of the type \"{}\" cannot be written to GGUF; BPE can",
                  name_, StringMember(model_, "type"));
    }
    QUIRE_TRY_VOID(ReadTokens());
    QUIRE_TRY_VOID(ReadMerges());
    if (BoolMember(model_, "byte_fallback", false)) {
      QUIRE_TRY_VOID(BecomeSentencePiece());
    } else {
      vocabulary_.model = "gpt2";
      QUIRE_TRY_VOID(FindPreTokenizer());
    }
    QUIRE_TRY_VOID(ReadPostProcessor());
    if (!vocabulary_.bos_id) vocabulary_.bos_id = FindToken(assets_.bos_token);
    if (!vocabulary_.bos_id && config_.bos_token_id) vocabulary_.bos_id = config_.bos_token_id->value();
    if (!vocabulary_.eos_id) vocabulary_.eos_id = FindToken(assets_.eos_token);
    if (!vocabulary_.eos_id && !config_.eos_token_ids.empty()) {
      vocabulary_.eos_id = config_.eos_token_ids.front().value();
    }
    return std::move(vocabulary_);
  }

 private:
  std::optional<std::int64_t> FindToken(std::string_view text) const {
    const auto found = ids_.find(std::string(text));
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  Result<> ReadTokens() {
    const json::value* vocab = Member(model_, "vocab");
    if (!vocab || !vocab->is_object()) return Fail(ErrorCode::kCorrupt, "{}: model.vocab is missing", name_);
    const auto rows = static_cast<std::size_t>(config_.vocab_size);
    vocabulary_.tokens.resize(rows);
    vocabulary_.token_types.assign(rows, kUnused);
    for (const auto& [token, id] : vocab->get_object()) QUIRE_TRY_VOID(AddToken(token, &id, kNormal));
    if (const json::value* added = Member(&root_, "added_tokens"); added && added->is_array()) {
      for (const json::value& token : added->get_array()) {
        const bool special = BoolMember(&token, "special", false);
        QUIRE_TRY_VOID(
            AddToken(StringMember(&token, "content"), Member(&token, "id"), special ? kControl : kUserDefined));
      }
    }
    for (std::size_t id = 0; id < rows; ++id) {
      if (vocabulary_.token_types[id] == kUnused) vocabulary_.tokens[id] = fmt::format("[PAD{}]", id);
    }
    return {};
  }

  Result<> AddToken(std::string_view token, const json::value* id, TokenKind kind) {
    const std::int64_t index = id && id->is_int64() ? id->get_int64() : -1;
    if (index < 0 || index >= config_.vocab_size) {
      return Fail(ErrorCode::kCorrupt, "{}: the id of the token \"{}\" is outside the vocabulary of {} tokens", name_,
                  token, config_.vocab_size);
    }
    const auto at = static_cast<std::size_t>(index);
    if (vocabulary_.token_types[at] != kUnused && vocabulary_.tokens[at] != token) {
      return Fail(ErrorCode::kCorrupt, "{}: the tokens \"{}\" and \"{}\" have the same id {}", name_,
                  vocabulary_.tokens[at], token, index);
    }
    vocabulary_.tokens[at] = token;
    vocabulary_.token_types[at] = kind;
    ids_.emplace(vocabulary_.tokens[at], index);
    return {};
  }

  // "a b" or, in newer files, ["a", "b"].
  Result<> ReadMerges() {
    const json::value* merges = Member(model_, "merges");
    if (!merges || !merges->is_array()) return Fail(ErrorCode::kCorrupt, "{}: model.merges is missing", name_);
    for (const json::value& merge : merges->get_array()) {
      const json::array* pair = merge.if_array();
      const bool is_pair = pair && pair->size() == 2 && (*pair)[0].is_string() && (*pair)[1].is_string();
      if (!is_pair && !merge.is_string()) {
        return Fail(ErrorCode::kCorrupt, "{}: the merge {} is neither a string nor a pair", name_, ToJson(merge));
      }
      std::string text = is_pair ? fmt::format("{} {}", std::string_view((*pair)[0].get_string()),
                                               std::string_view((*pair)[1].get_string()))
                                 : std::string(merge.get_string());
      if (is_pair && std::ranges::count(text, ' ') != 1) {
        return Fail(ErrorCode::kUnsupported, "{}: the merge {} has a space in a token, which GGUF cannot say", name_,
                    ToJson(merge));
      }
      vocabulary_.merges.push_back(std::move(text));
    }
    return {};
  }

  // A Split by a known pattern before ByteLevel, or ByteLevel alone with GPT-2's own pattern.
  Result<> FindPreTokenizer() {
    std::string_view regex;
    for (const json::value* step : Steps(Member(&root_, "pre_tokenizer"), "pretokenizers")) {
      const std::string_view type = StringMember(step, "type");
      if (type == "Split" && regex.empty()) {
        regex = StringMember(Member(step, "pattern"), "Regex");
      } else if (type == "ByteLevel" && !BoolMember(step, "add_prefix_space", false)) {
        if (BoolMember(step, "use_regex", true) && regex.empty()) regex = kKnownPatterns.back().regex;
      } else {
        regex = {};
        break;
      }
    }
    const auto known = std::ranges::find(kKnownPatterns, regex, &KnownPattern::regex);
    if (known == kKnownPatterns.end()) {
      return Fail(ErrorCode::kUnsupported, "{}: GGUF has no name for this pre-tokenizer: {}", name_,
                  Member(&root_, "pre_tokenizer") ? ToJson(*Member(&root_, "pre_tokenizer")) : "(none)");
    }
    vocabulary_.pre = known->pre;
    return {};
  }

  // SentencePiece merges the pair whose result has the highest score: minus the rank of the first merge that makes
  // the token.
  Result<> BecomeSentencePiece() {
    vocabulary_.model = "llama";
    vocabulary_.pre = "default";
    vocabulary_.scores.assign(vocabulary_.tokens.size(), 0.0f);
    std::vector<bool> made(vocabulary_.tokens.size(), false);
    const std::vector<std::string> merges = std::exchange(vocabulary_.merges, {});
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      std::string token = merges[rank];
      std::erase(token, ' ');
      const auto found = FindToken(token);
      if (!found) {
        return Fail(ErrorCode::kCorrupt, "{}: the merge \"{}\" makes a token that is not in the vocabulary", name_,
                    merges[rank]);
      }
      const auto id = static_cast<std::size_t>(*found);
      if (!made[id]) vocabulary_.scores[id] = -static_cast<float>(rank);
      made[id] = true;
    }
    // What no merge makes (single characters) must not win over anything that a merge makes.
    for (std::size_t id = 0; id < made.size(); ++id) {
      std::int32_t& kind = vocabulary_.token_types[id];
      const std::string& token = vocabulary_.tokens[id];
      if (kind == kNormal && !made[id]) vocabulary_.scores[id] = -static_cast<float>(merges.size() + id);
      if (kind != kUnused && token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) kind = kByte;
    }
    if (const std::string_view unknown = StringMember(model_, "unk_token"); !unknown.empty()) {
      vocabulary_.unk_id = FindToken(unknown);
      if (vocabulary_.unk_id) vocabulary_.token_types[static_cast<std::size_t>(*vocabulary_.unk_id)] = kUnknown;
    }
    return FindSpacePrefix();
  }

  // Spaces become "▁", by a normalizer (Prepend, Replace) or a Metaspace pre-tokenizer.
  Result<> FindSpacePrefix() {
    vocabulary_.add_space_prefix = false;
    bool replaces_spaces = false;
    std::vector<const json::value*> steps = Steps(Member(&root_, "normalizer"), "normalizers");
    std::ranges::copy(Steps(Member(&root_, "pre_tokenizer"), "pretokenizers"), std::back_inserter(steps));
    for (const json::value* step : steps) {
      const std::string_view type = StringMember(step, "type");
      if (type == "Prepend" && StringMember(step, "prepend") == "▁") {
        vocabulary_.add_space_prefix = true;
      } else if (type == "Replace" && StringMember(Member(step, "pattern"), "String") == " ") {
        replaces_spaces = StringMember(step, "content") == "▁";
      } else if (type == "Metaspace") {
        replaces_spaces = true;
        vocabulary_.add_space_prefix = StringMember(step, "prepend_scheme") != "never";
      } else {
        return Fail(ErrorCode::kUnsupported, "{}: GGUF has no name for the step {}", name_, ToJson(*step));
      }
    }
    if (replaces_spaces) return {};
    return Fail(ErrorCode::kUnsupported, "{}: spaces are not replaced by \"▁\", which GGUF takes for granted", name_);
  }

  // What is added around every text: the special tokens of a TemplateProcessing.
  Result<> ReadPostProcessor() {
    vocabulary_.add_bos = false;
    vocabulary_.add_eos = false;
    for (const json::value* step : Steps(Member(&root_, "post_processor"), "processors")) {
      const json::value* single = Member(step, "single");
      if (StringMember(step, "type") != "TemplateProcessing" || !single || !single->is_array()) continue;
      bool before_text = true;
      for (const json::value& piece : single->get_array()) {
        const json::value* special = Member(&piece, "SpecialToken");
        if (!special) {
          before_text = false;
          continue;
        }
        const auto found = FindToken(StringMember(special, "id"));
        std::optional<std::int64_t>& id = before_text ? vocabulary_.bos_id : vocabulary_.eos_id;
        if (!found || id) {
          return Fail(ErrorCode::kUnsupported, "{}: GGUF cannot say what is added around a text: {}", name_,
                      ToJson(*single));
        }
        id = found;
        (before_text ? vocabulary_.add_bos : vocabulary_.add_eos) = true;
      }
    }
    return {};
  }

  const json::value& root_;
  const TextAssets& assets_;
  std::string_view name_;
  const ModelConfig& config_;
  const json::value* model_ = nullptr;
  GgufVocabulary vocabulary_;
  std::unordered_map<std::string, std::int64_t> ids_;
};

}  // namespace

Result<GgufVocabulary> VocabularyFromTokenizerJson(const TextAssets& assets, std::string_view name,
                                                   const ModelConfig& config) {
  QUIRE_TRY(const json::value root, ParseJson(assets.tokenizer_json, name));
  return VocabularyExporter(root, assets, name, config).Export();
}

}  // namespace quire::weights
