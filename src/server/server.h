// The front end: the OpenAI API over HTTP/1.1, in front of one EngineClient, or of one for each of several models.
//
//   ServedModel model{.names = {"demo"}, .engine = &client, .tokenizer = …, .chat_template = …};
//   return server::Run(config, std::move(model), [](const std::string& url) { fmt::print("{}\n", url); });
//
// Threads: one does all socket I/O; a few workers parse, render templates and tokenise. For each engine one waits for
// its events and two ask how it is; and for each of several models one loads and unloads it. None of them ever waits for
// a client.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tracer.h"
#include "server/config.h"
#include "server/models_config.h"

namespace quire::server {

class Server {
 public:
  // Listens and serves when it returns. kInvalidArgument: the configuration is wrong; kIo: the address cannot
  // be had. Does not wait for the engine: until that is ready /health and the generating routes answer 503.
  // `tracer` is where those record what they do who work for the server outside of it, such as the engine's client; it
  // outlives the server. Null: they do not.
  static Result<std::unique_ptr<Server>> Start(ServerConfig config, ServedModel model, Tracer* tracer = nullptr);
  // The same with several models, which are loaded when they are needed.
  static Result<std::unique_ptr<Server>> Start(ServerConfig config, const ModelsConfig& models_config,
                                               std::vector<ModelSpec> models, Tracer* tracer = nullptr);
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
  // What is common to both, before and after the models are there.
  static Result<std::unique_ptr<Impl>> Prepare(ServerConfig config, Tracer* tracer);
  static Result<std::unique_ptr<Server>> Serve(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Start, Drain at SIGTERM or SIGINT (at once at the second one), Wait. `on_listening` gets the URL. The two
// signals must not be blocked in the calling thread.
Result<> Run(ServerConfig config, ServedModel model, const std::function<void(const std::string& url)>& on_listening,
             Tracer* tracer = nullptr);
Result<> Run(ServerConfig config, const ModelsConfig& models_config, std::vector<ModelSpec> models,
             const std::function<void(const std::string& url)>& on_listening, Tracer* tracer = nullptr);

}  // namespace quire::server
