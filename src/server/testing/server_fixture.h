// A server on a free port of the loopback address over a scripted engine.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/server.h"
#include "server/testing/byte_tokenizer.h"
#include "server/testing/http_client.h"
#include "server/testing/scripted_engine.h"

namespace quire::server::testing {

class ServerFixture : public ::testing::Test {
 protected:
  static std::vector<TokenId> Ids(std::string_view text) {
    return *ByteTokenizer().Encode(text, {.add_special_tokens = false});
  }
  // Every choice of every request says this.
  static ScriptedEngine::Scripter Says(std::string text, int tokens_per_event = 1) {
    return [text = std::move(text), tokens_per_event](const GenerateRequest&, int) {
      return Script{.tokens = Ids(text), .tokens_per_event = tokens_per_event};
    };
  }

  // `config` on any free port.
  void Start(ServerConfig config = {}, ScriptedEngine::Options options = {}, bool with_template = true) {
    engine = std::make_unique<ScriptedEngine>(options, Says("Hello there."));
    config.port = 0;
    ServedModel model{
        .names = {"fake", "org/alias"}, .engine = engine.get(), .tokenizer = std::make_shared<ByteTokenizer>()};
    if (with_template) {
      auto compiled = text::ChatTemplate::Compile(text::ChatTemplate::DefaultSource(), "<s>", "<|im_end|>");
      ASSERT_TRUE(compiled.has_value());
      model.chat_template = std::make_shared<text::ChatTemplate>(*std::move(compiled));
    }
    auto started = Server::Start(config, std::move(model));
    ASSERT_TRUE(started.has_value()) << started.error().message;
    server = *std::move(started);
    ASSERT_TRUE(engine->WaitFor([&] { return HttpClient(server->port()).Get("/health").status == 200; }));
  }

  HttpClient Connect(int receive_buffer = 0) { return HttpClient(server->port(), receive_buffer); }
  HttpAnswer Post(const std::string& target, std::string_view body) { return Connect().Post(target, body); }

  static json::value Parse(const std::string& text) {
    auto parsed = ParseJson(text, "answer");
    EXPECT_TRUE(parsed.has_value()) << text;
    return parsed ? *parsed : json::value(json::object());
  }
  static std::string ErrorParam(const HttpAnswer& answer) {
    const json::value body = Parse(answer.body);
    const json::value& param = body.at("error").at("param");
    return param.is_null() ? "" : std::string(param.get_string());
  }
  // The text of choice `index` put together from a stream.
  static std::string StreamedText(const HttpAnswer& answer, int index = 0) {
    std::string text;
    for (const std::string& event : answer.Events()) {
      if (event == "[DONE]") continue;
      const json::value chunk = Parse(event);
      if (!chunk.as_object().contains("choices")) continue;
      for (const json::value& choice : chunk.at("choices").as_array()) {
        if (choice.at("index") != index) continue;
        if (choice.as_object().contains("text")) text += choice.at("text").as_string();
        if (choice.as_object().contains("delta") && choice.at("delta").as_object().contains("content")) {
          text += choice.at("delta").at("content").as_string();
        }
      }
    }
    return text;
  }

  std::unique_ptr<ScriptedEngine> engine;  // outlives the server
  std::unique_ptr<Server> server;
};

}  // namespace quire::server::testing
