// Reads the members of a JSON object into a plain struct by a table: one line per field says its type, its
// range and where it goes. All checks of client values pass through here, so that every refusal names the
// field's path, the value (cut short) and what is allowed. A member that is null counts as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace quire::server {

// What an error message may show of a client's value: scalars as JSON, at most 200 characters; containers by
// size.
std::string Preview(const json::value& value);
// "messages" + "role" → "messages.role"; "" + "model" → "model".
std::string JoinPath(std::string_view parent, std::string_view name);
std::string IndexPath(std::string_view parent, std::size_t index);

// One value. `path` names it in errors. Numbers are never taken from strings or booleans; a float that has no
// fraction is an integer.
Result<double> ReadNumber(const json::value& value, std::string_view path, double min, double max);
Result<std::int64_t> ReadInteger(const json::value& value, std::string_view path, std::int64_t min, std::int64_t max);
Result<bool> ReadBool(const json::value& value, std::string_view path);
Result<std::string> ReadString(const json::value& value, std::string_view path, std::size_t bytes_max);
Result<const json::array*> ReadArray(const json::value& value, std::string_view path, std::size_t items_max);
Result<const json::object*> ReadObject(const json::value& value, std::string_view path, std::size_t members_max);

// How a field of the struct T is read.
template <typename T>
struct NumberField {
  std::optional<double> T::* target;
  double min, max;
};
template <typename T>
struct IntegerField {
  std::optional<std::int64_t> T::* target;
  std::int64_t min, max;
};
template <typename T>
struct BoolField {
  bool T::* target;
};
template <typename T>
struct OptionalBoolField {
  std::optional<bool> T::* target;
};
template <typename T>
struct StringField {
  std::string T::* target;
  std::size_t bytes_max;
};
// Whatever needs more than a range.
template <typename T>
struct CustomField {
  Result<> (*read)(const json::value& value, const std::string& path, T* target);
};
// Accepted because clients send it, and without any effect on the output of a server like this one.
struct NoEffectField {};
// Would change the output and is not built: refused, unless it has the value that means "off".
struct UnsupportedField {
  bool (*is_off)(const json::value& value);
};

template <typename T>
struct FieldSpec {
  std::string_view name;
  std::variant<NumberField<T>, IntegerField<T>, BoolField<T>, OptionalBoolField<T>, StringField<T>, CustomField<T>,
               NoEffectField, UnsupportedField>
      how;
};

// Values of UnsupportedField that ask for nothing.
bool IsEmptyValue(const json::value& value);  // "", [], {}
bool IsFalse(const json::value& value);
bool IsZero(const json::value& value);
bool IsOne(const json::value& value);
bool IsNever(const json::value& value);  // every value asks for something

Error UnsupportedFieldError(const std::string& path, const json::value& value);

// Reads one member by its line of the table.
template <typename T>
Result<> ReadField(const FieldSpec<T>& spec, const json::value& value, const std::string& path, T* target) {
  struct Visitor {
    const json::value& value;
    const std::string& path;
    T* target;

    Result<> operator()(const NumberField<T>& field) const {
      QUIRE_TRY(target->*field.target, ReadNumber(value, path, field.min, field.max));
      return {};
    }
    Result<> operator()(const IntegerField<T>& field) const {
      QUIRE_TRY(target->*field.target, ReadInteger(value, path, field.min, field.max));
      return {};
    }
    Result<> operator()(const BoolField<T>& field) const {
      QUIRE_TRY(target->*field.target, ReadBool(value, path));
      return {};
    }
    Result<> operator()(const OptionalBoolField<T>& field) const {
      QUIRE_TRY(target->*field.target, ReadBool(value, path));
      return {};
    }
    Result<> operator()(const StringField<T>& field) const {
      QUIRE_TRY(target->*field.target, ReadString(value, path, field.bytes_max));
      return {};
    }
    Result<> operator()(const CustomField<T>& field) const { return field.read(value, path, target); }
    Result<> operator()(const NoEffectField&) const { return {}; }
    Result<> operator()(const UnsupportedField& field) const {
      if (field.is_off(value)) return {};
      return std::unexpected(UnsupportedFieldError(path, value));
    }
  };
  return std::visit(Visitor{value, path, target}, spec.how);
}

// Reads every member of `object` that the table knows; the names of the others are appended to `unknown`.
template <typename T>
Result<> ReadFields(const json::object& object, std::string_view path, std::span<const FieldSpec<T>> table, T* target,
                    std::vector<std::string_view>* unknown) {
  for (const auto& [key, value] : object) {
    const FieldSpec<T>* found = nullptr;
    for (const FieldSpec<T>& spec : table) {
      if (spec.name == std::string_view(key)) found = &spec;
    }
    if (found == nullptr) {
      unknown->push_back(key);
    } else if (!value.is_null()) {
      QUIRE_TRY_VOID(ReadField(*found, value, JoinPath(path, key), target));
    }
  }
  return {};
}

}  // namespace quire::server
