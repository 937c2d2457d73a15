#include "server/prepare.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace quire::server {
namespace {

// Answers of the two are of different lengths: see ServiceTerms::route.
constexpr std::int32_t kCompletionRoute = 0, kChatRoute = 1;

// Chooses the number of tokens to generate, or says why there is no room. `asked` is absent when the client
// left it to the server: then the rest of the context is used.
Result<int> FitMaxTokens(std::size_t prompt_tokens, std::optional<std::int64_t> asked, const char* prompt_param,
                         const char* max_tokens_param, const ModelContext& model) {
  const std::int64_t length_max = model.limits.max_model_len;
  const std::int64_t prompt = static_cast<std::int64_t>(prompt_tokens);
  const auto refuse = [&](const char* param, std::int64_t completion) {
    return std::unexpected(Error{
        ErrorCode::kOutOfRange,
        fmt::format("This model's maximum context length is {} tokens. However, you requested {} tokens ({} in the "
                    "prompt, {} for the completion). Please reduce the length of the prompt or of the completion.",
                    length_max, prompt + completion, prompt, completion),
        param});
  };
  if (prompt >= length_max) return refuse(prompt_param, asked.value_or(1));
  if (asked && *asked > length_max - prompt) return refuse(max_tokens_param, *asked);
  return static_cast<int>(asked.value_or(length_max - prompt));
}

// Keeps the end of a prompt that the client allows to be cut; says whether it cut something.
bool TruncatePrompt(std::optional<std::int64_t> tokens_max, std::optional<std::int64_t> max_tokens,
                    const ModelContext& model, std::vector<TokenId>* ids) {
  if (!tokens_max) return false;
  std::int64_t keep = *tokens_max;
  if (keep < 0)
    keep = std::max<std::int64_t>(1, model.limits.max_model_len - std::max<std::int64_t>(1, max_tokens.value_or(1)));
  const auto size = static_cast<std::int64_t>(ids->size());
  if (size <= keep) return false;
  ids->erase(ids->begin(), ids->begin() + (size - keep));
  return true;
}

// What both routes do alike.
GenerationSpec MakeSpec(const GenerationFields& fields, const ModelContext& model, const RequestIdentity& identity) {
  GenerationSpec spec;
  spec.model = fields.model.empty() ? model.names.front() : fields.model;
  spec.system_fingerprint = model.system_fingerprint;
  spec.created = identity.created;
  spec.sampling = ResolveSampling(fields, model.defaults, identity.random_seed);
  spec.n = fields.num_choices();
  if (spec.sampling.beam) {
    spec.stop.stop_strings = fields.stop;
    spec.stop.skip_special_tokens = fields.skip_special_tokens;
  }
  spec.stop.min_tokens = static_cast<int>(fields.min_tokens.value_or(0));
  spec.stop.ignore_eos = fields.ignore_eos;
  spec.stop.stop_token_ids = fields.stop_token_ids;
  spec.cache_salt = fields.cache_salt;
  spec.cache_retention_s = fields.cache_retention_s;
  spec.terms = {.priority = static_cast<std::int32_t>(fields.priority.value_or(0)),
                .ttft_ms = fields.ttft_ms.value_or(0),
                .tpot_ms = fields.tpot_ms.value_or(0),
                .queue_timeout_ms = static_cast<std::int32_t>(fields.queue_timeout_ms.value_or(0)),
                .tenant = identity.tenant,
                .route = kCompletionRoute};
  spec.stream = fields.stream;
  spec.include_usage = fields.include_usage;
  spec.continuous_usage_stats = fields.continuous_usage_stats;
  spec.echo = fields.echo;
  if (fields.prompt_logprobs) {
    spec.prompt_logprobs = static_cast<int>(*fields.prompt_logprobs);
    spec.sampling.prompt_logprobs = spec.prompt_logprobs;
  }
  spec.return_token_ids = fields.return_token_ids;
  spec.return_tokens_as_token_ids = fields.return_tokens_as_token_ids;
  spec.return_timings = fields.return_timings;
  spec.skip_special_tokens = fields.skip_special_tokens;
  spec.stop_strings = fields.stop;
  spec.include_stop_str_in_output = fields.include_stop_str_in_output;
  return spec;
}

// Prompts of one request differ in their draws even when they are the same text, unless the client gave a
// seed.
std::uint64_t PromptSeed(const GenerationFields& fields, std::uint64_t seed, std::size_t prompt) {
  constexpr std::uint64_t kOddStep = 0x9E3779B97F4A7C15;  // 2^64 / the golden ratio
  return fields.seed ? seed : seed + kOddStep * prompt;
}

// As Hugging Face does it: a mark at the end of the final message shows where the text is to be cut after
// rendering. The blank at the end of the mark tells whether the template trims messages.
Result<std::string> RenderContinued(text::ChatTemplateInput input, const text::ChatTemplate& chat_template) {
  constexpr std::string_view kMark = "QUIRE_CONTINUES_THE_FINAL_MESSAGE_HERE ";
  constexpr std::string_view kTrimmedMark = kMark.substr(0, kMark.size() - 1);
  json::string& content = input.messages.back().as_object().at("content").as_string();
  content.append(kMark);
  QUIRE_TRY(std::string text, chat_template.Render(input));
  const std::size_t at = text.rfind(kTrimmedMark);
  if (at == std::string::npos) {
    return FailParam("continue_final_message",
                     "continue_final_message: the chat template of this model does not show the final message");
  }
  const bool is_trimmed = text.compare(at, kMark.size(), kMark) != 0;
  text.resize(at);
  if (is_trimmed) text.resize(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

// Templates that know no developer role get the system role for it.
void RenameDevelopers(const text::ChatTemplate& chat_template, json::array* messages) {
  if (chat_template.source().find("developer") != std::string::npos) return;
  for (json::value& message : *messages) {
    json::value& role = message.as_object().at("role");
    if (role.as_string() == "developer") role = "system";
  }
}

}  // namespace

Result<> CheckModelName(const std::string& name, const ModelContext& model) {
  if (name.empty() || std::ranges::find(model.names, name) != model.names.end()) return {};
  return std::unexpected(Error{
      ErrorCode::kNotFound, fmt::format("The model `{}` does not exist.", SanitizeUtf8(name.substr(0, 200))), "model"});
}

Result<std::string> RenderChat(const ChatPrompt& prompt, const ModelContext& model) {
  if (model.chat_template == nullptr) {
    return FailParam("messages", "this model has no chat template; use /v1/completions");
  }
  text::ChatTemplateInput input;
  input.messages = prompt.messages;
  input.tools = prompt.tools;
  input.kwargs = prompt.template_kwargs;
  input.add_generation_prompt = prompt.add_generation_prompt.value_or(!prompt.continue_final_message);
  RenameDevelopers(*model.chat_template, &input.messages);
  auto text = prompt.continue_final_message ? RenderContinued(std::move(input), *model.chat_template)
                                            : model.chat_template->Render(input);
  if (text) return text;
  Error error = std::move(text).error();
  // Whatever a template does not like about these messages is the client's to repair, its limits included.
  if (error.code == ErrorCode::kOutOfRange) error.code = ErrorCode::kInvalidArgument;
  if (error.param.empty()) error.param = "messages";
  return std::unexpected(std::move(error));
}

Result<std::vector<TokenId>> EncodePrompt(const std::string& text, bool add_special_tokens, const std::string& param,
                                          const ModelContext& model) {
  // Normalisation can shorten a text, but not by much; a text beyond this has more tokens than fit.
  constexpr std::size_t kShrinkMax = 4;
  const std::size_t context = static_cast<std::size_t>(model.limits.max_model_len);
  if (text.size() / kShrinkMax / std::max<std::size_t>(model.token_bytes_max, 1) > context) {
    return std::unexpected(Error{ErrorCode::kOutOfRange,
                                 fmt::format("This model's maximum context length is {} tokens; {} has {} bytes of "
                                             "text, which is more than that in any case.",
                                             context, param, text.size()),
                                 param});
  }
  auto ids = model.tokenizer->Encode(text, {.add_special_tokens = add_special_tokens, .parse_special_tokens = true});
  if (!ids) return FailParam(param, "{}: {}", param, ids.error().message);
  if (ids->empty()) return FailParam(param, "{} must not be empty: it has no tokens", param);
  for (const TokenId id : *ids) {
    if (id.value() >= model.limits.vocab_size) {
      return Fail(ErrorCode::kInternal, "the tokenizer gave the id {}, but the model has only {}", id,
                  model.limits.vocab_size);
    }
  }
  return ids;
}

Result<GenerationSpec> PrepareCompletion(CompletionRequest request, const ModelContext& model,
                                         const RequestIdentity& identity) {
  GenerationSpec spec = MakeSpec(request, model, identity);
  spec.id = "cmpl-" + identity.id;
  constexpr std::int64_t kDefaultMaxTokens = 16;  // OpenAI's
  const std::int64_t max_tokens = request.max_tokens.value_or(kDefaultMaxTokens);
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    CompletionPrompt& prompt = request.prompts[i];
    PreparedPrompt& prepared = spec.prompts.emplace_back();
    if (prompt.is_text) {
      QUIRE_TRY(prepared.ids, EncodePrompt(prompt.text, request.add_special_tokens.value_or(true), "prompt", model));
    } else {
      prepared.ids = std::move(prompt.ids);
    }
    const bool is_cut = TruncatePrompt(request.truncate_prompt_tokens, max_tokens, model, &prepared.ids);
    if (request.echo) {
      prepared.text = prompt.is_text && !is_cut
                          ? std::move(prompt.text)
                          : SanitizeUtf8(model.tokenizer->Decode(prepared.ids, request.skip_special_tokens));
    }
    QUIRE_TRY(prepared.max_tokens, FitMaxTokens(prepared.ids.size(), max_tokens, "prompt", "max_tokens", model));
    prepared.seed = PromptSeed(request, spec.sampling.seed, i);
  }
  if (spec.returns_best()) spec.sampling.logprobs = 0;
  if (request.logprobs) {
    spec.logprobs = static_cast<int>(*request.logprobs);
    spec.sampling.logprobs = spec.logprobs;
    // An echoed prompt has logprobs as well.
    if (request.echo)
      spec.sampling.prompt_logprobs = std::max(spec.sampling.prompt_logprobs.value_or(0), *spec.logprobs);
  }
  return spec;
}

Result<GenerationSpec> PrepareChat(ChatRequest request, const ModelContext& model, const RequestIdentity& identity) {
  GenerationSpec spec = MakeSpec(request, model, identity);
  spec.is_chat = true;
  spec.terms.route = kChatRoute;
  spec.id = "chatcmpl-" + identity.id;
  const bool has_new_name = request.max_completion_tokens.has_value();
  const auto max_tokens = has_new_name ? request.max_completion_tokens : request.max_tokens;
  QUIRE_TRY(const std::string text, RenderChat(request, model));
  PreparedPrompt& prepared = spec.prompts.emplace_back();
  // The template has written the special tokens already.
  QUIRE_TRY(prepared.ids, EncodePrompt(text, request.add_special_tokens.value_or(false), "messages", model));
  TruncatePrompt(request.truncate_prompt_tokens, max_tokens, model, &prepared.ids);
  QUIRE_TRY(prepared.max_tokens, FitMaxTokens(prepared.ids.size(), max_tokens, "messages",
                                              has_new_name ? "max_completion_tokens" : "max_tokens", model));
  prepared.seed = spec.sampling.seed;
  if (request.echo && request.continue_final_message) {
    prepared.text = request.messages.back().as_object().at("content").as_string();
  }
  if (spec.returns_best()) spec.sampling.logprobs = 0;
  if (request.logprobs) {
    spec.logprobs = static_cast<int>(request.top_logprobs.value_or(0));
    spec.sampling.logprobs = spec.logprobs;
  }
  return spec;
}

}  // namespace quire::server
