// Who may call: API keys, and the names under which a browser may have come here.
#pragma once

#include <array>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/config.h"
#include "server/reply.h"

namespace quire::server {

// The parts of a request's head that matter before its body is read. Views of the parser's memory.
struct RequestHead {
  std::string_view method;
  std::string_view target;
  std::string_view host;
  std::optional<std::string_view> origin;
  std::string_view authorization;
  std::string_view content_type;
  std::string_view content_encoding;
  std::string_view request_id;  // X-Request-Id
  std::string_view traceparent, tracestate;
};

class AccessControl {
 public:
  // `listens_on_loopback`: nobody but this machine can connect, but its browsers can.
  AccessControl(const ServerConfig& config, bool listens_on_loopback);

  // A reply when the request must not go further.
  std::optional<Reply> CheckHostAndOrigin(const RequestHead& head) const;
  // Which of the keys came, counted from 0; 0 when none is needed.
  std::expected<int, Reply> CheckKey(const RequestHead& head) const;
  // The value of Access-Control-Allow-Origin; nothing when the page may not read answers.
  std::optional<std::string> AllowOrigin(const RequestHead& head) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest Hash(std::string_view key);
  bool IsKnownHost(std::string_view host) const;
  bool IsAllowedOrigin(std::string_view origin) const;

  const bool checks_host_;
  const std::vector<std::string> allowed_hosts_;
  const std::vector<std::string> allowed_origins_;
  std::vector<Digest> keys_;  // SHA-256: all have one length, so that the comparison tells nothing
};

// "127.0.0.1:8000" → "127.0.0.1", "[::1]:80" → "::1", in lower case.
std::string HostName(std::string_view host);
bool IsLoopbackName(std::string_view host_name);

}  // namespace quire::server
