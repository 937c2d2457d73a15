// The transport and its limits: access, bad requests, clients that leave, stall or flood, drain, engine deaths.
#include <gmock/gmock.h>

#include <thread>

#include "server/access.h"
#include "server/testing/server_fixture.h"

namespace quire::server::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kLongStream = R"({"prompt":"x","max_tokens":500,"ignore_eos":true,"stream":true})";
constexpr const char* kLongWhole = R"({"prompt":"x","max_tokens":500,"ignore_eos":true})";

class HttpServerTest : public ServerFixture {};

TEST_F(HttpServerTest, SmallRoutes) {
  Start();
  HttpClient client = Connect();  // one connection for all of them: keep-alive
  EXPECT_EQ(client.Get("/health").status, 200);
  EXPECT_EQ(client.Get("/ping").status, 200);
  EXPECT_THAT(client.Get("/version").body, HasSubstr("\"version\""));
  EXPECT_THAT(client.Get("/").body, HasSubstr("curl http://127.0.0.1:"));
  const json::value models = Parse(client.Get("/v1/models").body);
  EXPECT_EQ(models.at("data").at(0).at("id"), "fake");
  EXPECT_EQ(models.at("data").at(0).at("max_model_len"), 512);
  EXPECT_EQ(models.at("data").at(0).at("meta").at("n_vocab"), 260);
  EXPECT_EQ(Parse(client.Get("/v1/models/org/alias").body).at("id"), "org/alias");
  EXPECT_EQ(Parse(client.Get("/v1/models/org%2Falias?x=1").body).at("id"), "org/alias");
  EXPECT_EQ(client.Get("/v1/models/other").status, 404);
  EXPECT_EQ(client.Post("/reset_prefix_cache", "{}").status, 200);
  EXPECT_EQ(engine->num_resets(), 1);
}

TEST_F(HttpServerTest, WrongPathsMethodsAndTypes) {
  Start();
  HttpClient client = Connect();
  EXPECT_EQ(client.Get("/v2/nothing").status, 404);
  const HttpAnswer get = client.Get("/v1/completions");
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.header("allow"), "POST, OPTIONS");
  EXPECT_THAT(get.body, HasSubstr("\"error\""));
  client.Send("OPTIONS /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const HttpAnswer options = client.Read();
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.header("allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(options.header("access-control-allow-origin"), "");
  HttpClient typed = Connect();
  typed.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(typed.Read().status, 415);
  HttpClient packed = Connect();
  EXPECT_EQ(packed.Post("/v1/completions", "{}", "Content-Encoding: gzip\r\n").status, 415);
  HttpClient head = Connect();
  head.Send("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const HttpAnswer headers = head.Read();
  EXPECT_EQ(headers.status, 200);
  EXPECT_NE(headers.header("content-length"), "0");
  EXPECT_TRUE(headers.body.empty());
}

// Security checklist 4: client faults are 4xx, and the next request works.
TEST_F(HttpServerTest, BadBodies) {
  Start();
  HttpClient client = Connect();
  for (const char* body : {"", "{", "null", "[]", "5", "\"x\"", "{\"prompt\":\"\xff\"}", "{\"prompt\":NaN}",
                           "{\"prompt\":\"x\"} trailing"}) {
    const HttpAnswer answer = client.Post("/v1/completions", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_THAT(answer.body, HasSubstr("\"error\":{\"message\"")) << body;
  }
  std::string deep(100'000, '[');
  EXPECT_EQ(client.Post("/v1/chat/completions", deep).status, 400);
  const HttpAnswer unknown_model = client.Post("/v1/completions", R"({"model":"gpt-9","prompt":"x"})");
  EXPECT_EQ(unknown_model.status, 404);
  EXPECT_EQ(Parse(unknown_model.body).at("error").at("code"), "model_not_found");
  EXPECT_EQ(client.Post("/v1/completions", R"({"prompt":"x"})").status, 200);
}

TEST_F(HttpServerTest, LimitsOfHeadAndBody) {
  Start({.body_bytes_max = 1000, .header_bytes_max = 2048, .header_fields_max = 20});
  const std::string large(1001, ' ');
  const HttpAnswer declared = Post("/v1/completions", large);
  EXPECT_EQ(declared.status, 413);
  EXPECT_THAT(declared.body, HasSubstr("1000 bytes"));
  HttpClient chunked = Connect();
  chunked.Send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
                  large.size(), large));
  EXPECT_EQ(chunked.Read().status, 413);
  EXPECT_EQ(Connect().Get("/health", "X-Long: " + std::string(4000, 'x') + "\r\n").status, 431);
  std::string many;
  for (int i = 0; i < 30; ++i) many += fmt::format("X-{}: 1\r\n", i);
  EXPECT_EQ(Connect().Get("/health", many).status, 431);
  HttpClient garbage = Connect();
  garbage.Send("\x16\x03\x01 this is not http\r\n\r\n");
  EXPECT_EQ(garbage.Read().status, 400);
  HttpClient future = Connect();
  future.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_EQ(future.Read().status, 505);
  EXPECT_EQ(Connect().Get("/health").status, 200);
}

// Nothing that two readers could understand in two ways, so that no request hides in another one's body.
TEST_F(HttpServerTest, RefusesWhatCanBeReadInTwoWays) {
  Start();
  const std::string hidden = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (const char* fields :
       {"Host: localhost\r\n", "Origin: http://localhost\r\nOrigin: http://localhost\r\n",
        "Content-Type: text/plain\r\n", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n",
        "Transfer-Encoding: gzip\r\n", "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked, chunked\r\n", "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n"}) {
    HttpClient client = Connect();
    client.Send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{}\r\n{}",
                    fields, hidden));
    const HttpAnswer answer = client.Read();
    EXPECT_TRUE(answer.status == 400 || answer.status == 501) << fields << answer.status;
    EXPECT_EQ(answer.header("connection"), "close") << fields;
    EXPECT_EQ(client.Read().status, 0) << "a second answer to " << fields;
  }
}

// What stands around the chunks of a body is bounded as well.
TEST_F(HttpServerTest, LimitsOfChunkHeadsAndTrailers) {
  Start({.header_bytes_max = 2048});
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string& begin : {std::string("1;"), std::string("1\r\n{\r\n0\r\nX: ")}) {
    HttpClient client = Connect();
    client.Send(head + begin + std::string(100'000, 'x'));
    EXPECT_EQ(client.Read().status, 431) << begin;
  }
}

TEST_F(HttpServerTest, ChunkedBodiesExpectContinueAndPipelining) {
  Start();
  HttpClient chunked = Connect();
  chunked.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"pro\r\n");
  chunked.Send("A\r\nmpt\":\"x\"  \r\n1\r\n}\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.Read().status, 200);
  HttpClient expects = Connect();
  const std::string bytes = HttpClient::PostBytes("/v1/completions", R"({"prompt":"x"})", "Expect: 100-continue\r\n");
  const std::size_t split = bytes.find("\r\n\r\n") + 4;
  expects.Send(bytes.substr(0, split));
  expects.Send(bytes.substr(split));
  EXPECT_EQ(expects.Read().status, 200);
  HttpClient pipelined = Connect();
  std::string three;
  for (int i = 0; i < 3; ++i) three += HttpClient::PostBytes("/v1/completions", R"({"prompt":"x"})");
  pipelined.Send(three);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pipelined.Read().status, 200);
}

TEST_F(HttpServerTest, OldHttpGetsAStreamWithoutChunks) {
  Start();
  HttpClient client = Connect();
  const std::string body = R"({"prompt":"x","stream":true})";
  client.Send(
      fmt::format("POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  "Content-Length: {}\r\n\r\n{}",
                  body.size(), body));
  const HttpAnswer answer = client.Read();
  EXPECT_EQ(answer.header("transfer-encoding"), "");
  EXPECT_EQ(StreamedText(answer), "Hello there.");
}

TEST_F(HttpServerTest, ApiKeys) {
  Start({.api_keys = {"first", "second"}});
  HttpClient client = Connect();
  const HttpAnswer none = client.Get("/v1/models");
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.header("www-authenticate"), "Bearer");
  EXPECT_THAT(none.body, HasSubstr("invalid_api_key"));
  for (const char* wrong :
       {"Bearer firs", "Bearer first2", "Bearer ", "Bearer", "Basic first", "first", "Bearer FIRST"}) {
    EXPECT_EQ(client.Get("/v1/models", fmt::format("Authorization: {}\r\n", wrong)).status, 401) << wrong;
  }
  for (const char* right : {"Bearer first", "bearer second", "Bearer  second"}) {
    EXPECT_EQ(client.Get("/v1/models", fmt::format("Authorization: {}\r\n", right)).status, 200) << right;
  }
  for (const char* open : {"/health", "/metrics", "/version", "/"}) EXPECT_EQ(client.Get(open).status, 200) << open;
  for (const char* closed :
       {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/reset_prefix_cache"}) {
    EXPECT_EQ(Post(closed, "{}").status, 401) << closed;
  }
  EXPECT_EQ(engine->num_resets(), 0);
}

TEST(AccessControl, HostNames) {
  EXPECT_EQ(HostName("LocalHost:8000"), "localhost");
  EXPECT_EQ(HostName("[::1]:80"), "::1");
  EXPECT_EQ(HostName("example.org."), "example.org");
  for (const char* name : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) EXPECT_TRUE(IsLoopbackName(name)) << name;
  for (const char* name : {"", "example.org", "127.0.0.1.example.org", "127.0.0", "127.0.0.1.1", "128.0.0.1",
                           "127.0.0.256", "127.0.0.", "localhost.evil", "1127.0.0.1"}) {
    EXPECT_FALSE(IsLoopbackName(name)) << name;
  }
}

// Security checklist 12: a name that an attacker bound to 127.0.0.1 does not get in.
TEST_F(HttpServerTest, HostAndOrigin) {
  Start({.allowed_hosts = {"gateway.lan"}, .allowed_origins = {"https://app.example"}});
  const auto status = [&](const std::string& headers) {
    HttpClient client = Connect();
    client.Send("GET /v1/models HTTP/1.1\r\n" + headers + "\r\n");
    return client.Read().status;
  };
  EXPECT_EQ(status("Host: localhost:1\r\n"), 200);
  EXPECT_EQ(status("Host: [::1]:1\r\n"), 200);
  EXPECT_EQ(status("Host: gateway.lan\r\n"), 200);
  EXPECT_EQ(status("Host: evil.example\r\n"), 403);
  EXPECT_EQ(status(""), 400);
  EXPECT_EQ(status("Host: localhost\r\nOrigin: http://evil.example\r\n"), 403);
  EXPECT_EQ(status("Host: localhost\r\nOrigin: null\r\n"), 403);
  EXPECT_EQ(status("Host: localhost\r\nOrigin: http://localhost:3000\r\n"), 200);
  HttpClient page = Connect();
  const HttpAnswer allowed = page.Get("/v1/models", "Origin: https://app.example\r\n");
  EXPECT_EQ(allowed.header("access-control-allow-origin"), "https://app.example");
  page.Send(
      "OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://app.example\r\n"
      "Access-Control-Request-Headers: authorization,content-type\r\n\r\n");
  const HttpAnswer preflight = page.Read();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("access-control-allow-headers"), "authorization,content-type");
}

// CNCL: a client that leaves is aborted at once, in a stream …
TEST_F(HttpServerTest, AbortsWhenAStreamingClientLeaves) {
  Start({}, {.step_time = std::chrono::milliseconds(2)});
  HttpClient client = Connect();
  client.Send(HttpClient::PostBytes("/v1/completions", kLongStream));
  client.ReadUntil("data: ");
  client.Close();
  EXPECT_TRUE(engine->WaitFor([&] { return engine->num_running() == 0; }));
  EXPECT_EQ(engine->aborted().size(), 1u);
  EXPECT_LT(engine->num_generated(), 400u);
  EXPECT_THAT(Connect().Get("/metrics").body, HasSubstr("finished_reason=\"abort\",model_name=\"fake\"} 1\n"));
}

// … and while it waits for a whole answer, before a single token exists.
TEST_F(HttpServerTest, AbortsWhenAWaitingClientLeaves) {
  Start();
  engine->Hold(true);
  HttpClient client = Connect();
  client.Send(HttpClient::PostBytes("/v1/completions", kLongWhole));
  ASSERT_TRUE(engine->WaitFor([&] { return engine->num_running() == 1; }));
  client.Close();
  EXPECT_TRUE(engine->WaitFor([&] { return engine->num_running() == 0; }));
  EXPECT_EQ(engine->num_generated(), 0u);
}

// A choice that a stop string ends is computed no further, while the other one goes on.
TEST_F(HttpServerTest, AbortsAChoiceThatAStopStringEnds) {
  Start();
  engine->set_scripter([](const GenerateRequest&, int choice) {
    return Script{.tokens = Ids(choice == 0 ? "go STOP no further" : "on and on")};
  });
  const std::size_t num_steps = std::string_view("go STOP").size();
  engine->HoldAfter(static_cast<int>(num_steps));
  HttpClient client = Connect();
  client.Send(HttpClient::PostBytes("/v1/completions",
                                    R"({"prompt":"x","n":2,"stop":"STOP","max_tokens":400,"ignore_eos":true})"));
  ASSERT_TRUE(engine->WaitFor([&] { return engine->aborted().size() == 1; }));
  engine->Hold(false);
  const HttpAnswer answer = client.Read();
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(Parse(answer.body).at("choices").at(0).at("text"), "go ");
  EXPECT_EQ(engine->num_generated(), num_steps + 400);
}

// CNCL-03: only its own request is aborted. CNCL-02: the queued one is gone before it is computed.
TEST_F(HttpServerTest, AbortsNobodyElse) {
  Start();
  engine->HoldAfter(3);
  HttpClient stays = Connect();
  stays.Send(HttpClient::PostBytes("/v1/completions", R"({"prompt":"x","stream":true})"));
  stays.ReadUntil("\"l\"");
  engine->Hold(true);
  HttpClient leaves = Connect();
  leaves.Send(HttpClient::PostBytes("/v1/completions", kLongStream));
  ASSERT_TRUE(engine->WaitFor([&] { return engine->num_running() == 2; }));
  leaves.Close();
  ASSERT_TRUE(engine->WaitFor([&] { return engine->num_running() == 1; }));
  engine->Hold(false);
  EXPECT_EQ(StreamedText(stays.Read()), "Hello there.");
}

// KEEP-01: comment lines before the first token and in pauses; clients that follow the rules do not see them.
TEST_F(HttpServerTest, KeepsSilentStreamsAlive) {
  Start({.keep_alive_interval = std::chrono::milliseconds(20)});
  engine->Hold(true);
  HttpClient client = Connect();
  client.Send(
      HttpClient::PostBytes("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stream":true})"));
  const HttpAnswer silent = client.ReadUntil(": keep-alive\n\n");
  EXPECT_TRUE(silent.Events().empty()) << "no chunk before the first output";
  engine->HoldAfter(2);
  client.ReadUntil("\"e\"");
  const HttpAnswer paused = client.ReadUntil("\"e\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n: keep-alive\n\n");
  EXPECT_THAT(paused.body, HasSubstr("}]}\n\n: keep-alive"));
  engine->Hold(false);
  EXPECT_EQ(StreamedText(client.Read()), "Hello there.");
}

// A client that never reads: the engine is not held, memory is bounded, and the connection ends.
TEST_F(HttpServerTest, SlowReadersAreCutOff) {
  Start({.unread_output_bytes_max = 4096, .write_timeout = std::chrono::milliseconds(60'000)},
        {.max_model_len = 100'000});
  HttpClient client = Connect(/*receive_buffer=*/4096);
  client.Send(HttpClient::PostBytes(
      "/v1/completions", R"({"prompt":"x","max_tokens":90000,"ignore_eos":true,"stream":true,"logprobs":20})"));
  ASSERT_TRUE(engine->WaitFor([&] { return engine->aborted().size() == 1; }));
  EXPECT_LT(engine->num_generated(), 90'000u);
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"x"})").status, 200) << "others are served";
  // UTF8-07: what was sent ends at a whole event, or the connection breaks; nothing is cut out of the middle.
  const HttpAnswer rest = client.Read();
  EXPECT_FALSE(rest.complete);
  for (const std::string& event : rest.Events()) EXPECT_TRUE(ParseJson(event, "event").has_value());
}

TEST_F(HttpServerTest, TimesOutClientsThatDoNotRead) {
  Start({.write_timeout = std::chrono::milliseconds(100)}, {.max_model_len = 100'000});
  HttpClient client = Connect(4096);
  client.Send(HttpClient::PostBytes(
      "/v1/completions", R"({"prompt":"x","max_tokens":90000,"ignore_eos":true,"stream":true,"logprobs":20})"));
  EXPECT_TRUE(engine->WaitFor([&] { return engine->num_submitted() == 1 && engine->num_running() == 0; }));
}

// Slow-loris: a head or a body that does not come to its end.
TEST_F(HttpServerTest, TimesOutSlowSenders) {
  Start({.idle_timeout = std::chrono::milliseconds(100),
         .header_timeout = std::chrono::milliseconds(100),
         .body_timeout = std::chrono::milliseconds(100)});
  HttpClient silent = Connect();
  HttpClient head = Connect();
  head.Send("POST /v1/completions HTTP/1.1\r\nHost: loc");
  HttpClient body = Connect();
  body.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 100\r\n\r\n{");
  HttpClient idle = Connect();
  EXPECT_EQ(idle.Get("/health").status, 200);
  EXPECT_TRUE(silent.IsClosed());
  EXPECT_TRUE(head.IsClosed());
  EXPECT_TRUE(body.IsClosed());
  EXPECT_TRUE(idle.IsClosed());
}

TEST_F(HttpServerTest, RefusesMoreRequestsThanItMayHold) {
  Start({.requests_max = 2});
  engine->Hold(true);
  HttpClient first = Connect(), second = Connect();
  first.Send(HttpClient::PostBytes("/v1/completions", R"({"prompt":"x"})"));
  second.Send(HttpClient::PostBytes("/v1/completions", R"({"prompt":"x"})"));
  ASSERT_TRUE(engine->WaitFor([&] { return engine->num_running() == 2; }));
  const HttpAnswer third = Post("/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(third.status, 503);
  EXPECT_EQ(third.header("retry-after"), "1");
  EXPECT_EQ(engine->num_submitted(), 2);
  engine->Hold(false);
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(second.Read().status, 200);
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"x"})").status, 200) << "there is room again";
}

TEST_F(HttpServerTest, FullEngineQueueIsA503AndLeavesNothingBehind) {
  Start({}, {.queue_max = 2});
  engine->Hold(true);
  const HttpAnswer answer = Post("/v1/completions", R"({"prompt":["a","b","c"]})");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.header("retry-after"), "1");
  EXPECT_EQ(engine->num_running(), 0) << "the prompts that had room are aborted";
}

// Before its body is read, so before anything is tokenised.
TEST_F(HttpServerTest, RefusesRequestsWhileTooManyPromptTokensWait) {
  Start({.waiting_tokens_max = 10});
  engine->Hold(true);
  HttpClient first = Connect();
  first.Send(HttpClient::PostBytes("/v1/completions", R"({"prompt":"0123456789abcdef","stream":true})"));
  ASSERT_TRUE(engine->WaitFor([&] { return engine->num_running() == 1; }));
  HttpClient second = Connect();
  second.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 1000\r\n\r\n");  // the body never comes
  const HttpAnswer refused = second.Read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("retry-after"), "1");
  EXPECT_THAT(refused.body, HasSubstr("prompt tokens wait"));
  engine->HoldAfter(1);
  first.ReadUntil("data: {");
  engine->Hold(false);
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"x"})").status, 200) << "the first has its first token";
  EXPECT_TRUE(first.Read().complete);
  // Requests that end without a token, or whose client goes away, do not count for ever.
  engine->Hold(true);
  {
    HttpClient leaves = Connect();
    leaves.Send(HttpClient::PostBytes("/v1/completions", R"({"prompt":"0123456789abcdef"})"));
    ASSERT_TRUE(engine->WaitFor([&] { return engine->num_running() == 1; }));
  }
  ASSERT_TRUE(engine->WaitFor([&] { return engine->num_running() == 0; }));
  engine->Hold(false);
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"x"})").status, 200);
}

// What the engine sheds is a 503 that says when to come again; a stream too, as long as nothing has been sent.
TEST_F(HttpServerTest, ShedRequestsAreToldWhenToComeAgain) {
  Start();
  engine->set_scripter([](const GenerateRequest&, int) { return Script{.tokens = {}, .shed_retry_after_s = 7}; });
  for (const char* body : {R"({"prompt":"x"})", R"({"prompt":"x","n":3})", R"({"prompt":"x","stream":true})"}) {
    const HttpAnswer answer = Post("/v1/completions", body);
    EXPECT_EQ(answer.status, 503) << body;
    EXPECT_EQ(answer.header("retry-after"), "7");
    const json::value error = Parse(answer.body).at("error");
    EXPECT_EQ(error.at("code"), "overloaded");
    EXPECT_EQ(error.at("message"), "it would come too late");
  }
}

// How a request wants to be served reaches the engine, and whose it is.
TEST_F(HttpServerTest, TermsReachTheEngine) {
  Start({.api_keys = {"first", "second"}}, {.scheduling_policy = "slo"});
  const HttpAnswer chat = Connect().Post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"ttft_ms":300,"tpot_ms":12.5,"queue_timeout_ms":4000})",
      "Authorization: Bearer second\r\n");
  EXPECT_EQ(chat.status, 200) << chat.body;
  EXPECT_EQ(engine->last_request()->terms,
            (ServiceTerms{
                .priority = 0, .ttft_ms = 300, .tpot_ms = 12.5, .queue_timeout_ms = 4000, .tenant = 1, .route = 1}));
  EXPECT_EQ(Connect().Post("/v1/completions", R"({"prompt":"x"})", "Authorization: Bearer first\r\n").status, 200);
  EXPECT_EQ(engine->last_request()->terms, ServiceTerms{});
  const HttpAnswer refused =
      Connect().Post("/v1/completions", R"({"prompt":"x","priority":2})", "Authorization: Bearer first\r\n");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(ErrorParam(refused), "priority");
}

// HLTH-02: the engine dies: running requests get errors, health turns, and all is well after the restart.
TEST_F(HttpServerTest, SurvivesTheDeathOfTheEngine) {
  Start();
  engine->HoldAfter(2);
  HttpClient stream = Connect(), whole = Connect();
  stream.Send(HttpClient::PostBytes("/v1/completions", kLongStream));
  stream.ReadUntil("\"e\"");
  engine->Hold(true);
  whole.Send(HttpClient::PostBytes("/v1/completions", kLongWhole));
  ASSERT_TRUE(engine->WaitFor([&] { return engine->num_running() == 2; }));
  engine->Die();
  const HttpAnswer broken = stream.Read();
  EXPECT_TRUE(broken.complete);
  const auto events = broken.Events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_THAT(events[events.size() - 2], HasSubstr("\"error\""));
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(whole.Read().status, 500);
  EXPECT_EQ(Connect().Get("/health").status, 503) << "from the moment that the engine is known to be dead";
  const HttpAnswer refused = Post("/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("retry-after"), "1");
  engine->Revive();
  engine->Hold(false);
  EXPECT_TRUE(engine->WaitFor([&] { return Connect().Get("/health").status == 200; }));
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"x"})").status, 200);
}

TEST_F(HttpServerTest, EndsWhenTheEngineIsGoneForGood) {
  Start();
  engine->Hold(true);
  HttpClient client = Connect();
  client.Send(HttpClient::PostBytes("/v1/completions", kLongWhole));
  ASSERT_TRUE(engine->WaitFor([&] { return engine->num_running() == 1; }));
  engine->Vanish();
  EXPECT_EQ(client.Read().status, 500);
  const auto ended = server->Wait();
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code, ErrorCode::kUnavailable);
}

// HLTH-01: health and metrics do not ask a busy engine.
TEST_F(HttpServerTest, HealthAndMetricsAnswerWhileTheEngineIsBusy) {
  Start();
  engine->Hold(true);
  HttpClient client = Connect();
  client.Send(HttpClient::PostBytes("/v1/completions", kLongWhole));
  ASSERT_TRUE(engine->WaitFor([&] { return engine->num_running() == 1; }));
  EXPECT_EQ(Connect().Get("/health").status, 200);
  EXPECT_THAT(Connect().Get("/metrics").body,
              HasSubstr("vllm:num_requests_running{engine=\"0\",model_name=\"fake\"} 1\n"));
}

TEST_F(HttpServerTest, DrainLetsRunningRequestsFinish) {
  Start();
  engine->HoldAfter(1);
  HttpClient running = Connect(), idle = Connect();
  EXPECT_EQ(idle.Get("/health").status, 200);
  running.Send(HttpClient::PostBytes("/v1/completions", R"({"prompt":"x","stream":true})"));
  running.ReadUntil("\"H\"");
  server->Drain();
  EXPECT_TRUE(idle.IsClosed());
  EXPECT_EQ(Connect().Get("/health").status, 503);
  const HttpAnswer refused = Post("/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("connection"), "close");
  engine->Hold(false);
  EXPECT_EQ(StreamedText(running.Read()), "Hello there.");
  EXPECT_TRUE(server->Wait().has_value());
}

TEST_F(HttpServerTest, DrainAbortsWhatDoesNotEnd) {
  Start({.drain_timeout = std::chrono::milliseconds(50)});
  engine->HoldAfter(1);
  HttpClient running = Connect();
  running.Send(HttpClient::PostBytes("/v1/completions", kLongStream));
  running.ReadUntil("\"H\"");
  server->Drain();
  const HttpAnswer answer = running.Read();
  EXPECT_THAT(answer.body, HasSubstr("shutting down"));
  EXPECT_EQ(answer.Events().back(), "[DONE]");
  EXPECT_TRUE(server->Wait().has_value());
  EXPECT_EQ(engine->num_running(), 0);
}

TEST_F(HttpServerTest, DestructionWithRunningRequestsIsClean) {
  Start();
  engine->Hold(true);
  HttpClient first = Connect(), second = Connect();
  first.Send(HttpClient::PostBytes("/v1/completions", kLongStream));
  second.Send(HttpClient::PostBytes("/v1/completions", kLongWhole));
  ASSERT_TRUE(engine->WaitFor([&] { return engine->num_running() == 2; }));
  server.reset();
  EXPECT_EQ(second.Read().status, 503);
  EXPECT_EQ(engine->num_running(), 0);
}

// A large prompt is prepared beside the streams, not in front of them.
TEST_F(HttpServerTest, LargePromptsAreRefusedWithoutTokenising) {
  Start();
  const std::string text(10 << 20, 'a');
  const HttpAnswer answer = Post("/v1/completions", fmt::format(R"({{"prompt":"{}"}})", text));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(ErrorParam(answer), "prompt");
}

TEST_F(HttpServerTest, ManyClientsAtOnce) {
  Start();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      HttpClient client = Connect();
      for (int j = 0; j < 20; ++j) {
        const HttpAnswer answer = client.Post("/v1/completions", R"({"prompt":"x","stream":true,"n":2})");
        if (StreamedText(answer, 0) == "Hello there." && StreamedText(answer, 1) == "Hello there.") ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 16 * 20);
  EXPECT_EQ(engine->num_running(), 0);
}

// vLLM's own test of its metrics: 10 requests of 10 tokens.
TEST_F(HttpServerTest, MetricsCount) {
  Start();
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(Post("/v1/completions", R"({"prompt":"abc","max_tokens":10,"ignore_eos":true})").status, 200);
  }
  const std::string text = Connect().Get("/metrics").body;
  const std::string labels = "{engine=\"0\",model_name=\"fake\"}";
  for (const std::string& line : {
           "vllm:time_to_first_token_seconds_count" + labels + " 10",
           "vllm:inter_token_latency_seconds_count" + labels + " 90",
           "vllm:iteration_tokens_total_sum" + labels + " 140",
           "vllm:prompt_tokens_total" + labels + " 40",
           "vllm:generation_tokens_total" + labels + " 100",
           "vllm:num_requests_running" + labels + " 0",
           "vllm:num_requests_waiting" + labels + " 0",
           "vllm:kv_cache_usage_perc" + labels + " 0",
           std::string("vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"fake\"} 10"),
       }) {
    EXPECT_THAT(text, HasSubstr(line + "\n"));
  }
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  // Also of the choices that a stop string ends, which the engine does not know of.
  ASSERT_EQ(Post("/v1/completions", R"({"prompt":"abc","max_tokens":12,"stop":"lo"})").status, 200);
  const std::string more = Connect().Get("/metrics").body;
  for (const char* name :
       {"vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds",
        "vllm:request_inference_time_seconds", "vllm:request_time_per_output_token_seconds",
        "vllm:e2e_request_latency_seconds", "vllm:request_prompt_tokens", "vllm:request_generation_tokens",
        "vllm:request_max_num_generation_tokens", "vllm:request_prefill_kv_computed_tokens",
        "vllm:request_params_max_tokens", "vllm:request_num_preemptions"}) {
    EXPECT_THAT(more, HasSubstr(name + ("_count" + labels) + " 11\n"));
  }
}

TEST(ServerConfigTest, RefusesNonsense) {
  EXPECT_TRUE(ServerConfig{}.Validate().has_value());
  EXPECT_EQ(ServerConfig{.port = 70000}.Validate().error().param, "port");
  EXPECT_EQ(ServerConfig{.api_keys = {""}}.Validate().error().param, "api_keys");
  EXPECT_EQ(ServerConfig{.requests_max = 0}.Validate().error().param, "requests_max");
  EXPECT_EQ(ServerConfig{.profile_dir = ""}.Validate().error().param, "profile_dir");
  EXPECT_EQ(ServerConfig{.trace_bytes_max = 1}.Validate().error().param, "trace_bytes_max");
  EXPECT_EQ(ServerConfig{.otlp_traces_endpoint = "collector"}.Validate().error().param, "otlp_traces_endpoint");
}

}  // namespace
}  // namespace quire::server::testing
