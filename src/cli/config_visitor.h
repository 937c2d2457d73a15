// A configuration is a plain struct whose fields are listed once, in a function
//
//   template <typename Config, typename Visitor>
//   void VisitFields(Config& config, Visitor& visitor) {
//     visitor.Field("max-num-seqs", config.max_num_seqs, "choices that run at a time");
//   }
//
// found by argument-dependent lookup. The visitors below make of that list command-line flags with their help, JSON
// (how the front end tells the engine process), and one line for the log. Names are those of the flags; in JSON
// underscores take the place of hyphens.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/units.h"

namespace quire::cli {

// Reference to a field that counts bytes: written with units.
struct ByteField {
  std::int64_t* bytes;
};
struct ConstByteField {
  const std::int64_t* bytes;
};
inline ByteField Bytes(std::int64_t& bytes) {
  return {&bytes};
}
inline ConstByteField Bytes(const std::int64_t& bytes) {
  return {&bytes};
}

// One of a few named values.
struct ChoiceField {
  std::string value;                                   // its name
  std::string names;                                   // "fcfs, lpm"
  std::function<Result<>(std::string_view)> set = {};  // by name; empty when the configuration is const
};
template <typename Enum, typename Name, typename Parse>
ChoiceField Choice(Enum& field, Name name, Parse parse, std::string names) {
  ChoiceField choice{std::string(name(field)), std::move(names)};
  if constexpr (!std::is_const_v<Enum>) {
    choice.set = [&field, parse](std::string_view text) -> Result<> {
      QUIRE_TRY(field, parse(text));
      return {};
    };
  }
  return choice;
}

std::string JsonKey(std::string_view flag);

// ---- Flags ---------------------------------------------------------------------------------------------------------

// Adds a flag for every field; the struct must outlive the parse.
class FlagVisitor {
 public:
  // `group` is the heading in --help.
  FlagVisitor(CLI::App* app, std::string group) : app_(app), group_(std::move(group)) {}

  template <typename T>
  void Field(const std::string& name, T& field, const std::string& help) {
    CLI::Option* option = nullptr;
    if constexpr (std::is_same_v<T, bool>) {
      option = app_->add_flag("--" + name + ",!--no-" + name, field, help)->default_str(field ? "on" : "off");
    } else {
      option = app_->add_option("--" + name, field, help)->capture_default_str();
    }
    option->group(group_);
  }
  void Field(const std::string& name, std::vector<std::string>& field, const std::string& help);
  void Field(const std::string& name, ByteField field, const std::string& help);
  void Field(const std::string& name, std::chrono::milliseconds& field, const std::string& help);
  void Field(const std::string& name, std::size_t& field, const std::string& help);  // of bytes
  void Field(const std::string& name, ChoiceField field, const std::string& help);
  void Field(const std::string& name, std::filesystem::path& field, const std::string& help);
  // Left empty unless it is given.
  template <typename T>
  void Field(const std::string& name, std::optional<T>& field, const std::string& help) {
    app_->add_option_function<T>("--" + name, [&field](const T& value) { field = value; }, help)->group(group_);
  }
  // The field that is also the first argument that is no flag. In JSON and in the log it is one like the others.
  void Argument(const std::string& name, std::filesystem::path& field, const std::string& help);

 private:
  CLI::App* app_;
  std::string group_;
};

template <typename Config>
void AddFlags(Config& config, CLI::App* app, std::string group) {
  FlagVisitor visitor(app, std::move(group));
  VisitFields(config, visitor);
}

// ---- JSON ----------------------------------------------------------------------------------------------------------

class JsonWriteVisitor {
 public:
  explicit JsonWriteVisitor(JsonWriter* writer) : writer_(writer) {}

  void Field(const std::string& name, const bool& field, std::string_view) { writer_->Key(JsonKey(name)).Bool(field); }
  void Field(const std::string& name, const int& field, std::string_view) { writer_->Key(JsonKey(name)).Int(field); }
  void Field(const std::string& name, const double& field, std::string_view) {
    writer_->Key(JsonKey(name)).Double(field);
  }
  void Field(const std::string& name, const std::size_t& field, std::string_view) {
    writer_->Key(JsonKey(name)).Uint(field);
  }
  void Field(const std::string& name, const std::string& field, std::string_view) {
    writer_->Key(JsonKey(name)).String(field);
  }
  void Field(const std::string& name, ConstByteField field, std::string_view) {
    writer_->Key(JsonKey(name)).Int(*field.bytes);
  }
  void Field(const std::string& name, const std::chrono::milliseconds& field, std::string_view) {
    writer_->Key(JsonKey(name)).Int(field.count());
  }
  void Field(const std::string& name, const std::vector<std::string>& field, std::string_view);
  void Field(const std::string& name, const ChoiceField& field, std::string_view) {
    writer_->Key(JsonKey(name)).String(field.value);
  }
  void Field(const std::string& name, const std::filesystem::path& field, std::string_view) {
    writer_->Key(JsonKey(name)).String(field.native());
  }
  void Argument(const std::string& name, const std::filesystem::path& field, std::string_view help) {
    Field(name, field, help);
  }

 private:
  JsonWriter* writer_;
};

template <typename Config>
std::string ConfigToJson(const Config& config) {
  std::string text;
  JsonWriter writer(&text);
  writer.BeginObject();
  JsonWriteVisitor visitor(&writer);
  VisitFields(config, visitor);
  writer.EndObject();
  return text;
}

// Fields that are missing keep their values; keys that no field has are errors, and so are values of another type.
class JsonReadVisitor {
 public:
  explicit JsonReadVisitor(const json::object* object) : object_(object) {}

  void Field(const std::string& name, bool& field, std::string_view);
  void Field(const std::string& name, int& field, std::string_view);
  void Field(const std::string& name, double& field, std::string_view);
  void Field(const std::string& name, std::size_t& field, std::string_view);
  void Field(const std::string& name, std::string& field, std::string_view);
  void Field(const std::string& name, ByteField field, std::string_view);
  void Field(const std::string& name, std::chrono::milliseconds& field, std::string_view);
  void Field(const std::string& name, std::vector<std::string>& field, std::string_view);
  void Field(const std::string& name, ChoiceField field, std::string_view);
  void Field(const std::string& name, std::filesystem::path& field, std::string_view);
  void Argument(const std::string& name, std::filesystem::path& field, std::string_view help) {
    Field(name, field, help);
  }

  // The first error of all fields, or a key that none of them took.
  Result<> Finish() const;

 private:
  const json::value* Find(const std::string& name);
  void ReportType(const std::string& name, std::string_view wanted);
  template <typename Integer>
  void ReadInteger(const std::string& name, Integer* field);

  const json::object* object_;
  std::set<std::string> taken_;
  Result<> outcome_;
};

template <typename Config>
Result<Config> ConfigFromJson(std::string_view text, std::string_view what) {
  QUIRE_TRY(const json::value value, ParseJson(text, what, {.refuse_duplicate_keys = true}));
  if (!value.is_object()) return Fail(ErrorCode::kInvalidArgument, "{} is not a JSON object", what);
  Config config;
  JsonReadVisitor visitor(&value.get_object());
  VisitFields(config, visitor);
  QUIRE_TRY_VOID(visitor.Finish());
  return config;
}

// ---- Log -----------------------------------------------------------------------------------------------------------

// "max-num-seqs=256 policy=lpm"
class LogVisitor {
 public:
  template <typename T>
  void Field(const std::string& name, const T& field, std::string_view) {
    Append(name, fmt::format("{}", field));
  }
  void Field(const std::string& name, const bool& field, std::string_view) { Append(name, field ? "on" : "off"); }
  void Field(const std::string& name, const std::string& field, std::string_view) {
    Append(name, field.empty() ? "\"\"" : WithoutLogin(field));
  }
  void Field(const std::string& name, ConstByteField field, std::string_view) {
    Append(name, ExactBytes(*field.bytes));
  }
  void Field(const std::string& name, const std::chrono::milliseconds& field, std::string_view) {
    Append(name, ExactDuration(field));
  }
  // How many: lists may hold keys, which no log must show.
  void Field(const std::string& name, const std::vector<std::string>& field, std::string_view) {
    Append(name, fmt::format("[{}]", field.size()));
  }

  void Field(const std::string& name, const ChoiceField& field, std::string_view) { Append(name, field.value); }
  void Field(const std::string& name, const std::filesystem::path& field, std::string_view) {
    Append(name, field.native());
  }
  void Argument(const std::string& name, const std::filesystem::path& field, std::string_view help) {
    Field(name, field, help);
  }

  const std::string& line() const { return line_; }

 private:
  void Append(std::string_view name, std::string_view value) {
    line_ += fmt::format("{}{}={}", line_.empty() ? "" : " ", name, value);
  }
  // URLs may hold passwords, which no log must show either.
  static std::string WithoutLogin(const std::string& text) {
    const std::size_t scheme = text.find("://"), at = text.rfind('@');
    if (scheme == std::string::npos || at == std::string::npos || at < scheme) return text;
    return text.substr(0, scheme + 3) + "…" + text.substr(at);
  }

  std::string line_;
};

template <typename Config>
std::string ConfigToLog(const Config& config) {
  LogVisitor visitor;
  VisitFields(config, visitor);
  return visitor.line();
}

}  // namespace quire::cli
