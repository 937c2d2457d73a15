#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "server/http_server.h"
#include "server/model_manager.h"
#include "server/service.h"
#include "server/worker_pool.h"

namespace quire::server {
namespace {

Result<> CheckNames(const std::vector<std::string>& names) {
  // An empty name could not be asked for: in a request it stands for "the first".
  if (!names.empty() && std::ranges::find(names, "") == names.end()) return {};
  return FailParam("served_model_name", "the names of a model must not be empty");
}

Result<> CheckModel(const ServedModel& model) {
  QUIRE_TRY_VOID(CheckNames(model.names));
  if (model.engine == nullptr || model.tokenizer == nullptr) {
    return FailParam("model", "the model needs an engine and a tokenizer");
  }
  if (model.max_model_len < 0) return FailParam("max_model_len", "max_model_len must not be negative");
  return {};
}

Result<> CheckSpecs(const std::vector<ModelSpec>& specs) {
  if (specs.empty()) return FailParam("model", "there is no model to serve");
  std::set<std::string_view> names;
  for (const ModelSpec& spec : specs) {
    QUIRE_TRY_VOID(CheckNames(spec.names));
    for (const std::string& name : spec.names) {
      if (!names.insert(name).second) return FailParam("model", "two models are called {}", name);
    }
  }
  return {};
}

}  // namespace

// In the order of construction; destroyed backwards, after the threads have ended.
struct Server::Impl {
  ServerConfig config;
  SteadyClock clock;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<ModelManager> models;
  std::unique_ptr<Service> service;
  std::unique_ptr<WorkerPool> workers;
  std::atomic<bool> engine_is_gone{false};  // a flag alone
  std::thread http_thread;
};

Result<std::unique_ptr<Server>> Server::Start(ServerConfig config, ServedModel model) {
  QUIRE_TRY_VOID(config.Validate());
  QUIRE_TRY_VOID(CheckModel(model));
  auto impl = std::make_unique<Impl>();
  impl->config = std::move(config);
  QUIRE_TRY(impl->http, HttpServer::Listen(&impl->config));
  impl->models = std::make_unique<ModelManager>(std::move(model), &impl->config, &impl->clock, [raw = impl.get()] {
    raw->engine_is_gone.store(true, std::memory_order_relaxed);
    raw->http->Drain();
  });
  return Serve(std::move(impl));
}

Result<std::unique_ptr<Server>> Server::Start(ServerConfig config, const ModelsConfig& models_config,
                                              std::vector<ModelSpec> models) {
  QUIRE_TRY_VOID(config.Validate());
  QUIRE_TRY_VOID(models_config.Validate());
  QUIRE_TRY_VOID(CheckSpecs(models));
  auto impl = std::make_unique<Impl>();
  impl->config = std::move(config);
  QUIRE_TRY(impl->http, HttpServer::Listen(&impl->config));
  impl->models = std::make_unique<ModelManager>(models_config, std::move(models), &impl->config, &impl->clock);
  QUIRE_TRY_VOID(impl->models->Start());
  return Serve(std::move(impl));
}

Result<std::unique_ptr<Server>> Server::Serve(std::unique_ptr<Impl> impl) {
  impl->service = std::make_unique<Service>(
      &impl->config, impl->models.get(), AccessControl(impl->config, impl->http->listens_on_loopback()), &impl->clock);
  impl->service->set_url(impl->http->url());
  // Admission is what bounds the work; the queue must only be able to hold it, and a few short calls more.
  const auto jobs_max = static_cast<std::size_t>(impl->config.requests_max + impl->config.connections_max);
  impl->workers = std::make_unique<WorkerPool>(impl->config.worker_threads, jobs_max);
  Impl* raw = impl.get();
  impl->http_thread = std::thread([raw] { raw->http->Run(raw->service.get(), raw->workers.get()); });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  impl_->http->Stop();
  if (impl_->http_thread.joinable()) impl_->http_thread.join();
  impl_->workers->Stop();
  impl_->models.reset();
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
  if (impl_->engine_is_gone.load(std::memory_order_relaxed)) return Fail(ErrorCode::kUnavailable, "the engine is gone");
  return {};
}

Result<> Run(ServerConfig config, ServedModel model, const std::function<void(const std::string& url)>& on_listening) {
  QUIRE_TRY(auto server, Server::Start(std::move(config), std::move(model)));
  server->DrainOnSignals();
  on_listening(server->url());
  return server->Wait();
}

Result<> Run(ServerConfig config, const ModelsConfig& models_config, std::vector<ModelSpec> models,
             const std::function<void(const std::string& url)>& on_listening) {
  QUIRE_TRY(auto server, Server::Start(std::move(config), models_config, std::move(models)));
  server->DrainOnSignals();
  on_listening(server->url());
  return server->Wait();
}

}  // namespace quire::server
