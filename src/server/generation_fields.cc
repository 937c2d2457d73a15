#include "server/generation_fields.h"

#include <charconv>
#include <limits>
#include <string>

#include "api/request.h"

namespace quire::server {
namespace {

constexpr std::int64_t kIntMax = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kIntMin = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();
// More than any client sends; bounds the work per token.
constexpr std::size_t kStopStringsMax = 16;
constexpr std::size_t kStopBytesMax = 1024;
constexpr std::size_t kStopTokenIdsMax = 256;
constexpr std::size_t kLogitBiasMax = 4096;
constexpr std::size_t kNameBytesMax = 512;

using Fields = GenerationFields;

Result<> ReadStop(const json::value& value, const std::string& path, Fields* fields) {
  const auto add = [&](const json::value& item, const std::string& item_path) -> Result<> {
    QUIRE_TRY(std::string stop, ReadString(item, item_path, kStopBytesMax));
    if (stop.empty()) return FailParam(item_path, "{} must not be an empty string", item_path);
    fields->stop.push_back(std::move(stop));
    return {};
  };
  if (value.is_string()) return add(value, path);
  if (!value.is_array()) {
    return FailParam(path, "{} must be a string or an array of strings, got {}", path, Preview(value));
  }
  QUIRE_TRY(const json::array* items, ReadArray(value, path, kStopStringsMax));
  for (std::size_t i = 0; i < items->size(); ++i) QUIRE_TRY_VOID(add((*items)[i], IndexPath(path, i)));
  return {};
}

Result<> ReadStopTokenIds(const json::value& value, const std::string& path, Fields* fields) {
  // Held against the vocabulary in CheckGenerationFields.
  QUIRE_TRY(fields->stop_token_ids,
            ReadTokenIds(value, path, kStopTokenIdsMax, std::numeric_limits<std::int32_t>::max()));
  return {};
}

Result<> ReadLogitBias(const json::value& value, const std::string& path, Fields* fields) {
  QUIRE_TRY(const json::object* members, ReadObject(value, path, kLogitBiasMax));
  for (const auto& [key, bias] : *members) {
    const std::string_view name = key;
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    // In one spelling only: 1 and 01 would be two biases of one token.
    if (error != std::errc() || end != name.data() + name.size() || id < 0 || std::to_string(id) != name) {
      return FailParam(path, "{} has the key {}; keys must be token ids", path, Preview(json::value(key)));
    }
    QUIRE_TRY(const double number, ReadNumber(bias, JoinPath(path, name), -100, 100));
    fields->logit_bias.emplace_back(TokenId(id), static_cast<float>(number));
  }
  return {};
}

struct StreamOptions {
  bool include_usage = false;
  bool continuous_usage_stats = false;
};

Result<> ReadStreamOptions(const json::value& value, const std::string& path, Fields* fields) {
  static constexpr FieldSpec<StreamOptions> kTable[] = {
      {"include_usage", BoolField<StreamOptions>{&StreamOptions::include_usage}},
      {"continuous_usage_stats", BoolField<StreamOptions>{&StreamOptions::continuous_usage_stats}},
      {"include_obfuscation", NoEffectField{}},
  };
  QUIRE_TRY(const json::object* members, ReadObject(value, path, 64));
  StreamOptions options;
  std::vector<std::string_view> unknown;
  QUIRE_TRY_VOID(ReadFields<StreamOptions>(*members, path, kTable, &options, &unknown));
  fields->has_stream_options = true;
  fields->include_usage = options.include_usage;
  fields->continuous_usage_stats = options.include_usage && options.continuous_usage_stats;
  return {};
}

Result<> ReadCacheSalt(const json::value& value, const std::string& path, Fields* fields) {
  QUIRE_TRY(fields->cache_salt, ReadString(value, path, 128));
  if (fields->cache_salt.empty() ||
      fields->cache_salt.find_first_of(std::string_view("@/\\\0", 4)) != std::string::npos) {
    return FailParam(path, "{} must be 1 to 128 characters without @ / \\ and NUL", path);
  }
  return {};
}

// OpenAI's servers send requests with one key to one machine. Here all of a model's requests meet the same cache.
Result<> ReadPromptCacheKey(const json::value& value, const std::string& path, Fields*) {
  QUIRE_TRY([[maybe_unused]] const std::string key, ReadString(value, path, kNameBytesMax));
  return {};
}

Result<> ReadPromptCacheRetention(const json::value& value, const std::string& path, Fields* fields) {
  const std::string_view retention = value.is_string() ? std::string_view(value.get_string()) : "";
  if (retention == "24h") {
    fields->cache_retention_s = kCacheRetentionSecondsMax;
  } else if (retention != "in_memory") {
    return FailParam(path, "{} must be \"in_memory\" or \"24h\", got {}", path, Preview(value));
  }
  return {};
}

Result<> ReadEarlyStopping(const json::value& value, const std::string& path, Fields* fields) {
  if (value.is_bool()) {
    fields->early_stopping = value.get_bool() ? EarlyStopping::kOnceFull : EarlyStopping::kHeuristic;
    return {};
  }
  if (!value.is_string() || value.get_string() != "never") {
    return FailParam(path, "{} must be true, false or \"never\", got {}", path, Preview(value));
  }
  fields->early_stopping = EarlyStopping::kNever;
  return {};
}

// {"type": "text"} asks for nothing.
bool IsTextFormat(const json::value& value) {
  const json::value* type = value.is_object() ? value.get_object().if_contains("type") : nullptr;
  return type != nullptr && type->is_string() && type->get_string() == "text";
}

constexpr FieldSpec<Fields> kTable[] = {
    {"model", StringField<Fields>{&Fields::model, kNameBytesMax}},
    {"temperature", NumberField<Fields>{&Fields::temperature, 0, 100}},
    {"top_p", NumberField<Fields>{&Fields::top_p, 0, 1}},
    {"top_k", IntegerField<Fields>{&Fields::top_k, -1, kIntMax}},
    {"min_p", NumberField<Fields>{&Fields::min_p, 0, 1}},
    {"repetition_penalty", NumberField<Fields>{&Fields::repetition_penalty, 1e-3, 100}},
    {"presence_penalty", NumberField<Fields>{&Fields::presence_penalty, -2, 2}},
    {"frequency_penalty", NumberField<Fields>{&Fields::frequency_penalty, -2, 2}},
    {"seed", IntegerField<Fields>{&Fields::seed, kInt64Min, kInt64Max}},
    {"n", IntegerField<Fields>{&Fields::n, 1, kChoicesMax}},
    {"best_of", IntegerField<Fields>{&Fields::best_of, 0, kChoicesMax}},
    {"use_beam_search", BoolField<Fields>{&Fields::use_beam_search}},
    {"length_penalty", NumberField<Fields>{&Fields::length_penalty, -10, 10}},
    {"early_stopping", CustomField<Fields>{&ReadEarlyStopping}},
    {"max_tokens", IntegerField<Fields>{&Fields::max_tokens, 0, kIntMax}},
    {"min_tokens", IntegerField<Fields>{&Fields::min_tokens, 0, kIntMax}},
    {"stop", CustomField<Fields>{&ReadStop}},
    {"stop_token_ids", CustomField<Fields>{&ReadStopTokenIds}},
    {"include_stop_str_in_output", BoolField<Fields>{&Fields::include_stop_str_in_output}},
    {"ignore_eos", BoolField<Fields>{&Fields::ignore_eos}},
    {"skip_special_tokens", BoolField<Fields>{&Fields::skip_special_tokens}},
    {"add_special_tokens", OptionalBoolField<Fields>{&Fields::add_special_tokens}},
    {"echo", BoolField<Fields>{&Fields::echo}},
    {"logit_bias", CustomField<Fields>{&ReadLogitBias}},
    {"prompt_logprobs", IntegerField<Fields>{&Fields::prompt_logprobs, 0, kIntMax}},
    {"truncate_prompt_tokens", IntegerField<Fields>{&Fields::truncate_prompt_tokens, -1, kIntMax}},
    {"stream", BoolField<Fields>{&Fields::stream}},
    {"stream_options", CustomField<Fields>{&ReadStreamOptions}},
    {"return_token_ids", BoolField<Fields>{&Fields::return_token_ids}},
    {"return_timings", BoolField<Fields>{&Fields::return_timings}},
    {"return_tokens_as_token_ids", BoolField<Fields>{&Fields::return_tokens_as_token_ids}},
    {"cache_salt", CustomField<Fields>{&ReadCacheSalt}},
    {"prompt_cache_key", CustomField<Fields>{&ReadPromptCacheKey}},
    {"prompt_cache_retention", CustomField<Fields>{&ReadPromptCacheRetention}},
    {"priority", IntegerField<Fields>{&Fields::priority, kIntMin, kIntMax}},
    {"ttft_ms", NumberField<Fields>{&Fields::ttft_ms, 0, kServiceMsMax}},
    {"tpot_ms", NumberField<Fields>{&Fields::tpot_ms, 0, kServiceMsMax}},
    {"queue_timeout_ms", IntegerField<Fields>{&Fields::queue_timeout_ms, 0, static_cast<std::int64_t>(kServiceMsMax)}},

    {"user", NoEffectField{}},
    {"safety_identifier", NoEffectField{}},
    {"metadata", NoEffectField{}},
    {"store", NoEffectField{}},
    {"service_tier", NoEffectField{}},
    {"prompt_cache_options", NoEffectField{}},
    {"prediction", NoEffectField{}},  // a hint for speed; the output is the same
    {"request_id", NoEffectField{}},  // the X-Request-Id header is echoed
    {"session_id", NoEffectField{}},
    {"spaces_between_special_tokens", NoEffectField{}},  // decoders of this server never add any
    {"stream_interval", UnsupportedField{&IsOne}},

    {"response_format", UnsupportedField{&IsTextFormat}},
    {"structured_outputs", UnsupportedField{&IsEmptyValue}},
    {"guided_json", UnsupportedField{&IsNever}},
    {"guided_regex", UnsupportedField{&IsNever}},
    {"guided_choice", UnsupportedField{&IsNever}},
    {"guided_grammar", UnsupportedField{&IsNever}},
    {"guided_json_object", UnsupportedField{&IsFalse}},
    {"guided_decoding_backend", UnsupportedField{&IsNever}},
    {"structural_tag", UnsupportedField{&IsNever}},
    {"json_schema", UnsupportedField{&IsNever}},
    {"regex", UnsupportedField{&IsNever}},
    {"ebnf", UnsupportedField{&IsNever}},
    {"grammar", UnsupportedField{&IsEmptyValue}},
    {"allowed_token_ids", UnsupportedField{&IsNever}},
    {"bad_words", UnsupportedField{&IsEmptyValue}},
    {"logprob_token_ids", UnsupportedField{&IsEmptyValue}},
    {"logits_processors", UnsupportedField{&IsEmptyValue}},
    {"custom_logit_processor", UnsupportedField{&IsEmptyValue}},
    {"prompt_embeds", UnsupportedField{&IsNever}},
    {"truncation_side", UnsupportedField{&IsNever}},
    {"repetition_detection", UnsupportedField{&IsNever}},
    {"kv_transfer_params", UnsupportedField{&IsEmptyValue}},
    {"ec_transfer_params", UnsupportedField{&IsEmptyValue}},
    {"vllm_xargs", UnsupportedField{&IsEmptyValue}},
    {"mm_processor_kwargs", UnsupportedField{&IsEmptyValue}},
    {"media_io_kwargs", UnsupportedField{&IsEmptyValue}},
    {"return_prompt_text", UnsupportedField{&IsFalse}},
    {"watermarking", UnsupportedField{&IsNever}},
    {"moderation", UnsupportedField{&IsNever}},
    {"thinking_token_budget", UnsupportedField{&IsNever}},

    // What clients of other servers (SGLang, llama.cpp) send.
    {"cache_prompt", NoEffectField{}},
    {"id_slot", NoEffectField{}},
    {"stop_regex", UnsupportedField{&IsEmptyValue}},
    {"no_stop_trim", UnsupportedField{&IsFalse}},
    {"min_new_tokens", UnsupportedField{&IsZero}},
    {"return_hidden_states", UnsupportedField{&IsFalse}},
    {"lora_path", UnsupportedField{&IsNever}},
    {"lora", UnsupportedField{&IsEmptyValue}},
    {"n_predict", UnsupportedField{&IsNever}},
    {"n_keep", UnsupportedField{&IsZero}},
    {"n_discard", UnsupportedField{&IsZero}},
    {"t_max_predict_ms", UnsupportedField{&IsZero}},
    {"timings_per_token", UnsupportedField{&IsFalse}},
    {"samplers", UnsupportedField{&IsNever}},
    {"repeat_penalty", UnsupportedField{&IsOne}},
    {"typical_p", UnsupportedField{&IsOne}},
    {"dynatemp_range", UnsupportedField{&IsZero}},
    {"dry_multiplier", UnsupportedField{&IsZero}},
    {"xtc_probability", UnsupportedField{&IsZero}},
    {"mirostat", UnsupportedField{&IsZero}},
};

// Fields that only one scheduling policy can honour are refused by the others, unless they ask for nothing.
Result<> CheckTerms(const Fields& fields, const std::string& policy) {
  struct Needs {
    const char* field;
    double value;
    std::string_view policy;
  };
  const Needs needs[] = {{"priority", static_cast<double>(fields.priority.value_or(0)), "priority"},
                         {"ttft_ms", fields.ttft_ms.value_or(0), "slo"},
                         {"tpot_ms", fields.tpot_ms.value_or(0), "slo"}};
  for (const Needs& need : needs) {
    if (need.value == 0 || policy == need.policy) continue;
    return FailParam(need.field, "{} needs a server with --scheduling-policy {}; this one has {}", need.field,
                     need.policy, policy);
  }
  return {};
}

}  // namespace

std::span<const FieldSpec<GenerationFields>> GenerationFieldTable() {
  return kTable;
}

Result<std::vector<TokenId>> ReadTokenIds(const json::value& value, std::string_view path, std::size_t items_max,
                                          int vocab_size) {
  QUIRE_TRY(const json::array* items, ReadArray(value, path, items_max));
  std::vector<TokenId> ids;
  ids.reserve(items->size());
  for (std::size_t i = 0; i < items->size(); ++i) {
    const json::value& item = (*items)[i];
    // The path is only spelled out for a fault: these lists are long.
    if (item.is_int64() && item.get_int64() >= 0 && item.get_int64() < vocab_size) {
      ids.emplace_back(static_cast<std::int32_t>(item.get_int64()));
      continue;
    }
    QUIRE_TRY(const std::int64_t id, ReadInteger(item, IndexPath(path, i), 0, vocab_size - 1));
    ids.emplace_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

namespace {

// Without beams.
Result<> CheckBestOf(const Fields& fields) {
  if (fields.length_penalty.value_or(1) != 1) {
    return FailParam("length_penalty", "length_penalty needs use_beam_search=true");
  }
  if (fields.early_stopping != EarlyStopping::kHeuristic) {
    return FailParam("early_stopping", "early_stopping needs use_beam_search=true");
  }
  if (fields.num_candidates() == fields.num_choices()) return {};
  if (*fields.best_of > kBestOfMax) {
    return FailParam("best_of", "best_of must be an integer from 0 to {} without use_beam_search, got {}", kBestOfMax,
                     *fields.best_of);
  }
  if (fields.stream) return FailParam("best_of", "best_of above n cannot be had with stream=true: the best come last");
  return {};
}

// Beams are not drawn. What a client says about drawing must be neutral, lest it believes that it is heard.
Result<> CheckBeams(const Fields& fields) {
  const struct {
    const char* name;
    std::optional<double> value;
    double neutral;
  } rules[] = {
      {"temperature", fields.temperature, 0},
      {"top_p", fields.top_p, 1},
      {"top_k", fields.top_k == -1 ? 0 : fields.top_k, 0},
      {"min_p", fields.min_p, 0},
      {"repetition_penalty", fields.repetition_penalty, 1},
      {"presence_penalty", fields.presence_penalty, 0},
      {"frequency_penalty", fields.frequency_penalty, 0},
  };
  for (const auto& [name, value, neutral] : rules) {
    if (value.value_or(neutral) != neutral) {
      return FailParam(name, "{} must be {} or absent with use_beam_search=true, got {}", name, neutral, *value);
    }
  }
  return {};
}

}  // namespace

Result<> CheckGenerationFields(const GenerationFields& fields, const RequestLimits& limits) {
  // 0 and 1 are what clients send for "not wanted".
  if (const auto best_of = fields.best_of.value_or(1); best_of > 1 && best_of < fields.num_choices()) {
    return FailParam("best_of", "best_of must be at least n={}, got {}", fields.num_choices(), best_of);
  }
  QUIRE_TRY_VOID(fields.use_beam_search ? CheckBeams(fields) : CheckBestOf(fields));
  if (fields.has_stream_options && !fields.stream) {
    return FailParam("stream_options", "stream_options are allowed only with stream=true");
  }
  if (fields.prompt_logprobs) {
    if (fields.stream) return FailParam("prompt_logprobs", "prompt_logprobs cannot be had with stream=true");
    if (*fields.prompt_logprobs > limits.logprobs_max) {
      return FailParam("prompt_logprobs", "prompt_logprobs must be an integer from 0 to {}, got {}",
                       limits.logprobs_max, *fields.prompt_logprobs);
    }
  }
  QUIRE_TRY_VOID(CheckTerms(fields, limits.scheduling_policy));
  if (fields.truncate_prompt_tokens == 0) {
    return FailParam("truncate_prompt_tokens", "truncate_prompt_tokens must be -1 or at least 1, got 0");
  }
  for (const auto& [id, bias] : fields.logit_bias) {
    if (id.value() >= limits.vocab_size) {
      return FailParam("logit_bias", "logit_bias names the token id {}; the vocabulary has the ids 0 to {}", id,
                       limits.vocab_size - 1);
    }
  }
  for (const TokenId id : fields.stop_token_ids) {
    if (id.value() >= limits.vocab_size) {
      return FailParam("stop_token_ids", "stop_token_ids names the token id {}; the vocabulary has the ids 0 to {}", id,
                       limits.vocab_size - 1);
    }
  }
  return {};
}

SamplingParams ResolveSampling(const GenerationFields& fields, const GenerationDefaults& defaults,
                               std::uint64_t random_seed) {
  const auto choose = [](const auto& own, const auto& recommended, auto neutral) -> decltype(neutral) {
    if (own) return static_cast<decltype(neutral)>(*own);
    if (recommended) return static_cast<decltype(neutral)>(*recommended);
    return neutral;
  };
  SamplingParams sampling;
  sampling.logit_bias = fields.logit_bias;
  sampling.seed = fields.seed ? static_cast<std::uint64_t>(*fields.seed) : random_seed;
  sampling.n = fields.use_beam_search ? fields.num_choices() : fields.num_candidates();
  if (fields.use_beam_search) {
    sampling.temperature = 0;  // and the rest neutral: what a model recommends is for sampling
    sampling.beam = {.width = fields.num_candidates(),
                     .length_penalty = fields.length_penalty.value_or(1.0),
                     .early_stopping = fields.early_stopping};
    return sampling;
  }
  sampling.temperature = choose(fields.temperature, defaults.temperature, 1.0);
  sampling.top_p = choose(fields.top_p, defaults.top_p, 1.0);
  sampling.top_k = choose(fields.top_k, defaults.top_k, 0);
  sampling.min_p = choose(fields.min_p, defaults.min_p, 0.0);
  sampling.repetition_penalty = choose(fields.repetition_penalty, defaults.repetition_penalty, 1.0);
  sampling.presence_penalty = fields.presence_penalty.value_or(0.0);
  sampling.frequency_penalty = fields.frequency_penalty.value_or(0.0);
  if (sampling.top_k < 0) sampling.top_k = 0;
  // Below this the division by the temperature says nothing more; vLLM draws the line at the same place.
  constexpr double kGreedyBelow = 1e-5;
  if (sampling.temperature < kGreedyBelow || sampling.top_p == 0) {
    sampling.temperature = 0;
    sampling.top_p = 1.0;
  }
  return sampling;
}

}  // namespace quire::server
