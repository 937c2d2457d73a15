#include "bench/simulation/devices.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <variant>

#include "base/check.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "weights/atomic_file.h"

namespace quire::bench {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{16} << 20;

// Limits and memory are the makers' figures; the efficiencies are guesses that a user is meant to replace. An EPYC's
// arithmetic: 96 cores · 2.4 GHz · 64 operations of BF16 dot products a cycle.
constexpr std::string_view kBuiltIn = R"({
"devices": [
{"name": "rtx-4090", "memory_gb": 24, "bandwidth_gb_per_second": 1008, "tflops": 165, "step_overhead_us": 2000, "sequence_overhead_us": 10},
{"name": "h100", "memory_gb": 80, "bandwidth_gb_per_second": 3350, "tflops": 989, "step_overhead_us": 2000, "sequence_overhead_us": 10},
{"name": "h200", "memory_gb": 141, "bandwidth_gb_per_second": 4800, "tflops": 989, "step_overhead_us": 2000, "sequence_overhead_us": 10},
{"name": "epyc-9654", "memory_gb": 768, "bandwidth_gb_per_second": 461, "tflops": 14.7, "step_overhead_us": 200, "sequence_overhead_us": 5}
],
"models": [
{"name": "demo", "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 512, "num_layers": 6, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "max_model_len": 2048},
{"name": "qwen2.5-0.5b", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_layers": 24, "num_heads": 14, "num_kv_heads": 2, "head_dim": 64, "max_model_len": 32768},
{"name": "qwen2.5-7b", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_layers": 28, "num_heads": 28, "num_kv_heads": 4, "head_dim": 128, "max_model_len": 32768},
{"name": "qwen3-0.6b", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_layers": 28, "num_heads": 16, "num_kv_heads": 8, "head_dim": 128, "max_model_len": 40960},
{"name": "llama-3.2-1b", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_layers": 16, "num_heads": 32, "num_kv_heads": 8, "head_dim": 64, "max_model_len": 131072},
{"name": "llama-3.1-8b", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_layers": 32, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "max_model_len": 131072},
{"name": "llama-3.1-70b-fp8", "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672, "num_layers": 80, "num_heads": 64, "num_kv_heads": 8, "head_dim": 128, "max_model_len": 131072, "weight_bits": 8},
{"name": "llama-2-7b", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_layers": 32, "num_heads": 32, "num_kv_heads": 32, "head_dim": 128, "max_model_len": 4096}
]
})";

// ---- Fields: one table serves reading, its ranges, and writing ------------------------------------------------------

template <typename Struct>
struct NumberField {
  std::string_view key;
  std::variant<double Struct::*, int Struct::*> member;
  double least, most;
  bool is_optional = false;  // the default of the struct stands when it is absent
};

template <typename Struct>
struct Fields;

template <>
struct Fields<Device> {
  static constexpr std::string_view kWhat = "device";
  static constexpr NumberField<Device> kNumbers[] = {
      {"memory_gb", &Device::memory_gb, 0.001, 1e9},
      {"bandwidth_gb_per_second", &Device::bandwidth_gb_per_second, 0.001, 1e9},
      {"tflops", &Device::tflops, 1e-6, 1e9},
      {"bandwidth_efficiency", &Device::bandwidth_efficiency, 0.001, 1, true},
      {"flops_efficiency", &Device::flops_efficiency, 0.001, 1, true},
      {"step_overhead_us", &Device::step_overhead_us, 0, 1e9, true},
      {"sequence_overhead_us", &Device::sequence_overhead_us, 0, 1e9, true},
  };
};

template <>
struct Fields<ModelShape> {
  static constexpr std::string_view kWhat = "model";
  static constexpr NumberField<ModelShape> kNumbers[] = {
      {"vocab_size", &ModelShape::vocab_size, 2, 1e8},
      {"hidden_size", &ModelShape::hidden_size, 1, 1e6},
      {"intermediate_size", &ModelShape::intermediate_size, 1, 1e7},
      {"num_layers", &ModelShape::num_layers, 1, 1e4},
      {"num_heads", &ModelShape::num_heads, 1, 1e4},
      {"num_kv_heads", &ModelShape::num_kv_heads, 1, 1e4},
      {"head_dim", &ModelShape::head_dim, 1, 1e4},
      {"max_model_len", &ModelShape::max_model_len, 2, 1e8},
      {"weight_bits", &ModelShape::weight_bits, 0.1, 64, true},
      {"kv_bits", &ModelShape::kv_bits, 0.1, 64, true},
  };
};

template <>
struct Fields<MeasuredSteps> {
  static constexpr std::string_view kWhat = "measurement";
  static constexpr NumberField<MeasuredSteps> kNumbers[] = {
      {"decode_context_us", &MeasuredSteps::decode_context_us, 0, 1e9},
      {"chunk_pair_us", &MeasuredSteps::chunk_pair_us, 0, 1e9},
  };
};

// The entries of one list, with errors that say which and where.
class EntryReader {
 public:
  EntryReader(const json::object* object, std::string where) : object_(object), where_(std::move(where)) {}

  Result<std::string> String(std::string_view key) {
    known_.push_back(key);
    const json::value* const value = object_->if_contains(key);
    if (value == nullptr || !value->is_string() || value->get_string().empty()) {
      return Fail(ErrorCode::kCorrupt, "{}: \"{}\" must be a name", where_, key);
    }
    return std::string(value->get_string());
  }

  template <typename Struct>
  Result<> Numbers(Struct* entry) {
    for (const NumberField<Struct>& field : Fields<Struct>::kNumbers) {
      known_.push_back(field.key);
      const json::value* const value = object_->if_contains(field.key);
      if (value == nullptr && field.is_optional) continue;
      const double number = value != nullptr && value->is_number() ? value->to_number<double>() : -1;
      const bool wants_int = std::holds_alternative<int Struct::*>(field.member);
      if (!(number >= field.least && number <= field.most) || (wants_int && number != static_cast<int>(number))) {
        return Fail(ErrorCode::kCorrupt, "{}: {} must be {} from {} to {}", where_, field.key,
                    wants_int ? "an integer" : "a number", field.least, field.most);
      }
      std::visit(
          [&](auto member) { entry->*member = static_cast<std::remove_reference_t<decltype(entry->*member)>>(number); },
          field.member);
    }
    return {};
  }

  // Pairs of a count and microseconds, the counts ascending.
  Result<> Table(std::string_view key, std::vector<std::pair<double, double>>* table) {
    known_.push_back(key);
    const json::value* const value = object_->if_contains(key);
    const auto wrong = [&] {
      return Fail(ErrorCode::kCorrupt, "{}: {} must be pairs [count, microseconds] with ascending counts above 0",
                  where_, key);
    };
    if (value == nullptr || !value->is_array() || value->get_array().empty()) return wrong();
    for (const json::value& pair : value->get_array()) {
      if (!pair.is_array() || pair.get_array().size() != 2) return wrong();
      const json::value &x = pair.get_array()[0], &y = pair.get_array()[1];
      if (!x.is_number() || !y.is_number()) return wrong();
      table->emplace_back(x.to_number<double>(), y.to_number<double>());
      const double before = table->size() > 1 ? (*table)[table->size() - 2].first : 0;
      if (!(table->back().first > before) || !(table->back().second >= 0)) return wrong();
    }
    return {};
  }

  // Keys that nobody asked for are mistakes.
  Result<> Finish() const {
    for (const auto& entry : *object_) {
      if (std::ranges::find(known_, std::string_view(entry.key())) == known_.end()) {
        return Fail(ErrorCode::kCorrupt, "{}: there is no field \"{}\"", where_, std::string_view(entry.key()));
      }
    }
    return {};
  }

 private:
  const json::object* object_;
  std::string where_;
  std::vector<std::string_view> known_;
};

Result<> ReadEntry(EntryReader* reader, Device* device) {
  QUIRE_TRY(device->name, reader->String("name"));
  return reader->Numbers(device);
}

Result<> ReadEntry(EntryReader* reader, ModelShape* model) {
  QUIRE_TRY(model->name, reader->String("name"));
  return reader->Numbers(model);
}

Result<> ReadEntry(EntryReader* reader, MeasuredSteps* steps) {
  QUIRE_TRY(steps->device, reader->String("device"));
  QUIRE_TRY(steps->model, reader->String("model"));
  QUIRE_TRY(steps->how, reader->String("how"));
  QUIRE_TRY_VOID(reader->Table("token_us", &steps->token_us));
  QUIRE_TRY_VOID(reader->Table("sample_us", &steps->sample_us));
  return reader->Numbers(steps);
}

template <typename Entry>
Result<> ReadList(const json::object& file, std::string_view key, std::string_view name, std::vector<Entry>* entries) {
  const json::value* const list = file.if_contains(key);
  if (list == nullptr) return {};
  if (!list->is_array()) return Fail(ErrorCode::kCorrupt, "{}: \"{}\" must be a list", name, key);
  for (const json::value& value : list->get_array()) {
    const std::string where = fmt::format("{}: {} {}", name, Fields<Entry>::kWhat, entries->size() + 1);
    if (!value.is_object()) return Fail(ErrorCode::kCorrupt, "{} must be an object", where);
    EntryReader reader(&value.get_object(), where);
    QUIRE_TRY_VOID(ReadEntry(&reader, &entries->emplace_back()));
    QUIRE_TRY_VOID(reader.Finish());
  }
  return {};
}

template <typename Struct>
void WriteNumbers(const Struct& entry, JsonWriter* writer) {
  for (const NumberField<Struct>& field : Fields<Struct>::kNumbers) {
    writer->Key(field.key);
    if (const auto* member = std::get_if<int Struct::*>(&field.member)) {
      writer->Int(entry.**member);
    } else {
      writer->Double(entry.*std::get<double Struct::*>(field.member));
    }
  }
}

void WriteTable(std::string_view key, const std::vector<std::pair<double, double>>& table, JsonWriter* writer) {
  writer->Key(key).BeginArray();
  for (const auto& [x, y] : table) writer->BeginArray().Double(x).Double(y).EndArray();
  writer->EndArray();
}

template <typename Entry>
void WriteNames(const Entry& entry, JsonWriter* writer) {
  writer->Key("name").String(entry.name);
}
void WriteNames(const MeasuredSteps& steps, JsonWriter* writer) {
  writer->Key("device").String(steps.device).Key("model").String(steps.model).Key("how").String(steps.how);
  WriteTable("token_us", steps.token_us, writer);
  WriteTable("sample_us", steps.sample_us, writer);
}

template <typename Entry>
std::string ListText(std::string_view key, const std::vector<Entry>& entries) {
  std::string text = fmt::format("\"{}\": [", key);
  for (const Entry& entry : entries) {
    text += &entry == entries.data() ? "\n" : ",\n";
    JsonWriter writer(&text);
    writer.BeginObject();
    WriteNames(entry, &writer);
    WriteNumbers(entry, &writer);
    writer.EndObject();
  }
  return text + "\n]";
}

template <typename Entry>
Result<const Entry*> FindByName(const std::vector<Entry>& entries, std::string_view name) {
  const auto found = std::ranges::find(entries, name, &Entry::name);
  if (found != entries.end()) return &*found;
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.push_back(entry.name);
  return FailParam(std::string(Fields<Entry>::kWhat), "unknown {} \"{}\"; known are {}", Fields<Entry>::kWhat, name,
                   fmt::join(names, ", "));
}

template <typename Entry, typename Same>
void PutEntry(Entry entry, std::vector<Entry>* entries, Same same) {
  const auto found = std::ranges::find_if(*entries, [&](const Entry& other) { return same(entry, other); });
  if (found != entries->end()) {
    *found = std::move(entry);
  } else {
    entries->push_back(std::move(entry));
  }
}

}  // namespace

ModelShape ModelShape::Of(const weights::ModelConfig& config, std::string name) {
  return {.name = std::move(name),
          .vocab_size = config.vocab_size,
          .hidden_size = config.hidden_size,
          .intermediate_size = config.intermediate_size,
          .num_layers = config.num_layers,
          .num_heads = config.num_heads,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .max_model_len = config.max_position_embeddings};
}

double ModelShape::layer_weights() const {
  const double hidden = hidden_size, heads = num_heads, kv_heads = num_kv_heads;
  const double attention = hidden * head_dim * (2 * heads + 2 * kv_heads);
  return num_layers * (attention + 3 * hidden * intermediate_size);
}

double ModelShape::head_weights() const {
  return double{1} * vocab_size * hidden_size;
}

DeviceFile DeviceFile::BuiltIn() {
  Result<DeviceFile> file = Parse(kBuiltIn, "built-in devices");
  CHECK(file.has_value());
  return *std::move(file);
}

Result<DeviceFile> DeviceFile::Parse(std::string_view text, std::string_view name) {
  QUIRE_TRY(const json::value value, ParseJson(text, name, {.refuse_duplicate_keys = true}));
  if (!value.is_object()) return Fail(ErrorCode::kCorrupt, "{} is no JSON object", name);
  const json::object& object = value.get_object();
  DeviceFile file;
  QUIRE_TRY_VOID(ReadList(object, "devices", name, &file.devices));
  QUIRE_TRY_VOID(ReadList(object, "models", name, &file.models));
  QUIRE_TRY_VOID(ReadList(object, "measured", name, &file.measured));
  for (const auto& entry : object) {
    const std::string_view key = entry.key();
    if (key == "devices" || key == "models" || key == "measured") continue;
    return Fail(ErrorCode::kCorrupt, "{}: there is no list \"{}\"; known are devices, models and measured", name, key);
  }
  return file;
}

Result<DeviceFile> DeviceFile::Read(const std::filesystem::path& path) {
  QUIRE_TRY(const std::string text, ReadFile(path, kFileBytesMax));
  return Parse(text, path.filename().string());
}

std::string DeviceFile::ToJson() const {
  return fmt::format("{{\n{},\n{},\n{}\n}}\n", ListText("devices", devices), ListText("models", models),
                     ListText("measured", measured));
}

Result<> DeviceFile::Write(const std::filesystem::path& path) const {
  QUIRE_TRY(weights::AtomicFile file, weights::AtomicFile::Create(path));
  QUIRE_TRY_VOID(file.Write(ToJson()));
  return file.Commit();
}

Result<const Device*> DeviceFile::FindDevice(std::string_view name) const {
  return FindByName(devices, name);
}

Result<const ModelShape*> DeviceFile::FindModel(std::string_view name) const {
  return FindByName(models, name);
}

const MeasuredSteps* DeviceFile::FindMeasured(std::string_view device, std::string_view model) const {
  for (const MeasuredSteps& steps : measured) {
    if (steps.device == device && steps.model == model) return &steps;
  }
  return nullptr;
}

void DeviceFile::Put(Device device) {
  PutEntry(std::move(device), &devices, [](const auto& a, const auto& b) { return a.name == b.name; });
}

void DeviceFile::Put(ModelShape model) {
  PutEntry(std::move(model), &models, [](const auto& a, const auto& b) { return a.name == b.name; });
}

void DeviceFile::Put(MeasuredSteps steps) {
  PutEntry(std::move(steps), &measured,
           [](const auto& a, const auto& b) { return a.device == b.device && a.model == b.model; });
}

}  // namespace quire::bench
