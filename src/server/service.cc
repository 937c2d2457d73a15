#include "server/service.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/utf8.h"
#include "server/random_bits.h"
#include "server/tokenize.h"

namespace quire::server {
namespace {

std::int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool IsJson(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  while (type.ends_with(' ')) type.pop_back();
  std::ranges::transform(type, type.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return type == "application/json" || (type.starts_with("application/") && type.ends_with("+json"));
}

Result<std::string> ModelNameOf(const json::value& body) {
  if (!body.is_object()) return FailParam("", "the request body must be a JSON object, got {}", Preview(body));
  const json::value* name = body.get_object().if_contains("model");
  if (name == nullptr || name->is_null()) return FailParam("model", "model is required: GET /v1/models lists them");
  if (!name->is_string()) return FailParam("model", "model must be a string, got {}", Preview(*name));
  return std::string(name->get_string());
}

Reply NoSuchModel(const std::string& name) {
  return ErrorReply(
      ApiError{.status = 404,
               .message = fmt::format("The model `{}` does not exist.", SanitizeUtf8(name.substr(0, 200))),
               .param = "model",
               .code = "model_not_found"});
}

}  // namespace

std::string RequestIdOf(std::string_view own) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.';
  };
  constexpr std::size_t kOwnIdBytesMax = 128;
  if (!own.empty() && own.size() <= kOwnIdBytesMax && std::ranges::all_of(own, is_plain)) return std::string(own);
  return fmt::format("{:016x}{:016x}", RandomBits(), RandomBits());
}

Generation::~Generation() {
  ReleaseAll();
}

void Generation::ReleaseAll() {
  for (auto& id : ids_) {
    if (id) tracker_->Release(*std::exchange(id, std::nullopt));
  }
}

Result<> Generation::Submit(const std::shared_ptr<EventBox>& box) {
  if (!answer_->spec().needs_engine()) {
    answer_->FinishWithoutEngine(&start_);
    return {};
  }
  const int num_prompts = static_cast<int>(answer_->spec().prompts.size());
  for (int prompt = 0; prompt < num_prompts; ++prompt) {
    // A client that went away while its prompts were tokenised wants nothing any more.
    if (box->is_cancelled()) return quire::Fail(ErrorCode::kCancelled, "the client has gone");
    GenerateRequest request = answer_->MakeRequest(prompt, tracker_->NextId());
    const TimePoint begin = clock_->Now();
    QUIRE_TRY(const RequestId id, tracker_->Submit(std::move(request), prompt, box));
    answer_->NoteSubmission(prompt, {begin, clock_->Now()});
    ids_.emplace_back(id);
  }
  return {};
}

void Generation::Take(std::vector<ArrivedEvent> events, std::string* out) {
  for (ArrivedEvent& arrived : events) {
    const bool ended_by_text = answer_->OnEvent(arrived.prompt, arrived.event, arrived.at, out);
    auto& id = ids_[static_cast<std::size_t>(arrived.prompt)];
    if (!id) continue;
    if (answer_->is_prompt_done(arrived.prompt)) {
      tracker_->Release(*std::exchange(id, std::nullopt));
    } else if (ended_by_text) {
      tracker_->AbortChoice(*id, arrived.event.choice);
    }
  }
  if (answer_->is_done()) ReleaseAll();
}

void Generation::Fail(ApiError error) {
  answer_->Fail(std::move(error));
  ReleaseAll();
}

Service::Service(const ServerConfig* config, ModelManager* models, AccessControl access, const Observers& observers,
                 const Clock* clock)
    : config_(config),
      models_(models),
      access_(std::move(access)),
      observers_(observers),
      clock_(clock),
      started_at_(UnixSeconds()) {}

std::optional<Reply> Service::CheckReady() const {
  if (draining_.load(std::memory_order_relaxed)) return BusyReply("the server is shutting down");
  const ModelBackend* only = models_->resident();
  if (only == nullptr || only->is_ready()) return std::nullopt;  // of several, which one is in the body
  if (only->engine_gone()) return BusyReply("the engine is gone");
  return BusyReply(only->info() == nullptr ? "Loading model" : "the engine is being started again");
}

std::optional<Reply> Service::CheckWaitingTokens(const ModelBackend& backend) const {
  const std::int64_t num_waiting = backend.num_waiting_tokens();
  if (num_waiting < config_->waiting_tokens_max) return std::nullopt;
  return BusyReply(fmt::format("{} prompt tokens wait for their turn, and the limit is {}; try again", num_waiting,
                               config_->waiting_tokens_max));
}

Result<ModelBackend*> Service::FindModel(const json::value& body, ModelAccess* access, bool again) {
  if (!access->lease) {
    // Of one model each request takes that; its own name is checked with its other fields.
    std::string name = models_->first_name();
    if (models_->resident() == nullptr) {
      QUIRE_TRY(name, ModelNameOf(body));
    }
    QUIRE_TRY(access->lease, models_->Acquire(name, access->wake, again));
  }
  if (access->lease.is_waiting()) return nullptr;
  return access->lease.backend();
}

std::expected<Service::Admitted, Reply> Service::Admit(const RequestHead& head) {
  if (auto refused = access_.CheckHostAndOrigin(head)) return std::unexpected(*std::move(refused));
  auto match = MatchRoute(head.method, head.target);
  if (!match) return std::unexpected(std::move(match).error());
  const Route& route = *match->route;
  int tenant = 0;
  if (route.needs_key) {
    auto key = access_.CheckKey(head);
    if (!key) return std::unexpected(std::move(key).error());
    tenant = *key;
  }
  if (route.takes_json) {
    if (!IsJson(head.content_type)) {
      return std::unexpected(ErrorReply(ApiError{.status = 415,
                                                 .message = "the body must be JSON: Content-Type: application/json",
                                                 .param = {},
                                                 .code = "unsupported_media_type"}));
    }
    if (!head.content_encoding.empty() && head.content_encoding != "identity") {
      return std::unexpected(ErrorReply(ApiError{.status = 415,
                                                 .message = "compressed bodies are not supported",
                                                 .param = {},
                                                 .code = "unsupported_media_type"}));
    }
    if (auto refused = CheckReady()) return std::unexpected(*std::move(refused));
  }
  Admitted admitted{.match = *std::move(match), .admission = {}, .tenant = tenant};
  if (route.generates) {
    admitted.admission = Admission(&num_admitted_);
    if (num_admitted_.fetch_add(1, std::memory_order_relaxed) >= config_->requests_max) {
      return std::unexpected(BusyReply(
          fmt::format("the server has {} requests already, which is its limit; try again", config_->requests_max)));
    }
  }
  // Of several models, which one it is stands in the body: then they are counted after that is read.
  if (const ModelBackend* only = models_->resident(); route.generates && only != nullptr) {
    if (auto refused = CheckWaitingTokens(*only)) return std::unexpected(*std::move(refused));
  }
  return admitted;
}

Reply Service::Options(const RequestHead& head, std::string_view requested_headers) const {
  if (auto refused = access_.CheckHostAndOrigin(head)) return *std::move(refused);
  const std::string methods = head.target == "*" ? "GET, HEAD, POST, OPTIONS" : AllowedMethods(head.target);
  if (methods.empty()) return MatchRoute("OPTIONS", head.target).error();
  Reply reply{.status = 204, .content_type = ""};
  reply.headers.emplace_back("Allow", methods);
  if (access_.AllowOrigin(head)) {
    reply.headers.emplace_back("Access-Control-Allow-Methods", methods);
    const bool is_plain = requested_headers.size() <= 1024 && std::ranges::all_of(requested_headers, [](char c) {
                            return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                   c == '-' || c == '_' || c == ',' || c == ' ';
                          });
    if (is_plain && !requested_headers.empty()) {
      reply.headers.emplace_back("Access-Control-Allow-Headers", std::string(requested_headers));
    }
    reply.headers.emplace_back("Access-Control-Max-Age", "600");
  }
  return reply;
}

void Service::LogUnknownFields(const std::vector<std::string>& names) {
  constexpr std::size_t kRememberedMax = 256;
  const std::lock_guard lock(mutex_);
  for (const std::string& name : names) {
    if (unknown_fields_.size() >= kRememberedMax) return;
    const std::string shown = SanitizeUtf8(name.substr(0, 100));
    if (unknown_fields_.insert(shown).second) {
      std::string quoted;
      AppendJsonString(shown, /*ascii_only=*/true, &quoted);
      spdlog::debug("requests carry the unknown field {}, which is ignored", quoted);
    }
  }
}

Result<GenerationSpec> Service::Prepare(RouteId route, const json::value& body, const ModelContext& model,
                                        const RequestIdentity& identity) {
  if (route == RouteId::kChatCompletions) {
    QUIRE_TRY(ChatRequest request, ParseChatRequest(body, model.limits));
    LogUnknownFields(request.unknown_fields);
    QUIRE_TRY_VOID(CheckModelName(request.model, model));
    return PrepareChat(std::move(request), model, identity);
  }
  QUIRE_TRY(CompletionRequest request, ParseCompletionRequest(body, model.limits));
  LogUnknownFields(request.unknown_fields);
  QUIRE_TRY_VOID(CheckModelName(request.model, model));
  return PrepareCompletion(std::move(request), model, identity);
}

std::expected<std::unique_ptr<Generation>, Reply> Service::StartGeneration(RouteId route, std::string_view body,
                                                                           std::string_view request_id, int tenant,
                                                                           const RequestOrigin& origin,
                                                                           const std::shared_ptr<EventBox>& box,
                                                                           ModelAccess* access) {
  auto parsed = ParseJson(body, "request body");
  if (!parsed) return std::unexpected(ErrorReply(ApiError{.status = 400, .message = parsed.error().message}));
  const auto backend = FindModel(*parsed, access);
  if (!backend) return std::unexpected(ErrorReply(backend.error()));
  if (*backend == nullptr) return nullptr;
  const auto model = (*backend)->Context();
  if (model == nullptr) return std::unexpected(BusyReply("Loading model"));
  if (auto refused = CheckWaitingTokens(**backend)) return std::unexpected(*std::move(refused));
  const RequestIdentity identity{
      .id = std::string(request_id), .created = UnixSeconds(), .random_seed = RandomBits(), .tenant = tenant};
  auto spec = Prepare(route, *parsed, *model, identity);
  if (!spec) return std::unexpected(ErrorReply(spec.error()));
  const Answer::Observers observers{&(*backend)->metrics(), observers_.spans, clock_};
  auto answer = std::make_unique<Answer>(*std::move(spec), model->tokenizer.get(), observers, origin);
  auto generation =
      std::make_unique<Generation>(std::move(access->lease), std::move(answer), &(*backend)->tracker(), clock_);
  if (auto submitted = generation->Submit(box); !submitted) return std::unexpected(ErrorReply(submitted.error()));
  return generation;
}

Reply Service::HandleQuick(const RouteMatch& match) const {
  switch (match.route->id) {
    case RouteId::kRoot:
      return Root();
    case RouteId::kHealth:
    case RouteId::kPing:
      return Health(match.model);
    case RouteId::kVersion:
      return Reply{.body = "{\"version\":\"" QUIRE_VERSION "\"}"};
    case RouteId::kMetrics:
      return MetricsText();
    case RouteId::kModels:
      return Models();
    case RouteId::kModel:
      return Model(match.argument);
    case RouteId::kCompletions:
    case RouteId::kChatCompletions:
    case RouteId::kTokenize:
    case RouteId::kDetokenize:
    case RouteId::kResetPrefixCache:
    case RouteId::kLoadModel:
    case RouteId::kUnloadModel:
    case RouteId::kStartProfile:
    case RouteId::kStopProfile:
      break;
  }
  return ErrorReply(ApiError{.status = 500, .message = "not a quick route"});
}

std::optional<Reply> Service::HandleSlow(const RouteMatch& match, std::string_view body, ModelAccess* access) {
  const RouteId route = match.route->id;
  if (route == RouteId::kResetPrefixCache) return ResetPrefixCache();
  if (route == RouteId::kStartProfile) return StartProfile();
  if (route == RouteId::kStopProfile) return StopProfile();
  auto parsed = ParseJson(body, "request body");
  if (!parsed) return ErrorReply(ApiError{.status = 400, .message = parsed.error().message});
  if (route == RouteId::kUnloadModel) return Unload(*parsed);
  if (route == RouteId::kLoadModel) {
    const auto name = ModelNameOf(*parsed);
    if (!name) return ErrorReply(name.error());
    if (!models_->Find(*name)) return NoSuchModel(*name);
  }
  const auto backend = FindModel(*parsed, access, /*again=*/route == RouteId::kLoadModel);
  if (!backend) return ErrorReply(backend.error());
  if (*backend == nullptr) return std::nullopt;
  if (route == RouteId::kLoadModel) return Reply{.body = R"({"success":true})"};
  const auto model = (*backend)->Context();
  if (model == nullptr) return BusyReply("Loading model");
  auto text = route == RouteId::kTokenize ? Tokenize(*parsed, *model) : Detokenize(*parsed, *model);
  if (!text) return ErrorReply(text.error());
  return Reply{.body = *std::move(text)};
}

Reply Service::ResetPrefixCache() {
  const auto reset = models_->ResetPrefixCaches();
  if (!reset) return ErrorReply(reset.error());
  return Reply{.content_type = ""};
}

Reply Service::Unload(const json::value& body) {
  const auto name = ModelNameOf(body);
  if (!name) return ErrorReply(name.error());
  if (const auto unloaded = models_->Unload(*name); !unloaded) return ErrorReply(unloaded.error());
  return Reply{.body = R"({"success":true})"};
}

namespace {

// What cannot be done because of what is being done already.
Reply ConflictReply(const Error& error) {
  ApiError api = ToApiError(error);
  if (error.code == ErrorCode::kUnavailable) api.status = 409;
  return ErrorReply(api);
}

}  // namespace

Reply Service::StartProfile() {
  // One name, so that whoever may call this fills the disk once at most.
  const std::string path = fmt::format("{}/quire-{}.trace.json", config_->profile_dir, ::getpid());
  if (const auto started = observers_.profiler->Start(path, TraceFile::Mode::kOwn); !started) {
    return ConflictReply(started.error());
  }
  Reply reply;
  JsonWriter(&reply.body).BeginObject().Key("file").String(path).EndObject();
  return reply;
}

Reply Service::StopProfile() {
  const auto summary = observers_.profiler->Stop();
  if (!summary) return ConflictReply(summary.error());
  Reply reply;
  JsonWriter writer(&reply.body);
  writer.BeginObject().Key("file").String(summary->path);
  writer.Key("events").Int(summary->num_events).Key("dropped_events").Uint(summary->num_dropped).Key("problem");
  summary->problem.empty() ? writer.Null() : writer.String(summary->problem);
  writer.EndObject();
  return reply;
}

RequestOrigin Service::OriginOf(const RequestHead& head) const {
  const auto wall_clock = std::chrono::system_clock::now().time_since_epoch();
  RequestOrigin origin{.arrival = {.at = clock_->Now(),
                                   .unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(wall_clock).count()},
                       .parent = std::nullopt};
  if (observers_.spans != nullptr && !head.traceparent.empty()) {
    origin.parent = ParseTraceParent(head.traceparent, head.tracestate);
  }
  return origin;
}

Reply Service::Health(const std::optional<std::string>& name) const {
  if (auto not_ready = CheckReady()) return *std::move(not_ready);
  if (name) {
    const auto model = models_->Find(*name);
    if (!model) return NoSuchModel(*name);
    if (!model->is_ready) {
      const bool restarts = model->state == ModelState::kLoaded;
      return BusyReply(restarts ? "the engine is being started again"
                                : fmt::format("the model is {}", ModelStateName(model->state)));
    }
  } else if (models_->is_starting()) {
    return BusyReply("Loading model");
  }
  return Reply{.content_type = ""};
}

Reply Service::MetricsText() const {
  if (observers_.spans != nullptr) {
    const SpanExporter::Counts counts = observers_.spans->counts();
    models_->metrics().UpdateSpans(counts.exported, counts.dropped);
  }
  Reply reply{.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = models_->metrics().Serialize()};
  if (models_->resident() == nullptr) reply.body += ModelMetrics(models_->List(), models_->config().memory_bytes);
  return reply;
}

void Service::WriteModelCard(const std::string& name, const ModelStatus& model, JsonWriter* writer) const {
  writer->BeginObject();
  writer->Key("id").String(name);
  writer->Key("object").String("model");
  writer->Key("created").Int(started_at_);
  writer->Key("owned_by").String("quire");
  writer->Key("root").String(model.names.front());
  writer->Key("parent").Null();
  writer->Key("max_model_len");
  model.max_model_len > 0 ? writer->Int(model.max_model_len) : writer->Null();
  writer->Key("status");
  WriteModelStatus(model, writer);
  writer->Key("permission").BeginArray().EndArray();
  writer->Key("meta");  // as llama.cpp's server has it: load generators make prompts of ids
  model.vocab_size > 0 ? writer->BeginObject().Key("n_vocab").Int(model.vocab_size).EndObject() : writer->Null();
  writer->EndObject();
}

Reply Service::Models() const {
  Reply reply;
  JsonWriter writer(&reply.body);
  writer.BeginObject().Key("object").String("list").Key("data").BeginArray();
  for (const ModelStatus& model : models_->List()) {
    for (const std::string& name : model.names) WriteModelCard(name, model, &writer);
  }
  writer.EndArray().EndObject();
  return reply;
}

Reply Service::Model(const std::string& name) const {
  const auto model = models_->Find(name);
  if (!model) return NoSuchModel(name);
  Reply reply;
  JsonWriter writer(&reply.body);
  WriteModelCard(name, *model, &writer);
  return reply;
}

Reply Service::Root() const {
  std::string model;
  AppendJsonString(models_->first_name(), /*ascii_only=*/true, &model);
  Reply reply{.content_type = "text/plain; charset=utf-8"};
  reply.body = fmt::format(
      "quire {}: a language model behind the OpenAI API.\n\n"
      "Try it:\n\n"
      "  curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{{\"model\": {}, \"messages\": [{{\"role\": \"user\", \"content\": \"Hello!\"}}], \"stream\": "
      "true}}'\n\n"
      "Routes: POST /v1/chat/completions, /v1/completions, /tokenize, /detokenize, /reset_prefix_cache,\n"
      "        /models/load, /models/unload, /start_profile, /stop_profile;\n"
      "        GET /v1/models, /health, /metrics, /version.\n",
      QUIRE_VERSION, url_, model);
  return reply;
}

}  // namespace quire::server
