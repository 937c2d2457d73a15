#include "bench/load/runner.h"

#include <gtest/gtest.h>

#include "bench/load/testing/scripted_server.h"

namespace quire::bench::load {
namespace {

using namespace std::chrono_literals;
using testing::Answer;
using testing::Asked;
using testing::Chunked;
using testing::kDoneEvent;
using testing::ScriptedServer;
using testing::StreamHead;
using testing::TokenEvent;
using testing::UsageEvent;
using testing::WholeStream;

std::vector<Request> SameRequests(int count) {
  std::vector<Request> requests(static_cast<std::size_t>(count));
  for (Request& request : requests) {
    request.parts = {{.stream = 1, .num_tokens = 5}};
    request.max_tokens = 3;
  }
  return requests;
}

Run RunAgainst(const ScriptedServer& server, std::span<const Request> requests, TrafficConfig traffic = {}) {
  const BodyStyle style{.model = "m", .vocab_size = 100};
  const Result<Run> run = RunLoad(*Target::Parse(server.url()), requests, style, traffic);
  EXPECT_TRUE(run.has_value()) << run.error().message;
  return run ? *run : Run{};
}

// What becomes of one request that is answered with these bytes.
Outcome AnsweredWith(std::vector<testing::Piece> pieces, bool then_close = true, TrafficConfig traffic = {}) {
  const ScriptedServer server([&](const Asked&, int) { return Answer{.pieces = pieces, .then_close = then_close}; });
  return RunAgainst(server, SameRequests(1), traffic).outcomes.front();
}

std::string HttpAnswer(std::string_view status, std::string_view body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\n\r\n{}", status, body.size(), body);
}

std::string Events() {
  return TokenEvent("a") + TokenEvent("b") + TokenEvent("c", true) + UsageEvent(5, 3, 2) + std::string(kDoneEvent);
}

TEST(Runner, TimesAStream) {
  const Outcome outcome = AnsweredWith({{StreamHead(), 0ms},
                                        {Chunked(TokenEvent("a")), 40ms},
                                        {Chunked(TokenEvent("b")), 60ms},
                                        {Chunked(TokenEvent("c", true)), 20ms},
                                        {Chunked(UsageEvent(5, 3, 2) + std::string(kDoneEvent)) + "0\r\n\r\n", 30ms}});
  ASSERT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.num_prompt_tokens, 5);
  EXPECT_EQ(outcome.num_output_tokens, 3);
  EXPECT_EQ(outcome.num_cached_tokens, 2);
  // The server waits at least so long; how much longer is the machine's business.
  ASSERT_EQ(outcome.itl_seconds.size(), 2);
  EXPECT_GE(outcome.ttft_seconds, 0.040);
  EXPECT_GE(outcome.itl_seconds[0], 0.055);
  EXPECT_GE(outcome.itl_seconds[1], 0.015);
  EXPECT_NEAR(outcome.latency_seconds, outcome.ttft_seconds + outcome.itl_seconds[0] + outcome.itl_seconds[1], 1e-9);
}

// Every byte for itself: boundaries of reads, chunks, lines and characters mean nothing.
TEST(Runner, ReadsAnAnswerInAnyPieces) {
  std::string body;
  for (const char c : Events()) body += Chunked(std::string(1, c));
  std::vector<testing::Piece> pieces;
  for (const char c : StreamHead() + body + "0\r\n\r\n") pieces.push_back({std::string(1, c), 0ms});
  const Outcome outcome = AnsweredWith(pieces);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.num_output_tokens, 3);
}

TEST(Runner, ReadsBodiesWithALengthAndWithout) {
  EXPECT_EQ(AnsweredWith({{HttpAnswer("200 OK", Events()), 0ms}}).error, "");
  EXPECT_EQ(AnsweredWith({{"HTTP/1.1 200 OK\r\n\r\n" + Events(), 0ms}}).error, "");
  EXPECT_EQ(AnsweredWith({{"HTTP/1.0 200 OK\r\n\r\n" + Events(), 0ms}}).error, "");
}

struct BadServer {
  const char* name;
  std::vector<testing::Piece> pieces;
  const char* words;  // in the error
};

TEST(Runner, SaysWhatABadServerDid) {
  const std::string first = StreamHead() + Chunked(TokenEvent("a"));
  const std::string huge(5 << 20, 'x');
  const BadServer servers[] = {
      {"closes at once", {}, "without an answer"},
      {"is no HTTP", {{"SSH-2.0-OpenSSH_9.2\r\n\r\n", 0ms}}, "not HTTP"},
      {"has a bad chunk", {{StreamHead() + "zz\r\nhello\r\n", 0ms}}, "not HTTP"},
      {"leaves in the middle", {{first, 0ms}}, "in the middle"},
      {"leaves in a chunk", {{StreamHead() + "40\r\ndata: {", 0ms}}, "in the middle"},
      {"ends the body too soon", {{first + "0\r\n\r\n", 0ms}}, "ended in the middle of the answer"},
      {"says nothing", {{StreamHead() + "0\r\n\r\n", 0ms}}, "no chunk with a choice"},
      {"says [DONE] alone", {{StreamHead() + Chunked(kDoneEvent) + "0\r\n\r\n", 0ms}}, "no chunk with a choice"},
      {"breaks its JSON", {{StreamHead() + Chunked("data: {\"choices\":[\n\n") + "0\r\n\r\n", 0ms}}, "not valid JSON"},
      {"sends a number", {{StreamHead() + Chunked("data: 7\n\n") + "0\r\n\r\n", 0ms}}, "no JSON object"},
      {"fails in the stream",
       {{first + Chunked("data: {\"error\":{\"message\":\"out of luck\"}}\n\n") + "0\r\n\r\n", 0ms}},
       "out of luck"},
      {"is busy", {{HttpAnswer("503 Busy", R"({"error":{"message":"queue full"}})"), 0ms}}, "HTTP 503: queue full"},
      {"fails in plain text", {{HttpAnswer("500 Oops", "trace\nback"), 0ms}}, "HTTP 500: trace back"},
      {"is found elsewhere", {{HttpAnswer("302 Found", ""), 0ms}}, "HTTP 302"},
      {"never ends an event", {{HttpAnswer("200 OK", "data: " + huge), 0ms}}, "larger than"},
      {"never ends its head", {{"HTTP/1.1 200 OK\r\nX: " + huge, 0ms}}, "not HTTP"},
      {"answers a question nobody asked",
       {{HttpAnswer("200 OK", "<html>hello</html>"), 0ms}},
       "no chunk with a choice"},
  };
  for (const BadServer& server : servers) {
    const Outcome outcome = AnsweredWith(server.pieces);
    EXPECT_NE(outcome.error.find(server.words), std::string::npos) << server.name << ": " << outcome.error;
  }
}

TEST(Runner, GivesUpInTime) {
  const TrafficConfig impatient{.timeout = 150ms};
  EXPECT_EQ(AnsweredWith({{"", 5000ms}}, true, impatient).error, "timed out before an answer");
  const std::string first = StreamHead() + Chunked(TokenEvent("a"));
  EXPECT_EQ(AnsweredWith({{first, 0ms}, {"", 5000ms}}, true, impatient).error, "timed out in the middle of the answer");
}

TEST(Runner, SaysThatNobodyListens) {
  std::string url;
  {
    url = ScriptedServer([](const Asked&, int) { return Answer(); }).url();
  }
  const auto run = RunLoad(*Target::Parse(url), SameRequests(3), {}, {});
  ASSERT_TRUE(run.has_value());
  for (const Outcome& outcome : run->outcomes) EXPECT_EQ(outcome.error, "cannot connect: Connection refused");
}

TEST(Runner, KeepsItsPlacesFullAndUsesConnectionsAgain) {
  const ScriptedServer server([](const Asked&, int) { return WholeStream(3, 15ms); });
  const auto run = RunAgainst(server, SameRequests(24), {.max_concurrency = 4});
  for (const Outcome& outcome : run.outcomes) EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(server.most_at_a_time(), 4);
  EXPECT_EQ(server.num_connections(), 4);
  EXPECT_EQ(run.num_connections, 4);
}

TEST(Runner, SendsAgainWhenAnOldConnectionWasClosed) {
  // Each connection answers once and is closed without a word about it.
  const ScriptedServer server([](const Asked&, int) {
    Answer answer = WholeStream(2);
    answer.then_close = true;
    return answer;
  });
  const auto run = RunAgainst(server, SameRequests(5), {.max_concurrency = 1});
  for (const Outcome& outcome : run.outcomes) EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(server.num_connections(), 5);
}

TEST(Runner, SendsWhenRequestsAreDue) {
  std::vector<Request> requests = SameRequests(3);
  requests[1].arrival_seconds = 0.08;
  requests[2].arrival_seconds = 0.16;
  const ScriptedServer server([](const Asked&, int) { return WholeStream(2); });
  const auto run = RunAgainst(server, requests);
  EXPECT_GE(run.outcomes[1].start_seconds, 0.08);
  EXPECT_GE(run.outcomes[2].start_seconds, 0.16);
  EXPECT_GE(run.duration_seconds, 0.16);
}

TEST(Runner, ATurnWaitsForTheAnswerBefore) {
  std::vector<Request> requests = SameRequests(4);
  requests[1].after = 0;
  requests[2].after = 1;
  const ScriptedServer server([](const Asked&, int) { return WholeStream(2, 30ms); });
  const auto run = RunAgainst(server, requests, {.max_concurrency = 2});
  const auto end = [&](std::size_t i) { return run.outcomes[i].start_seconds + run.outcomes[i].latency_seconds; };
  EXPECT_GE(run.outcomes[1].start_seconds, end(0));
  EXPECT_GE(run.outcomes[2].start_seconds, end(1));
  EXPECT_LT(run.outcomes[3].start_seconds, end(0));  // somebody else's
}

TEST(Runner, ATurnIsSentThoughTheOneBeforeFailed) {
  std::vector<Request> requests = SameRequests(2);
  requests[1].after = 0;
  const ScriptedServer server([](const Asked&, int index) {
    return index == 0 ? Answer{.pieces = {{HttpAnswer("500 Oops", "no"), 0ms}}} : WholeStream(2);
  });
  const auto run = RunAgainst(server, requests);
  EXPECT_EQ(run.outcomes[0].error, "HTTP 500: no");
  EXPECT_EQ(run.outcomes[1].error, "");
}

TEST(Runner, SendsWhatItIsToldTo) {
  std::string head, body;
  const ScriptedServer server([&](const Asked& asked, int) {
    head = asked.head;
    body = asked.body;
    return WholeStream(1);
  });
  Target target = *Target::Parse(server.url() + "/some/where/v1/");
  target.headers = {"Authorization: Bearer secret", "X-Tenant: 7"};
  const BodyStyle style{.model = "m\"", .vocab_size = 50, .extra = {{"user", "u"}, {"temperature", 0.5}}};
  ASSERT_TRUE(RunLoad(target, SameRequests(1), style, {}).has_value());
  EXPECT_TRUE(head.starts_with("POST /some/where/v1/completions HTTP/1.1\r\n")) << head;
  EXPECT_NE(head.find("Authorization: Bearer secret\r\nX-Tenant: 7\r\n"), std::string::npos);
  const Result<json::value> sent = ParseJson(body, "body");
  ASSERT_TRUE(sent.has_value()) << body;
  EXPECT_EQ(sent->at("model"), "m\"");
  EXPECT_EQ(sent->at("prompt").as_array().size(), 5);
  EXPECT_EQ(sent->at("max_tokens"), 3);
  EXPECT_EQ(sent->at("temperature"), 0.5);
  EXPECT_EQ(sent->at("user"), "u");
  EXPECT_EQ(sent->at("ignore_eos"), true);
}

TEST(Target, ReadsUrls) {
  const auto parts = [](std::string_view url) {
    const Result<Target> target = Target::Parse(url);
    return target ? target->host + "|" + target->port + "|" + target->path : target.error().param;
  };
  EXPECT_EQ(parts("http://127.0.0.1:8000"), "127.0.0.1|8000|");
  EXPECT_EQ(parts("http://example.org/"), "example.org|80|");
  EXPECT_EQ(parts("http://example.org/v1"), "example.org|80|");
  EXPECT_EQ(parts("http://h:81/api/v1/"), "h|81|/api");
  EXPECT_EQ(parts("http://[::1]:8000/x"), "::1|8000|/x");
  EXPECT_EQ(parts("http://[::1]"), "::1|80|");
  for (const char* bad : {"", "example.org", "https://example.org", "http://", "http://h:", "http://h:x",
                          "http://h:800000", "http://user@h", "http://h/a b", "http://h\r\nX: y"}) {
    EXPECT_EQ(parts(bad), "base-url") << bad;
  }
}

}  // namespace
}  // namespace quire::bench::load
