// One HTTP/1.1 request and its answer on a connection that may be used again. Included by runner.cc alone: everything
// that needs Asio and Beast is one translation unit.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace quire::bench::load {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using SteadyTime = std::chrono::steady_clock::time_point;

inline constexpr auto kAwaitTuple = asio::as_tuple(asio::use_awaitable);

struct Connection {
  explicit Connection(asio::any_io_executor executor) : socket(std::move(executor)) {}

  // At the deadline: whoever waits for it sees an error.
  void GiveUp() {
    boost::system::error_code ignored;
    is_late = true;
    socket.close(ignored);
  }

  tcp::socket socket;
  beast::flat_buffer buffer;
  SteadyTime deadline = SteadyTime::max();
  bool was_used = false;
  bool is_late = false;
};

// Takes a piece of the body, of an answer with this status. Its error ends the exchange.
using TakeBody = std::function<Result<>(int status, std::string_view piece)>;

struct Exchanged {
  int status = 0;
  std::string content_type;
  std::string error;       // the answer is not whole
  bool can_reuse = false;  // the connection
  bool is_stale = false;   // an old connection had been closed meanwhile: nothing came, and nothing was done
};

using ResponseParser = http::response_parser<http::string_body>;

// Hands the pieces that have come to `take`.
inline Result<> Digest(ResponseParser* parser, beast::flat_buffer* buffer, const TakeBody& take) {
  constexpr std::size_t kHeadBytesMax = 64 << 10;  // also of what stands around the chunks of a body
  while (buffer->size() > 0 && !parser->is_done()) {
    boost::system::error_code error;
    const std::size_t used = parser->put(buffer->data(), error);
    buffer->consume(used);
    std::string& body = parser->get().body();
    if (!body.empty()) {
      Result<> taken = take(static_cast<int>(parser->get().result_int()), body);
      if (!taken) return taken;
      body.clear();
    }
    if (error && error != http::error::need_more) {
      return Fail(ErrorCode::kCorrupt, "the answer is not HTTP/1.1: {}", error.message());
    }
    if (error || used == 0) break;
  }
  if (buffer->size() > kHeadBytesMax && !parser->is_done()) {
    return Fail(ErrorCode::kCorrupt, "the answer is not HTTP/1.1: a head of more than {} bytes", kHeadBytesMax);
  }
  return {};
}

inline std::string DescribeEnd(const Connection& connection, boost::system::error_code error, bool has_bytes) {
  if (connection.is_late) return has_bytes ? "timed out in the middle of the answer" : "timed out before an answer";
  if (has_bytes) return "the connection ended in the middle of the answer";
  if (error == asio::error::eof) return "the connection was closed without an answer";
  return error.message();
}

// Coroutines here take pointers to what the caller's frame holds, and no co_await is in an expression with temporaries
// that own something: g++ 12 destroys those twice.
inline asio::awaitable<Exchanged> Exchange(Connection* connection, const std::string* request, const TakeBody* take) {
  constexpr std::size_t kReadBytes = 16 << 10;
  Exchanged result;
  const bool was_used = std::exchange(connection->was_used, true);
  std::string_view rest = *request;
  while (!rest.empty()) {
    const auto [error, count] =
        co_await connection->socket.async_write_some(asio::buffer(rest.data(), rest.size()), kAwaitTuple);
    if (error) break;  // the answer may say why
    rest.remove_prefix(count);
  }
  ResponseParser parser;
  parser.eager(true);
  parser.body_limit(boost::none);
  bool has_bytes = false;
  while (!parser.is_done()) {
    const auto [error, count] =
        co_await connection->socket.async_read_some(connection->buffer.prepare(kReadBytes), kAwaitTuple);
    connection->buffer.commit(count);
    has_bytes = has_bytes || count > 0;
    Result<> digested = Digest(&parser, &connection->buffer, *take);
    if (!digested) {
      result.error = std::move(digested).error().message;
      result.status = static_cast<int>(parser.get().result_int());
      co_return result;
    }
    if (!error || parser.is_done()) continue;
    boost::system::error_code end;
    if (error == asio::error::eof && has_bytes) parser.put_eof(end);  // the end of a body without a length
    if (error == asio::error::eof && !end && parser.is_done()) break;
    result.is_stale = was_used && !has_bytes && !connection->is_late;
    result.error = DescribeEnd(*connection, error, has_bytes);
    co_return result;
  }
  result.status = static_cast<int>(parser.get().result_int());
  const auto type = parser.get()[http::field::content_type];
  result.content_type.assign(type.data(), type.size());
  result.can_reuse = parser.keep_alive() && rest.empty() && connection->buffer.size() == 0;
  co_return result;
}

}  // namespace quire::bench::load
