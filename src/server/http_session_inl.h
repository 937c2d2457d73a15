// The definitions of http_session.h; part of the translation unit http_server.cc.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "base/log.h"
#include "server/http_session.h"

namespace quire::server {

// Coroutines here take references and pointers to what the caller's frame holds, and no co_await is in an expression
// with temporaries that own something: g++ 12 destroys those twice.

inline Reply TooMuchWork() {
  return BusyReply("too many requests are being prepared");
}
inline constexpr auto kAwaitTuple = asio::as_tuple(asio::use_awaitable);

inline asio::awaitable<bool> Signal::WaitUntil(SteadyTime time) {
  if (!is_set_) {
    timer_.expires_at(time);
    co_await timer_.async_wait(kAwaitTuple);
  }
  co_return std::exchange(is_set_, false);
}

inline HttpSession::HttpSession(asio::ip::tcp::socket socket, SessionShared* shared)
    : socket_(std::move(socket)),
      shared_(shared),
      wake_(socket_.get_executor()),
      deadline_timer_(socket_.get_executor()) {}

inline HttpSession::~HttpSession() {
  ReleaseBodyBytes();
}

inline void HttpSession::Close() {
  boost::system::error_code ignored;
  is_disconnected_ = true;
  if (box_in_work_ != nullptr) box_in_work_->Cancel();
  socket_.close(ignored);
  wake_.Set();
}

inline void HttpSession::Nudge() {
  if (is_idle_ && shared_->is_draining) return Close();
  wake_.Set();
}

inline void HttpSession::ReleaseBodyBytes() {
  shared_->body_bytes -= std::exchange(body_bytes_, 0);
}

// --- Time ---

inline void HttpSession::SetDeadline(std::chrono::milliseconds after) {
  deadline_ = std::chrono::steady_clock::now() + after;
  if (!deadline_armed_ || deadline_ < deadline_timer_.expiry()) ArmDeadline();
}

inline void HttpSession::ArmDeadline() {
  deadline_armed_ = true;
  deadline_timer_.expires_at(deadline_);
  deadline_timer_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
    const auto self = weak.lock();
    if (error || self == nullptr) return;  // armed anew, or the session has ended
    self->deadline_armed_ = false;
    if (self->deadline_ == SteadyTime::max()) return;
    if (std::chrono::steady_clock::now() >= self->deadline_) return self->Close();
    self->ArmDeadline();
  });
}

// --- Reading ---

inline asio::awaitable<bool> HttpSession::ReadSome(std::size_t bytes) {
  const auto [error, count] = co_await socket_.async_read_some(buffer_.prepare(bytes), kAwaitTuple);
  buffer_.commit(count);
  co_return !error;
}

inline Reply HttpSession::ParseErrorReply(boost::system::error_code error) const {
  if (error == http::error::header_limit) {
    return ErrorReply(ApiError{
        .status = 431,
        .message = fmt::format("the request's head is larger than {} bytes", shared_->config->header_bytes_max)});
  }
  if (error == http::error::body_limit) {
    return ErrorReply(
        ApiError{.status = 413,
                 .message = fmt::format("the request body is larger than {} bytes", shared_->config->body_bytes_max)});
  }
  if (error == http::error::bad_version) {
    return ErrorReply(ApiError{.status = 505, .message = "only HTTP/1.1 is spoken here"});
  }
  return ErrorReply(ApiError{.status = 400, .message = "this is not an HTTP/1.1 request: " + error.message()});
}

inline asio::awaitable<bool> HttpSession::ReadHead(Parser* parser) {
  if (buffer_.size() == 0) {
    is_idle_ = true;
    SetDeadline(is_first_request_ ? shared_->config->header_timeout : shared_->config->idle_timeout);
    // While it drains the server still answers whoever comes anew, with 503.
    const bool may_come = is_first_request_ || !shared_->is_draining;
    const bool came = may_come && co_await ReadSome(4096);
    is_idle_ = false;
    if (!came) co_return false;
  }
  is_first_request_ = false;
  SetDeadline(shared_->config->header_timeout);
  while (true) {
    boost::system::error_code error;
    if (buffer_.size() > 0) {
      buffer_.consume(parser->put(buffer_.data(), error));
      if (parser->is_header_done()) break;
      if (error && error != http::error::need_more) {
        Exchange exchange;
        const Reply refused = ParseErrorReply(error);
        co_await WriteReply(refused, &exchange);
        co_await Linger();
        co_return false;
      }
    }
    if (!co_await ReadSome(4096)) co_return false;
  }
  ClearDeadline();
  co_return true;
}

// What two readers could understand in two ways is refused, lest a proxy in front of us and we see different requests
// (RFC 9112, 3.2 and 6.1).
inline std::optional<Reply> HttpSession::CheckHead(const Parser& parser, const Exchange& exchange) const {
  const auto& fields = parser.get();
  const auto refuse = [](int status, std::string message) {
    Reply reply = ErrorReply(ApiError{.status = status, .message = std::move(message)});
    reply.close = true;
    return reply;
  };
  if (std::distance(fields.begin(), fields.end()) > shared_->config->header_fields_max) {
    return refuse(431, fmt::format("the request has more than {} header fields", shared_->config->header_fields_max));
  }
  for (const http::field once : {http::field::host, http::field::origin, http::field::authorization,
                                 http::field::content_type, http::field::transfer_encoding}) {
    if (fields.count(once) > 1) {
      const auto name = http::to_string(once);
      return refuse(400, fmt::format("the header {} stands twice", std::string_view(name.data(), name.size())));
    }
  }
  const auto coding = fields[http::field::transfer_encoding];
  if (!coding.empty() && !beast::iequals(coding, "chunked")) {
    return refuse(501, "no Transfer-Encoding but chunked is understood");
  }
  if (exchange.head.host.empty() && !exchange.is_http_1_0) return refuse(400, "the Host header is missing");
  return std::nullopt;
}

inline asio::awaitable<bool> HttpSession::ReadBody(Parser* parser, Exchange* exchange) {
  const auto& config = *shared_->config;
  SetDeadline(config.body_timeout);
  if (beast::iequals(parser->get()[http::field::expect], "100-continue") && !parser->is_done() && buffer_.size() == 0) {
    if (!co_await WriteAll("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
    SetDeadline(config.body_timeout);
  }
  parser->eager(true);
  while (!parser->is_done()) {
    boost::system::error_code error;
    if (buffer_.size() > 0) {
      const std::size_t used = parser->put(buffer_.data(), error);
      buffer_.consume(used);
      body_bytes_ += used;
      shared_->body_bytes += used;
      std::optional<Reply> refused;
      if (error && error != http::error::need_more) {
        refused = ParseErrorReply(error);
      } else if (used == 0 && buffer_.size() > config.header_bytes_max) {
        // No part of the body: what stands around its chunks.
        refused =
            ErrorReply(ApiError{.status = 431,
                                .message = fmt::format("the head of a chunk, or the trailer, is larger than {} bytes",
                                                       config.header_bytes_max)});
      } else if (shared_->body_bytes > config.all_bodies_bytes_max) {
        refused = BusyReply("the server is reading as many request bodies as its memory allows; try again");
      }
      if (refused) {
        exchange->keep_alive = false;
        co_await WriteReply(*refused, exchange);
        co_await Linger();
        co_return false;
      }
      if (parser->is_done()) break;
      if (used > 0 && buffer_.size() > 0) continue;
    }
    if (!co_await ReadSome(64 << 10)) co_return false;
  }
  ClearDeadline();
  co_return true;
}

inline asio::awaitable<void> HttpSession::Watch() {
  const auto self = shared_from_this();
  constexpr std::size_t kEarlyBytesMax = 64 << 10;  // of requests that follow before this one is answered
  while (watch_wanted_) {
    if (buffer_.size() >= kEarlyBytesMax || !co_await ReadSome(4096)) {
      if (watch_wanted_) is_disconnected_ = true;
      if (box_in_work_ != nullptr) box_in_work_->Cancel();
      break;
    }
  }
  is_watching_ = false;
  wake_.Set();
}

inline void HttpSession::StartWatching() {
  watch_wanted_ = true;
  is_watching_ = true;
  asio::co_spawn(socket_.get_executor(), Watch(), asio::detached);
}

inline asio::awaitable<void> HttpSession::StopWatching() {
  watch_wanted_ = false;
  boost::system::error_code ignored;
  if (is_watching_) socket_.cancel(ignored);
  while (is_watching_) co_await wake_.WaitUntil(SteadyTime::max());
}

// --- Writing ---

inline asio::awaitable<bool> HttpSession::WriteAll(std::string_view text) {
  while (!text.empty() && !is_disconnected_) {
    SetDeadline(shared_->config->write_timeout);
    const auto [error, count] = co_await socket_.async_write_some(asio::buffer(text.data(), text.size()), kAwaitTuple);
    if (error) is_disconnected_ = true;
    text.remove_prefix(count);
  }
  ClearDeadline();
  co_return !is_disconnected_;
}

inline std::string HttpSession::CommonHeaders(const Exchange& exchange) const {
  std::string text = fmt::format("Connection: {}\r\n", exchange.keep_alive ? "keep-alive" : "close");
  if (!exchange.request_id.empty()) text += fmt::format("X-Request-Id: {}\r\n", exchange.request_id);
  if (const auto origin = shared_->service->access().AllowOrigin(exchange.head)) {
    text += fmt::format("Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n", *origin);
  }
  return text;
}

inline std::string HttpSession::ReplyHead(const Reply& reply, const Exchange& exchange) const {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", reply.status, StatusText(reply.status));
  if (!reply.content_type.empty()) text += fmt::format("Content-Type: {}\r\n", reply.content_type);
  if (reply.status != 204) text += fmt::format("Content-Length: {}\r\n", reply.body.size());
  for (const auto& [name, value] : reply.headers) text += fmt::format("{}: {}\r\n", name, value);
  return text + CommonHeaders(exchange) + "\r\n";
}

inline asio::awaitable<bool> HttpSession::WriteReply(const Reply& reply, Exchange* exchange) {
  if (reply.close || shared_->is_draining) exchange->keep_alive = false;
  exchange->status = reply.status;
  std::string text = ReplyHead(reply, *exchange);
  if (!exchange->is_head) text += reply.body;
  co_return co_await WriteAll(text) && exchange->keep_alive;
}

inline asio::awaitable<bool> HttpSession::WriteStreamPart(std::string_view text, bool* has_headers, bool is_end,
                                                          Exchange* exchange) {
  std::string bytes;
  const bool is_chunked = !exchange->is_http_1_0;
  if (!std::exchange(*has_headers, true)) {
    exchange->status = 200;
    if (!is_chunked || shared_->is_draining) exchange->keep_alive = false;
    bytes = fmt::format(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
        "X-Accel-Buffering: no\r\n{}{}\r\n",
        is_chunked ? "Transfer-Encoding: chunked\r\n" : "", CommonHeaders(*exchange));
  }
  bytes += is_chunked ? fmt::format("{:x}\r\n{}\r\n", text.size(), text) : text;
  if (is_end && is_chunked) bytes += "0\r\n\r\n";
  co_return co_await WriteAll(bytes) && exchange->keep_alive;
}

// After an answer that came before the whole request was read: closing at once would make the kernel reset the
// connection, and the client might never see the answer.
inline asio::awaitable<void> HttpSession::Linger() {
  constexpr auto kPause = std::chrono::milliseconds(1000);
  constexpr auto kPatience = std::chrono::seconds(10);
  const SteadyTime end = std::chrono::steady_clock::now() + kPatience;
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  do {
    buffer_.consume(buffer_.size());
    SetDeadline(kPause);
  } while (!is_disconnected_ && std::chrono::steady_clock::now() < end && co_await ReadSome(64 << 10));
}

// --- One request ---

inline HttpSession::Exchange HttpSession::MakeExchange(const Parser& parser) const {
  const auto& request = parser.get();
  const auto view = [](beast::string_view text) { return std::string_view(text.data(), text.size()); };
  Exchange exchange;
  exchange.head.method = view(request.method_string());
  exchange.head.target = view(request.target());
  exchange.head.host = view(request[http::field::host]);
  if (const auto origin = request.find(http::field::origin); origin != request.end()) {
    exchange.head.origin = view(origin->value());
  }
  exchange.head.authorization = view(request[http::field::authorization]);
  exchange.head.content_type = view(request[http::field::content_type]);
  exchange.head.content_encoding = view(request[http::field::content_encoding]);
  exchange.head.request_id = view(request["X-Request-Id"]);
  exchange.head.traceparent = view(request["traceparent"]);
  exchange.head.tracestate = view(request["tracestate"]);
  exchange.origin = shared_->service->OriginOf(exchange.head);
  exchange.number = shared_->num_requests++;
  exchange.request_id = RequestIdOf(exchange.head.request_id);
  exchange.is_http_1_0 = request.version() < 11;
  exchange.keep_alive = parser.keep_alive() && !exchange.is_http_1_0;
  exchange.is_head = request.method() == http::verb::head;
  return exchange;
}

inline asio::awaitable<bool> HttpSession::ServeOne() {
  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(shared_->config->header_bytes_max));
  parser.body_limit(shared_->config->body_bytes_max);
  if (!co_await ReadHead(&parser)) co_return false;
  ++shared_->num_busy;
  Exchange exchange = MakeExchange(parser);
  bool goes_on = co_await Dispatch(&parser, &exchange);
  ReleaseBodyBytes();
  --shared_->num_busy;
  if (exchange.status != 0) {
    const Duration duration = shared_->service->clock().Now() - exchange.origin.arrival.at;
    const double seconds = Seconds(duration);
    if (shared_->lane != nullptr && shared_->lane->is_on()) {
      shared_->lane->Add({.begin = exchange.origin.arrival.at,
                          .duration = duration,
                          .label = TraceLabel::kHttpRequest,
                          .values = {static_cast<std::int32_t>(exchange.number), exchange.status, 0}});
    }
    shared_->service->metrics().ObserveHttp(exchange.handler, exchange.is_head ? "HEAD" : exchange.head.method,
                                            exchange.status, seconds);
    spdlog::debug("{} {} {} in {:.1f} ms", exchange.handler, exchange.request_id, exchange.status, seconds * 1e3);
  }
  shared_->on_idle();
  co_return goes_on && !shared_->is_draining;
}

inline asio::awaitable<bool> HttpSession::Dispatch(Parser* parser, Exchange* exchange) {
  std::optional<Reply> refused;
  Service& service = *shared_->service;
  const auto& fields = parser->get();
  std::expected<Service::Admitted, Reply> admitted = std::unexpected(Reply());
  if (auto misread = CheckHead(*parser, *exchange)) {
    refused = std::move(misread);
  } else if (fields.method() == http::verb::options) {
    const auto wanted = fields[http::field::access_control_request_headers];
    refused = service.Options(exchange->head, {wanted.data(), wanted.size()});
  } else {
    admitted = service.Admit(exchange->head);
    if (!admitted) refused = std::move(admitted).error();
  }
  if (refused) {
    // The body is not read: it belongs to nobody, and the next request would begin behind it.
    const bool has_more = !parser->is_done() || refused->close;
    if (has_more) exchange->keep_alive = false;
    const bool goes_on = co_await WriteReply(*refused, exchange);
    if (has_more) co_await Linger();
    co_return goes_on;
  }
  exchange->handler = admitted->match.route->path;
  if (!co_await ReadBody(parser, exchange)) co_return false;
  StartWatching();
  bool goes_on = co_await DispatchRoute(&*admitted, parser, exchange);
  co_await StopWatching();
  co_return goes_on && !is_disconnected_;
}

inline asio::awaitable<void> HttpSession::FreshStats() {
  ModelManager& models = shared_->service->models();
  const ModelManager::StatsCounts before = models.RequestStats();
  // An engine answers between its steps; when that takes longer, the last answer is good enough.
  for (int i = 0; i < 15 && !models.HasStatsAfter(before); ++i) {
    co_await wake_.WaitUntil(std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
  }
}

inline asio::awaitable<bool> HttpSession::DispatchRoute(Service::Admitted* admitted, Parser* parser,
                                                        Exchange* exchange) {
  Service& service = *shared_->service;
  const RouteMatch& match = admitted->match;
  switch (match.route->id) {
    case RouteId::kMetrics:
      co_await FreshStats();
      [[fallthrough]];
    case RouteId::kRoot:
    case RouteId::kHealth:
    case RouteId::kPing:
    case RouteId::kVersion:
    case RouteId::kModels:
    case RouteId::kModel: {
      const Reply reply = service.HandleQuick(match);
      co_return co_await WriteReply(reply, exchange);
    }
    case RouteId::kTokenize:
    case RouteId::kDetokenize:
    case RouteId::kResetPrefixCache:
    case RouteId::kLoadModel:
    case RouteId::kUnloadModel:
    case RouteId::kStartProfile:
    case RouteId::kStopProfile:
      co_return co_await HandleSlow(match, parser, exchange);
    case RouteId::kCompletions:
    case RouteId::kChatCompletions:
      co_return co_await Generate(admitted, parser, exchange);
  }
  co_return false;
}

inline Service::ModelAccess HttpSession::MakeAccess() {
  return {.lease = {}, .wake = [weak = weak_from_this(), executor = socket_.get_executor()] {
            asio::post(executor, [weak] {
              if (const auto self = weak.lock()) self->wake_.Set();
            });
          }};
}

inline asio::awaitable<std::optional<Reply>> HttpSession::AwaitModel(const ModelLease& lease, SteadyTime deadline) {
  while (lease.is_waiting()) {
    if (is_disconnected_) co_return BusyReply("the client has gone");  // nobody reads it
    if (shared_->is_draining) co_return BusyReply("the server is shutting down");
    const bool woken = co_await wake_.WaitUntil(deadline);
    if (woken || !lease.is_waiting()) continue;
    co_return BusyReply(fmt::format("the model {} is not loaded yet, and this request has waited for as long as it may",
                                    lease.model_name()));
  }
  co_return std::nullopt;
}

inline asio::awaitable<bool> HttpSession::HandleSlow(const RouteMatch& match, Parser* parser, Exchange* exchange) {
  Service& service = *shared_->service;
  const std::string& body = parser->get().body();
  const SteadyTime deadline = std::chrono::steady_clock::now() + service.models().config().wait_timeout;
  Service::ModelAccess access = MakeAccess();
  const std::function<std::optional<Reply>()> job = [&] { return service.HandleSlow(match, body, &access); };
  std::optional<Reply> reply;
  while (!reply) {
    std::optional<std::optional<Reply>> handled = co_await OnWorker<std::optional<Reply>>(&job);
    reply = handled ? *std::move(handled) : TooMuchWork();
    if (reply) break;
    std::optional<Reply> refused = co_await AwaitModel(access.lease, deadline);
    reply = std::move(refused);
  }
  co_return co_await WriteReply(*reply, exchange);
}

template <typename T>
asio::awaitable<std::optional<T>> HttpSession::OnWorker(const std::function<T()>* job) {
  // Shared with the worker, which fills it; read here after the post that sets `is_done`.
  struct State {
    std::optional<T> result;
    bool is_done = false;
  };
  auto state = std::make_shared<State>();
  const bool posted =
      shared_->workers->Post([state, self = shared_from_this(), executor = socket_.get_executor(), job]() mutable {
        state->result.emplace((*job)());
        // The session ends on the I/O thread, never here.
        asio::post(executor, [state, self = std::move(self)] {
          state->is_done = true;
          self->wake_.Set();
        });
      });
  if (!posted) co_return std::nullopt;
  while (!state->is_done) co_await wake_.WaitUntil(SteadyTime::max());
  co_return std::move(state->result);
}

inline std::shared_ptr<EventBox> HttpSession::MakeBox() {
  return std::make_shared<EventBox>(shared_->config->unread_output_bytes_max,
                                    [weak = weak_from_this(), executor = socket_.get_executor()](bool is_lost) {
                                      asio::post(executor, [weak, is_lost] {
                                        const auto self = weak.lock();
                                        if (self == nullptr) return;
                                        // Nothing that is written now can make the answer whole.
                                        is_lost ? self->Close() : self->wake_.Set();
                                      });
                                    });
}

inline asio::awaitable<bool> HttpSession::Generate(Service::Admitted* admitted, Parser* parser, Exchange* exchange) {
  const auto box = MakeBox();
  const RouteId route = admitted->match.route->id;
  using Started = std::expected<std::unique_ptr<Generation>, Reply>;
  Service& service = *shared_->service;
  std::string& body = parser->get().body();
  const SteadyTime deadline = std::chrono::steady_clock::now() + service.models().config().wait_timeout;
  Service::ModelAccess access = MakeAccess();
  const std::function<Started()> job = [&] {
    return service.StartGeneration(route, body, exchange->request_id, admitted->tenant, exchange->origin, box, &access);
  };
  std::optional<Started> started;
  while (!started) {
    // A client that leaves while its prompt is tokenised is noticed before anything is submitted.
    box_in_work_ = box;
    std::optional<Started> result = co_await OnWorker<Started>(&job);
    box_in_work_.reset();
    if (!result) result = std::unexpected(TooMuchWork());
    const bool must_wait = result->has_value() && **result == nullptr;
    if (must_wait) {
      std::optional<Reply> refused = co_await AwaitModel(access.lease, deadline);
      if (!refused) continue;
      result = std::unexpected(*std::move(refused));
    }
    started = std::move(result);
  }
  body = std::string();
  ReleaseBodyBytes();
  if (!*started) co_return co_await WriteReply(started->error(), exchange);
  co_return co_await PumpGeneration(started->value().get(), box, &admitted->admission, exchange);
}

inline asio::awaitable<bool> HttpSession::PumpGeneration(Generation* generation, const std::shared_ptr<EventBox>& box,
                                                         Admission* admission, Exchange* exchange) {
  const bool is_stream = generation->is_stream();
  const auto interval = shared_->config->keep_alive_interval;
  const auto next_keep_alive = [&] {
    return is_stream && interval.count() > 0 ? std::chrono::steady_clock::now() + interval : SteadyTime::max();
  };
  bool has_headers = false;
  SteadyTime keep_alive_at = next_keep_alive();
  std::string out = generation->TakeStart();
  while (true) {
    EventBox::Content content = box->Take();
    if (!content.events.empty()) {
      TraceSpan span(shared_->lane, TraceLabel::kHttpFormat, static_cast<std::int32_t>(content.events.size()));
      generation->Take(std::move(content.events), &out);
      span.SetValue(1, std::ssize(out));
    }
    if (is_disconnected_) {
      generation->Fail({.status = 503, .message = "the client has gone"});  // for the metrics: nobody reads it
      co_return false;
    }
    if (content.ended) {
      generation->Fail(*content.ended);
    } else if (shared_->is_aborting) {
      generation->Fail({.status = 503, .message = "the server is shutting down"});
    }
    if (generation->is_done()) break;
    if (!is_stream) {
      co_await wake_.WaitUntil(SteadyTime::max());
      continue;
    }
    if (out.empty()) {
      const bool woken = co_await wake_.WaitUntil(keep_alive_at);
      if (woken) continue;
      out = kSseKeepAlive;
    }
    co_await WriteStreamPart(out, &has_headers, /*is_end=*/false, exchange);
    out.clear();
    keep_alive_at = next_keep_alive();
  }
  // A client that has its answer may come with the next request at once, and finds its place free.
  *admission = Admission();
  // Before the first byte of a stream an error can still be said with its status.
  if (!is_stream || (generation->has_failed() && !has_headers && out.empty())) {
    const Reply reply = generation->Body();
    co_return co_await WriteReply(reply, exchange);
  }
  out += generation->StreamEnd();
  co_return co_await WriteStreamPart(out, &has_headers, /*is_end=*/true, exchange);
}

inline asio::awaitable<void> HttpSession::Run() {
  const auto self = shared_from_this();
  while (!is_disconnected_ && co_await ServeOne()) {
  }
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  deadline_timer_.cancel();
}

}  // namespace quire::server
