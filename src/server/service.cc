#include "server/service.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/utf8.h"
#include "server/tokenize.h"

namespace quire::server {
namespace {

std::int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// For ids and default seeds.
std::uint64_t RandomBits() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
    bits = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  return bits;
}

// FNV-1a: a name for a configuration, not a secret.
std::uint64_t HashText(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

bool IsJson(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  while (type.ends_with(' ')) type.pop_back();
  std::ranges::transform(type, type.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return type == "application/json" || (type.starts_with("application/") && type.ends_with("+json"));
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
    QUIRE_TRY(const RequestId id, tracker_->Submit(answer_->MakeRequest(prompt, tracker_->NextId()), prompt, box));
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

Service::Service(const ServerConfig* config, const ServedModel* model, AccessControl access, RequestTracker* tracker,
                 EngineMonitor* monitor, Metrics* metrics, const Clock* clock)
    : config_(config),
      model_(model),
      access_(std::move(access)),
      tracker_(tracker),
      monitor_(monitor),
      metrics_(metrics),
      clock_(clock),
      started_at_(UnixSeconds()) {}

std::optional<Reply> Service::CheckReady() const {
  if (draining_.load(std::memory_order_relaxed)) return BusyReply("the server is shutting down");
  if (tracker_->engine_gone()) return BusyReply("the engine is gone");
  if (monitor_->is_ready()) return std::nullopt;
  return BusyReply(monitor_->info() == nullptr ? "Loading model" : "the engine is being started again");
}

std::expected<Service::Admitted, Reply> Service::Admit(const RequestHead& head) {
  if (auto refused = access_.CheckHostAndOrigin(head)) return std::unexpected(*std::move(refused));
  auto match = MatchRoute(head.method, head.target);
  if (!match) return std::unexpected(std::move(match).error());
  const Route& route = *match->route;
  if (route.needs_key) {
    if (auto refused = access_.CheckKey(head)) return std::unexpected(*std::move(refused));
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
  Admitted admitted{.match = *std::move(match), .admission = {}};
  if (route.generates) {
    admitted.admission = Admission(&num_admitted_);
    if (num_admitted_.fetch_add(1, std::memory_order_relaxed) >= config_->requests_max) {
      return std::unexpected(BusyReply(
          fmt::format("the server has {} requests already, which is its limit; try again", config_->requests_max)));
    }
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

std::shared_ptr<const ModelContext> Service::Context() {
  const auto info = monitor_->info();
  if (info == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  if (context_ != nullptr && context_info_ == info) return context_;
  auto context = std::make_shared<ModelContext>();
  context->names = model_->names;
  context->tokenizer = model_->tokenizer;
  context->chat_template = model_->chat_template;
  context->defaults = model_->defaults;
  context->limits = {.vocab_size = info->vocab_size,
                     .max_model_len = model_->max_model_len > 0 ? std::min(model_->max_model_len, info->max_model_len)
                                                                : info->max_model_len,
                     .logprobs_max = config_->logprobs_max};
  for (int id = 0; id < model_->tokenizer->vocab_size(); ++id) {
    context->token_bytes_max = std::max(context->token_bytes_max, model_->tokenizer->TokenText(TokenId(id)).size());
  }
  context->system_fingerprint = fmt::format(
      "quire-{:016x}", HashText(fmt::format("{}|{}|{}|{}|{}|{}", QUIRE_VERSION, info->model_path, info->architecture,
                                            info->weight_formats, info->isa, info->kv_dtype)));
  context_info_ = info;
  context_ = std::move(context);
  return context_;
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
                                                                           std::string_view request_id,
                                                                           TimePoint arrival,
                                                                           const std::shared_ptr<EventBox>& box) {
  const auto model = Context();
  if (model == nullptr) return std::unexpected(BusyReply("Loading model"));
  auto parsed = ParseJson(body, "request body");
  if (!parsed) return std::unexpected(ErrorReply(ApiError{.status = 400, .message = parsed.error().message}));
  const RequestIdentity identity{.id = std::string(request_id), .created = UnixSeconds(), .random_seed = RandomBits()};
  auto spec = Prepare(route, *parsed, *model, identity);
  if (!spec) return std::unexpected(ErrorReply(spec.error()));
  auto generation = std::make_unique<Generation>(
      std::make_unique<Answer>(*std::move(spec), model->tokenizer.get(), metrics_, arrival), tracker_);
  if (auto submitted = generation->Submit(box); !submitted) return std::unexpected(ErrorReply(submitted.error()));
  return generation;
}

Reply Service::HandleQuick(const RouteMatch& match) const {
  switch (match.route->id) {
    case RouteId::kRoot:
      return Root();
    case RouteId::kHealth:
    case RouteId::kPing:
      return Health();
    case RouteId::kVersion:
      return Reply{.body = "{\"version\":\"" QUIRE_VERSION "\"}"};
    case RouteId::kMetrics:
      return Reply{.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_->Serialize()};
    case RouteId::kModels:
      return Models();
    case RouteId::kModel:
      return Model(match.argument);
    case RouteId::kCompletions:
    case RouteId::kChatCompletions:
    case RouteId::kTokenize:
    case RouteId::kDetokenize:
    case RouteId::kResetPrefixCache:
      break;
  }
  return ErrorReply(ApiError{.status = 500, .message = "not a quick route"});
}

Reply Service::HandleSlow(const RouteMatch& match, std::string_view body) {
  if (match.route->id == RouteId::kResetPrefixCache) return ResetPrefixCache();
  const auto model = Context();
  if (model == nullptr) return BusyReply("Loading model");
  auto parsed = ParseJson(body, "request body");
  if (!parsed) return ErrorReply(ApiError{.status = 400, .message = parsed.error().message});
  auto text = match.route->id == RouteId::kTokenize ? Tokenize(*parsed, *model) : Detokenize(*parsed, *model);
  if (!text) return ErrorReply(text.error());
  return Reply{.body = *std::move(text)};
}

Reply Service::ResetPrefixCache() {
  const auto reset = model_->engine->ResetPrefixCache();
  if (!reset) return ErrorReply(reset.error());
  return Reply{.content_type = ""};
}

Reply Service::Health() const {
  if (auto not_ready = CheckReady()) return *std::move(not_ready);
  return Reply{.content_type = ""};
}

void Service::WriteModelCard(const std::string& name, JsonWriter* writer) const {
  writer->BeginObject();
  writer->Key("id").String(name);
  writer->Key("object").String("model");
  writer->Key("created").Int(started_at_);
  writer->Key("owned_by").String("quire");
  writer->Key("root").String(model_->names.front());
  writer->Key("parent").Null();
  writer->Key("max_model_len");
  const auto info = monitor_->info();
  int length = model_->max_model_len;
  if (info != nullptr) length = length > 0 ? std::min(length, info->max_model_len) : info->max_model_len;
  length > 0 ? writer->Int(length) : writer->Null();
  writer->Key("permission").BeginArray().EndArray();
  writer->EndObject();
}

Reply Service::Models() const {
  Reply reply;
  JsonWriter writer(&reply.body);
  writer.BeginObject().Key("object").String("list").Key("data").BeginArray();
  for (const std::string& name : model_->names) WriteModelCard(name, &writer);
  writer.EndArray().EndObject();
  return reply;
}

Reply Service::Model(const std::string& name) const {
  if (std::ranges::find(model_->names, name) == model_->names.end()) {
    return ErrorReply(
        ApiError{.status = 404,
                 .message = fmt::format("The model `{}` does not exist.", SanitizeUtf8(name.substr(0, 200))),
                 .param = "model",
                 .code = "model_not_found"});
  }
  Reply reply;
  JsonWriter writer(&reply.body);
  WriteModelCard(name, &writer);
  return reply;
}

Reply Service::Root() const {
  std::string model;
  AppendJsonString(model_->names.front(), /*ascii_only=*/true, &model);
  Reply reply{.content_type = "text/plain; charset=utf-8"};
  reply.body = fmt::format(
      "quire {}: a language model behind the OpenAI API.\n\n"
      "Try it:\n\n"
      "  curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{{\"model\": {}, \"messages\": [{{\"role\": \"user\", \"content\": \"Hello!\"}}], \"stream\": "
      "true}}'\n\n"
      "Routes: POST /v1/chat/completions, /v1/completions, /tokenize, /detokenize, /reset_prefix_cache;\n"
      "        GET /v1/models, /health, /metrics, /version.\n",
      QUIRE_VERSION, url_, model);
  return reply;
}

}  // namespace quire::server
