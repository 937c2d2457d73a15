// Reads the fields of one JSON object, with errors that say where: "tokenizer.json: pre_tokenizer: behavior
// is …".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace quire::text {

class JsonFields {
 public:
  // `where` names the object in errors; the object outlives this.
  static Result<JsonFields> Of(const json::value& value, std::string where);

  const std::string& where() const { return where_; }
  bool Has(std::string_view key) const;  // and it is not null
  // The value of a key; an error when it is absent or null.
  Result<const json::value*> Get(std::string_view key) const;
  Result<const json::object*> Object(std::string_view key) const;
  Result<const json::array*> Array(std::string_view key) const;
  Result<std::string_view> String(std::string_view key) const;
  Result<std::int64_t> Integer(std::string_view key) const;
  // Absent or null gives `otherwise`.
  Result<std::string_view> StringOr(std::string_view key, std::string_view otherwise) const;
  Result<bool> BoolOr(std::string_view key, bool otherwise) const;
  // A string of exactly one character.
  Result<std::string_view> Character(std::string_view key) const;

 private:
  JsonFields(const json::object* object, std::string where) : object_(object), where_(std::move(where)) {}

  const json::object* object_;
  std::string where_;
};

}  // namespace quire::text
