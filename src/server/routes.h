// The table of what the server answers to.
#pragma once

#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "server/reply.h"

namespace quire::server {

enum class RouteId {
  kRoot,
  kHealth,
  kPing,
  kVersion,
  kMetrics,
  kModels,
  kModel,  // argument: the model's name
  kCompletions,
  kChatCompletions,
  kTokenize,
  kDetokenize,
  kResetPrefixCache,
  kLoadModel,
  kUnloadModel,
  kStartProfile,
  kStopProfile,
};

struct Route {
  RouteId id;
  std::string_view path;  // in full, or up to the argument
  std::string_view method;
  bool takes_argument = false;  // the rest of the path
  bool takes_json = false;      // a JSON body is required
  bool needs_key = false;       // when API keys are set
  bool generates = false;       // is one of the requests that are counted and limited
};

struct RouteMatch {
  const Route* route = nullptr;
  std::string argument;              // percent-decoded
  std::optional<std::string> model;  // of the query, "?model=NAME"
};

// 404 when nothing has this path, 405 with Allow when the method is another. HEAD is taken for GET.
std::expected<RouteMatch, Reply> MatchRoute(std::string_view method, std::string_view target);

// The methods that the path of `target` has: "GET, HEAD, OPTIONS"; "" when there is no such path.
std::string AllowedMethods(std::string_view target);

}  // namespace quire::server
