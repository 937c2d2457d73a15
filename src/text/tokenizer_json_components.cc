// The normalizer, the pre-tokenizer and the decoder of a tokenizer.json.
#include <string>
#include <utility>

#include "base/utf8.h"
#include "text/json_fields.h"
#include "text/tokenizer_json.h"

namespace quire::text {
namespace {

// A Sequence inside a Sequence and so on; the JSON reader bounds the depth of the file itself.
constexpr std::size_t kStepsMax = 256;

Result<Pattern> ParsePattern(const JsonFields& fields) {
  QUIRE_TRY(const json::value* value, fields.Get("pattern"));
  // Old files have the string itself.
  if (value->is_string()) {
    const json::string& text = value->get_string();
    return Pattern::Literal({text.data(), text.size()}, fields.where());
  }
  QUIRE_TRY(const JsonFields pattern, JsonFields::Of(*value, fields.where() + ": pattern"));
  if (pattern.Has("Regex")) {
    QUIRE_TRY(const std::string_view regex, pattern.String("Regex"));
    return Pattern::Regex(regex, fields.where());
  }
  QUIRE_TRY(const std::string_view text, pattern.String("String"));
  return Pattern::Literal(text, fields.where());
}

Result<SplitBehavior> ParseBehavior(const JsonFields& fields, std::string_view otherwise) {
  QUIRE_TRY(const std::string_view behavior, fields.StringOr("behavior", otherwise));
  if (behavior == "Isolated") return SplitBehavior::kIsolated;
  if (behavior == "Removed") return SplitBehavior::kRemoved;
  if (behavior == "Contiguous") return SplitBehavior::kContiguous;
  if (behavior == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (behavior == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  return Fail(ErrorCode::kUnsupported, "{}: the behavior \"{}\" is not known", fields.where(), behavior);
}

enum class PrependScheme : std::uint8_t { kFirst, kAlways, kNever };

Result<PrependScheme> ParsePrependScheme(const JsonFields& fields) {
  QUIRE_TRY(const bool add_prefix_space, fields.BoolOr("add_prefix_space", true));
  QUIRE_TRY(const std::string_view scheme, fields.StringOr("prepend_scheme", add_prefix_space ? "always" : "never"));
  if (scheme == "never") return PrependScheme::kNever;
  if (!add_prefix_space) {
    return Fail(ErrorCode::kCorrupt, "{}: add_prefix_space is false, but prepend_scheme is \"{}\"", fields.where(),
                scheme);
  }
  if (scheme == "always") return PrependScheme::kAlways;
  if (scheme == "first") return PrependScheme::kFirst;
  return Fail(ErrorCode::kUnsupported, "{}: the prepend_scheme \"{}\" is not known", fields.where(), scheme);
}

template <typename Step>
Result<> CheckCount(const std::vector<Step>& steps, const JsonFields& fields) {
  if (steps.size() <= kStepsMax) return {};
  return Fail(ErrorCode::kOutOfRange, "{}: more than {} steps", fields.where(), kStepsMax);
}

Result<> AddNormalizer(const json::value& value, const std::string& where, std::vector<NormalizerStep>* steps) {
  QUIRE_TRY(const JsonFields fields, JsonFields::Of(value, where));
  QUIRE_TRY(const std::string_view type, fields.String("type"));
  if (type == "Sequence") {
    QUIRE_TRY(const json::array* parts, fields.Array("normalizers"));
    for (const json::value& part : *parts) QUIRE_TRY_VOID(AddNormalizer(part, where, steps));
  } else if (type == "NFC") {
    steps->emplace_back(NormalForm::kNfc);
  } else if (type == "NFD") {
    steps->emplace_back(NormalForm::kNfd);
  } else if (type == "NFKC") {
    steps->emplace_back(NormalForm::kNfkc);
  } else if (type == "NFKD") {
    steps->emplace_back(NormalForm::kNfkd);
  } else if (type == "Lowercase") {
    steps->emplace_back(LowercaseStep{});
  } else if (type == "StripAccents") {
    steps->emplace_back(StripAccentsStep{});
  } else if (type == "ByteLevel") {
    steps->emplace_back(ByteAlphabetStep{});
  } else if (type == "Prepend") {
    QUIRE_TRY(const std::string_view text, fields.String("prepend"));
    steps->emplace_back(PrependStep{std::string(text)});
  } else if (type == "Strip") {
    StripStep strip;
    QUIRE_TRY(strip.left, fields.BoolOr("strip_left", true));
    QUIRE_TRY(strip.right, fields.BoolOr("strip_right", true));
    steps->emplace_back(strip);
  } else if (type == "Replace") {
    QUIRE_TRY(Pattern pattern, ParsePattern(fields));
    QUIRE_TRY(const std::string_view content, fields.String("content"));
    steps->emplace_back(ReplaceStep{std::move(pattern), std::string(content)});
  } else {
    return Fail(ErrorCode::kUnsupported, "{}: the normalizer \"{}\" is not supported", where, type);
  }
  return CheckCount(*steps, fields);
}

Result<> AddMetaspace(const JsonFields& fields, std::vector<PreTokenizerStep>* steps) {
  QUIRE_TRY(const std::string_view mark, fields.Character("replacement"));
  QUIRE_TRY(const PrependScheme scheme, ParsePrependScheme(fields));
  QUIRE_TRY(const bool split, fields.BoolOr("split", true));
  steps->emplace_back(ReplaceSpacesStep{std::string(mark)});
  if (scheme != PrependScheme::kNever) {
    steps->emplace_back(PrefixStep{std::string(mark), scheme == PrependScheme::kFirst});
  }
  if (split) {
    steps->emplace_back(
        SplitStep{.matcher = OneCharacter{DecodeUtf8(mark).code_point}, .behavior = SplitBehavior::kMergedWithNext});
  }
  return {};
}

Result<> AddByteLevel(const JsonFields& fields, std::vector<PreTokenizerStep>* steps) {
  QUIRE_TRY(const bool add_prefix_space, fields.BoolOr("add_prefix_space", true));
  QUIRE_TRY(const bool use_regex, fields.BoolOr("use_regex", true));
  if (add_prefix_space) steps->emplace_back(PrefixStep{" ", false});
  if (use_regex) {
    QUIRE_TRY(Pattern pattern, Pattern::Regex(kGpt2Pattern, fields.where()));
    steps->emplace_back(SplitStep{.matcher = std::move(pattern)});
  }
  steps->emplace_back(MapBytesStep{});
  return {};
}

Result<> AddSplit(const JsonFields& fields, std::vector<PreTokenizerStep>* steps) {
  QUIRE_TRY(Pattern pattern, ParsePattern(fields));
  SplitStep step{.matcher = std::move(pattern)};
  QUIRE_TRY(step.behavior, ParseBehavior(fields, ""));
  QUIRE_TRY(step.invert, fields.BoolOr("invert", false));
  steps->emplace_back(std::move(step));
  return {};
}

Result<> AddPreTokenizer(const json::value& value, const std::string& where, std::vector<PreTokenizerStep>* steps) {
  QUIRE_TRY(const JsonFields fields, JsonFields::Of(value, where));
  QUIRE_TRY(const std::string_view type, fields.String("type"));
  const auto add_split = [&](auto matcher, SplitBehavior behavior) {
    steps->emplace_back(SplitStep{.matcher = std::move(matcher), .behavior = behavior});
  };
  if (type == "Sequence") {
    QUIRE_TRY(const json::array* parts, fields.Array("pretokenizers"));
    for (const json::value& part : *parts) QUIRE_TRY_VOID(AddPreTokenizer(part, where, steps));
  } else if (type == "Split") {
    QUIRE_TRY_VOID(AddSplit(fields, steps));
  } else if (type == "ByteLevel") {
    QUIRE_TRY_VOID(AddByteLevel(fields, steps));
  } else if (type == "Metaspace") {
    QUIRE_TRY_VOID(AddMetaspace(fields, steps));
  } else if (type == "Digits") {
    QUIRE_TRY(const bool individual, fields.BoolOr("individual_digits", false));
    add_split(CharacterKind::kNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  } else if (type == "Punctuation") {
    QUIRE_TRY(const SplitBehavior behavior, ParseBehavior(fields, "Isolated"));
    add_split(CharacterKind::kPunctuation, behavior);
  } else if (type == "Whitespace") {
    steps->emplace_back(SplitStep{.matcher = WordRuns{}, .behavior = SplitBehavior::kRemoved, .invert = true});
  } else if (type == "WhitespaceSplit") {
    add_split(CharacterKind::kWhiteSpace, SplitBehavior::kRemoved);
  } else if (type == "BertPreTokenizer") {
    add_split(CharacterKind::kWhiteSpace, SplitBehavior::kRemoved);
    add_split(CharacterKind::kPunctuation, SplitBehavior::kIsolated);
  } else if (type == "CharDelimiterSplit") {
    QUIRE_TRY(const std::string_view delimiter, fields.Character("delimiter"));
    add_split(OneCharacter{DecodeUtf8(delimiter).code_point}, SplitBehavior::kRemoved);
  } else {
    return Fail(ErrorCode::kUnsupported, "{}: the pre-tokenizer \"{}\" is not supported", where, type);
  }
  return CheckCount(*steps, fields);
}

// Whether the entries before this point were joined to one: then steps see the whole text, not single
// entries.
struct DecoderState {
  std::vector<TokenDecoderStep>* steps;
  bool fused = false;
};

Result<> AddReplaceDecoder(const JsonFields& fields, DecoderState* state) {
  QUIRE_TRY(const json::object* pattern, fields.Object("pattern"));
  const json::value* text = pattern->if_contains("String");
  if (text == nullptr || !text->is_string() || text->get_string().empty()) {
    return Fail(ErrorCode::kUnsupported, "{}: a Replace decoder is supported with a String pattern only",
                fields.where());
  }
  const std::string_view view(text->get_string().data(), text->get_string().size());
  // A longer pattern could lie across two entries.
  if (state->fused && DecodeUtf8(view).size != view.size()) {
    return Fail(ErrorCode::kUnsupported, "{}: a Replace decoder of \"{}\" behind Fuse is not supported", fields.where(),
                view);
  }
  QUIRE_TRY(const std::string_view content, fields.String("content"));
  state->steps->emplace_back(ReplaceTextStep{std::string(view), std::string(content)});
  return {};
}

Result<> AddStripDecoder(const JsonFields& fields, DecoderState* state) {
  QUIRE_TRY(const std::string_view content, fields.Character("content"));
  QUIRE_TRY(const std::int64_t start, fields.Integer("start"));
  QUIRE_TRY(const std::int64_t stop, fields.Integer("stop"));
  if (start < 0 || stop < 0) return Fail(ErrorCode::kCorrupt, "{}: start or stop is negative", fields.where());
  if (!state->fused) {
    state->steps->emplace_back(
        StripTextStep{std::string(content), static_cast<std::size_t>(start), static_cast<std::size_t>(stop)});
    return {};
  }
  // At the end of a text that still grows nothing can be taken away; of the first entry one character can.
  if (stop != 0 || start > 1) {
    return Fail(ErrorCode::kUnsupported, "{}: a Strip decoder with start {} and stop {} is not supported",
                fields.where(), start, stop);
  }
  state->steps->emplace_back(StripStartStep{std::string(content), static_cast<std::size_t>(start)});
  return {};
}

Result<> AddDecoder(const json::value& value, const std::string& where, DecoderState* state) {
  QUIRE_TRY(const JsonFields fields, JsonFields::Of(value, where));
  QUIRE_TRY(const std::string_view type, fields.String("type"));
  if (type == "Sequence") {
    QUIRE_TRY(const json::array* parts, fields.Array("decoders"));
    for (const json::value& part : *parts) QUIRE_TRY_VOID(AddDecoder(part, where, state));
  } else if (type == "ByteLevel") {
    if (state->fused) return Fail(ErrorCode::kUnsupported, "{}: ByteLevel behind Fuse is not supported", where);
    state->steps->emplace_back(FromByteAlphabetStep{});
    state->fused = true;
  } else if (type == "ByteFallback") {
    if (state->fused) return Fail(ErrorCode::kUnsupported, "{}: ByteFallback behind Fuse is not supported", where);
    state->steps->emplace_back(ByteFallbackStep{});
  } else if (type == "Fuse") {
    state->fused = true;
  } else if (type == "Replace") {
    QUIRE_TRY_VOID(AddReplaceDecoder(fields, state));
  } else if (type == "Strip") {
    QUIRE_TRY_VOID(AddStripDecoder(fields, state));
  } else if (type == "Metaspace") {
    QUIRE_TRY(const std::string_view mark, fields.Character("replacement"));
    QUIRE_TRY(const PrependScheme scheme, ParsePrependScheme(fields));
    state->steps->emplace_back(SpaceMarkStep{std::string(mark), scheme != PrependScheme::kNever});
  } else {
    return Fail(ErrorCode::kUnsupported, "{}: the decoder \"{}\" is not supported", where, type);
  }
  return CheckCount(*state->steps, fields);
}

}  // namespace

Result<std::vector<NormalizerStep>> ParseNormalizer(const json::value& value, std::string_view name) {
  std::vector<NormalizerStep> steps;
  if (!value.is_null()) QUIRE_TRY_VOID(AddNormalizer(value, std::string(name) + ": normalizer", &steps));
  return steps;
}

Result<std::vector<PreTokenizerStep>> ParsePreTokenizer(const json::value& value, std::string_view name) {
  std::vector<PreTokenizerStep> steps;
  if (!value.is_null()) QUIRE_TRY_VOID(AddPreTokenizer(value, std::string(name) + ": pre_tokenizer", &steps));
  return steps;
}

Result<std::vector<TokenDecoderStep>> ParseTokenDecoder(const json::value& value, std::string_view name) {
  std::vector<TokenDecoderStep> steps;
  if (value.is_null()) {
    steps.emplace_back(JoinWithSpacesStep{});
    return steps;
  }
  DecoderState state{&steps};
  QUIRE_TRY_VOID(AddDecoder(value, std::string(name) + ": decoder", &state));
  return steps;
}

}  // namespace quire::text
