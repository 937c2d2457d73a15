#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "server/engine_monitor.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/service.h"
#include "server/tracker.h"
#include "server/worker_pool.h"

namespace quire::server {
namespace {

Result<> CheckModel(const ServedModel& model) {
  // An empty name could not be asked for: in a request it stands for "the first".
  if (model.names.empty() || std::ranges::find(model.names, "") != model.names.end()) {
    return FailParam("served_model_name", "the names of a model must not be empty");
  }
  if (model.engine == nullptr || model.tokenizer == nullptr) {
    return FailParam("model", "the model needs an engine and a tokenizer");
  }
  if (model.max_model_len < 0) return FailParam("max_model_len", "max_model_len must not be negative");
  return {};
}

}  // namespace

// In the order of construction; destroyed backwards, after the threads have ended.
struct Server::Impl {
  Impl(ServerConfig server_config, ServedModel served_model)
      : config(std::move(server_config)),
        model(std::move(served_model)),
        metrics(model.names.front(), model.max_model_len > 0 ? model.max_model_len : 1 << 20) {}

  ServerConfig config;
  ServedModel model;
  SteadyClock clock;
  std::unique_ptr<HttpServer> http;
  Metrics metrics;
  RequestTracker tracker{model.engine, &clock};
  std::unique_ptr<EngineMonitor> monitor;
  std::unique_ptr<Service> service;
  std::unique_ptr<WorkerPool> workers;
  std::atomic<bool> stop_tracker{false};
  std::thread tracker_thread, http_thread;
};

Result<std::unique_ptr<Server>> Server::Start(ServerConfig config, ServedModel model) {
  QUIRE_TRY_VOID(config.Validate());
  QUIRE_TRY_VOID(CheckModel(model));
  auto impl = std::make_unique<Impl>(std::move(config), std::move(model));
  QUIRE_TRY(impl->http, HttpServer::Listen(&impl->config));
  impl->monitor = std::make_unique<EngineMonitor>(impl->model.engine, &impl->metrics);
  impl->service = std::make_unique<Service>(&impl->config, &impl->model,
                                            AccessControl(impl->config, impl->http->listens_on_loopback()),
                                            &impl->tracker, impl->monitor.get(), &impl->metrics, &impl->clock);
  impl->service->set_url(impl->http->url());
  // Admission is what bounds the work; the queue must only be able to hold it, and a few short calls more.
  const auto jobs_max = static_cast<std::size_t>(impl->config.requests_max + impl->config.connections_max);
  impl->workers = std::make_unique<WorkerPool>(impl->config.worker_threads, jobs_max);
  Impl* raw = impl.get();
  impl->tracker_thread = std::thread([raw] {
    raw->tracker.Run(raw->stop_tracker);
    if (raw->tracker.engine_gone()) raw->http->Drain();
  });
  impl->http_thread = std::thread([raw] { raw->http->Run(raw->service.get(), raw->workers.get()); });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  impl_->http->Stop();
  if (impl_->http_thread.joinable()) impl_->http_thread.join();
  impl_->workers->Stop();
  impl_->stop_tracker.store(true, std::memory_order_relaxed);
  impl_->tracker_thread.join();
  impl_->monitor->Stop();
}

int Server::port() const {
  return impl_->http->port();
}
std::string Server::url() const {
  return impl_->http->url();
}
void Server::DrainOnSignals() {
  impl_->http->DrainOnSignals();
}
void Server::Drain() {
  impl_->http->Drain();
}

Result<> Server::Wait() {
  if (impl_->http_thread.joinable()) impl_->http_thread.join();
  if (impl_->tracker.engine_gone()) return Fail(ErrorCode::kUnavailable, "the engine is gone");
  return {};
}

Result<> Run(ServerConfig config, ServedModel model, const std::function<void(const std::string& url)>& on_listening) {
  QUIRE_TRY(auto server, Server::Start(std::move(config), std::move(model)));
  server->DrainOnSignals();
  on_listening(server->url());
  return server->Wait();
}

}  // namespace quire::server
