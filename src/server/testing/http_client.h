// A small blocking HTTP client for tests: it sends exactly the bytes that it is told to, and reads answers whole or
// event by event. Everything ends with a failure after ten seconds.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace quire::server::testing {

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without chunk framing
  bool complete = false;                       // the end was seen

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
  // The data of each server-sent event, in order; comments are left out.
  std::vector<std::string> Events() const;
};

class HttpClient {
 public:
  // `receive_buffer`: bytes the kernel takes for a client that does not read; 0: as usual.
  explicit HttpClient(int port, int receive_buffer = 0);

  // False when the connection broke.
  bool Send(std::string_view bytes);
  // One whole answer; status 0 when the connection ended before its head.
  HttpAnswer Read();
  // Reads until the body so far contains `text`, or the answer ends.
  HttpAnswer ReadUntil(std::string_view text);
  // True when the other side has closed and nothing more comes.
  bool IsClosed();
  void Close() { fd_.Close(); }
  void HalfClose();

  HttpAnswer Get(const std::string& target, const std::string& more_headers = {});
  HttpAnswer Post(const std::string& target, std::string_view body, const std::string& more_headers = {});
  // The bytes of such a request.
  static std::string PostBytes(const std::string& target, std::string_view body, const std::string& more_headers = {});

 private:
  bool ReceiveMore();
  bool ParseHead(HttpAnswer* answer);
  // Moves what is there of the body; true at its end.
  bool ParseBody(HttpAnswer* answer);

  UniqueFd fd_;
  std::string received_;
  bool is_head_request_ = false;
  std::optional<HttpAnswer> partial_;  // of ReadUntil
  std::size_t body_left_ = 0;          // with Content-Length
};

}  // namespace quire::server::testing
