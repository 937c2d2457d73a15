// Typed, ranged access to the fields of one JSON object of a model file. A field that is null counts as
// absent, as in Python. Every error names the file, the field, its value and what was wanted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/strong_id.h"

namespace quire::weights {

class JsonFields {
 public:
  // `object` outlives this; `name` ("config.json", "config.json: rope_scaling") stands in errors.
  JsonFields(const json::object& object, std::string name) : object_(&object), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // Null when the field is absent or null.
  const json::value* Find(std::string_view key) const;

  Result<std::optional<std::int64_t>> OptionalInt(std::string_view key, std::int64_t low, std::int64_t high) const;
  Result<std::int64_t> Int(std::string_view key, std::int64_t low, std::int64_t high) const;
  Result<int> IntOr(std::string_view key, int low, int high, int otherwise) const;
  // Integers are accepted as reals; NaN and infinities do not occur in JSON.
  Result<std::optional<double>> OptionalDouble(std::string_view key, double low, double high) const;
  Result<double> DoubleOr(std::string_view key, double low, double high, double otherwise) const;
  Result<bool> BoolOr(std::string_view key, bool otherwise) const;
  Result<std::optional<std::string>> OptionalString(std::string_view key) const;
  // An object, or nothing.
  Result<std::optional<JsonFields>> OptionalObject(std::string_view key) const;
  // One id or a list of ids; absent: empty.
  Result<std::vector<TokenId>> TokenIds(std::string_view key) const;

 private:
  std::unexpected<Error> Wrong(std::string_view key, const json::value& value, std::string_view wanted) const;

  const json::object* object_;
  std::string name_;
};

}  // namespace quire::weights
