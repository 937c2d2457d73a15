#include "bench/load/runner.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <unordered_set>

#include "base/utf8.h"
#include "bench/load/http_exchange.h"
#include "bench/load/sse_parser.h"

namespace quire::bench::load {
namespace {

constexpr std::size_t kRefusalBytesMax = 4096;
constexpr std::size_t kBodyBytesMax = std::size_t{64} << 20;  // of what is no stream
constexpr auto kTick = std::chrono::milliseconds(50);         // how exact time-outs are

double ThreadCpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Result<std::vector<tcp::endpoint>> Resolve(asio::io_context* io, const Target& target) {
  boost::system::error_code error;
  tcp::resolver resolver(*io);
  const auto found = resolver.resolve(target.host, target.port, error);
  if (error) return FailParam("base-url", "{} has no address: {}", target.host, error.message());
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  return endpoints;
}

std::string RequestHead(const Target& target, std::string_view method, std::string_view route) {
  std::string head = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: quire-bench\r\n", method, target.path,
                                 route, target.authority);
  for (const std::string& line : target.headers) head += line + "\r\n";
  return head;
}

// What a refusal says: the message of an OpenAI error, or the beginning of the text.
std::string DescribeRefusal(int status, const std::string& body) {
  std::string words = body.substr(0, 200);
  if (const Result<json::value> value = ParseJson(body, "answer"); value && value->is_object()) {
    const json::value* error = value->get_object().if_contains("error");
    if (error != nullptr && error->is_object()) error = error->get_object().if_contains("message");
    if (error != nullptr && error->is_string()) words.assign(error->get_string().data(), error->get_string().size());
  }
  std::ranges::replace_if(words, [](unsigned char c) { return c < 0x20; }, ' ');
  return SanitizeUtf8(words.empty() ? fmt::format("HTTP {}", status) : fmt::format("HTTP {}: {}", status, words));
}

// Connections and time-outs; on one thread.
class Client {
 public:
  Client(asio::io_context* io, std::vector<tcp::endpoint> endpoints, const TrafficConfig& traffic)
      : io_(io), endpoints_(std::move(endpoints)), traffic_(traffic), ticker_(*io) {}

  // An idle connection, or one that is not open yet.
  std::unique_ptr<Connection> Take() {
    if (idle_.empty()) return std::make_unique<Connection>(io_->get_executor());
    auto connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
  }
  void GiveBack(std::unique_ptr<Connection> connection) { idle_.push_back(std::move(connection)); }
  // They were opened at the same time as one that the server has closed.
  void DropIdle() { idle_.clear(); }
  int num_opened() const { return num_opened_; }

  asio::awaitable<boost::system::error_code> Open(Connection* connection) {
    Watch(connection, traffic_.connect_timeout);
    boost::system::error_code error = asio::error::host_not_found;
    for (const tcp::endpoint& endpoint : endpoints_) {
      boost::system::error_code ignored;
      connection->socket.close(ignored);
      const auto [outcome] = co_await connection->socket.async_connect(endpoint, kAwaitTuple);
      error = outcome;
      if (!error || connection->is_late) break;
    }
    watched_.erase(connection);
    if (connection->is_late) co_return asio::error::timed_out;
    if (error) co_return error;
    ++num_opened_;
    boost::system::error_code ignored;
    connection->socket.set_option(tcp::no_delay(true), ignored);
    co_return error;
  }

  asio::awaitable<Exchanged> Send(Connection* connection, const std::string* request, const TakeBody* take) {
    if (!connection->socket.is_open()) {
      const boost::system::error_code error = co_await Open(connection);
      if (error) {
        Exchanged refused;
        refused.error = "cannot connect: " + error.message();
        co_return refused;
      }
    }
    Watch(connection, traffic_.timeout);
    Exchanged result = co_await Exchange(connection, request, take);
    watched_.erase(connection);
    co_return result;
  }

  // Ends what takes too long, until Stop.
  asio::awaitable<void> Tick(const std::function<void()>* each) {
    while (!is_stopped_) {
      ticker_.expires_after(kTick);
      co_await ticker_.async_wait(kAwaitTuple);
      const SteadyTime now = std::chrono::steady_clock::now();
      for (Connection* connection : watched_) {
        if (now >= connection->deadline) connection->GiveUp();
      }
      if (*each) (*each)();
    }
  }
  void Stop() {
    is_stopped_ = true;
    ticker_.cancel();
  }

 private:
  void Watch(Connection* connection, std::chrono::milliseconds patience) {
    connection->deadline = std::chrono::steady_clock::now() + patience;
    watched_.insert(connection);
  }

  asio::io_context* io_;
  const std::vector<tcp::endpoint> endpoints_;
  const TrafficConfig& traffic_;
  asio::steady_timer ticker_;
  std::vector<std::unique_ptr<Connection>> idle_;
  std::unordered_set<Connection*> watched_;  // their coroutines own them
  int num_opened_ = 0;
  bool is_stopped_ = false;
};

// One run: sends requests when they are due and a place is free.
class Runner {
 public:
  Runner(asio::io_context* io, Client* client, const Target& target, std::span<const Request> requests,
         const BodyStyle& style, const TrafficConfig& traffic)
      : io_(io),
        client_(client),
        target_(target),
        requests_(requests),
        style_(style),
        places_(traffic.max_concurrency > 0 ? traffic.max_concurrency : static_cast<int>(requests.size())),
        wake_(*io),
        outcomes_(requests.size()),
        states_(requests.size()) {}

  // Ends when all requests have.
  asio::awaitable<void> Dispatch() {
    start_ = std::chrono::steady_clock::now();
    const int total = static_cast<int>(requests_.size());
    while (num_done_ < total) {
      if (num_running_ < places_ && !followers_.empty()) {
        const Follower follower = followers_.front();
        followers_.pop_front();
        Launch(follower.index, follower.due_seconds);
        co_await asio::post(*io_, kAwaitTuple);  // who was launched sends before the next one is made
      } else if (num_running_ < places_ && next_ < total) {
        const int after = requests_[Index(next_)].after;
        if (after >= 0 && !states_[Index(after)].is_done) {
          states_[Index(after)].follower = next_++;  // each request has one at most
        } else if (const double due = requests_[Index(next_)].arrival_seconds; due <= Elapsed()) {
          Launch(next_++, due);
          co_await asio::post(*io_, kAwaitTuple);
        } else {
          Prepare(next_);
          co_await WaitUntil(start_ +
                             std::chrono::duration_cast<SteadyTime::duration>(std::chrono::duration<double>(due)));
        }
      } else {
        co_await WaitUntil(SteadyTime::max());
      }
    }
    duration_seconds_ = Elapsed();
    client_->Stop();
  }

  std::vector<Outcome> TakeOutcomes() { return std::move(outcomes_); }
  double duration_seconds() const { return duration_seconds_; }
  int num_done() const { return num_done_; }

 private:
  struct State {
    bool is_done = false;
    int follower = -1;  // waits for this one to end
  };
  struct Follower {
    int index;
    double due_seconds;
  };

  static std::size_t Index(int index) { return static_cast<std::size_t>(index); }
  double Elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  asio::awaitable<void> WaitUntil(SteadyTime time) {
    if (!std::exchange(is_woken_, false)) {
      wake_.expires_at(time);
      co_await wake_.async_wait(kAwaitTuple);
      is_woken_ = false;
    }
  }
  void Wake() {
    is_woken_ = true;
    wake_.cancel();
  }

  // Makes the bytes of a request before it is due.
  void Prepare(int index) {
    if (prepared_ == index) return;
    const Request& request = requests_[Index(index)];
    const std::string body = MakeBody(request, index, style_);
    bytes_ = RequestHead(target_, "POST", RouteOf(style_));
    bytes_ += fmt::format("Content-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: {}\r\n\r\n",
                          body.size());
    bytes_ += body;
    prepared_ = index;
  }

  void Launch(int index, double due_seconds) {
    Prepare(index);
    prepared_ = -1;
    ++num_running_;
    Outcome& outcome = outcomes_[Index(index)];
    outcome.num_prompt_tokens = requests_[Index(index)].num_prompt_tokens();
    outcome.late_seconds = std::max(0.0, Elapsed() - std::max(due_seconds, place_free_since_));
    asio::co_spawn(*io_, RunOne(index, std::exchange(bytes_, {})), [this, index](std::exception_ptr exception) {
      if (exception != nullptr) outcomes_[Index(index)].error = "out of memory";
      Finish(index);
    });
  }

  asio::awaitable<void> RunOne(int index, std::string bytes) {
    Outcome& outcome = outcomes_[Index(index)];
    outcome.start_seconds = Elapsed();
    AnswerMeter meter(style_.is_chat, &outcome);
    SseParser sse;
    std::string refusal;
    double now = 0;  // of the piece in hand
    const std::function<Result<>(std::string_view)> take_event = [&](std::string_view data) {
      return meter.Take(data, now);
    };
    const TakeBody take = [&](int status, std::string_view piece) -> Result<> {
      now = Elapsed() - outcome.start_seconds;
      if (status == 200) return sse.Feed(piece, take_event);
      refusal.append(piece.substr(0, kRefusalBytesMax - std::min(kRefusalBytesMax, refusal.size())));
      return {};
    };
    for (int attempt = 0; attempt < 2; ++attempt) {
      std::unique_ptr<Connection> connection = client_->Take();
      Exchanged exchanged = co_await client_->Send(connection.get(), &bytes, &take);
      if (exchanged.is_stale && attempt == 0) {
        client_->DropIdle();
        continue;
      }
      if (exchanged.can_reuse) client_->GiveBack(std::move(connection));
      outcome.error = std::move(exchanged.error);
      if (outcome.error.empty() && exchanged.status != 200) {
        outcome.error = DescribeRefusal(exchanged.status, refusal);
      } else if (outcome.error.empty()) {
        Result<> end = sse.Finish(take_event);
        if (end) end = meter.Finish();
        if (!end) outcome.error = SanitizeUtf8(end.error().message);
      }
      break;
    }
  }

  void Finish(int index) {
    State& state = states_[Index(index)];
    state.is_done = true;
    const double now = Elapsed();
    if (num_running_-- == places_) place_free_since_ = now;
    ++num_done_;
    if (state.follower >= 0) followers_.push_back({state.follower, now});
    Wake();
  }

  asio::io_context* io_;
  Client* client_;
  const Target& target_;
  const std::span<const Request> requests_;
  const BodyStyle& style_;
  const int places_;
  asio::steady_timer wake_;
  bool is_woken_ = false;
  SteadyTime start_;
  std::vector<Outcome> outcomes_;
  std::vector<State> states_;
  std::deque<Follower> followers_;  // may be sent now
  std::string bytes_;               // of the request `prepared_`
  int prepared_ = -1;
  int next_ = 0, num_running_ = 0, num_done_ = 0;
  double place_free_since_ = 0;
  double duration_seconds_ = 0;
};

}  // namespace

Result<Target> Target::Parse(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) {
    return FailParam("base-url", "only http:// is spoken here; for \"{}\" put a proxy in between", url);
  }
  const bool has_bad = url.find_first_of(" \r\n\t@?#") != std::string_view::npos;
  if (!url.starts_with(kScheme) || has_bad) {
    return FailParam("base-url", "\"{}\" is not \"http://HOST[:PORT][/PATH]\"", url);
  }
  std::string_view rest = url.substr(kScheme.size());
  Target target;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  target.path = rest.substr(slash);
  target.authority = rest.substr(0, slash);
  while (target.path.ends_with('/')) target.path.pop_back();
  if (target.path.ends_with("/v1")) target.path.resize(target.path.size() - 3);
  const std::string_view authority = target.authority;
  const std::size_t bracket = authority.starts_with('[') ? authority.find(']') : std::string_view::npos;
  const std::size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  target.host = bracket == std::string_view::npos ? authority.substr(0, colon) : authority.substr(1, bracket - 1);
  target.port = colon == std::string_view::npos ? "80" : authority.substr(colon + 1);
  const bool has_port = !target.port.empty() && target.port.size() <= 5 &&
                        std::ranges::all_of(target.port, [](char c) { return c >= '0' && c <= '9'; });
  if (target.host.empty() || !has_port) {
    return FailParam("base-url", "\"{}\" is not \"http://HOST[:PORT][/PATH]\"", url);
  }
  return target;
}

Result<Run> RunLoad(const Target& target, std::span<const Request> requests, const BodyStyle& style,
                    const TrafficConfig& traffic, const Progress& progress) {
  asio::io_context io{1};
  QUIRE_TRY(auto endpoints, Resolve(&io, target));
  Client client(&io, std::move(endpoints), traffic);
  Runner runner(&io, &client, target, requests, style, traffic);
  const std::function<void()> report = [&] {
    if (progress) progress(runner.num_done(), static_cast<int>(requests.size()));
  };
  const double cpu_before = ThreadCpuSeconds();
  asio::co_spawn(io, client.Tick(&report), asio::detached);
  asio::co_spawn(io, runner.Dispatch(), asio::detached);
  io.run();
  return Run{.outcomes = runner.TakeOutcomes(),
             .duration_seconds = runner.duration_seconds(),
             .cpu_seconds = ThreadCpuSeconds() - cpu_before,
             .num_connections = client.num_opened()};
}

Result<std::string> Get(const Target& target, std::string_view path, const TrafficConfig& traffic) {
  asio::io_context io{1};
  QUIRE_TRY(auto endpoints, Resolve(&io, target));
  Client client(&io, std::move(endpoints), traffic);
  const std::string request = RequestHead(target, "GET", path) + "Connection: close\r\n\r\n";
  std::string body;
  Exchanged exchanged;
  const TakeBody take = [&](int, std::string_view piece) -> Result<> {
    if (body.size() + piece.size() > kBodyBytesMax) {
      return Fail(ErrorCode::kOutOfRange, "an answer of more than {} bytes", kBodyBytesMax);
    }
    body += piece;
    return {};
  };
  const auto work = [&]() -> asio::awaitable<void> {
    std::unique_ptr<Connection> connection = client.Take();
    exchanged = co_await client.Send(connection.get(), &request, &take);
    client.Stop();
  };
  const std::function<void()> nothing;
  asio::co_spawn(io, client.Tick(&nothing), asio::detached);
  asio::co_spawn(io, work, asio::detached);
  io.run();
  if (!exchanged.error.empty()) {
    return Fail(ErrorCode::kUnavailable, "http://{}{}{}: {}", target.authority, target.path, path, exchanged.error);
  }
  if (exchanged.status != 200) {
    return Fail(ErrorCode::kUnavailable, "http://{}{}{}: {}", target.authority, target.path, path,
                DescribeRefusal(exchanged.status, body));
  }
  return body;
}

}  // namespace quire::bench::load
