// Any bytes as the body of every JSON route: parsing ends with a request within its limits or with an error that
// names something, never otherwise.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/answer.h"
#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/prepare.h"
#include "server/reply.h"
#include "server/testing/byte_tokenizer.h"
#include "server/tokenize.h"

namespace quire::server {
namespace {

ModelContext MakeModel() {
  ModelContext model;
  model.names = {"m"};
  model.tokenizer = std::make_shared<testing::ByteTokenizer>();
  model.limits = {.vocab_size = 260, .max_model_len = 64, .logprobs_max = 20};
  model.token_bytes_max = 12;
  return model;
}

void CheckSampling(const GenerationFields& fields) {
  const SamplingParams sampling = ResolveSampling(fields, {}, 1);
  CHECK(sampling.temperature >= 0 && sampling.temperature <= 100);
  CHECK(sampling.top_p > 0 && sampling.top_p <= 1);
  CHECK(sampling.top_k >= 0);
  CHECK(sampling.n >= 1 && sampling.n <= kChoicesMax);
  CHECK(sampling.repetition_penalty > 0);
}

template <typename T>
void CheckError(const Result<T>& result) {
  if (result) return;
  const ApiError error = ToApiError(result.error());
  CHECK(error.status >= 400 && error.status < 500);
  CHECK(!error.message.empty());
  CHECK(ParseJson(ErrorJson(error), "error").has_value());
}

void Try(std::string_view text, const ModelContext& model) {
  const auto body = ParseJson(text, "request body");
  if (!body) return;
  auto chat = ParseChatRequest(*body, model.limits);
  CheckError(chat);
  if (chat) CheckSampling(*chat);
  auto completion = ParseCompletionRequest(*body, model.limits);
  CheckError(completion);
  if (completion) {
    CheckSampling(*completion);
    auto spec = PrepareCompletion(*std::move(completion), model, {.id = "x", .created = 1, .random_seed = 1});
    CheckError(spec);
    for (std::size_t i = 0; spec && i < spec->prompts.size(); ++i) {
      const PreparedPrompt& prompt = spec->prompts[i];
      CHECK(!prompt.ids.empty() && prompt.ids.size() < 64);
      CHECK(static_cast<int>(prompt.ids.size()) + prompt.max_tokens <= 64);
    }
  }
  CheckError(Tokenize(*body, model));
  CheckError(Detokenize(*body, model));
}

// The members of requests that the table of generation fields does not have, and values of all kinds.
constexpr std::string_view kOtherNames[] = {"prompt",
                                            "messages",
                                            "tools",
                                            "tool_choice",
                                            "logprobs",
                                            "top_logprobs",
                                            "suffix",
                                            "reasoning_effort",
                                            "documents",
                                            "audio",
                                            "chat_template_kwargs",
                                            "max_completion_tokens",
                                            "tokens",
                                            "continue_final_message",
                                            "add_generation_prompt",
                                            "return_token_strs"};
constexpr std::string_view kValues[] = {
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2",
    "21",
    "0.5",
    "1e309",
    "-1e-9",
    "2147483648",
    "9223372036854775808",
    "\"\"",
    "\"x\"",
    "\"none\"",
    "\"required\"",
    "\"a@b\"",
    "[]",
    "[1]",
    "[[1,2],[3]]",
    "[\"a\",\"\"]",
    "[-1]",
    "[260]",
    "{}",
    "{\"5\":1}",
    "{\"x\":{}}",
    "{\"5\":1e400}",
    "{\"include_usage\":true}",
    "{\"type\":\"text\"}",
    "[{\"role\":\"user\",\"content\":\"x\"}]",
    "[{\"role\":\"assistant\",\"tool_calls\":[{}]}]",
    "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\"}]}]",
    "[{\"role\":\"assistant\",\"reasoning\":\"r\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}"
    "]}]",
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]",
    "{\"messages\":1}"};

// Bytes as a choice of members and values: random text is seldom JSON, and seldom names a field.
std::string MakeBody(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string_view> names(std::begin(kOtherNames), std::end(kOtherNames));
  for (const auto& spec : GenerationFieldTable()) names.push_back(spec.name);
  std::string body = "{";
  for (std::size_t i = 0; i + 1 < size; i += 2) {
    if (i > 0) body += ',';
    AppendJsonString(names[data[i] % names.size()], /*ascii_only=*/true, &body);
    body += ':';
    body += kValues[data[i + 1] % std::size(kValues)];
  }
  return body + "}";
}

}  // namespace
}  // namespace quire::server

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const quire::server::ModelContext model = quire::server::MakeModel();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  quire::server::Try(text, model);
  // Most bytes are no JSON; as the members of a request they come further.
  quire::server::Try(fmt::format(R"({{"prompt":"x","messages":[{{"role":"user","content":"x"}}],{}}})", text), model);
  quire::server::Try(quire::server::MakeBody(data, size), model);
  return 0;
}
