#include "server/reply.h"

#include "base/json.h"

namespace quire::server {
namespace {

struct StatusName {
  int status;
  std::string_view text;
  std::string_view error_type;
};
constexpr StatusName kStatusNames[] = {
    {100, "Continue", ""},
    {200, "OK", ""},
    {204, "No Content", ""},
    {400, "Bad Request", "BadRequestError"},
    {401, "Unauthorized", "AuthenticationError"},
    {403, "Forbidden", "PermissionDeniedError"},
    {404, "Not Found", "NotFoundError"},
    {405, "Method Not Allowed", "MethodNotAllowedError"},
    {408, "Request Timeout", "RequestTimeoutError"},
    {409, "Conflict", "ConflictError"},
    {413, "Content Too Large", "ContentTooLargeError"},
    {414, "URI Too Long", "BadRequestError"},
    {415, "Unsupported Media Type", "UnsupportedMediaTypeError"},
    {417, "Expectation Failed", "BadRequestError"},
    {431, "Request Header Fields Too Large", "BadRequestError"},
    {499, "Client Closed Request", "BadRequestError"},
    {500, "Internal Server Error", "InternalServerError"},
    {501, "Not Implemented", "NotImplementedError"},
    {503, "Service Unavailable", "ServiceUnavailableError"},
    {505, "HTTP Version Not Supported", "BadRequestError"},
};

const StatusName& FindStatus(int status) {
  for (const StatusName& name : kStatusNames) {
    if (name.status == status) return name;
  }
  return FindStatus(500);
}

}  // namespace

std::string_view StatusText(int status) {
  return FindStatus(status).text;
}

ApiError ToApiError(const Error& error) {
  ApiError api{.status = 500, .message = error.message, .param = error.param, .code = {}};
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kCorrupt:
      api.status = 400;
      break;
    case ErrorCode::kUnsupported:
      api.status = 400;
      api.code = "unsupported_parameter";
      break;
    case ErrorCode::kOutOfRange:
      api.status = 400;
      api.code = "context_length_exceeded";
      break;
    case ErrorCode::kNotFound:
      api.status = 404;
      if (error.param == "model") api.code = "model_not_found";
      break;
    case ErrorCode::kUnavailable:
    case ErrorCode::kCancelled:
      api.status = 503;
      break;
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      api.status = 500;
      if (error.param == "model") api.code = "model_load_failed";
      break;
  }
  return api;
}

std::string ErrorJson(const ApiError& error) {
  std::string text;
  JsonWriter writer(&text);
  writer.BeginObject().Key("error").BeginObject();
  writer.Key("message").String(error.message);
  writer.Key("type").String(FindStatus(error.status).error_type);
  writer.Key("param");
  error.param.empty() ? writer.Null() : writer.String(error.param);
  writer.Key("code");
  error.code.empty() ? writer.Null() : writer.String(error.code);
  writer.EndObject().EndObject();
  return text;
}

Reply ErrorReply(const ApiError& error) {
  Reply reply{.status = error.status, .body = ErrorJson(error)};
  if (error.status == 503) reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  return reply;
}

Reply ErrorReply(const Error& error) {
  return ErrorReply(ToApiError(error));
}

Reply BusyReply(std::string_view message) {
  return ErrorReply(ApiError{.status = 503, .message = std::string(message), .param = {}, .code = {}});
}

}  // namespace quire::server
