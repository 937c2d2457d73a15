// Client and server over a real pair of sockets, in one process.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cmath>
#include <cstring>
#include <future>
#include <map>
#include <thread>

#include "wire/engine_server.h"
#include "wire/limits.h"
#include "wire/socket_engine_client.h"
#include "wire/testing/fake_engine.h"

namespace quire::wire {
namespace {

using namespace std::chrono_literals;
using testing::FakeEngine;
using testing::MakeRequest;

constexpr auto kLongTime = 20s;  // no test waits that long unless it fails

// What has come for each choice.
struct Outcome {
  std::vector<TokenId> tokens;
  FinishReason reason = FinishReason::kNone;
  std::string error;
};
using Outcomes = std::map<std::pair<std::uint64_t, int>, Outcome>;

// Fetches events until `num_choices` have finished; false when the engine goes or nothing comes.
bool Collect(EngineClient* client, std::size_t num_choices, Outcomes* outcomes) {
  std::size_t finished = 0;
  const auto deadline = std::chrono::steady_clock::now() + kLongTime;
  while (finished < num_choices && std::chrono::steady_clock::now() < deadline) {
    const auto events = client->Next(1s);
    if (!events) return false;
    for (const EngineEvent& event : *events) {
      Outcome& outcome = (*outcomes)[{event.request.value(), event.choice}];
      EXPECT_EQ(outcome.reason, FinishReason::kNone) << "an event after the last one";
      outcome.tokens.insert(outcome.tokens.end(), event.tokens.begin(), event.tokens.end());
      outcome.reason = event.finish_reason;
      outcome.error = event.error;
      if (event.finish_reason != FinishReason::kNone) ++finished;
    }
  }
  return finished == num_choices;
}

class SocketEngineTest : public ::testing::Test {
 protected:
  void Connect(SocketEngineClient::Options options = {}) {
    auto ends = CreateSocketPair();
    ASSERT_TRUE(ends.has_value());
    std::promise<void> ready;
    options.on_ready = [&](const EngineInfo&) { ready.set_value(); };
    server_ = std::make_unique<EngineServer>(std::move(ends->second));
    server_thread_ = std::thread([this] {
      ASSERT_TRUE(server_->Handshake().has_value());
      served_ = server_->Serve(&engine_);
      server_.reset();  // closes the connection, as the end of a process does
    });
    client_ = std::make_unique<SocketEngineClient>(std::move(ends->first), std::move(options));
    ASSERT_EQ(ready.get_future().wait_for(kLongTime), std::future_status::ready);
  }

  void TearDown() override {
    client_.reset();
    if (server_thread_.joinable()) server_thread_.join();
  }

  FakeEngine engine_;
  std::unique_ptr<EngineServer> server_;
  Result<> served_;
  std::thread server_thread_;
  std::unique_ptr<SocketEngineClient> client_;
};

TEST_F(SocketEngineTest, GeneratesOverTheSocket) {
  Connect();
  EXPECT_EQ(client_->Info()->vocab_size, FakeEngine::kVocabSize);
  ASSERT_TRUE(client_->Submit(MakeRequest(1, 10, 50)).has_value());
  ASSERT_TRUE(client_->Submit(MakeRequest(2, 990, 20, 2)).has_value());
  Outcomes outcomes;
  ASSERT_TRUE(Collect(client_.get(), 3, &outcomes));
  ASSERT_EQ((outcomes[{1, 0}].tokens.size()), 50u);
  EXPECT_EQ((outcomes[{1, 0}].tokens.back()), TokenId(60));
  EXPECT_EQ((outcomes[{2, 1}].tokens.front()), TokenId(992));
  EXPECT_EQ((outcomes[{2, 1}].reason), FinishReason::kLength);
  EXPECT_EQ(client_->Stats()->generation_tokens, 90u);
  EXPECT_EQ(client_->Stats()->step_tokens_histogram, (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_TRUE(client_->ResetPrefixCache().has_value());
  EXPECT_EQ(engine_.num_resets, 1);
}

TEST_F(SocketEngineTest, RefusalsCarryTheEnginesWords) {
  engine_.Hold();
  Connect();
  for (std::uint64_t id = 0; id < FakeEngine::kQueueMax; ++id) {
    ASSERT_TRUE(client_->Submit(MakeRequest(id, 1, 1)).has_value());
  }
  const Result<> refused = client_->Submit(MakeRequest(99, 1, 1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(refused.error().message, "the queue of 8 is full");
  EXPECT_EQ(client_->Submit(MakeRequest(3, 1, 1)).error().code, ErrorCode::kInvalidArgument);  // in use
  engine_.Release();
  Outcomes outcomes;
  EXPECT_TRUE(Collect(client_.get(), FakeEngine::kQueueMax, &outcomes));
  EXPECT_TRUE(client_->Submit(MakeRequest(3, 1, 1)).has_value());  // free again
}

TEST_F(SocketEngineTest, AbortEndsEveryChoiceOnce) {
  engine_.Hold();
  Connect();
  ASSERT_TRUE(client_->Submit(MakeRequest(1, 10, 4000, 3)).has_value());
  client_->Abort(RequestId(1), std::nullopt);
  client_->Abort(RequestId(1), std::nullopt);
  client_->Abort(RequestId(77), std::nullopt);
  Outcomes outcomes;
  ASSERT_TRUE(Collect(client_.get(), 3, &outcomes));
  EXPECT_EQ((outcomes[{1, 2}].reason), FinishReason::kAbort);
}

TEST_F(SocketEngineTest, AbortOfOneChoiceLeavesTheOthers) {
  engine_.Hold();
  Connect();
  ASSERT_TRUE(client_->Submit(MakeRequest(1, 10, 5, 3)).has_value());
  client_->Abort(RequestId(1), 1);
  while (engine_.num_aborts == 0) std::this_thread::yield();
  engine_.Release();
  Outcomes outcomes;
  ASSERT_TRUE(Collect(client_.get(), 3, &outcomes));
  EXPECT_EQ((outcomes[{1, 0}].reason), FinishReason::kLength);
  EXPECT_EQ((outcomes[{1, 1}].reason), FinishReason::kAbort);
  EXPECT_EQ((outcomes[{1, 2}].tokens.size()), 5u);
}

// HLTH-02: nobody waits for an engine that has gone.
TEST_F(SocketEngineTest, WhenTheEngineGoesEveryChoiceGetsAnError) {
  engine_.Hold();
  Connect();
  ASSERT_TRUE(client_->Submit(MakeRequest(1, 10, 4000, 2)).has_value());
  ASSERT_TRUE(client_->Submit(MakeRequest(2, 10, 4000)).has_value());
  engine_.Die();
  Outcomes outcomes;
  ASSERT_TRUE(Collect(client_.get(), 3, &outcomes));
  EXPECT_EQ((outcomes[{1, 1}].reason), FinishReason::kError);
  EXPECT_NE((outcomes[{2, 0}].error).find("the engine was lost"), std::string::npos);
  EXPECT_EQ(client_->Next(kLongTime), std::nullopt);
  EXPECT_EQ(client_->Submit(MakeRequest(3, 1, 1)).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client_->Stats().error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client_->Info().error().code, ErrorCode::kUnavailable);
  server_thread_.join();
  EXPECT_FALSE(served_.has_value());
}

TEST_F(SocketEngineTest, WhenTheFrontEndGoesItsRequestsAreAborted) {
  engine_.Hold();
  Connect();
  ASSERT_TRUE(client_->Submit(MakeRequest(1, 10, 4000)).has_value());
  ASSERT_TRUE(client_->Submit(MakeRequest(2, 10, 4000)).has_value());
  client_.reset();
  server_thread_.join();
  EXPECT_TRUE(served_.has_value());
  EXPECT_EQ(engine_.num_aborts, 2);
}

TEST_F(SocketEngineTest, DrainFinishesWhatRunsAndRefusesTheRest) {
  engine_.Hold();
  Connect();
  ASSERT_TRUE(client_->Submit(MakeRequest(1, 10, 100)).has_value());
  server_->Drain();
  const Result<> refused = client_->Submit(MakeRequest(2, 10, 1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  engine_.Release();
  Outcomes outcomes;
  ASSERT_TRUE(Collect(client_.get(), 1, &outcomes));
  EXPECT_EQ((outcomes[{1, 0}].tokens.size()), 100u);
  EXPECT_EQ((outcomes[{1, 0}].reason), FinishReason::kLength);
  server_thread_.join();
  EXPECT_TRUE(served_.has_value());
  EXPECT_EQ(client_->Next(kLongTime), std::nullopt);
}

TEST_F(SocketEngineTest, ManyThreadsSubmitAtOnce) {
  Connect();
  constexpr int kThreads = 4, kEach = 50;
  std::atomic<int> accepted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        // The queue is short: the ones that are refused try again.
        while (!client_->Submit(MakeRequest(static_cast<std::uint64_t>(t * kEach + i), i, 5))) {
        }
        ++accepted;
        (void)client_->Stats();
      }
    });
  }
  Outcomes outcomes;
  EXPECT_TRUE(Collect(client_.get(), kThreads * kEach, &outcomes));
  for (std::thread& thread : threads) thread.join();
  for (const auto& [key, outcome] : outcomes) EXPECT_EQ(outcome.tokens.size(), 5u);
}

// A large prompt is larger than the socket's buffers.
TEST_F(SocketEngineTest, LargeMessagesPass) {
  Connect();
  GenerateRequest request = MakeRequest(1, 10, 1);
  request.prompt.resize(FakeEngine::kMaxModelLen - 1, TokenId(7));
  request.sampling.logit_bias.resize(FakeEngine::kVocabSize, {TokenId(1), 0.5f});
  request.cache_salt = std::string(kCacheSaltBytesMax, 's');
  ASSERT_TRUE(client_->Submit(std::move(request)).has_value());
  Outcomes outcomes;
  EXPECT_TRUE(Collect(client_.get(), 1, &outcomes));
}

// ---- An engine that breaks the rules
// -------------------------------------------------------------------------------

// Speaks for an engine, message by message.
class Impostor {
 public:
  Impostor() {
    auto ends = CreateSocketPair();
    EXPECT_TRUE(ends.has_value());
    socket_.emplace(std::move(ends->second));
    SocketEngineClient::Options options;
    options.on_closed = [this](const Error& error) { closed_.set_value(error); };
    client = std::make_unique<SocketEngineClient>(std::move(ends->first), std::move(options));
  }

  template <typename Body>
  void Say(std::uint64_t call, const Body& body) {
    EXPECT_TRUE(socket_->Send(encoder_.Encode(call, body)).has_value());
  }
  void BecomeReady() {
    Say(0, Hello{});
    Say(0, *FakeEngine().Info());
    while (!client->Info()) std::this_thread::yield();
  }
  // Submits a request for two choices of 10 tokens, and accepts it.
  void AcceptRequest() {
    std::thread engine([this] {
      while (true) {
        const auto frame = socket_->Receive();
        ASSERT_TRUE(frame.has_value() && frame->has_value());
        const Result<Message> message = Decode(**frame);
        ASSERT_TRUE(message.has_value());
        if (!std::holds_alternative<GenerateRequest>(message->body)) continue;  // the greeting
        return Say(message->call, Status());
      }
    });
    EXPECT_TRUE(client->Submit(MakeRequest(1, 10, 10, 2)).has_value());
    engine.join();
  }
  void SayEvent(EngineEvent event) {
    event.request = RequestId(1);
    Say(0, std::span<const EngineEvent>(&event, 1));
  }
  void SayBytes(std::span<const std::byte> bytes) { EXPECT_TRUE(socket_->Send(bytes).has_value()); }
  std::string WhyClosed() {
    std::future<Error> closed = closed_.get_future();
    if (closed.wait_for(kLongTime) != std::future_status::ready) return "still open";
    return closed.get().message;
  }
  void HangUp() { socket_.reset(); }

 private:
  std::optional<FrameSocket> socket_;
  Encoder encoder_;
  std::promise<Error> closed_;

 public:
  std::unique_ptr<SocketEngineClient> client;  // goes first: its last callback uses the promise
};

TEST(SocketEngineClient, AnotherVersionIsRefused) {
  Impostor engine;
  engine.Say(0, Hello{99});
  EXPECT_NE(engine.WhyClosed().find("version 99"), std::string::npos);
}

TEST(SocketEngineClient, HelloComesFirst) {
  Impostor engine;
  engine.Say(0, *FakeEngine().Info());
  EXPECT_NE(engine.WhyClosed().find("hello"), std::string::npos);
}

TEST(SocketEngineClient, ALoadFailureIsPassedOn) {
  Impostor engine;
  engine.Say(0, Hello{});
  engine.Say(0, LoadProgress{50, 200, "norm"});
  engine.Say(0, Status(std::unexpected(Error{ErrorCode::kCorrupt, "the file is broken"})));
  EXPECT_EQ(engine.WhyClosed(), "the file is broken");
}

TEST(SocketEngineClient, ProgressShowsInTheRefusal) {
  Impostor engine;
  engine.Say(0, Hello{});
  engine.Say(0, LoadProgress{50, 200, "norm"});
  while (engine.client->Info().error().message.find("25 %") == std::string::npos) std::this_thread::yield();
  EXPECT_EQ(engine.client->Submit(MakeRequest(1, 1, 1)).error().code, ErrorCode::kUnavailable);
}

TEST(SocketEngineClient, BytesThatAreNoMessageEndTheConnection) {
  Impostor engine;
  engine.BecomeReady();
  engine.AcceptRequest();
  const std::uint32_t garbage[] = {12, 0xFFFFFFFF, 0x12345678, 0xFFFFFFFF};
  engine.SayBytes(std::as_bytes(std::span(garbage)));
  EXPECT_NE(engine.WhyClosed().find("not well-formed"), std::string::npos);
  Outcomes outcomes;
  EXPECT_TRUE(Collect(engine.client.get(), 2, &outcomes));
  EXPECT_EQ((outcomes[{1, 0}].reason), FinishReason::kError);
}

TEST(SocketEngineClient, AnnouncedLengthsAreBounded) {
  Impostor engine;
  engine.BecomeReady();
  const std::uint32_t length = 0xFFFFFFF0;
  engine.SayBytes(std::as_bytes(std::span(&length, 1)));
  EXPECT_NE(engine.WhyClosed().find("announced"), std::string::npos);
}

TEST(SocketEngineClient, AMessageCutShortEndsTheConnection) {
  Impostor engine;
  engine.BecomeReady();
  const std::uint32_t cut[] = {1000, 1, 2};
  engine.SayBytes(std::as_bytes(std::span(cut)));
  engine.HangUp();
  EXPECT_NE(engine.WhyClosed().find("inside a message"), std::string::npos);
}

// security.md 21: every field is ranged by the receiver.
TEST(SocketEngineClient, EventsOutOfRangeEndTheConnection) {
  const std::pair<const char*, EngineEvent> cases[] = {
      {"choice 2", {.choice = 2}},
      {"vocabulary", {.tokens = {TokenId(FakeEngine::kVocabSize)}}},
      {"vocabulary", {.tokens = {TokenId(-1)}}},
      {"vocabulary", {.tokens = {TokenId(1)}, .logprobs = {{.chosen = {TokenId(5000), -1, 1}, .top = {}}}}},
      {"more than the 10", {.tokens = TokenList(11, TokenId(1))}},
      {"of the prompt", {.num_cached_tokens = 4}},
      {"of the prompt", {.prompt_logprobs = {{}, {}, {}, {}}}},
  };
  for (const auto& [words, event] : cases) {
    Impostor engine;
    engine.BecomeReady();
    engine.AcceptRequest();
    engine.SayEvent(event);
    const std::string why = engine.WhyClosed();
    EXPECT_NE(why.find(words), std::string::npos) << why;
  }
}

TEST(SocketEngineClient, NothingFollowsTheFinishingEvent) {
  Impostor engine;
  engine.BecomeReady();
  engine.AcceptRequest();
  EngineEvent last{.tokens = {TokenId(1)}};
  last.finish_reason = FinishReason::kStop;
  engine.SayEvent(last);
  engine.SayEvent(last);
  EXPECT_NE(engine.WhyClosed().find("had finished"), std::string::npos);
  Outcomes outcomes;
  EXPECT_TRUE(Collect(engine.client.get(), 2, &outcomes));
  EXPECT_EQ((outcomes[{1, 0}].reason), FinishReason::kStop);
  EXPECT_EQ((outcomes[{1, 1}].reason), FinishReason::kError);
}

TEST(SocketEngineClient, AnEngineThatDoesNotAnswerIsGivenUp) {
  auto ends = CreateSocketPair();
  ASSERT_TRUE(ends.has_value());
  FrameSocket engine(std::move(ends->second));
  SocketEngineClient::Options options;
  options.call_timeout = 50ms;
  SocketEngineClient client(std::move(ends->first), std::move(options));
  Encoder encoder;
  ASSERT_TRUE(engine.Send(encoder.Encode(0, Hello{})).has_value());
  ASSERT_TRUE(engine.Send(encoder.Encode(0, *FakeEngine().Info())).has_value());
  while (!client.Info()) std::this_thread::yield();
  const Result<> refused = client.Submit(MakeRequest(1, 1, 1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  // Hello, the request, and its abort: nothing is left to compute for nobody.
  bool aborted = false;
  while (!aborted) {
    const auto frame = engine.Receive();
    ASSERT_TRUE(frame.has_value() && frame->has_value());
    aborted = std::holds_alternative<AbortRequest>(Decode(**frame)->body);
  }
}

// ---- A front end that breaks the rules
// -----------------------------------------------------------------------------

TEST(EngineServer, RefusesWhatAFrontEndMustNotSay) {
  FakeEngine engine;
  auto ends = CreateSocketPair();
  ASSERT_TRUE(ends.has_value());
  FrameSocket front(std::move(ends->first));
  EngineServer server(std::move(ends->second));
  Encoder encoder;
  ASSERT_TRUE(front.Send(encoder.Encode(0, Hello{})).has_value());
  ASSERT_TRUE(front.Send(encoder.Encode(5, Status())).has_value());
  ASSERT_TRUE(server.Handshake().has_value());
  const Result<> served = server.Serve(&engine);
  ASSERT_FALSE(served.has_value());
  EXPECT_EQ(served.error().code, ErrorCode::kCorrupt);
}

TEST(EngineServer, RefusesAnotherVersion) {
  auto ends = CreateSocketPair();
  ASSERT_TRUE(ends.has_value());
  FrameSocket front(std::move(ends->first));
  EngineServer server(std::move(ends->second));
  Encoder encoder;
  ASSERT_TRUE(front.Send(encoder.Encode(0, Hello{12})).has_value());
  EXPECT_EQ(server.Handshake().error().code, ErrorCode::kUnsupported);
}

// security.md 2 and 21: ids are checked again, whatever the front end has checked.
TEST(CheckRequest, HoldsEveryFieldAgainstItsRange) {
  const EngineInfo info = *FakeEngine().Info();
  const auto blames = [&](auto change) {
    GenerateRequest request = MakeRequest(1, 1, 1);
    change(request);
    const Result<> checked = CheckRequest(request, info);
    return checked ? std::string("nothing") : checked.error().param;
  };
  const double nan = std::nan("");
  EXPECT_EQ(blames([](GenerateRequest&) {}), "nothing");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.prompt.clear(); }), "prompt");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.prompt.resize(FakeEngine::kMaxModelLen); }), "prompt");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.prompt[1] = TokenId(-1); }), "prompt");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.prompt[1] = TokenId(1000); }), "prompt");
  EXPECT_EQ(blames([&](GenerateRequest& r) { r.sampling.temperature = nan; }), "temperature");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.temperature = -1; }), "temperature");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.top_k = -2; }), "top_k");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.top_p = 1.5; }), "top_p");
  EXPECT_EQ(blames([&](GenerateRequest& r) { r.sampling.min_p = nan; }), "min_p");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.repetition_penalty = 0; }), "repetition_penalty");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.presence_penalty = 3; }), "presence_penalty");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.frequency_penalty = -3; }), "frequency_penalty");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.logit_bias = {{TokenId(1000), 1}}; }), "logit_bias");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.logit_bias = {{TokenId(1), 101}}; }), "logit_bias");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.logit_bias.resize(1001); }), "logit_bias");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.n = 0; }), "n");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.n = 1 << 30; }), "n");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.logprobs = 1001; }), "logprobs");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.prompt_logprobs = 1001; }), "prompt_logprobs");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.sampling.beam = {.width = 1 << 30}; }), "best_of");
  EXPECT_EQ(blames([&](GenerateRequest& r) { r.sampling.beam = {.length_penalty = nan}; }), "length_penalty");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.stop.stop_strings = {"a", ""}; }), "stop");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.stop.stop_strings.assign(1000, "a"); }), "stop");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.stop.max_tokens = -1; }), "max_tokens");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.stop.min_tokens = -1; }), "min_tokens");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.stop.stop_token_ids = {TokenId(1000)}; }), "stop_token_ids");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.cache_salt.resize(1 << 20); }), "cache_salt");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.cache_retention_s = -1; }), "cache_retention_s");
  EXPECT_EQ(blames([&](GenerateRequest& r) { r.terms.ttft_ms = nan; }), "ttft_ms");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.terms.ttft_ms = -1; }), "ttft_ms");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.terms.tpot_ms = 1e9; }), "tpot_ms");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.terms.queue_timeout_ms = -1; }), "queue_timeout_ms");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.terms.tenant = kTenantsMax; }), "tenant");
  EXPECT_EQ(blames([](GenerateRequest& r) { r.terms.route = -1; }), "route");
}

// ---- The inbox
// -----------------------------------------------------------------------------------------------------

TEST(EventInbox, MergesWhatWaitsForTheSameChoice) {
  EventInbox inbox;
  for (int i = 0; i < 1000; ++i) {
    EngineEvent event{.request = RequestId(1), .choice = i % 2};
    event.tokens = {TokenId(i)};
    if (i >= 998) event.finish_reason = FinishReason::kStop;
    std::vector<EngineEvent> events;
    events.push_back(std::move(event));
    inbox.Push(std::move(events));
  }
  inbox.Close();
  const auto events = inbox.Next(0s);
  ASSERT_EQ(events->size(), 2u);
  EXPECT_EQ((*events)[0].tokens.size(), 500u);
  EXPECT_EQ((*events)[0].tokens[3], TokenId(6));
  EXPECT_EQ((*events)[1].finish_reason, FinishReason::kStop);
  EXPECT_EQ(inbox.Next(0s), std::nullopt);
}

}  // namespace
}  // namespace quire::wire
