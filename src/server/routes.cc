#include "server/routes.h"

#include <algorithm>

#include "base/utf8.h"

namespace quire::server {
namespace {

constexpr Route kRoutes[] = {
    {.id = RouteId::kRoot, .path = "/", .method = "GET"},
    {.id = RouteId::kHealth, .path = "/health", .method = "GET"},
    {.id = RouteId::kPing, .path = "/ping", .method = "GET"},
    {.id = RouteId::kPing, .path = "/ping", .method = "POST"},
    {.id = RouteId::kVersion, .path = "/version", .method = "GET"},
    {.id = RouteId::kMetrics, .path = "/metrics", .method = "GET"},
    {.id = RouteId::kModels, .path = "/v1/models", .method = "GET", .needs_key = true},
    {.id = RouteId::kModel, .path = "/v1/models/", .method = "GET", .takes_argument = true, .needs_key = true},
    {.id = RouteId::kCompletions,
     .path = "/v1/completions",
     .method = "POST",
     .takes_json = true,
     .needs_key = true,
     .generates = true},
    {.id = RouteId::kChatCompletions,
     .path = "/v1/chat/completions",
     .method = "POST",
     .takes_json = true,
     .needs_key = true,
     .generates = true},
    {.id = RouteId::kTokenize, .path = "/tokenize", .method = "POST", .takes_json = true, .needs_key = true},
    {.id = RouteId::kDetokenize, .path = "/detokenize", .method = "POST", .takes_json = true, .needs_key = true},
    {.id = RouteId::kResetPrefixCache, .path = "/reset_prefix_cache", .method = "POST", .needs_key = true},
    // As in llama.cpp's router.
    {.id = RouteId::kModels, .path = "/models", .method = "GET", .needs_key = true},
    {.id = RouteId::kLoadModel, .path = "/models/load", .method = "POST", .takes_json = true, .needs_key = true},
    {.id = RouteId::kUnloadModel, .path = "/models/unload", .method = "POST", .takes_json = true, .needs_key = true},
    {.id = RouteId::kStartProfile, .path = "/start_profile", .method = "POST", .needs_key = true},
    {.id = RouteId::kStopProfile, .path = "/stop_profile", .method = "POST", .needs_key = true},
};

std::string_view PathOf(std::string_view target) {
  std::string_view path = target.substr(0, target.find_first_of("?#"));
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string PercentDecode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 && HexDigit(text[i + 2]) >= 0) {
      decoded.push_back(static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2])));
      i += 2;
    } else {
      decoded.push_back(text[i]);
    }
  }
  return decoded;
}

// The value of `key` in the query of a target, decoded; a plus is a plus.
std::optional<std::string> QueryValue(std::string_view target, std::string_view key) {
  const std::size_t begin = target.find('?');
  if (begin == std::string_view::npos) return std::nullopt;
  std::string_view query = target.substr(begin + 1);
  query = query.substr(0, query.find('#'));
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    if (pair.substr(0, pair.find('=')) != key) continue;
    return PercentDecode(pair.substr(std::min(key.size() + 1, pair.size())));
  }
  return std::nullopt;
}

bool HasPath(const Route& route, std::string_view path) {
  return route.takes_argument ? path.size() > route.path.size() && path.starts_with(route.path) : path == route.path;
}

}  // namespace

std::expected<RouteMatch, Reply> MatchRoute(std::string_view method, std::string_view target) {
  const std::string_view path = PathOf(target);
  if (method == "HEAD") method = "GET";
  bool path_exists = false;
  for (const Route& route : kRoutes) {
    if (!HasPath(route, path)) continue;
    path_exists = true;
    if (route.method != method) continue;
    RouteMatch match{.route = &route, .argument = {}, .model = QueryValue(target, "model")};
    if (route.takes_argument) match.argument = PercentDecode(path.substr(route.path.size()));
    return match;
  }
  // The target comes from outside: it is shown only as far as it is short text.
  const std::string shown = SanitizeUtf8(path.substr(0, 100));
  if (!path_exists) {
    return std::unexpected(ErrorReply(ApiError{
        .status = 404, .message = fmt::format("there is nothing at {}", shown), .param = {}, .code = "not_found"}));
  }
  Reply reply = ErrorReply(ApiError{.status = 405,
                                    .message = fmt::format("{} has no method {}; it has {}", shown,
                                                           SanitizeUtf8(method.substr(0, 20)), AllowedMethods(target)),
                                    .param = {},
                                    .code = "method_not_allowed"});
  reply.headers.emplace_back("Allow", AllowedMethods(target));
  return std::unexpected(std::move(reply));
}

std::string AllowedMethods(std::string_view target) {
  const std::string_view path = PathOf(target);
  std::string methods;
  for (const Route& route : kRoutes) {
    if (!HasPath(route, path)) continue;
    methods.append(route.method).append(route.method == "GET" ? ", HEAD, " : ", ");
  }
  return methods.empty() ? methods : methods + "OPTIONS";
}

}  // namespace quire::server
