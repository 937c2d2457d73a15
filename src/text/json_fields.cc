#include "text/json_fields.h"

#include <utility>

#include "base/utf8.h"

namespace quire::text {
namespace {

std::string_view View(const json::string& text) {
  return {text.data(), text.size()};
}

}  // namespace

Result<JsonFields> JsonFields::Of(const json::value& value, std::string where) {
  if (!value.is_object()) return Fail(ErrorCode::kCorrupt, "{} is not an object", where);
  return JsonFields(&value.get_object(), std::move(where));
}

bool JsonFields::Has(std::string_view key) const {
  const json::value* value = object_->if_contains(json::string_view(key.data(), key.size()));
  return value != nullptr && !value->is_null();
}

Result<const json::value*> JsonFields::Get(std::string_view key) const {
  const json::value* value = object_->if_contains(json::string_view(key.data(), key.size()));
  if (value == nullptr || value->is_null()) return Fail(ErrorCode::kCorrupt, "{}: {} is missing", where_, key);
  return value;
}

Result<const json::object*> JsonFields::Object(std::string_view key) const {
  QUIRE_TRY(const json::value* value, Get(key));
  if (!value->is_object()) return Fail(ErrorCode::kCorrupt, "{}: {} is not an object", where_, key);
  return &value->get_object();
}

Result<const json::array*> JsonFields::Array(std::string_view key) const {
  QUIRE_TRY(const json::value* value, Get(key));
  if (!value->is_array()) return Fail(ErrorCode::kCorrupt, "{}: {} is not an array", where_, key);
  return &value->get_array();
}

Result<std::string_view> JsonFields::String(std::string_view key) const {
  QUIRE_TRY(const json::value* value, Get(key));
  if (!value->is_string()) return Fail(ErrorCode::kCorrupt, "{}: {} is not a string", where_, key);
  return View(value->get_string());
}

Result<std::int64_t> JsonFields::Integer(std::string_view key) const {
  QUIRE_TRY(const json::value* value, Get(key));
  if (!value->is_int64()) return Fail(ErrorCode::kCorrupt, "{}: {} is not an integer", where_, key);
  return value->get_int64();
}

Result<std::string_view> JsonFields::StringOr(std::string_view key, std::string_view otherwise) const {
  if (!Has(key)) return otherwise;
  return String(key);
}

Result<bool> JsonFields::BoolOr(std::string_view key, bool otherwise) const {
  if (!Has(key)) return otherwise;
  QUIRE_TRY(const json::value* value, Get(key));
  if (!value->is_bool()) return Fail(ErrorCode::kCorrupt, "{}: {} is not true or false", where_, key);
  return value->get_bool();
}

Result<std::string_view> JsonFields::Character(std::string_view key) const {
  QUIRE_TRY(const std::string_view text, String(key));
  if (text.empty() || DecodeUtf8(text).size != text.size()) {
    return Fail(ErrorCode::kCorrupt, "{}: {} is \"{}\", not one character", where_, key, text);
  }
  return text;
}

}  // namespace quire::text
