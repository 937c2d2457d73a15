// What a server tells about its requests: timings in answers, traces of itself.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "server/testing/server_fixture.h"

namespace quire::server::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ObserveTest : public ServerFixture {};

TEST_F(ObserveTest, TimingsOnRequest) {
  Start();
  const std::string_view fields = R"("prompt":"abc","max_tokens":5,"n":2,"return_timings":true)";
  const json::value answer = Parse(Post("/v1/completions", fmt::format("{{{}}}", fields)).body);
  for (const json::value& choice : answer.at("choices").as_array()) {
    const json::value& timings = choice.at("timings");
    for (const char* name : {"queue_time_seconds", "prefill_time_seconds", "decode_time_seconds",
                             "inference_time_seconds", "time_to_first_token_seconds", "time_per_output_token_seconds",
                             "inter_token_latency_max_seconds", "e2e_latency_seconds"}) {
      ASSERT_TRUE(timings.at(name).is_double()) << name;
      EXPECT_GE(timings.at(name).get_double(), 0) << name;
      EXPECT_LE(timings.at(name).get_double(), timings.at("e2e_latency_seconds").get_double()) << name;
    }
    double last = 0;
    std::vector<std::string> names;
    for (const json::value& event : timings.at("events").as_array()) {
      names.emplace_back(event.at("event").as_string());
      EXPECT_GE(event.at("seconds").get_double(), last);
      last = event.at("seconds").get_double();
    }
    EXPECT_THAT(names, ElementsAre("arrival", "queued", "scheduled", "first_token", "finished"));
  }
  // Unasked there are none; a stream has them in the chunk that ends a choice.
  EXPECT_THAT(Post("/v1/completions", R"({"prompt":"abc"})").body, Not(HasSubstr("timings")));
  const HttpAnswer stream = Post("/v1/completions", fmt::format("{{{},\"stream\":true}}", fields));
  int num_timings = 0;
  for (const std::string& event : stream.Events()) {
    if (event == "[DONE]") continue;
    for (const json::value& choice : Parse(event).at("choices").as_array()) {
      const bool has_timings = choice.as_object().contains("timings");
      EXPECT_EQ(has_timings, !choice.at("finish_reason").is_null());
      num_timings += has_timings ? 1 : 0;
    }
  }
  EXPECT_EQ(num_timings, 2);
  const HttpAnswer refused = Post("/v1/completions", R"({"prompt":"abc","return_timings":"yes"})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(ErrorParam(refused), "return_timings");
}

TEST_F(ObserveTest, ProfilesAreStartedAndStopped) {
  ServerConfig config;
  config.profile_dir = ::testing::TempDir();
  config.api_keys = {"secret"};
  Start(config);
  const std::string key = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(Connect().Post("/start_profile", "").status, 401);
  EXPECT_EQ(Connect().Post("/stop_profile", "", key).status, 409);
  const HttpAnswer started = Connect().Post("/start_profile", "", key);
  ASSERT_EQ(started.status, 200) << started.body;
  EXPECT_EQ(Connect().Post("/start_profile", "", key).status, 409);
  ASSERT_EQ(Connect().Post("/v1/completions", R"({"prompt":"abc","max_tokens":5})", key).status, 200);
  // The engine joins within one round of the collecting thread.
  std::string text;
  const std::string path(Parse(started.body).at("file").as_string());
  EXPECT_TRUE(engine->WaitFor([&] {
    EXPECT_EQ(Connect().Post("/v1/completions", R"({"prompt":"abc","max_tokens":5})", key).status, 200);
    std::ifstream file(path);
    text.assign(std::istreambuf_iterator<char>(file), {});
    return text.find("scripted engine") != std::string::npos;
  }));
  const HttpAnswer stopped = Connect().Post("/stop_profile", "", key);
  ASSERT_EQ(stopped.status, 200) << stopped.body;
  EXPECT_EQ(Parse(stopped.body).at("file").as_string(), path);
  EXPECT_TRUE(Parse(stopped.body).at("problem").is_null());
  std::ifstream file(path);
  text.assign(std::istreambuf_iterator<char>(file), {});
  const json::value trace = Parse(text);
  std::map<std::string, int> counts;
  for (const json::value& event : trace.at("traceEvents").as_array())
    ++counts[std::string(event.at("name").as_string())];
  for (const char* name :
       {"HTTP request", "parse, render, tokenise, submit", "write answer", "dispatch events", "step"}) {
    EXPECT_GT(counts[name], 0) << name;
  }
  // Again into the same file, without what was before.
  ASSERT_EQ(Connect().Post("/start_profile", "", key).status, 200);
  ASSERT_EQ(Connect().Post("/stop_profile", "", key).status, 200);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace quire::server::testing
