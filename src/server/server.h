// The front end: the OpenAI API over HTTP/1.1, in front of one EngineClient.
//
//   ServedModel model{.names = {"demo"}, .engine = &client, .tokenizer = …, .chat_template = …};
//   return server::Run(config, std::move(model), [](const std::string& url) { fmt::print("{}\n", url); });
//
// Threads: one does all socket I/O; a few workers parse, render templates and tokenise; one waits for engine
// events; one asks the engine how it is. None of them ever waits for a client.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/config.h"

namespace quire::server {

class Server {
 public:
  // Listens and serves when it returns. kInvalidArgument: the configuration is wrong; kIo: the address cannot
  // be had. Does not wait for the engine: until that is ready /health and the generating routes answer 503.
  static Result<std::unique_ptr<Server>> Start(ServerConfig config, ServedModel model);
  // Aborts what runs, closes every connection and joins the threads.
  ~Server();

  int port() const;
  std::string url() const;  // "http://127.0.0.1:8000"

  // Refuses new requests with 503 and ends when the running ones have finished, or when `drain_timeout` is
  // over; then they are aborted. Returns at once; a second call ends it without further waiting. From any
  // thread.
  void Drain();

  // Drain at SIGTERM and SIGINT, which must not be blocked in the process's threads.
  void DrainOnSignals();

  // Until a drain is over, or the engine is gone for good: then every request has got its error, and the
  // result is kUnavailable.
  Result<> Wait();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Start, Drain at SIGTERM or SIGINT (at once at the second one), Wait. `on_listening` gets the URL. The two
// signals must not be blocked in the calling thread.
Result<> Run(ServerConfig config, ServedModel model, const std::function<void(const std::string& url)>& on_listening);

}  // namespace quire::server
