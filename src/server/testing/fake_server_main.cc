// The whole front end over a scripted engine: what the API tests drive when there is no model. Prints its URL, serves
// until SIGTERM.
//
//   quire_fake_server [--port N] [--api-key KEY] [--step-us N]
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/log.h"
#include "server/server.h"
#include "server/testing/byte_tokenizer.h"
#include "server/testing/scripted_engine.h"

namespace quire::server::testing {
namespace {

// A reply that names no secret and holds what is hard to carry: umlauts, CJK and an emoji of four bytes.
Script Reply(const GenerateRequest& request, int choice) {
  const std::string text =
      fmt::format("Grüße! 你好 🌶 You sent {} tokens; this is choice {}.", request.prompt.size(), choice);
  return {.tokens = *ByteTokenizer().Encode(text, {.add_special_tokens = false})};
}

int Main(int argc, char** argv) {
  ServerConfig config;
  config.port = 0;
  ScriptedEngine::Options options{.max_model_len = 2048, .step_time = std::chrono::microseconds(200)};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--port") config.port = std::atoi(argv[i + 1]);
    if (flag == "--api-key") config.api_keys.emplace_back(argv[i + 1]);
    if (flag == "--step-us") options.step_time = std::chrono::microseconds(std::atoi(argv[i + 1]));
  }
  ScriptedEngine engine(options, &Reply);
  auto chat_template = text::ChatTemplate::Compile(text::ChatTemplate::DefaultSource(), "<s>", "<|im_end|>");
  if (!chat_template) {
    fmt::print(stderr, "{}\n", chat_template.error().message);
    return 1;
  }
  ServedModel model{.names = {"fake", "fake-alias"},
                    .engine = &engine,
                    .tokenizer = std::make_shared<ByteTokenizer>(),
                    .chat_template = std::make_shared<text::ChatTemplate>(*std::move(chat_template))};
  const auto result = Run(config, std::move(model), [](const std::string& url) {
    fmt::print("{}\n", url);
    std::fflush(stdout);
  });
  if (!result) fmt::print(stderr, "{}\n", result.error().message);
  return result ? 0 : 1;
}

}  // namespace
}  // namespace quire::server::testing

int main(int argc, char** argv) {
  return quire::server::testing::Main(argc, argv);
}
