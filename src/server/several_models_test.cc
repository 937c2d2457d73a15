// A server of several models over HTTP: names, waiting for a load, health, metrics, loading and unloading, drain.
#include <gmock/gmock.h>

#include <thread>

#include "base/json.h"
#include "server/server.h"
#include "server/testing/http_client.h"
#include "server/testing/model_park.h"

namespace quire::server::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

class SeveralModelsTest : public ::testing::Test {
 protected:
  void Start(ModelsConfig models = {.memory_bytes = 200}, ServerConfig config = {}) {
    config.port = 0;
    auto started = Server::Start(config, models, park.Specs());
    ASSERT_TRUE(started.has_value()) << started.error().message;
    server = *std::move(started);
  }
  HttpClient Connect() { return HttpClient(server->port()); }
  HttpAnswer Get(const std::string& target) { return Connect().Get(target); }
  HttpAnswer Post(const std::string& target, std::string_view body) { return Connect().Post(target, body); }
  HttpAnswer Complete(const std::string& model) { return Post("/v1/completions", Body(model)); }
  static std::string Body(const std::string& model, bool stream = false) {
    return fmt::format(R"({{"model":"{}","prompt":"x","stream":{}}})", model, stream);
  }
  static json::value Parse(const std::string& text) {
    auto parsed = ParseJson(text, "answer");
    EXPECT_TRUE(parsed.has_value()) << text;
    return parsed ? *parsed : json::value(json::object());
  }
  std::string StateOf(const std::string& model) {
    return std::string(Parse(Get("/v1/models/" + model).body).at("status").at("value").get_string());
  }
  // A request whose answer is not read yet.
  HttpClient Ask(const std::string& model) {
    HttpClient client = Connect();
    client.Send(HttpClient::PostBytes("/v1/completions", Body(model)));
    return client;
  }
  static bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  bool HasEngine(const std::string& model) {
    return Eventually([&] { return park.WithEngine(model, [](ScriptedEngine&) {}); });
  }
  int NumWaiting(const std::string& model) {
    return static_cast<int>(Parse(Get("/v1/models/" + model).body).at("status").at("num_waiting").get_int64());
  }

  ModelPark park;
  std::unique_ptr<Server> server;
};

TEST_F(SeveralModelsTest, EachRequestGetsTheModelThatItNames) {
  park.Add("a", 100);
  park.Add("b", 100);
  Start();
  for (const char* name : {"a", "b", "a"}) {
    const HttpAnswer answer = Complete(name);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json::value body = Parse(answer.body);
    EXPECT_EQ(body.at("model"), name);
    EXPECT_EQ(body.at("choices").at(0).at("text").get_string(), std::string(name) + ": hello");
  }
  const HttpAnswer stream = Post("/v1/completions", Body("b", true));
  EXPECT_EQ(stream.Events().back(), "[DONE]");
  EXPECT_EQ(park.model("a").num_loads, 1);
  EXPECT_EQ(Parse(Post("/tokenize", R"({"model":"b","prompt":"xyz"})").body).at("count"), 4);
  EXPECT_EQ(Post("/reset_prefix_cache", "").status, 200);
}

TEST_F(SeveralModelsTest, UnknownAndMissingNames) {
  park.Add("a", 100);
  Start();
  const HttpAnswer unknown = Complete("gpt-9");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(Parse(unknown.body).at("error").at("code"), "model_not_found");
  for (const char* body : {R"({"prompt":"x"})", R"({"model":null,"prompt":"x"})", R"({"model":5,"prompt":"x"})"}) {
    const HttpAnswer answer = Post("/v1/completions", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(Parse(answer.body).at("error").at("param"), "model") << body;
  }
  EXPECT_EQ(Post("/v1/completions", "[]").status, 400);
  EXPECT_EQ(Post("/tokenize", R"({"model":"b","prompt":"x"})").status, 404);
  EXPECT_EQ(Post("/models/load", R"({"model":"b"})").status, 404);
  EXPECT_EQ(Post("/models/unload", R"({"model":"b"})").status, 404);
  EXPECT_EQ(Post("/models/load", "{}").status, 400);
  EXPECT_EQ(Get("/health?model=b").status, 404);
  EXPECT_EQ(Get("/v1/models/b").status, 404);
  EXPECT_EQ(StateOf("a"), "unloaded");
}

TEST_F(SeveralModelsTest, ListsModelsWithTheirStates) {
  park.Add("a", 100);
  park.Add("b", 201);
  Start();
  EXPECT_EQ(Complete("a").status, 200);
  const HttpAnswer refused = Complete("b");
  EXPECT_EQ(refused.status, 500);
  EXPECT_EQ(Parse(refused.body).at("error").at("code"), "model_load_failed");
  EXPECT_THAT(refused.body, HasSubstr("all models together may take"));
  for (const char* target : {"/v1/models", "/models"}) {
    const json::value list = Parse(Get(target).body);
    EXPECT_EQ(list.at("data").at(0).at("id"), "a");
    EXPECT_EQ(list.at("data").at(0).at("status").at("value"), "loaded");
    EXPECT_EQ(list.at("data").at(0).at("status").at("memory_bytes"), 100);
    EXPECT_EQ(list.at("data").at(0).at("max_model_len"), 512);
    EXPECT_EQ(list.at("data").at(1).at("status").at("value"), "unloaded");
    EXPECT_TRUE(list.at("data").at(1).at("max_model_len").is_null());
  }
  park.model("a").is_broken = true;
  EXPECT_EQ(Post("/models/unload", R"({"model":"a"})").status, 200);
  ASSERT_TRUE(Eventually([&] { return StateOf("a") == "unloaded"; }));
  EXPECT_EQ(Complete("a").status, 500);
  const json::value failed = Parse(Get("/v1/models/a").body);
  EXPECT_EQ(failed.at("status").at("failed"), true);
  EXPECT_EQ(failed.at("status").at("error"), "the model a cannot be loaded: the tokenizer is broken");
}

TEST_F(SeveralModelsTest, RequestsWaitForTheirModel) {
  park.Add("a", 100).is_slow = true;
  park.Add("b", 100);
  Start();
  HttpClient first = Ask("a"), second = Ask("a");
  ASSERT_TRUE(HasEngine("a"));
  ASSERT_TRUE(Eventually([&] { return NumWaiting("a") == 2; }));
  EXPECT_EQ(StateOf("a"), "loading");
  EXPECT_EQ(Complete("b").status, 200);  // meanwhile
  park.Finish("a");
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(second.Read().status, 200);
  EXPECT_EQ(park.model("a").num_loads, 1);
}

TEST_F(SeveralModelsTest, ThoseWhoWaitTooLongAndThoseWhoAreTooMany) {
  park.Add("a", 100).is_slow = true;
  Start({.memory_bytes = 200, .wait_timeout = 300ms, .waiting_max = 1});
  HttpClient waiting = Ask("a");
  ASSERT_TRUE(Eventually([&] { return NumWaiting("a") == 1; }));
  const HttpAnswer too_many = Complete("a");
  EXPECT_EQ(too_many.status, 503);
  EXPECT_EQ(too_many.header("retry-after"), "1");
  EXPECT_THAT(too_many.body, HasSubstr("1 requests wait for models"));
  const HttpAnswer too_long = waiting.Read();
  EXPECT_EQ(too_long.status, 503);
  EXPECT_EQ(too_long.header("retry-after"), "1");
  EXPECT_THAT(too_long.body, HasSubstr("the model a is not loaded yet"));
  EXPECT_EQ(NumWaiting("a"), 0);
  ASSERT_TRUE(HasEngine("a"));
  park.Finish("a");  // it was loaded for them, and is there for the next one
  ASSERT_TRUE(Eventually([&] { return StateOf("a") == "loaded"; }));
  EXPECT_EQ(Complete("a").status, 200);
}

TEST_F(SeveralModelsTest, ClientsThatLeaveWaitNoMore) {
  park.Add("a", 200);
  park.Add("b", 200);
  Start();
  EXPECT_EQ(Complete("a").status, 200);
  park.WithEngine("a", [](ScriptedEngine& engine) { engine.Hold(true); });
  HttpClient running = Ask("a");
  ASSERT_TRUE(Eventually([&] {
    int num_running = 0;
    park.WithEngine("a", [&](ScriptedEngine& engine) { num_running = engine.num_running(); });
    return num_running == 1;
  }));
  HttpClient waiting = Ask("b");
  ASSERT_TRUE(Eventually([&] { return NumWaiting("b") == 1; }));
  waiting.Close();
  ASSERT_TRUE(Eventually([&] { return NumWaiting("b") == 0; }));
  park.WithEngine("a", [](ScriptedEngine& engine) { engine.Hold(false); });
  EXPECT_EQ(running.Read().status, 200);
  EXPECT_EQ(park.model("b").num_loads, 0);
  EXPECT_EQ(StateOf("a"), "loaded");
}

TEST_F(SeveralModelsTest, HealthOfTheServerAndOfEachModel) {
  park.Add("a", 100).load_at_start = true;
  park.model("a").is_slow = true;
  park.Add("b", 100);
  Start();
  EXPECT_EQ(Get("/health").status, 503);
  EXPECT_EQ(Get("/health?model=a").status, 503);
  ASSERT_TRUE(HasEngine("a"));
  park.Finish("a");
  ASSERT_TRUE(Eventually([&] { return Get("/health").status == 200; }));
  EXPECT_EQ(Get("/health?model=a").status, 200);
  const HttpAnswer unloaded = Get("/health?model=b");
  EXPECT_EQ(unloaded.status, 503);
  EXPECT_THAT(unloaded.body, HasSubstr("the model is unloaded"));
  EXPECT_EQ(Complete("b").status, 200);
  EXPECT_EQ(Get("/health?x=1&model=b").status, 200);
}

TEST_F(SeveralModelsTest, LoadsAndUnloadsWhenAsked) {
  park.Add("a", 100);
  Start();
  const HttpAnswer loaded = Post("/models/load", R"({"model":"a"})");
  EXPECT_EQ(loaded.status, 200);
  EXPECT_EQ(loaded.body, R"({"success":true})");
  EXPECT_EQ(StateOf("a"), "loaded");
  EXPECT_EQ(Post("/models/load", R"({"model":"a"})").status, 200);
  EXPECT_EQ(Post("/models/unload", R"({"model":"a"})").body, R"({"success":true})");
  ASSERT_TRUE(Eventually([&] { return StateOf("a") == "unloaded"; }));
  EXPECT_EQ(Post("/models/unload", R"({"model":"a"})").status, 200);
  EXPECT_EQ(park.bytes_now(), 0);
  park.model("a").is_broken = true;
  EXPECT_EQ(Post("/models/load", R"({"model":"a"})").status, 500);
  park.model("a").is_broken = false;
  EXPECT_EQ(Post("/models/load", R"({"model":"a"})").status, 200);  // though it failed a moment ago
}

TEST_F(SeveralModelsTest, AModelThatDiesLeavesTheOthersAlone) {
  park.Add("a", 100);
  park.Add("b", 100);
  Start();
  EXPECT_EQ(Complete("a").status, 200);
  EXPECT_EQ(Complete("b").status, 200);
  for (const char* name : {"a", "b"}) park.WithEngine(name, [](ScriptedEngine& engine) { engine.Hold(true); });
  HttpClient with_a = Ask("a"), with_b = Ask("b");
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(Eventually([&] {
      int num_running = 0;
      park.WithEngine(name, [&](ScriptedEngine& engine) { num_running = engine.num_running(); });
      return num_running == 1;
    }));
  }
  park.WithEngine("a", [](ScriptedEngine& engine) { engine.Die(); });
  const HttpAnswer failed = with_a.Read();
  EXPECT_EQ(failed.status, 500) << failed.body;
  EXPECT_EQ(Complete("a").status, 503);
  ASSERT_TRUE(Eventually([&] { return Get("/health?model=a").status == 503; }));
  EXPECT_EQ(Get("/health").status, 200);
  park.WithEngine("a", [](ScriptedEngine& engine) { engine.Revive(); });
  ASSERT_TRUE(Eventually([&] { return Get("/health?model=a").status == 200; }));
  park.WithEngine("a", [](ScriptedEngine& engine) { engine.Vanish(); });
  ASSERT_TRUE(Eventually([&] { return StateOf("a") == "unloaded"; }));
  EXPECT_EQ(Complete("a").status, 500);
  park.WithEngine("b", [](ScriptedEngine& engine) { engine.Hold(false); });
  EXPECT_EQ(with_b.Read().status, 200);
}

TEST_F(SeveralModelsTest, MetricsOfEachModel) {
  park.Add("a", 100);
  park.Add("b", 100);
  Start();
  EXPECT_EQ(Complete("a").status, 200);
  EXPECT_EQ(Complete("b").status, 200);
  EXPECT_EQ(Complete("b").status, 200);
  const std::string text = Get("/metrics").body;
  EXPECT_THAT(text, HasSubstr("vllm:request_params_n_count{engine=\"0\",model_name=\"a\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("vllm:request_params_n_count{engine=\"0\",model_name=\"b\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("quire:model_state{model_name=\"a\",state=\"loaded\"} 1\n"));
  // One head for each family, or a scraper refuses the whole.
  const std::string head = "# TYPE vllm:request_params_n ";
  const std::size_t first = text.find(head);
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find(head, first + 1), std::string::npos);
}

TEST_F(SeveralModelsTest, DrainFinishesWhatRunsInEveryModelAndRefusesWhatWaits) {
  park.Add("a", 100);
  park.Add("b", 100);
  park.Add("c", 1).is_slow = true;
  Start();
  EXPECT_EQ(Complete("a").status, 200);
  EXPECT_EQ(Complete("b").status, 200);
  for (const char* name : {"a", "b"}) park.WithEngine(name, [](ScriptedEngine& engine) { engine.Hold(true); });
  HttpClient with_a = Ask("a"), with_b = Ask("b");
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(Eventually([&] {
      int num_running = 0;
      park.WithEngine(name, [&](ScriptedEngine& engine) { num_running = engine.num_running(); });
      return num_running == 1;
    }));
  }
  HttpClient with_c = Ask("c");
  ASSERT_TRUE(Eventually([&] { return NumWaiting("c") == 1; }));
  server->Drain();
  EXPECT_EQ(with_c.Read().status, 503);
  for (const char* name : {"a", "b"}) park.WithEngine(name, [](ScriptedEngine& engine) { engine.Hold(false); });
  EXPECT_EQ(with_a.Read().status, 200);
  EXPECT_EQ(with_b.Read().status, 200);
  EXPECT_TRUE(server->Wait().has_value());
  server.reset();
  EXPECT_EQ(park.bytes_now(), 0);
}

TEST_F(SeveralModelsTest, EndsWithRequestsThatRunAndWait) {
  park.Add("a", 200);
  park.Add("b", 200);
  Start();
  EXPECT_EQ(Complete("a").status, 200);
  park.WithEngine("a", [](ScriptedEngine& engine) { engine.Hold(true); });
  HttpClient running = Ask("a"), waiting = Ask("b");
  ASSERT_TRUE(Eventually([&] { return NumWaiting("b") == 1; }));
  server.reset();
  EXPECT_EQ(park.bytes_now(), 0);
}

TEST_F(SeveralModelsTest, ManyClientsOfManyModelsAtOnce) {
  constexpr int kNumClients = 8, kNumRounds = 12;
  for (const char* name : {"a", "b", "c", "d"}) park.Add(name, 90);
  Start({.memory_bytes = 200}, {.drain_timeout = 10s});
  const auto play = [&](int client) {
    for (int round = 0; round < kNumRounds; ++round) {
      const std::string name(1, static_cast<char>('a' + (client * 7 + round * (client + 1)) % 4));
      if ((client + round) % 6 == 0) {
        HttpClient leaves = Ask(name);
        leaves.Close();
      } else if ((client + round) % 11 == 0) {
        EXPECT_EQ(Post("/models/unload", fmt::format(R"({{"model":"{}"}})", name)).status, 200);
      } else {
        const HttpAnswer answer = Complete(name);
        // A load that somebody else has stopped is a 503; there is no other failure.
        EXPECT_TRUE(answer.status == 200 || answer.status == 503) << answer.status << answer.body;
        EXPECT_TRUE(answer.status != 200 || answer.body.contains(name + ": hello")) << answer.body;
      }
    }
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < kNumClients; ++i) clients.emplace_back(play, i);
  for (std::thread& client : clients) client.join();
  EXPECT_LE(park.bytes_peak(), 200);
  server.reset();
  EXPECT_EQ(park.bytes_now(), 0);
}

TEST(ModelsConfigTest, RefusesNonsense) {
  EXPECT_TRUE(ModelsConfig{}.Validate().has_value());
  for (const auto& [config, name] :
       std::vector<std::pair<ModelsConfig, std::string>>{{{.memory_bytes = -1}, "memory"},
                                                         {{.loaded_max = 0}, "models_max"},
                                                         {{.wait_timeout = -1ms}, "model_wait_timeout"},
                                                         {{.waiting_max = -1}, "max_model_waiters"},
                                                         {{.idle_timeout = 25h}, "model_idle_timeout"}}) {
    const Result<> checked = config.Validate();
    ASSERT_FALSE(checked.has_value()) << name;
    EXPECT_EQ(checked.error().param, name);
  }
  ModelPark park;
  park.Add("a", 1);
  std::vector<ModelSpec> twice = park.Specs();
  twice.push_back(twice.front());
  EXPECT_FALSE(Server::Start({.port = 0}, ModelsConfig{.memory_bytes = 1}, twice).has_value());
  EXPECT_FALSE(Server::Start({.port = 0}, ModelsConfig{.memory_bytes = 1}, {}).has_value());
}

}  // namespace
}  // namespace quire::server::testing
