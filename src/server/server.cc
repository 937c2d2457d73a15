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
#include "server/profiler.h"
#include "server/service.h"
#include "server/span_exporter.h"
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
  Impl(ServerConfig server_config, Tracer* shared_tracer)
      : config(std::move(server_config)), tracer(shared_tracer != nullptr ? shared_tracer : &own_tracer) {}
  Result<> StartObserving();

  ServerConfig config;
  SteadyClock clock;
  Tracer own_tracer{&clock};
  Tracer* const tracer;
  std::unique_ptr<HttpServer> http;
  Profiler profiler{tracer, static_cast<std::int64_t>(config.trace_bytes_max)};
  std::unique_ptr<SpanExporter> spans;  // null: nobody wants any
  std::unique_ptr<ModelManager> models;
  std::unique_ptr<Service> service;
  std::unique_ptr<WorkerPool> workers;
  std::atomic<bool> engine_is_gone{false};  // a flag alone
  std::thread http_thread;
};

Result<> Server::Impl::StartObserving() {
  if (!config.trace.empty()) {
    if (Result<> started = profiler.Start(config.trace, TraceFile::Mode::kOverwrite); !started) {
      Error error = std::move(started).error();
      error.param = "trace";
      return std::unexpected(std::move(error));
    }
  }
  if (config.otlp_traces_endpoint.empty()) return {};
  SpanExporter::Options options;
  QUIRE_TRY(options.url, ParseHttpUrl(config.otlp_traces_endpoint, "otlp_traces_endpoint"));
  spans = std::make_unique<SpanExporter>(std::move(options));
  return {};
}

Result<std::unique_ptr<Server>> Server::Start(ServerConfig config, ServedModel model, Tracer* tracer) {
  QUIRE_TRY_VOID(config.Validate());
  QUIRE_TRY_VOID(CheckModel(model));
  QUIRE_TRY(auto impl, Prepare(std::move(config), tracer));
  const auto on_gone = [raw = impl.get()] {
    raw->engine_is_gone.store(true, std::memory_order_relaxed);
    raw->http->Drain();
  };
  impl->models =
      std::make_unique<ModelManager>(std::move(model), &impl->config, &impl->clock, on_gone, &impl->profiler);
  return Serve(std::move(impl));
}

Result<std::unique_ptr<Server>> Server::Start(ServerConfig config, const ModelsConfig& models_config,
                                              std::vector<ModelSpec> models, Tracer* tracer) {
  QUIRE_TRY_VOID(config.Validate());
  QUIRE_TRY_VOID(models_config.Validate());
  QUIRE_TRY_VOID(CheckSpecs(models));
  QUIRE_TRY(auto impl, Prepare(std::move(config), tracer));
  impl->models =
      std::make_unique<ModelManager>(models_config, std::move(models), &impl->config, &impl->clock, &impl->profiler);
  QUIRE_TRY_VOID(impl->models->Start());
  return Serve(std::move(impl));
}

Result<std::unique_ptr<Server::Impl>> Server::Prepare(ServerConfig config, Tracer* tracer) {
  auto impl = std::make_unique<Impl>(std::move(config), tracer);
  QUIRE_TRY(impl->http, HttpServer::Listen(&impl->config));
  QUIRE_TRY_VOID(impl->StartObserving());
  return impl;
}

Result<std::unique_ptr<Server>> Server::Serve(std::unique_ptr<Impl> impl) {
  impl->service = std::make_unique<Service>(&impl->config, impl->models.get(),
                                            AccessControl(impl->config, impl->http->listens_on_loopback()),
                                            Service::Observers{&impl->profiler, impl->spans.get()}, &impl->clock);
  impl->service->set_url(impl->http->url());
  // Admission is what bounds the work; the queue must only be able to hold it, and a few short calls more.
  const auto jobs_max = static_cast<std::size_t>(impl->config.requests_max + impl->config.connections_max);
  impl->workers = std::make_unique<WorkerPool>(impl->config.worker_threads, jobs_max, impl->tracer);
  Impl* raw = impl.get();
  impl->http_thread = std::thread([raw] { raw->http->Run(raw->service.get(), raw->workers.get(), raw->tracer); });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  impl_->http->Stop();
  if (impl_->http_thread.joinable()) impl_->http_thread.join();
  impl_->workers->Stop();
  (void)impl_->profiler.Stop();  // while the engines can still say what they did
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

Result<> Run(ServerConfig config, ServedModel model, const std::function<void(const std::string& url)>& on_listening,
             Tracer* tracer) {
  QUIRE_TRY(auto server, Server::Start(std::move(config), std::move(model), tracer));
  server->DrainOnSignals();
  on_listening(server->url());
  return server->Wait();
}

Result<> Run(ServerConfig config, const ModelsConfig& models_config, std::vector<ModelSpec> models,
             const std::function<void(const std::string& url)>& on_listening, Tracer* tracer) {
  QUIRE_TRY(auto server, Server::Start(std::move(config), models_config, std::move(models), tracer));
  server->DrainOnSignals();
  on_listening(server->url());
  return server->Wait();
}

}  // namespace quire::server
