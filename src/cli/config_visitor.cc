#include "cli/config_visitor.h"

#include <algorithm>

namespace quire::cli {

std::string JsonKey(std::string_view flag) {
  std::string key(flag);
  std::ranges::replace(key, '-', '_');
  return key;
}

// ---- Flags ---------------------------------------------------------------------------------------------------------

void FlagVisitor::Field(const std::string& name, std::vector<std::string>& field, const std::string& help) {
  app_->add_option("--" + name, field, help)->delimiter(',')->group(group_);
}

void FlagVisitor::Field(const std::string& name, ByteField field, const std::string& help) {
  const auto parse = [name, bytes = field.bytes](const std::string& text) {
    const Result<std::int64_t> parsed = ParseBytes(text);
    if (!parsed) throw CLI::ValidationError("--" + name, parsed.error().message);  // CLI11's way; Main catches it
    *bytes = *parsed;
  };
  app_->add_option_function<std::string>("--" + name, parse, help)
      ->type_name("SIZE")
      ->default_str(*field.bytes == 0 ? "auto" : ExactBytes(*field.bytes))
      ->group(group_);
}

void FlagVisitor::Field(const std::string& name, std::chrono::milliseconds& field, const std::string& help) {
  const auto parse = [name, duration = &field](const std::string& text) {
    const Result<std::chrono::milliseconds> parsed = ParseDuration(text);
    if (!parsed) throw CLI::ValidationError("--" + name, parsed.error().message);
    *duration = *parsed;
  };
  app_->add_option_function<std::string>("--" + name, parse, help)
      ->type_name("TIME")
      ->default_str(ExactDuration(field))
      ->group(group_);
}

void FlagVisitor::Field(const std::string& name, std::size_t& field, const std::string& help) {
  const auto parse = [name, bytes = &field](const std::string& text) {
    const Result<std::int64_t> parsed = ParseBytes(text);
    if (!parsed) throw CLI::ValidationError("--" + name, parsed.error().message);
    *bytes = static_cast<std::size_t>(*parsed);
  };
  app_->add_option_function<std::string>("--" + name, parse, help)
      ->type_name("SIZE")
      ->default_str(ExactBytes(static_cast<std::int64_t>(field)))
      ->group(group_);
}

void FlagVisitor::Field(const std::string& name, ChoiceField field, const std::string& help) {
  const auto parse = [name, set = field.set](const std::string& text) {
    if (const Result<> outcome = set(text); !outcome) throw CLI::ValidationError("--" + name, outcome.error().message);
  };
  app_->add_option_function<std::string>("--" + name, parse, help + ": " + field.names)
      ->type_name("NAME")
      ->default_str(field.value)
      ->group(group_);
}

void FlagVisitor::Field(const std::string& name, std::filesystem::path& field, const std::string& help) {
  app_->add_option_function<std::string>(
          "--" + name, [&field](const std::string& text) { field = text; }, help)
      ->type_name("PATH")
      ->group(group_);
}

void FlagVisitor::Argument(const std::string& name, std::filesystem::path& field, const std::string& help) {
  app_->add_option_function<std::string>(
          name + ",--" + name, [&field](const std::string& text) { field = text; }, help)
      ->type_name("PATH");
}

// ---- JSON ----------------------------------------------------------------------------------------------------------

void JsonWriteVisitor::Field(const std::string& name, const std::vector<std::string>& field, std::string_view) {
  writer_->Key(JsonKey(name)).BeginArray();
  for (const std::string& entry : field) writer_->String(entry);
  writer_->EndArray();
}

const json::value* JsonReadVisitor::Find(const std::string& name) {
  const std::string key = JsonKey(name);
  taken_.insert(key);
  return object_->if_contains(key);
}

void JsonReadVisitor::ReportType(const std::string& name, std::string_view wanted) {
  if (outcome_) outcome_ = FailParam(JsonKey(name), "{} must be {}", JsonKey(name), wanted);
}

template <typename Integer>
void JsonReadVisitor::ReadInteger(const std::string& name, Integer* field) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  // Numbers that a double holds are no integers, and 2^31 is no int.
  if (value->is_int64() && std::in_range<Integer>(value->get_int64())) {
    *field = static_cast<Integer>(value->get_int64());
  } else if (value->is_uint64() && std::in_range<Integer>(value->get_uint64())) {
    *field = static_cast<Integer>(value->get_uint64());
  } else {
    ReportType(name, fmt::format("an integer from {} to {}", std::numeric_limits<Integer>::min(),
                                 std::numeric_limits<Integer>::max()));
  }
}

void JsonReadVisitor::Field(const std::string& name, bool& field, std::string_view) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_bool()) return ReportType(name, "true or false");
  field = value->get_bool();
}

void JsonReadVisitor::Field(const std::string& name, int& field, std::string_view) {
  ReadInteger(name, &field);
}

void JsonReadVisitor::Field(const std::string& name, std::size_t& field, std::string_view) {
  ReadInteger(name, &field);
}

void JsonReadVisitor::Field(const std::string& name, ByteField field, std::string_view) {
  ReadInteger(name, field.bytes);
}

void JsonReadVisitor::Field(const std::string& name, std::chrono::milliseconds& field, std::string_view) {
  std::int64_t count = field.count();
  ReadInteger(name, &count);
  field = std::chrono::milliseconds(count);
}

void JsonReadVisitor::Field(const std::string& name, double& field, std::string_view) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_number()) return ReportType(name, "a number");
  field = value->to_number<double>();
}

void JsonReadVisitor::Field(const std::string& name, std::string& field, std::string_view) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return ReportType(name, "a string");
  field = value->get_string();
}

void JsonReadVisitor::Field(const std::string& name, std::vector<std::string>& field, std::string_view) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_array()) return ReportType(name, "a list of strings");
  field.clear();
  for (const json::value& entry : value->get_array()) {
    if (!entry.is_string()) return ReportType(name, "a list of strings");
    field.emplace_back(entry.get_string());
  }
}

void JsonReadVisitor::Field(const std::string& name, ChoiceField field, std::string_view) {
  std::string text = field.value;
  Field(name, text, "");
  if (const Result<> set = field.set(text); !set && outcome_) outcome_ = set;
}

void JsonReadVisitor::Field(const std::string& name, std::filesystem::path& field, std::string_view) {
  std::string text = field.native();
  Field(name, text, "");
  field = text;
}

Result<> JsonReadVisitor::Finish() const {
  if (!outcome_) return outcome_;
  for (const auto& entry : *object_) {
    if (!taken_.contains(std::string(entry.key()))) {
      return Fail(ErrorCode::kInvalidArgument, "the configuration has no field \"{}\"", std::string_view(entry.key()));
    }
  }
  return {};
}

}  // namespace quire::cli
