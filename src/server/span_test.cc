// Trace contexts, spans and their JSON, and the way of a span to its collector.
#include "server/span.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/unique_fd.h"
#include "server/http_post.h"
#include "server/request_span.h"
#include "server/span_exporter.h"
#include "server/trace_context.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, ReadsWhatIsWellFormed) {
  const auto parent = ParseTraceParent(kParent, "vendor=value");
  ASSERT_TRUE(parent.has_value());
  EXPECT_EQ(ToHex(parent->trace), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(ToHex(parent->span), "b7ad6b7169203331");
  EXPECT_TRUE(parent->is_sampled);
  EXPECT_EQ(parent->state, "vendor=value");
  EXPECT_FALSE(ParseTraceParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "")->is_sampled);
  // A later version may say more.
  EXPECT_TRUE(ParseTraceParent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", "").has_value());
  // What cannot be handed on is not.
  EXPECT_EQ(ParseTraceParent(kParent, std::string(513, 'a'))->state, "");
  EXPECT_EQ(ParseTraceParent(kParent, "a=\x01")->state, "");
}

TEST(TraceContext, IgnoresWhatIsNot) {
  for (const std::string_view text : {"", "00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
                                      "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                      "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                                      "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                                      "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                                      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
                                      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
                                      "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more",
                                      "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01"}) {
    EXPECT_FALSE(ParseTraceParent(text, "").has_value()) << text;
  }
}

TEST(HttpUrl, IsReadOrRefused) {
  const auto url = ParseHttpUrl("http://collector:4318/v1/traces?a=b", "endpoint");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->authority, "collector:4318");
  EXPECT_EQ(url->host, "collector");
  EXPECT_EQ(url->port, "4318");
  EXPECT_EQ(url->path, "/v1/traces?a=b");
  EXPECT_EQ(ParseHttpUrl("http://localhost", "endpoint")->port, "80");
  EXPECT_EQ(ParseHttpUrl("http://localhost", "endpoint")->path, "/");
  EXPECT_EQ(ParseHttpUrl("http://[::1]:9", "endpoint")->host, "::1");
  for (const std::string_view text : {"", "collector:4318", "https://collector", "grpc://collector:4317", "http://",
                                      "http://:80", "http://a:0", "http://a:65536", "http://a:b", "http://[::1",
                                      "http://[::1]80", "http://user@host/", "http://a b/", "http://a/\r\nX: y"}) {
    const auto refused = ParseHttpUrl(text, "endpoint");
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_EQ(refused.error().param, "endpoint");
  }
}

// A request of 2 choices that arrived at 10 s by the monotonic clock; the engine's clock is another.
struct Sample {
  Sample() {
    spec.id = "cmpl-7";
    spec.model = "demo";
    spec.prompts.push_back({.ids = {TokenId(1), TokenId(2)}, .text = "", .max_tokens = 5, .seed = 0});
    spec.sampling.n = 2;
    spec.sampling.temperature = 0.5;
    origin.arrival = {.at = TimePoint(10s), .unix_ns = 1'700'000'000'000'000'000};
    ChoiceTimings choice;
    choice.submission = {TimePoint(10'010ms), TimePoint(10'012ms)};
    choice.engine.queued = TimePoint(500'000ms);
    choice.engine.first_scheduled = choice.engine.last_scheduled = TimePoint(500'020ms);
    choice.engine.inference_begin = TimePoint(500'021ms);
    choice.engine.first_token = TimePoint(500'100ms);
    choice.engine.inference_end = choice.engine.last_token = choice.engine.finished = TimePoint(500'300ms);
    choice.engine.num_preemptions = 1;
    choice.engine.marks = {{LifeChange::kPreempted, TimePoint(500'150ms)},
                           {LifeChange::kScheduled, TimePoint(500'160ms)}};
    choice.first_token = TimePoint(10'115ms);
    choice.ended = TimePoint(10'320ms);
    choice.num_tokens = 5;
    choices = {choice, choice};
    choices[1].ended = TimePoint(10'330ms);
  }
  Span Make(const std::string& error = "") const {
    return MakeRequestSpan(spec, origin, {.prompt_tokens = 2, .completion_tokens = 10, .cached_tokens = 0}, choices,
                           error);
  }
  GenerationSpec spec;
  RequestOrigin origin;
  std::vector<ChoiceTimings> choices;
};

json::value AttributeOf(const json::value& holder, std::string_view name) {
  for (const json::value& attribute : holder.at("attributes").as_array()) {
    if (attribute.at("key").as_string() == name) return attribute.at("value");
  }
  return nullptr;
}

TEST(RequestSpan, HasTheAttributesOfVllm) {
  const Sample sample;
  const Span span = sample.Make();
  const auto parsed = ParseJson(OtlpJson(std::span(&span, 1)), "OTLP");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  const json::value& resource = parsed->at("resourceSpans").at(0);
  EXPECT_EQ(AttributeOf(resource.at("resource"), "service.name").at("stringValue"), "quire");
  const json::value& json = resource.at("scopeSpans").at(0).at("spans").at(0);
  EXPECT_EQ(json.at("name"), "llm_request");
  EXPECT_EQ(json.at("kind"), 2);
  EXPECT_EQ(json.at("traceId").as_string().size(), 32u);
  EXPECT_EQ(json.at("spanId").as_string().size(), 16u);
  EXPECT_FALSE(json.as_object().contains("parentSpanId"));
  EXPECT_EQ(json.at("startTimeUnixNano"), "1700000000000000000");
  EXPECT_EQ(json.at("endTimeUnixNano"), "1700000000330000000");
  EXPECT_TRUE(json.at("status").as_object().empty());
  const auto number = [&](std::string_view name) {
    return AttributeOf(json, name).at("doubleValue").to_number<double>();
  };
  const auto integer = [&](std::string_view name) { return AttributeOf(json, name).at("intValue").as_string(); };
  EXPECT_EQ(AttributeOf(json, "gen_ai.request.id").at("stringValue"), "cmpl-7");
  EXPECT_EQ(AttributeOf(json, "gen_ai.response.model").at("stringValue"), "demo");
  EXPECT_EQ(integer("gen_ai.usage.prompt_tokens"), "2");
  EXPECT_EQ(integer("gen_ai.usage.completion_tokens"), "10");
  EXPECT_EQ(integer("gen_ai.usage.num_sequences"), "2");
  EXPECT_EQ(integer("gen_ai.request.n"), "2");
  EXPECT_EQ(integer("gen_ai.request.max_tokens"), "5");
  EXPECT_DOUBLE_EQ(number("gen_ai.request.temperature"), 0.5);
  EXPECT_DOUBLE_EQ(number("gen_ai.request.top_p"), 1.0);
  EXPECT_DOUBLE_EQ(number("gen_ai.latency.time_in_queue"), 0.020);
  EXPECT_DOUBLE_EQ(number("gen_ai.latency.time_in_model_prefill"), 0.080);
  EXPECT_DOUBLE_EQ(number("gen_ai.latency.time_in_model_decode"), 0.200);
  EXPECT_DOUBLE_EQ(number("gen_ai.latency.time_in_model_inference"), 0.280);
  EXPECT_DOUBLE_EQ(number("gen_ai.latency.time_to_first_token"), 0.115);
  EXPECT_DOUBLE_EQ(number("gen_ai.latency.e2e"), 0.330);
}

// The engine's clock is brought to the front end's by the call in between which it took the request.
TEST(RequestSpan, TellsTheLifeOfEachChoiceInOrder) {
  const Sample sample;
  const Span span = sample.Make();
  ASSERT_EQ(span.events.size(), 16u);
  std::vector<std::pair<std::string, int>> life;  // milliseconds since the arrival
  for (std::size_t i = 0; i < 8; ++i) {
    life.emplace_back(span.events[i].name, (span.events[i].unix_ns - span.begin_unix_ns) / 1'000'000);
  }
  const std::vector<std::pair<std::string, int>> expected = {
      {"queued", 11},     {"scheduled", 31},  {"inference_begin", 32}, {"first_token", 111},
      {"preempted", 161}, {"scheduled", 171}, {"inference_end", 311},  {"finished", 311}};
  EXPECT_EQ(life, expected);
}

TEST(RequestSpan, BelongsToItsParentAndSaysWhatWentWrong) {
  Sample sample;
  sample.origin.parent = ParseTraceParent(kParent, "a=b");
  const Span span = sample.Make("the engine died");
  EXPECT_EQ(ToHex(span.trace), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(ToHex(*span.parent), "b7ad6b7169203331");
  EXPECT_NE(span.id, *span.parent);
  const auto parsed = ParseJson(OtlpJson(std::span(&span, 1)), "OTLP");
  const json::value& json = parsed->at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans").at(0);
  EXPECT_EQ(json.at("parentSpanId"), "b7ad6b7169203331");
  EXPECT_EQ(json.at("traceState"), "a=b");
  EXPECT_EQ(json.at("status").at("code"), 2);
  EXPECT_EQ(json.at("status").at("message"), "the engine died");
}

// A wall clock that is set back while a request runs changes nothing: it is read once.
TEST(RequestSpan, IsNeverNegative) {
  Sample sample;
  for (ChoiceTimings& choice : sample.choices) choice = {};
  const Span span = sample.Make("gone before anything happened");
  EXPECT_EQ(span.begin_unix_ns, span.end_unix_ns);
  EXPECT_EQ(span.events.size(), 0u);
}

TEST(RequestSpan, EventsAreBounded) {
  Sample sample;
  sample.choices.resize(100, sample.choices[0]);
  const Span span = sample.Make();
  EXPECT_EQ(span.events.size(), kSpanEventsMax);
  EXPECT_EQ(span.num_dropped_events, 800 - static_cast<int>(kSpanEventsMax));
}

// ---- The way to the collector

// Answers each connection with what `answer` gives for its number; "" keeps it open and silent.
class Collector {
 public:
  explicit Collector(std::function<std::string(int)> answer) : answer_(std::move(answer)) {
    fd_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd_.get(), 16), 0);
    socklen_t size = sizeof address;
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Collector() {
    ::shutdown(fd_.get(), SHUT_RDWR);
    thread_.join();
  }
  HttpUrl url() const { return *ParseHttpUrl(fmt::format("http://127.0.0.1:{}/v1/traces", port_), "endpoint"); }
  std::vector<std::string> bodies() const {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }

 private:
  void Serve() {
    std::vector<UniqueFd> silent;
    for (int count = 0;; ++count) {
      UniqueFd client(::accept(fd_.get(), nullptr, nullptr));
      if (!client.valid()) return;
      std::string request;
      std::size_t wanted = std::string::npos;
      char bytes[4096];
      while (request.size() < wanted) {
        const ssize_t got = ::recv(client.get(), bytes, sizeof bytes, 0);
        if (got <= 0) break;
        request.append(bytes, static_cast<std::size_t>(got));
        const std::size_t head = request.find("\r\n\r\n");
        if (head == std::string::npos) continue;
        const std::size_t length = request.find("Content-Length: ");
        wanted = head + 4 + std::stoul(request.substr(length + 16));
      }
      {
        const std::lock_guard lock(mutex_);
        bodies_.push_back(request.substr(request.find("\r\n\r\n") + 4));
      }
      const std::string answer = answer_(count);
      if (answer.empty()) {
        silent.push_back(std::move(client));
      } else {
        (void)!::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      }
    }
  }

  const std::function<std::string(int)> answer_;
  UniqueFd fd_;
  int port_ = 0;
  mutable std::mutex mutex_;  // guards bodies_
  std::vector<std::string> bodies_;
  std::thread thread_;
};

std::string Ok(int) {
  return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
}

SpanExporter::Options Quick(const HttpUrl& url) {
  SpanExporter::Options options;
  options.url = url;
  options.delay = 10ms;
  options.backoff = 5ms;
  options.timeout = 2s;
  return options;
}

bool WaitFor(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(5ms);
  return condition();
}

TEST(SpanExporter, SendsBatchesAndTheRestAtTheEnd) {
  Collector collector(&Ok);
  std::size_t num_spans = 0;
  {
    SpanExporter::Options options = Quick(collector.url());
    options.batch_max = 4;
    options.delay = 1h;  // a whole batch, or the end
    SpanExporter exporter(options);
    for (int i = 0; i < 6; ++i) exporter.Push(Sample().Make());
    EXPECT_TRUE(WaitFor([&] { return exporter.counts().exported == 4; }));
  }
  for (const std::string& body : collector.bodies()) {
    const auto parsed = ParseJson(body, "OTLP");
    ASSERT_TRUE(parsed.has_value()) << body;
    num_spans += parsed->at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans").as_array().size();
  }
  EXPECT_EQ(num_spans, 6u);
}

TEST(SpanExporter, TriesAgainWhenTheCollectorSaysLater) {
  Collector collector([](int count) { return count == 0 ? "HTTP/1.1 503 Busy\r\n\r\n" : Ok(count); });
  SpanExporter exporter(Quick(collector.url()));
  exporter.Push(Sample().Make());
  EXPECT_TRUE(WaitFor([&] { return exporter.counts().exported == 1; }));
  EXPECT_EQ(collector.bodies().size(), 2u);
  EXPECT_EQ(exporter.counts().dropped, 0u);
}

TEST(SpanExporter, DropsWhatTheCollectorRefuses) {
  Collector collector([](int) { return "HTTP/1.1 400 Bad Request\r\n\r\n"; });
  SpanExporter exporter(Quick(collector.url()));
  exporter.Push(Sample().Make());
  EXPECT_TRUE(WaitFor([&] { return exporter.counts().dropped == 1; }));
  EXPECT_EQ(collector.bodies().size(), 1u);
}

TEST(SpanExporter, ADeadCollectorCostsSpansThatAreCounted) {
  HttpUrl url;
  {
    Collector gone(&Ok);
    url = gone.url();
  }
  SpanExporter exporter(Quick(url));
  for (int i = 0; i < 10; ++i) exporter.Push(Sample().Make());
  EXPECT_TRUE(WaitFor([&] { return exporter.counts().dropped == 10; }));
  EXPECT_EQ(exporter.counts().exported, 0u);
}

TEST(SpanExporter, ASilentCollectorHoldsNobodyUp) {
  Collector collector([](int) { return ""; });
  const auto begin = std::chrono::steady_clock::now();
  {
    SpanExporter::Options options = Quick(collector.url());
    options.timeout = 1h;
    options.queue_max = 8;
    options.batch_max = 4;
    options.last_words = 200ms;
    SpanExporter exporter(options);
    exporter.Push(Sample().Make());
    EXPECT_TRUE(WaitFor([&] { return collector.bodies().size() == 1; }));  // the thread waits for an answer now
    for (int i = 0; i < 100; ++i) exporter.Push(Sample().Make());
    EXPECT_EQ(exporter.counts().dropped, 92u);  // 8 have a place
  }
  // Nor does the end wait for it: generous, for a machine that is busy.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
}

TEST(SpanExporter, ACollectorThatSpeaksSomethingElseIsNone) {
  Collector collector([](int) { return "SSH-2.0-OpenSSH_9.2\r\n"; });
  SpanExporter exporter(Quick(collector.url()));
  exporter.Push(Sample().Make());
  EXPECT_TRUE(WaitFor([&] { return exporter.counts().dropped == 1; }));
}

}  // namespace
}  // namespace quire::server
