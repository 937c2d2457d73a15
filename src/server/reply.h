// An answer to an HTTP request, and the one place that knows how errors look on the wire.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace quire::server {

struct Reply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // besides the usual ones
  bool close = false;                                        // the connection ends with it
};

std::string_view StatusText(int status);

// What stands under "error". OpenAI's document wants all four members, `code` a string or null; `type` is
// vLLM's word for the status.
struct ApiError {
  int status = 500;
  std::string message;
  std::string param;      // "": null
  std::string code;       // "": null
  int retry_after_s = 1;  // with 503
};

// kOutOfRange becomes the code "context_length_exceeded": in requests nothing else is reported with it.
ApiError ToApiError(const Error& error);

// {"error":{"message":…,"type":…,"param":…,"code":…}}
std::string ErrorJson(const ApiError& error);

Reply ErrorReply(const ApiError& error);
Reply ErrorReply(const Error& error);
// 503 with Retry-After.
Reply BusyReply(std::string_view message);

}  // namespace quire::server
