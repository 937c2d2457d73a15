// What the process split costs: one call, and one request of one token, over the socket and back.
#include <benchmark/benchmark.h>

#include <future>
#include <thread>

#include "base/check.h"
#include "wire/engine_server.h"
#include "wire/socket_engine_client.h"
#include "wire/testing/fake_engine.h"

namespace quire::wire {
namespace {

struct Connection {
  Connection() {
    auto ends = CreateSocketPair();
    CHECK(ends.has_value());
    server = std::thread([this, end = std::move(ends->second)]() mutable {
      EngineServer engine_server(std::move(end));
      CHECK(engine_server.Handshake().has_value());
      CHECK(engine_server.Serve(&engine).has_value());
    });
    std::promise<void> ready;
    SocketEngineClient::Options options;
    options.on_ready = [&](const EngineInfo&) { ready.set_value(); };
    client = std::make_unique<SocketEngineClient>(std::move(ends->first), std::move(options));
    ready.get_future().wait();
  }
  ~Connection() {
    client.reset();
    server.join();
  }

  testing::FakeEngine engine;
  std::thread server;
  std::unique_ptr<SocketEngineClient> client;
};

void BM_Call(benchmark::State& state) {
  Connection connection;
  for (auto _ : state) CHECK(connection.client->Stats().has_value());
}
BENCHMARK(BM_Call)->UseRealTime()->Unit(benchmark::kMicrosecond);

void BM_RequestOfOneToken(benchmark::State& state) {
  Connection connection;
  std::uint64_t id = 0;
  for (auto _ : state) {
    CHECK(connection.client->Submit(testing::MakeRequest(++id, 1, 1)).has_value());
    while (connection.client->Next(std::chrono::seconds(1))->empty()) {
    }
  }
}
BENCHMARK(BM_RequestOfOneToken)->UseRealTime()->Unit(benchmark::kMicrosecond);

void BM_EncodeAndDecodeEvents(benchmark::State& state) {
  std::vector<EngineEvent> events(static_cast<std::size_t>(state.range(0)));
  for (EngineEvent& event : events) event.tokens = {TokenId(7)};
  Encoder encoder;
  std::vector<std::uint64_t> frame;
  for (auto _ : state) {
    const auto bytes = encoder.Encode(0, std::span<const EngineEvent>(events));
    frame.resize((bytes.size() + 7) / 8);
    std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(frame)).begin());
    CHECK(Decode(std::as_bytes(std::span(frame)).first(bytes.size())).has_value());
  }
}
BENCHMARK(BM_EncodeAndDecodeEvents)->Arg(1)->Arg(32)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire::wire
