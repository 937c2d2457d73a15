#include "server/access.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace quire::server {
namespace {

char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, Lower, Lower);
}

Reply Forbidden(std::string message) {
  return ErrorReply(ApiError{.status = 403, .message = std::move(message), .param = {}, .code = "forbidden"});
}

// "https://example.org:8443" → "example.org:8443"
std::string_view HostOfOrigin(std::string_view origin) {
  const std::size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

}  // namespace

std::string HostName(std::string_view host) {
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  std::string name(host);
  std::ranges::transform(name, name.begin(), Lower);
  if (name.ends_with('.')) name.pop_back();
  return name;
}

bool IsLoopbackName(std::string_view name) {
  if (name == "localhost" || name == "::1") return true;
  // 127.a.b.c and nothing else: 127.0.0.1.example.org is somebody's name.
  int parts = 0;
  while (!name.empty()) {
    int value = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
    if (error != std::errc() || value < 0 || value > 255 || (parts == 0 && value != 127)) return false;
    name.remove_prefix(static_cast<std::size_t>(end - name.data()));
    ++parts;
    if (name.empty()) break;
    if (name.front() != '.' || name.size() == 1) return false;
    name.remove_prefix(1);
  }
  return parts == 4;
}

AccessControl::AccessControl(const ServerConfig& config, bool listens_on_loopback)
    : checks_host_(listens_on_loopback),
      allowed_hosts_([&] {
        std::vector<std::string> names;
        for (const std::string& host : config.allowed_hosts) names.push_back(HostName(host));
        return names;
      }()),
      allowed_origins_(config.allowed_origins) {
  for (const std::string& key : config.api_keys) keys_.push_back(Hash(key));
}

AccessControl::Digest AccessControl::Hash(std::string_view key) {
  Digest digest{};
  unsigned int size = 0;
  CHECK(EVP_Digest(key.data(), key.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1);
  return digest;
}

bool AccessControl::IsKnownHost(std::string_view host) const {
  const std::string name = HostName(host);
  return IsLoopbackName(name) || std::ranges::find(allowed_hosts_, name) != allowed_hosts_.end();
}

bool AccessControl::IsAllowedOrigin(std::string_view origin) const {
  return std::ranges::any_of(allowed_origins_, [&](const std::string& allowed) {
    return allowed == "*" || EqualsIgnoringCase(allowed, origin);
  });
}

std::optional<Reply> AccessControl::CheckHostAndOrigin(const RequestHead& head) const {
  if (!checks_host_) return std::nullopt;
  if (!IsKnownHost(head.host)) {
    return Forbidden(
        "the Host header does not name this machine; a server on a loopback address answers only to "
        "localhost (more names: --allowed-hosts)");
  }
  if (head.origin && !IsAllowedOrigin(*head.origin) && !IsKnownHost(HostOfOrigin(*head.origin))) {
    return Forbidden("web pages of this Origin may not call the server (--allowed-origins)");
  }
  return std::nullopt;
}

std::optional<std::string> AccessControl::AllowOrigin(const RequestHead& head) const {
  if (!head.origin || !IsAllowedOrigin(*head.origin)) return std::nullopt;
  return std::string(*head.origin);
}

std::expected<int, Reply> AccessControl::CheckKey(const RequestHead& head) const {
  if (keys_.empty()) return 0;
  constexpr std::string_view kScheme = "Bearer ";
  int found = -1;
  if (head.authorization.size() > kScheme.size() &&
      EqualsIgnoringCase(head.authorization.substr(0, kScheme.size()), kScheme)) {
    std::string_view key = head.authorization.substr(kScheme.size());
    while (key.starts_with(' ')) key.remove_prefix(1);
    const Digest digest = Hash(key);
    // Every key is compared, whatever the others gave.
    for (int i = 0; i < static_cast<int>(keys_.size()); ++i) {
      const Digest& known = keys_[static_cast<std::size_t>(i)];
      if (CRYPTO_memcmp(digest.data(), known.data(), digest.size()) == 0) found = i;
    }
  }
  if (found >= 0) return found;
  Reply reply = ErrorReply(ApiError{.status = 401,
                                    .message = "Unauthorized: this server needs an API key, as Authorization: Bearer",
                                    .param = {},
                                    .code = "invalid_api_key"});
  reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return std::unexpected(std::move(reply));
}

}  // namespace quire::server
