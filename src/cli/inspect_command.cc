// `quire inspect`: what a model file holds, without loading it.
#include <map>
#include <type_traits>
#include <utility>

#include "base/json.h"
#include "cli/command.h"
#include "cli/model_location.h"
#include "cli/units.h"
#include "engine/engine_options.h"
#include "weights/model_source.h"

namespace quire::cli {
namespace {

struct InspectFlags {
  std::filesystem::path model;
  bool tensors = false;
  bool json = false;
};

struct TypeTotal {
  int num_tensors = 0;
  std::int64_t num_elements = 0;
  std::int64_t num_bytes = 0;
};

std::int64_t NumElements(const weights::TensorSource& tensor) {
  return tensor.rows() * tensor.columns();
}

std::string ShapeText(const weights::TensorSource& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

std::map<std::string_view, TypeTotal> TotalsByType(const weights::ModelSource& source) {
  std::map<std::string_view, TypeTotal> totals;
  for (const weights::TensorSource& tensor : source.tensors()) {
    TypeTotal& total = totals[tensor.type->name];
    ++total.num_tensors;
    total.num_elements += NumElements(tensor);
    total.num_bytes += static_cast<std::int64_t>(tensor.data.size());
  }
  return totals;
}

std::string_view RopeName(weights::RopeType type) {
  switch (type) {
    case weights::RopeType::kDefault:
      return "default";
    case weights::RopeType::kLinear:
      return "linear";
    case weights::RopeType::kDynamic:
      return "dynamic";
    case weights::RopeType::kLlama3:
      return "llama3";
    case weights::RopeType::kYarn:
      return "yarn";
  }
  return "";
}

struct ConfigRow {
  std::string_view name;
  std::string value;
  bool is_text;  // else a number, true or false
};

// For both kinds of output.
std::vector<ConfigRow> ConfigRows(const weights::ModelConfig& config) {
  std::vector<ConfigRow> rows;
  const auto add = [&](std::string_view name, const auto& value) {
    rows.push_back({name, fmt::format("{}", value), std::is_convertible_v<decltype(value), std::string_view>});
  };
  add("architecture", config.architecture_name);
  add("vocab_size", config.vocab_size);
  add("hidden_size", config.hidden_size);
  add("intermediate_size", config.intermediate_size);
  add("num_layers", config.num_layers);
  add("num_heads", config.num_heads);
  add("num_kv_heads", config.num_kv_heads);
  add("head_dim", config.head_dim);
  add("max_position_embeddings", config.max_position_embeddings);
  add("rms_norm_eps", config.rms_norm_eps);
  add("rope", RopeName(config.rope.type));
  add("rope_theta", config.rope.theta);
  if (config.rope.type != weights::RopeType::kDefault) add("rope_factor", config.rope.factor);
  add("sliding_window", config.sliding_window);
  add("tie_word_embeddings", config.tie_word_embeddings);
  add("qkv_bias", config.qkv_bias);
  add("qk_norm", config.qk_norm);
  if (config.quantization) add("quantization", config.quantization->name);
  return rows;
}

// What one token costs in the KV cache.
std::int64_t KvBytesPerToken(const weights::ModelConfig& config, kernels::KvDtype dtype) {
  const kernels::KvLayout layout{.num_layers = config.num_layers,
                                 .num_kv_heads = config.num_kv_heads,
                                 .head_dim = config.head_dim,
                                 .dtype = dtype};
  return static_cast<std::int64_t>(layout.block_bytes()) / kernels::KvLayout::block_size;
}

void PrintText(const InspectFlags& flags, const weights::ModelSource& source) {
  const weights::ModelConfig& config = source.config();
  fmt::print("{} ({})\n\n", flags.model.string(), source.is_gguf() ? "GGUF" : "Hugging Face folder");
  for (const ConfigRow& row : ConfigRows(config)) fmt::print("  {:<26}{}\n", row.name, Printable(row.value));
  fmt::print("  {:<26}{}\n", "eos_token_ids", fmt::join(config.eos_token_ids, ", "));
  std::string_view label = "keys and values";
  for (const kernels::KvDtype dtype : kernels::kKvDtypes) {
    fmt::print("  {:<26}{} per token in {}\n", std::exchange(label, ""), FormatBytes(KvBytesPerToken(config, dtype)),
               engine::KvDtypeName(dtype));
  }
  fmt::print("\n");
  std::int64_t parameters = 0;
  // Words of packed codes are not parameters.
  const std::string_view counted = config.quantization ? "elements" : "parameters";
  fmt::print("  {:<12}{:>10}{:>14}{:>14}\n", "type", "tensors", counted, "size");
  for (const auto& [type, total] : TotalsByType(source)) {
    parameters += total.num_elements;
    fmt::print("  {:<12}{:>10}{:>14}{:>14}\n", type, total.num_tensors, FormatCount(total.num_elements),
               FormatBytes(total.num_bytes));
  }
  fmt::print("  {:<12}{:>10}{:>14}{:>14}\n", "all", source.tensors().size(), FormatCount(parameters),
             FormatBytes(source.total_bytes()));
  if (!flags.tensors) return;
  fmt::print("\n");
  for (const weights::TensorSource& tensor : source.tensors()) {
    fmt::print("  {:<52} {:<6} {:<20} {:>10}\n", Printable(tensor.name), tensor.type->name, ShapeText(tensor),
               FormatBytes(static_cast<std::int64_t>(tensor.data.size())));
  }
}

void PrintJson(const InspectFlags& flags, const weights::ModelSource& source) {
  std::string text;
  JsonWriter writer(&text);
  writer.BeginObject().Key("path").String(flags.model.native());
  writer.Key("format").String(source.is_gguf() ? "gguf" : "huggingface");
  writer.Key("config").BeginObject();
  for (const ConfigRow& row : ConfigRows(source.config())) {
    writer.Key(row.name);
    row.is_text ? writer.String(row.value) : writer.Raw(row.value);
  }
  writer.EndObject();
  writer.Key("kv_bytes_per_token").BeginObject();
  for (const kernels::KvDtype dtype : kernels::kKvDtypes) {
    writer.Key(engine::KvDtypeName(dtype)).Int(KvBytesPerToken(source.config(), dtype));
  }
  writer.EndObject();
  writer.Key("types").BeginObject();
  for (const auto& [type, total] : TotalsByType(source)) {
    writer.Key(type).BeginObject().Key("tensors").Int(total.num_tensors).Key("parameters").Int(total.num_elements);
    writer.Key("bytes").Int(total.num_bytes).EndObject();
  }
  writer.EndObject();
  writer.Key("bytes").Int(source.total_bytes()).Key("tensors").BeginArray();
  for (const weights::TensorSource& tensor : source.tensors()) {
    writer.BeginObject().Key("name").String(tensor.name).Key("type").String(tensor.type->name);
    writer.Key("shape").BeginArray();
    for (const std::int64_t size : tensor.shape) writer.Int(size);
    writer.EndArray().Key("bytes").Uint(tensor.data.size()).EndObject();
  }
  writer.EndArray().EndObject();
  fmt::print("{}\n", text);
}

Result<> Inspect(InspectFlags flags) {
  if (flags.model.empty()) {
    QUIRE_TRY(flags.model, FindDemoModel());
  }
  QUIRE_TRY(const auto source, weights::ModelSource::Open(flags.model));
  if (flags.json) {
    PrintJson(flags, *source);
  } else {
    PrintText(flags, *source);
  }
  return {};
}

}  // namespace

void AddInspectCommand(CLI::App* app, CommandSlot* slot) {
  CLI::App* command = app->add_subcommand("inspect",
                                          "show what a model holds: configuration, tensors, types, sizes\n\n"
                                          "  quire inspect Qwen3-0.6B --tensors\n"
                                          "  quire inspect model.gguf --json");
  auto flags = std::make_shared<InspectFlags>();  // shared by the parser's callback and the flags that fill it
  command
      ->add_option_function<std::string>(
          "model,--model", [flags](const std::string& text) { flags->model = text; },
          "a Hugging Face folder or a .gguf file (default: the demo model)")
      ->type_name("PATH");
  command->add_flag("--tensors", flags->tensors, "list every tensor");
  command->add_flag("--json", flags->json, "JSON, with all tensors; sizes in bytes");
  SetRun(command, slot, "inspect", [flags] {
    const Result<> inspected = Inspect(*flags);
    return inspected ? kExitSuccess : ReportError("inspect", inspected.error());
  });
}

}  // namespace quire::cli
