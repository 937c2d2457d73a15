#include "server/http_server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <unordered_map>

#include "base/log.h"
#include "server/http_session.h"
#include "server/http_session_inl.h"

namespace quire::server {

using asio::ip::tcp;

struct HttpServer::Impl {
  explicit Impl(const ServerConfig* server_config) : config(server_config) { shared.config = server_config; }

  Result<> Bind();
  asio::awaitable<void> AcceptLoop();
  void StartSession(tcp::socket socket);
  void Drain();
  void AbortRequests();
  void CheckDrained();
  void Finish();
  void WaitForSignal();

  const ServerConfig* config;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  tcp::acceptor acceptor{io};
  asio::steady_timer accept_pause{io};
  asio::steady_timer drain_timer{io};
  asio::signal_set signals{io};
  SessionShared shared;
  std::unordered_map<HttpSession*, std::weak_ptr<HttpSession>> sessions;
  bool is_finished = false;
  std::string url;
  int port = 0;
  bool is_loopback = false;
};

Result<> HttpServer::Impl::Bind() {
  boost::system::error_code error;
  const std::string host = config->host == "localhost" ? "127.0.0.1" : config->host;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (error) {
    return FailParam("host", "host must be an IP address or localhost, got \"{}\"", config->host);
  }
  const tcp::endpoint endpoint(address, static_cast<unsigned short>(config->port));
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    // The address is another machine's, or of a family that this one does not have; else the port is taken, or not for us.
    const bool is_host = !acceptor.is_open() || error == boost::system::errc::address_not_available;
    return std::unexpected(Error{
        ErrorCode::kIo, fmt::format("cannot listen on {} port {}: {}", config->host, config->port, error.message()),
        is_host ? "host" : "port"});
  }
  port = acceptor.local_endpoint().port();
  is_loopback = address.is_loopback();
  url = address.is_v6() ? fmt::format("http://[{}]:{}", host, port) : fmt::format("http://{}:{}", host, port);
  return {};
}

asio::awaitable<void> HttpServer::Impl::AcceptLoop() {
  constexpr auto kPause = std::chrono::milliseconds(50);
  bool has_warned = false;  // of the failures in a row
  while (acceptor.is_open()) {
    // At the limit new connections wait in the kernel's queue.
    if (static_cast<int>(sessions.size()) < config->connections_max) {
      auto [error, socket] = co_await acceptor.async_accept(asio::as_tuple(asio::use_awaitable));
      if (!error) {
        has_warned = false;
        StartSession(std::move(socket));
        continue;
      }
      if (!acceptor.is_open()) break;
      // No file descriptors, or a connection that died in the queue: the next one may do better.
      if (!std::exchange(has_warned, true)) spdlog::warn("cannot accept a connection: {}", error.message());
    }
    accept_pause.expires_after(kPause);
    co_await accept_pause.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

void HttpServer::Impl::StartSession(tcp::socket socket) {
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  // What a client does not read stays here, where it is counted, and not in the kernel.
  constexpr int kSendBufferBytes = 128 << 10;
  socket.set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
  auto session = std::make_shared<HttpSession>(std::move(socket), &shared);
  HttpSession* key = session.get();
  sessions.emplace(key, session);
  asio::co_spawn(io, session->Run(), [this, session, key](std::exception_ptr exception) {
    sessions.erase(key);
    if (exception == nullptr) return;
    try {
      std::rethrow_exception(exception);
    } catch (const std::exception& what) {  // out of memory, most likely
      spdlog::error("a connection failed: {}", what.what());
    }
  });
}

void HttpServer::Impl::Drain() {
  if (shared.is_draining) return Finish();
  shared.is_draining = true;
  shared.service->SetDraining();
  spdlog::info("shutting down: waiting for {} requests", shared.num_busy);
  for (const auto& [key, session] : sessions) {
    if (const auto alive = session.lock()) alive->Nudge();
  }
  drain_timer.expires_after(config->drain_timeout);
  drain_timer.async_wait([this](boost::system::error_code error) {
    if (!error) Finish();
  });
  CheckDrained();
}

void HttpServer::Impl::CheckDrained() {
  if (!shared.is_draining || is_finished || shared.num_busy > 0) return;
  Finish();
}

// Requests that still run get an error, and a moment to say so.
void HttpServer::Impl::Finish() {
  if (std::exchange(is_finished, true)) return;
  boost::system::error_code ignored;
  acceptor.close(ignored);
  accept_pause.cancel();
  signals.cancel(ignored);
  shared.is_draining = true;
  shared.is_aborting = true;
  for (const auto& [key, session] : sessions) {
    if (const auto alive = session.lock()) alive->Nudge();
  }
  constexpr auto kLastWords = std::chrono::seconds(2);
  const auto close_all = [this](boost::system::error_code) {
    for (const auto& [key, session] : sessions) {
      if (const auto alive = session.lock()) alive->Close();
    }
    work.reset();
  };
  if (shared.num_busy == 0) {
    drain_timer.cancel();
    return close_all({});
  }
  shared.on_idle = [this] {
    if (shared.num_busy == 0) drain_timer.cancel();
  };
  drain_timer.expires_after(kLastWords);
  drain_timer.async_wait(close_all);
}

void HttpServer::Impl::WaitForSignal() {
  signals.async_wait([this](boost::system::error_code error, int) {
    if (error) return;
    Drain();
    if (!is_finished) WaitForSignal();
  });
}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const ServerConfig* config) {
  auto impl = std::make_unique<Impl>(config);
  QUIRE_TRY_VOID(impl->Bind());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const {
  return impl_->port;
}
std::string HttpServer::url() const {
  return impl_->url;
}
bool HttpServer::listens_on_loopback() const {
  return impl_->is_loopback;
}

void HttpServer::Run(Service* service, WorkerPool* workers, Tracer* tracer) {
  impl_->shared.service = service;
  impl_->shared.workers = workers;
  impl_->shared.lane = tracer->Lane("HTTP");
  impl_->shared.on_idle = [this] { impl_->CheckDrained(); };
  asio::co_spawn(impl_->io, impl_->AcceptLoop(), asio::detached);
  impl_->io.run();
}

void HttpServer::Drain() {
  asio::post(impl_->io, [this] { impl_->Drain(); });
}
void HttpServer::Stop() {
  asio::post(impl_->io, [this] { impl_->Finish(); });
}
void HttpServer::DrainOnSignals() {
  // At once: who sees the server listen may end it.
  boost::system::error_code ignored;
  impl_->signals.add(SIGTERM, ignored);
  impl_->signals.add(SIGINT, ignored);
  asio::post(impl_->io, [this] { impl_->WaitForSignal(); });
}

}  // namespace quire::server
