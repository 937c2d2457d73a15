// HTTP/1.1 on sockets, in front of a Service. One thread does all of it; what is slow goes to the workers. This is
// the only header that knows of connections; Asio and Beast stay inside http_server.cc and http_session.h.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "server/config.h"
#include "server/service.h"
#include "server/worker_pool.h"

namespace quire::server {

class HttpServer {
 public:
  // Binds and listens; nothing is accepted before Run.
  static Result<std::unique_ptr<HttpServer>> Listen(const ServerConfig* config);
  ~HttpServer();

  int port() const;
  std::string url() const;
  bool listens_on_loopback() const;

  // Serves in this thread until a drain is over or Stop is called. `service` and `workers` outlive the call, and the
  // workers' jobs end before this object does.
  void Run(Service* service, WorkerPool* workers, Tracer* tracer);

  // From any thread, before or during Run. Drain: see Server. Stop: at once.
  void Drain();
  void Stop();
  // Drain at SIGTERM or SIGINT.
  void DrainOnSignals();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
