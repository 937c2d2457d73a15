// The API without its transport: what each route does. The HTTP layer asks Admit as soon as it has a
// request's head, then one of the handlers when it has the body. Safe from any thread; what is slow says so.
#pragma once

#include <atomic>
#include <expected>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "server/access.h"
#include "server/answer.h"
#include "server/config.h"
#include "server/metrics.h"
#include "server/model_manager.h"
#include "server/prepare.h"
#include "server/profiler.h"
#include "server/request_span.h"
#include "server/routes.h"
#include "server/span_exporter.h"
#include "server/tracker.h"

namespace quire::server {

// The name of a request: the client's own, when that is a plain word, or a random one.
std::string RequestIdOf(std::string_view own);

// A place among the `requests_max` generation requests; given back when it goes.
class Admission {
 public:
  Admission() = default;
  explicit Admission(std::atomic<int>* count) : count_(count) {}
  Admission(Admission&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
  Admission& operator=(Admission&& other) noexcept {
    std::swap(count_, other.count_);
    return *this;
  }
  ~Admission() {
    if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_relaxed);  // a count alone
  }

 private:
  std::atomic<int>* count_ = nullptr;
};

// One generation request in the engine. Whatever still runs when it goes is aborted.
class Generation {
 public:
  // `lease` is of the model that has the tracker.
  Generation(ModelLease lease, std::unique_ptr<Answer> answer, RequestTracker* tracker, const Clock* clock)
      : lease_(std::move(lease)), answer_(std::move(answer)), tracker_(tracker), clock_(clock) {}
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Submits every prompt; after an error the ones before it are aborted.
  Result<> Submit(const std::shared_ptr<EventBox>& box);
  // Hands the events on; in streams, appends to *out.
  void Take(std::vector<ArrivedEvent> events, std::string* out);
  void Fail(ApiError error);

  bool is_stream() const { return answer_->spec().stream; }
  bool is_done() const { return answer_->is_done(); }
  bool has_failed() const { return answer_->has_failed(); }
  std::string StreamEnd() const { return answer_->StreamEnd(); }
  Reply Body() const { return answer_->Body(); }
  // What stands at the beginning of a stream already: the echo of requests that need no engine.
  std::string TakeStart() { return std::exchange(start_, {}); }

 private:
  void ReleaseAll();

  ModelLease lease_;  // the last to go
  std::unique_ptr<Answer> answer_;
  RequestTracker* tracker_;
  const Clock* clock_;
  std::vector<std::optional<RequestId>> ids_;  // one for each prompt; nothing when it has ended
  std::string start_;
};

class Service {
 public:
  // Everything outlives the service.
  struct Observers {
    Profiler* profiler = nullptr;
    SpanExporter* spans = nullptr;  // or null
  };
  Service(const ServerConfig* config, ModelManager* models, AccessControl access, const Observers& observers,
          const Clock* clock);

  struct Admitted {
    RouteMatch match;
    Admission admission;  // of generation requests
    int tenant = 0;       // the number of the API key
  };
  // Decides by the head alone, before a body is read: access, path, method, key, media type, readiness, room.
  std::expected<Admitted, Reply> Admit(const RequestHead& head);
  // The answer to OPTIONS.
  Reply Options(const RequestHead& head, std::string_view requested_headers) const;
  const AccessControl& access() const { return access_; }

  // At once: /, /health, /ping, /version, /models, /metrics (as of the last statistics).
  Reply HandleQuick(const RouteMatch& match) const;

  // What these two need of a model that may not be loaded. The lease is empty at first; after an answer that is missing
  // it waits for the model, and the same call is to be made again when `wake` was called (ModelManager::Acquire).
  struct ModelAccess {
    ModelLease lease;
    std::function<void()> wake;
  };
  // Tokenises or waits for the engine, its files or the disk: /tokenize, /detokenize, /reset_prefix_cache, /models/load
  // and /models/unload, /start_profile and /stop_profile.
  std::optional<Reply> HandleSlow(const RouteMatch& match, std::string_view body, ModelAccess* access);
  // Parses, renders, tokenises and submits. `request_id` is what the client is told; `tenant` as Admit said; `origin`
  // says when the head was read. Null: see ModelAccess.
  std::expected<std::unique_ptr<Generation>, Reply> StartGeneration(RouteId route, std::string_view body,
                                                                    std::string_view request_id, int tenant,
                                                                    const RequestOrigin& origin,
                                                                    const std::shared_ptr<EventBox>& box,
                                                                    ModelAccess* access);

  // From now on: 503 for whatever generates, and for /health.
  void SetDraining() { draining_.store(true, std::memory_order_relaxed); }  // a flag alone
  void set_url(std::string url) { url_ = std::move(url); }                  // before the first request

  ModelManager& models() { return *models_; }
  Metrics& metrics() { return models_->metrics(); }
  const Clock& clock() const { return *clock_; }
  // Of a request whose head has just been read.
  RequestOrigin OriginOf(const RequestHead& head) const;

 private:
  // Whether requests are taken at all.
  std::optional<Reply> CheckReady() const;
  std::optional<Reply> CheckWaitingTokens(const ModelBackend& backend) const;
  // The model that the body names; null when it must be waited for.
  Result<ModelBackend*> FindModel(const json::value& body, ModelAccess* access, bool again = false);
  void LogUnknownFields(const std::vector<std::string>& names);
  Result<GenerationSpec> Prepare(RouteId route, const json::value& body, const ModelContext& model,
                                 const RequestIdentity& identity);
  void WriteModelCard(const std::string& name, const ModelStatus& model, JsonWriter* writer) const;
  Reply Models() const;
  Reply Model(const std::string& name) const;
  // Of the server, or of one model.
  Reply Health(const std::optional<std::string>& name) const;
  Reply Root() const;
  Reply MetricsText() const;
  Reply ResetPrefixCache();
  Reply Unload(const json::value& body);
  Reply StartProfile();
  Reply StopProfile();

  const ServerConfig* config_;
  ModelManager* models_;
  const AccessControl access_;
  const Observers observers_;
  const Clock* clock_;
  const std::int64_t started_at_;  // seconds since 1970
  std::string url_;
  std::atomic<bool> draining_{false};
  std::atomic<int> num_admitted_{0};

  std::mutex mutex_;                      // guards unknown_fields_
  std::set<std::string> unknown_fields_;  // logged already
};

}  // namespace quire::server
