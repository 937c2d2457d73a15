#include "server/model_status.h"

#include <fmt/format.h>

#include <iterator>

namespace quire::server {
namespace {

// A value between the quotes of a label.
std::string LabelText(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

struct GaugeRow {
  std::string_view name, type, help;
  std::uint64_t (*value)(const ModelStatus&);
};
constexpr GaugeRow kGauges[] = {
    {"quire:model_memory_bytes", "gauge", "Memory reserved for weights, keys and values of a model.",
     [](const ModelStatus& model) { return static_cast<std::uint64_t>(model.memory_bytes); }},
    {"quire:model_requests_waiting", "gauge", "Requests that wait for a model to be loaded.",
     [](const ModelStatus& model) { return static_cast<std::uint64_t>(model.num_waiting); }},
    {"quire:model_loads_total", "counter", "Times that a model was loaded.",
     [](const ModelStatus& model) { return model.num_loads; }},
    {"quire:model_load_failures_total", "counter", "Times that a model could not be loaded.",
     [](const ModelStatus& model) { return model.num_failures; }},
};

void AppendHead(std::string_view name, std::string_view type, std::string_view help, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

}  // namespace

std::string_view ModelStateName(ModelState state) {
  switch (state) {
    case ModelState::kUnloaded:
      return "unloaded";
    case ModelState::kLoading:
      return "loading";
    case ModelState::kLoaded:
      return "loaded";
    case ModelState::kUnloading:
      return "unloading";
  }
  return "";
}

std::string_view UnloadReasonName(UnloadReason reason) {
  switch (reason) {
    case UnloadReason::kEvicted:
      return "evicted";
    case UnloadReason::kIdle:
      return "idle";
    case UnloadReason::kAsked:
      return "asked";
    case UnloadReason::kDied:
      return "died";
  }
  return "";
}

void WriteModelStatus(const ModelStatus& status, JsonWriter* writer) {
  writer->BeginObject();
  writer->Key("value").String(ModelStateName(status.state));
  writer->Key("memory_bytes").Int(status.memory_bytes);
  writer->Key("num_requests").Int(status.num_requests);
  writer->Key("num_waiting").Int(status.num_waiting);
  if (!status.error.empty()) {
    writer->Key("failed").Bool(true);
    writer->Key("error").String(status.error);
  }
  writer->EndObject();
}

std::string ModelMetrics(std::span<const ModelStatus> models, std::int64_t memory_bytes) {
  std::string text;
  const auto out = std::back_inserter(text);
  AppendHead("quire:models_memory_limit_bytes", "gauge", "Memory that all models may take together.", &text);
  fmt::format_to(out, "quire:models_memory_limit_bytes {}\n", memory_bytes);
  AppendHead("quire:model_state", "gauge", "1 for the state that a model is in, 0 for the others.", &text);
  for (const ModelStatus& model : models) {
    for (const ModelState state : kModelStates) {
      fmt::format_to(out, "quire:model_state{{model_name=\"{}\",state=\"{}\"}} {}\n", LabelText(model.names.front()),
                     ModelStateName(state), model.state == state ? 1 : 0);
    }
  }
  for (const GaugeRow& row : kGauges) {
    AppendHead(row.name, row.type, row.help, &text);
    for (const ModelStatus& model : models) {
      fmt::format_to(out, "{}{{model_name=\"{}\"}} {}\n", row.name, LabelText(model.names.front()), row.value(model));
    }
  }
  AppendHead("quire:model_unloads_total", "counter", "Times that a model was unloaded, by reason.", &text);
  for (const ModelStatus& model : models) {
    for (const UnloadReason reason : kUnloadReasons) {
      fmt::format_to(out, "quire:model_unloads_total{{model_name=\"{}\",reason=\"{}\"}} {}\n",
                     LabelText(model.names.front()), UnloadReasonName(reason),
                     model.num_unloads[static_cast<std::size_t>(reason)]);
    }
  }
  return text;
}

}  // namespace quire::server
