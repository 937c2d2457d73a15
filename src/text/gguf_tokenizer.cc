// Tokenizers from the vocabulary of a GGUF file. The file names its pre-tokenizer; what the name means is the table
// below.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "text/pipeline_tokenizer.h"
#include "text/sentencepiece_parts.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace quire::text {
namespace {

// The patterns of the models' own tokenizer.json files.
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseek3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBloomPattern = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr std::string_view kSeedCoderPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailingPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";

// One name of a pre-tokenizer: the patterns that cut the text, one after the other.
struct PreType {
  std::string_view name;
  std::array<std::string_view, 5> patterns;  // "" behind the last
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
  bool nfc = false;      // the model's own tokenizer normalises; GGUF has no field for it
};

constexpr auto kPreTypes = std::to_array<PreType>({
    {"", {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
    {"default", {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
    {"llama3", {kLlama3Pattern}, true, true},
    {"llama-v3", {kLlama3Pattern}, true, true},
    {"llama-bpe", {kLlama3Pattern}, true, true},
    {"falcon3", {kLlama3Pattern}, true, true},
    {"falcon-h1", {kLlama3Pattern}, true, true},
    {"pixtral", {kLlama3Pattern}, true, true},
    {"midm-2.0", {kLlama3Pattern}, true, true},
    {"lfm2", {kLlama3Pattern}, true, true},
    {"dbrx", {kLlama3Pattern}},
    {"smaug-bpe", {kLlama3Pattern}},
    {"glm4", {kLlama3Pattern}},
    {"chatglm-bpe", {kLlama3Pattern}},
    {"tekken", {kTekkenPattern}, true, true},
    {"gpt-2", {kGpt2Pattern}},
    {"phi-2", {kGpt2Pattern}},
    {"gigachat", {kGpt2Pattern}},
    {"mellum", {kGpt2Pattern}},
    {"exaone4", {kGpt2Pattern}},
    {"mpt", {kGpt2Pattern}},
    {"olmo", {kGpt2Pattern}},
    {"jais", {kGpt2Pattern}},
    {"trillion", {kGpt2Pattern}},
    {"qwen2", {kQwen2Pattern}, false, false, true},
    {"deepseek-r1-qwen", {kQwen2Pattern}, false, false, true},
    {"megrez", {kQwen2Pattern}},
    {"stablelm2", {kQwen2Pattern}},
    {"hunyuan", {kQwen2Pattern}},
    {"grok-2", {kQwen2Pattern}},
    {"qwen35", {kQwen35Pattern}, false, false, true},
    {"gpt-4o", {kO200kPattern}},
    {"llama4", {kO200kPattern}},
    {"kanana2", {kO200kPattern}},
    {"minimax-m2", {kO200kPattern}},
    {"falcon", {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Pattern, "[0-9][0-9][0-9]"}},
    {"starcoder", {R"(\p{N})", kGpt2Pattern}},
    {"refact", {R"(\p{N})", kGpt2Pattern}},
    {"command-r", {R"(\p{N})", kGpt2Pattern}},
    {"smollm", {R"(\p{N})", kGpt2Pattern}},
    {"codeshell", {R"(\p{N})", kGpt2Pattern}},
    {"exaone", {R"(\p{N})", kGpt2Pattern}},
    {"minerva-7b", {R"(\p{N})", kGpt2Pattern}},
    {"deepseek-coder", {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+", R"(\p{N})"}},
    {"deepseek-v3", {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseek3Words}},
    {"hunyuan-dense", {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseek3Words}},
    {"joyai-llm", {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseek3Words}},
    {"poro-chat", {kBloomPattern}},
    {"bloom", {kBloomPattern}},
    {"gpt3-finnish", {kBloomPattern}},
    {"viking", {kBloomPattern, R"(\p{N})"}},
    {"seed-coder", {kSeedCoderPattern}},
    {"bailingmoe", {kBailingPattern}},
    {"bailingmoe2", {kBailingPattern}},
    {"llada-moe", {kBailingPattern}},
});

class GgufByteLevelBuilder {
 public:
  GgufByteLevelBuilder(GgufVocabulary vocabulary, std::string_view name)
      : vocabulary_(std::move(vocabulary)), name_(name) {}

  Result<std::unique_ptr<Tokenizer>> Build() {
    const auto pre = std::ranges::find(kPreTypes, std::string_view(vocabulary_.pre), &PreType::name);
    if (pre == kPreTypes.end()) {
      return Fail(ErrorCode::kUnsupported, "{}: the pre-tokenizer \"{}\" (tokenizer.ggml.pre) is not known", name_,
                  vocabulary_.pre);
    }
    if (vocabulary_.tokens.empty()) return Fail(ErrorCode::kCorrupt, "{}: tokenizer.ggml.tokens is empty", name_);
    if (!vocabulary_.token_types.empty() && vocabulary_.token_types.size() != vocabulary_.tokens.size()) {
      return Fail(ErrorCode::kCorrupt, "{}: {} tokens, but {} token types", name_, vocabulary_.tokens.size(),
                  vocabulary_.token_types.size());
    }
    QUIRE_TRY_VOID(AddVocabulary());
    QUIRE_TRY_VOID(AddMerges());
    QUIRE_TRY_VOID(AddBosAndEos(*pre));
    AddAddedTokens();
    parts_.bpe.ignore_merges = pre->ignore_merges;
    if (pre->nfc) {
      std::vector<NormalizerStep> steps;
      steps.emplace_back(NormalForm::kNfc);
      parts_.normalizer = Normalizer(std::move(steps));
    }
    std::vector<PreTokenizerStep> steps;
    for (const std::string_view regex : pre->patterns) {
      if (regex.empty()) break;
      QUIRE_TRY(Pattern pattern, Pattern::Regex(regex, name_));
      steps.emplace_back(SplitStep{.matcher = std::move(pattern)});
    }
    steps.emplace_back(MapBytesStep{});
    parts_.pre_tokenizer = PreTokenizer(std::move(steps));
    parts_.decoder = TokenDecoder({FromByteAlphabetStep{}});
    return MakePipelineTokenizer(std::move(parts_), name_);
  }

 private:
  Result<> AddVocabulary() {
    parts_.vocabulary = std::make_unique<Vocabulary>();
    parts_.vocabulary->Reserve(vocabulary_.tokens.size(), 8 * vocabulary_.tokens.size());
    for (std::size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      if (vocabulary_.tokens[i].empty()) continue;  // padding; such an id stands for nothing
      QUIRE_TRY_VOID(parts_.vocabulary->Add(static_cast<std::int64_t>(i), vocabulary_.tokens[i], name_));
    }
    return parts_.vocabulary->CheckDensity(name_);
  }

  Result<> AddMerges() {
    std::string result;
    for (const std::string& merge : vocabulary_.merges) {
      const auto rank = static_cast<std::uint32_t>(parts_.bpe.merges.size());
      const std::size_t space = merge.find(' ', 1);
      std::optional<TokenId> left, right, both;
      if (space != std::string::npos) {
        left = parts_.vocabulary->Find(std::string_view(merge).substr(0, space));
        right = parts_.vocabulary->Find(std::string_view(merge).substr(space + 1));
        result.assign(merge, 0, space).append(merge, space + 1);
        both = parts_.vocabulary->Find(result);
      }
      if (!left.has_value() || !right.has_value() || !both.has_value()) {
        return Fail(ErrorCode::kCorrupt, "{}: merge {} (\"{}\") has parts or a result outside the vocabulary", name_,
                    rank, merge);
      }
      parts_.bpe.merges.push_back({left->value(), right->value(), both->value(), rank});
    }
    return {};
  }

  Result<> AddBosAndEos(const PreType& pre) {
    const auto checked = [&](const std::optional<std::int64_t>& id, std::string_view what) -> Result<TokenId> {
      if (id.has_value()) return CheckedTokenId(*id, *parts_.vocabulary, what, name_);
      return Fail(ErrorCode::kCorrupt, "{}: {} shall be added to every text, but the file has no id for it", name_,
                  what);
    };
    if (vocabulary_.bos_id.has_value()) {
      QUIRE_TRY(bos_, checked(vocabulary_.bos_id, "the BOS token"));
    }
    if (vocabulary_.eos_id.has_value()) {
      QUIRE_TRY(eos_, checked(vocabulary_.eos_id, "the EOS token"));
    }
    if (vocabulary_.add_bos.value_or(pre.add_bos)) {
      QUIRE_TRY(const TokenId bos, checked(vocabulary_.bos_id, "the BOS token"));
      parts_.prefix.push_back(bos);
    }
    if (vocabulary_.add_eos.value_or(false)) {
      QUIRE_TRY(const TokenId eos, checked(vocabulary_.eos_id, "the EOS token"));
      parts_.suffix.push_back(eos);
    }
    return {};
  }

  void AddAddedTokens() {
    for (std::size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      if (vocabulary_.tokens[i].empty()) continue;
      const TokenId id(static_cast<std::int32_t>(i));
      const auto type =
          vocabulary_.token_types.empty() ? PieceType::kNormal : static_cast<PieceType>(vocabulary_.token_types[i]);
      // Old files do not mark the end of a text as a control token.
      const bool special = type == PieceType::kControl || type == PieceType::kUnknown || id == bos_ || id == eos_;
      if (special || type == PieceType::kUserDefined) {
        parts_.added_tokens.push_back({.id = id, .content = vocabulary_.tokens[i], .special = special});
      }
    }
  }

  GgufVocabulary vocabulary_;
  std::string_view name_;
  TokenizerParts parts_;
  std::optional<TokenId> bos_, eos_;
};

Result<std::unique_ptr<Tokenizer>> LoadGgufSentencePiece(GgufVocabulary vocabulary, std::string_view name) {
  SentencePieceVocabulary pieces;
  pieces.types.assign(vocabulary.tokens.size(), PieceType::kNormal);
  for (std::size_t i = 0; i < std::min(vocabulary.token_types.size(), pieces.types.size()); ++i) {
    pieces.types[i] = static_cast<PieceType>(vocabulary.token_types[i]);
  }
  pieces.pieces = std::move(vocabulary.tokens);
  pieces.scores = std::move(vocabulary.scores);
  // The ids of Llama's own vocabulary, which files without these fields have.
  pieces.bos_id = vocabulary.bos_id.value_or(1);
  pieces.eos_id = vocabulary.eos_id.value_or(2);
  pieces.unknown_id = vocabulary.unk_id.value_or(0);
  pieces.add_bos = vocabulary.add_bos.value_or(true);
  pieces.add_eos = vocabulary.add_eos.value_or(false);
  pieces.add_dummy_prefix = vocabulary.add_space_prefix.value_or(true);
  return MakeSentencePieceTokenizer(pieces, name);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> LoadGgufTokenizer(GgufVocabulary vocabulary, std::string_view name) {
  if (vocabulary.model == "gpt2") return GgufByteLevelBuilder(std::move(vocabulary), name).Build();
  if (vocabulary.model == "llama") return LoadGgufSentencePiece(std::move(vocabulary), name);
  return Fail(ErrorCode::kUnsupported, "{}: tokenizers of the model \"{}\" (tokenizer.ggml.model) are not supported",
              name, vocabulary.model);
}

}  // namespace quire::text
