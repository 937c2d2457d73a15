// A POST to somebody else's server, for a thread that may wait: plain HTTP/1.1, one connection for each request.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire::server {

struct HttpUrl {
  std::string authority;  // as in the URL, for the Host header
  std::string host;       // a name or an address, without brackets
  std::string port = "80";
  std::string path = "/";  // and query
};

// "http://collector:4318/v1/traces", "http://[::1]:4318". `param` is whom an error names.
Result<HttpUrl> ParseHttpUrl(std::string_view url, const std::string& param);

// The status of the answer, whose body is not read. kUnavailable: it did not come within `timeout`, or `give_up`, which
// is asked now and then, said so; kIo: the connection failed.
Result<int> PostJson(const HttpUrl& url, std::string_view body, std::chrono::milliseconds timeout,
                     const std::function<bool()>& give_up);

}  // namespace quire::server
