#include "weights/json_fields.h"

#include <cmath>
#include <limits>

namespace quire::weights {
namespace {

// Ids of tokens are 32-bit; whether they lie in the vocabulary is checked where its size is known.
constexpr std::int64_t kTokenIdMax = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kTokenIdsMax = 4096;

std::optional<std::int64_t> AsInt(const json::value& value) {
  if (const auto* integer = value.if_int64()) return *integer;
  // Some files say 4096.0 where they mean 4096.
  if (const auto* real = value.if_double(); real && std::trunc(*real) == *real && std::fabs(*real) < 0x1p53) {
    return static_cast<std::int64_t>(*real);
  }
  return std::nullopt;
}

std::optional<double> AsDouble(const json::value& value) {
  if (const auto* real = value.if_double()) return *real;
  if (const auto* integer = value.if_int64()) return static_cast<double>(*integer);
  if (const auto* integer = value.if_uint64()) return static_cast<double>(*integer);
  return std::nullopt;
}

}  // namespace

std::unexpected<Error> JsonFields::Wrong(std::string_view key, const json::value& value,
                                         std::string_view wanted) const {
  constexpr std::size_t kShown = 80;
  std::string text = ToJson(value);
  if (text.size() > kShown) text = text.substr(0, kShown) + "…";
  return Fail(ErrorCode::kCorrupt, "{}: \"{}\" is {}; {} is wanted", name_, key, text, wanted);
}

const json::value* JsonFields::Find(std::string_view key) const {
  const json::value* value = object_->if_contains(key);
  return value && !value->is_null() ? value : nullptr;
}

Result<std::optional<std::int64_t>> JsonFields::OptionalInt(std::string_view key, std::int64_t low,
                                                            std::int64_t high) const {
  const json::value* value = Find(key);
  if (!value) return std::nullopt;
  const auto integer = AsInt(*value);
  if (!integer || *integer < low || *integer > high) {
    return Wrong(key, *value, fmt::format("an integer from {} to {}", low, high));
  }
  return integer;
}

Result<std::int64_t> JsonFields::Int(std::string_view key, std::int64_t low, std::int64_t high) const {
  QUIRE_TRY(const auto integer, OptionalInt(key, low, high));
  if (!integer) return Fail(ErrorCode::kCorrupt, "{}: \"{}\" is missing", name_, key);
  return *integer;
}

Result<int> JsonFields::IntOr(std::string_view key, int low, int high, int otherwise) const {
  QUIRE_TRY(const auto integer, OptionalInt(key, low, high));
  return integer ? static_cast<int>(*integer) : otherwise;
}

Result<std::optional<double>> JsonFields::OptionalDouble(std::string_view key, double low, double high) const {
  const json::value* value = Find(key);
  if (!value) return std::nullopt;
  const auto real = AsDouble(*value);
  if (!real || !(*real >= low) || !(*real <= high)) {
    return Wrong(key, *value, fmt::format("a number from {} to {}", low, high));
  }
  return real;
}

Result<double> JsonFields::DoubleOr(std::string_view key, double low, double high, double otherwise) const {
  QUIRE_TRY(const auto real, OptionalDouble(key, low, high));
  return real.value_or(otherwise);
}

Result<bool> JsonFields::BoolOr(std::string_view key, bool otherwise) const {
  const json::value* value = Find(key);
  if (!value) return otherwise;
  if (!value->is_bool()) return Wrong(key, *value, "true or false");
  return value->get_bool();
}

Result<std::optional<std::string>> JsonFields::OptionalString(std::string_view key) const {
  const json::value* value = Find(key);
  if (!value) return std::nullopt;
  if (!value->is_string()) return Wrong(key, *value, "a string");
  return std::string(value->get_string());
}

Result<std::optional<JsonFields>> JsonFields::OptionalObject(std::string_view key) const {
  const json::value* value = Find(key);
  if (!value) return std::nullopt;
  if (!value->is_object()) return Wrong(key, *value, "an object");
  return JsonFields(value->get_object(), fmt::format("{}: {}", name_, key));
}

Result<std::vector<TokenId>> JsonFields::TokenIds(std::string_view key) const {
  const json::value* value = Find(key);
  if (!value) return std::vector<TokenId>();
  std::vector<TokenId> ids;
  const auto add = [&](const json::value& item) {
    const auto id = AsInt(item);
    if (!id || *id < 0 || *id > kTokenIdMax) return false;
    ids.emplace_back(static_cast<std::int32_t>(*id));
    return true;
  };
  const json::array* list = value->if_array();
  bool good = list ? list->size() <= kTokenIdsMax : add(*value);
  if (list && good) {
    for (const json::value& item : *list) good = good && add(item);
  }
  if (!good) return Wrong(key, *value, "a token id or a list of token ids");
  return ids;
}

}  // namespace quire::weights
