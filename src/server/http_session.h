// One connection: requests one after another, each read within limits and time-outs and answered whole or as a
// stream. Included by http_server.cc alone: everything that needs Asio and Beast is one translation unit.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/config.h"
#include "server/service.h"
#include "server/worker_pool.h"

namespace quire::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

using SteadyTime = std::chrono::steady_clock::time_point;

// What the sessions of one server share; all on the I/O thread.
struct SessionShared {
  const ServerConfig* config = nullptr;
  Service* service = nullptr;
  WorkerPool* workers = nullptr;
  TraceLane* lane = nullptr;       // of the I/O thread; or null
  std::uint32_t num_requests = 0;  // so far, for traces
  bool is_draining = false;        // connections end after their request
  bool is_aborting = false;        // requests end with an error now
  int num_busy = 0;                // sessions in the middle of a request
  std::size_t body_bytes = 0;      // of all requests that are being read or prepared
  std::function<void()> on_idle;   // a session went out of its request
};

// Wakes one coroutine of the I/O thread. A Set before the Wait is not lost.
class Signal {
 public:
  explicit Signal(asio::any_io_executor executor) : timer_(std::move(executor)) {}
  void Set() {
    is_set_ = true;
    timer_.cancel();
  }
  // True when it was set, false when the time came first.
  asio::awaitable<bool> WaitUntil(SteadyTime time);

 private:
  asio::steady_timer timer_;
  bool is_set_ = false;
};

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(asio::ip::tcp::socket socket, SessionShared* shared);
  ~HttpSession();

  asio::awaitable<void> Run();

  // Ends the connection now; whatever waits for it sees an error.
  void Close();
  // Looks again at the shared flags.
  void Nudge();

 private:
  using Parser = http::request_parser<http::string_body>;

  // What is known of the request in hand after its head.
  struct Exchange {
    RequestHead head;
    std::string request_id;  // echoed
    bool keep_alive = false;
    bool is_head = false;  // HEAD: no body in the answer
    bool is_http_1_0 = false;
    std::string_view handler = "other";  // for metrics
    RequestOrigin origin;
    std::uint32_t number = 0;  // of the server's requests
    int status = 0;
  };

  // Each returns false when the connection must end.
  asio::awaitable<bool> ServeOne();
  asio::awaitable<bool> ReadSome(std::size_t bytes);
  asio::awaitable<bool> ReadHead(Parser* parser);
  asio::awaitable<bool> ReadBody(Parser* parser, Exchange* exchange);
  asio::awaitable<bool> Dispatch(Parser* parser, Exchange* exchange);
  asio::awaitable<bool> DispatchRoute(Service::Admitted* admitted, Parser* parser, Exchange* exchange);
  asio::awaitable<bool> HandleSlow(const RouteMatch& match, Parser* parser, Exchange* exchange);
  asio::awaitable<bool> Generate(Service::Admitted* admitted, Parser* parser, Exchange* exchange);
  asio::awaitable<bool> PumpGeneration(Generation* generation, const std::shared_ptr<EventBox>& box,
                                       Admission* admission, Exchange* exchange);
  asio::awaitable<bool> WriteReply(const Reply& reply, Exchange* exchange);
  asio::awaitable<bool> WriteStreamPart(std::string_view text, bool* has_headers, bool is_end, Exchange* exchange);
  asio::awaitable<bool> WriteAll(std::string_view text);
  asio::awaitable<void> Linger();
  asio::awaitable<void> FreshStats();

  // Runs a job on a worker and waits for its result; nothing when the workers have too much to do.
  template <typename T>
  asio::awaitable<std::optional<T>> OnWorker(const std::function<T()>* job);

  // A lease that wakes this session.
  Service::ModelAccess MakeAccess();
  // Waits for the model; or says why not any longer.
  asio::awaitable<std::optional<Reply>> AwaitModel(const ModelLease& lease, SteadyTime deadline);

  // While a request is being answered somebody reads on, to see at once when the client goes away. What comes in is
  // kept for the next request.
  asio::awaitable<void> Watch();
  void StartWatching();
  asio::awaitable<void> StopWatching();

  Exchange MakeExchange(const Parser& parser) const;
  std::optional<Reply> CheckHead(const Parser& parser, const Exchange& exchange) const;
  std::string ReplyHead(const Reply& reply, const Exchange& exchange) const;
  std::string CommonHeaders(const Exchange& exchange) const;
  Reply ParseErrorReply(boost::system::error_code error) const;
  std::shared_ptr<EventBox> MakeBox();
  void SetDeadline(std::chrono::milliseconds after);
  void ClearDeadline() { deadline_ = SteadyTime::max(); }
  void ArmDeadline();
  void ReleaseBodyBytes();

  asio::ip::tcp::socket socket_;
  SessionShared* shared_;
  beast::flat_buffer buffer_;
  Signal wake_;
  asio::steady_timer deadline_timer_;
  SteadyTime deadline_ = SteadyTime::max();
  bool deadline_armed_ = false;
  bool is_idle_ = false;      // between requests: a drain may close it
  bool is_watching_ = false;  // Watch has a read in flight
  bool watch_wanted_ = false;
  bool is_disconnected_ = false;
  bool is_first_request_ = true;
  std::shared_ptr<EventBox> box_in_work_;  // of the request that a worker prepares
  std::size_t body_bytes_ = 0;             // this session's part of SessionShared::body_bytes
};

}  // namespace quire::server
