// The outcome of anything that the outside world can spoil: a file, a socket, a request, the memory budget.
// An Error's message names the thing, its value and the limit, in a sentence that a user can act on.
#pragma once

#include <fmt/format.h>

#include <expected>
#include <string>
#include <utility>

namespace quire {

enum class ErrorCode {
  kInvalidArgument,  // the caller's input is wrong: HTTP 400
  kNotFound,         // HTTP 404
  kUnsupported,      // understood, but not built: HTTP 400 for a request field, an error at load for a model
  kOutOfRange,       // larger than a limit of the configuration: HTTP 400 or 413
  kUnavailable,      // try again later (queue full, engine starting): HTTP 503
  kCancelled,        // the client went away or the server is draining
  kIo,               // the operating system said no
  kCorrupt,          // a file or a message breaks its own format
  kInternal,         // HTTP 500
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string param = {};  // the request field or tensor that is to blame, if one is
};

template <typename T = void>
using Result = std::expected<T, Error>;

// return Fail(ErrorCode::kCorrupt, "tensor {} has {} dimensions; at most 4 are allowed", name, n);
template <typename... Args>
[[nodiscard]] std::unexpected<Error> Fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

// The same, naming the request field that is to blame.
template <typename... Args>
[[nodiscard]] std::unexpected<Error> FailParam(std::string param, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(
      Error{ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...), std::move(param)});
}

}  // namespace quire

#define QUIRE_CONCAT_INNER(a, b) a##b
#define QUIRE_CONCAT(a, b) QUIRE_CONCAT_INNER(a, b)

// QUIRE_TRY(auto file, MappedFile::Open(path));   declares `file`, or returns the error to the caller.
#define QUIRE_TRY(declaration, expression) QUIRE_TRY_INNER(QUIRE_CONCAT(quire_try_, __LINE__), declaration, expression)
#define QUIRE_TRY_INNER(temporary, declaration, expression)                         \
  auto&& temporary = (expression);                                                  \
  if (!temporary.has_value()) return std::unexpected(std::move(temporary).error()); \
  declaration = *std::move(temporary)

// The same for a Result<> without a value.
#define QUIRE_TRY_VOID(expression)                                                                  \
  do {                                                                                              \
    auto&& quire_try_result = (expression);                                                         \
    if (!quire_try_result.has_value()) return std::unexpected(std::move(quire_try_result).error()); \
  } while (false)
