#include "bench/load/serve_load.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "bench/load/arrivals.h"
#include "bench/load/dataset.h"

namespace quire::bench::load {
namespace {

// The streams of prompts that are sent before the measured ones; no measured one finds them in a cache.
constexpr std::uint64_t kWarmupStreams = std::uint64_t{1} << 30, kProbeStream = std::uint64_t{1} << 31;

struct ModelCard {
  std::string id;
  int vocab_size = 0;  // 0: not said
};

// The model of a name, or the first one.
Result<ModelCard> FindModel(const json::value& answer, const std::string& name) {
  const json::value* data = answer.is_object() ? answer.get_object().if_contains("data") : nullptr;
  if (data == nullptr || !data->is_array() || data->get_array().empty()) {
    return Fail(ErrorCode::kUnavailable, "/v1/models names no model; --model can");
  }
  for (const json::value& card : data->get_array()) {
    if (!card.is_object()) continue;
    const json::object& object = card.get_object();
    const json::value* id = object.if_contains("id");
    if (id == nullptr || !id->is_string()) continue;
    ModelCard found{.id = std::string(id->get_string().data(), id->get_string().size())};
    if (!name.empty() && found.id != name) continue;
    const json::value* meta = object.if_contains("meta");
    const json::value* size =
        meta != nullptr && meta->is_object() ? meta->get_object().if_contains("n_vocab") : nullptr;
    if (size != nullptr && size->is_int64()) {
      found.vocab_size = static_cast<int>(std::clamp<std::int64_t>(size->get_int64(), 0, 1 << 30));
    }
    return found;
  }
  return ModelCard{.id = name};  // an alias that the list leaves out
}

Result<ModelCard> AskForModel(const Target& target, const LoadConfig& config) {
  const Result<std::string> answer = Get(target, "/v1/models", config.traffic);
  if (!answer && !config.client.model.empty()) return ModelCard{.id = config.client.model};
  if (!answer) return std::unexpected(answer.error());
  QUIRE_TRY(const json::value value, ParseJson(*answer, "/v1/models"));
  return FindModel(value, config.client.model);
}

// How many words make a token: one prompt of words tells.
Result<double> MeasureWordsPerToken(const ServerFacts& facts, const TrafficConfig& traffic) {
  constexpr int kWordsOfProbe = 256;
  Request probe;
  probe.parts = {{.stream = kProbeStream, .num_tokens = kWordsOfProbe}};
  QUIRE_TRY(const Run run, RunLoad(facts.target, {&probe, 1}, facts.style, traffic));
  const Outcome& outcome = run.outcomes.front();
  if (!outcome.is_ok()) return Fail(ErrorCode::kUnavailable, "the first request failed: {}", outcome.error);
  if (!outcome.has_usage || outcome.num_prompt_tokens <= 0) return 1.0;
  return static_cast<double>(kWordsOfProbe) / outcome.num_prompt_tokens;
}

Result<> WarmUp(const ServerFacts& facts, const LoadConfig& config) {
  DatasetConfig warmup;
  warmup.num_prompts = config.traffic.num_warmup;
  warmup.input_len = 64;
  warmup.output_len = 16;
  if (warmup.num_prompts == 0) return {};
  TrafficConfig traffic = config.traffic;
  traffic.max_concurrency = std::max(1, traffic.max_concurrency);
  const Dataset dataset = MakeUpPrompts(warmup, kWarmupStreams);
  QUIRE_TRY(const Run run, RunLoad(facts.target, dataset.requests, facts.style, traffic));
  for (const Outcome& outcome : run.outcomes) {
    if (!outcome.is_ok()) return Fail(ErrorCode::kUnavailable, "a request before the run failed: {}", outcome.error);
  }
  return {};
}

}  // namespace

Result<ServerFacts> AskServer(const LoadConfig& config, bool has_chats) {
  const ClientConfig& client = config.client;
  ServerFacts facts;
  QUIRE_TRY(facts.target, Target::Parse(client.base_url));
  facts.target.headers = client.headers;
  if (!client.api_key.empty()) facts.target.headers.push_back("Authorization: Bearer " + client.api_key);
  QUIRE_TRY(const ModelCard card, AskForModel(facts.target, config));
  BodyStyle& style = facts.style;
  style.model = card.id;
  style.is_chat = client.endpoint == "chat" || (client.endpoint == "auto" && has_chats);
  style.temperature = client.temperature;
  style.ignore_eos = client.ignore_eos;
  style.seed = config.dataset.seed;
  if (!client.extra_body.empty()) {
    QUIRE_TRY(json::value extra, ParseJson(client.extra_body, "extra-body"));
    style.extra = std::move(extra.as_object());
  }
  if (client.prompt_format != PromptFormat::kText && !style.is_chat) {
    style.vocab_size = client.vocab_size > 0 ? client.vocab_size : card.vocab_size;
  }
  if (client.prompt_format == PromptFormat::kIds && style.is_chat) {
    return FailParam("prompt-format", "a chat cannot be sent as ids");
  }
  if (client.prompt_format == PromptFormat::kIds && style.vocab_size == 0) {
    return FailParam("vocab-size", "the server does not say how many tokens it knows");
  }
  return facts;
}

Result<LoadReport> RunServeBench(const LoadConfig& config, const Progress& progress) {
  QUIRE_TRY_VOID(config.Validate());
  LoadReport report{.config = config};
  QUIRE_TRY(Dataset dataset, MakeDataset(config.dataset));
  const bool has_chats = std::ranges::any_of(dataset.requests, &Request::is_chat);
  if (has_chats && config.client.endpoint == "completions") {
    return FailParam("endpoint", "the dataset holds chats, which completions do not take");
  }
  report.is_replay = dataset.has_arrivals && std::isinf(config.traffic.request_rate);
  if (!report.is_replay) AssignArrivals(dataset.requests, config.traffic, config.dataset.seed);
  QUIRE_TRY(report.server, AskServer(config, has_chats));
  const bool has_words = report.server.style.vocab_size == 0 && !dataset.requests.front().parts.empty();
  if (has_words) {
    QUIRE_TRY(report.server.style.words_per_token, MeasureWordsPerToken(report.server, config.traffic));
  }
  QUIRE_TRY_VOID(WarmUp(report.server, config));
  report.num_left_out = dataset.num_left_out;
  report.requests = std::move(dataset.requests);
  QUIRE_TRY(report.run, RunLoad(report.server.target, report.requests, report.server.style, config.traffic, progress));
  report.metrics = ComputeMetrics(report.run.outcomes, report.run.duration_seconds, config.goodput);
  return report;
}

}  // namespace quire::bench::load
