#include "server/fields.h"

#include <cmath>

#include "base/utf8.h"

namespace quire::server {
namespace {

constexpr std::size_t kPreviewBytesMax = 200;

}  // namespace

std::string Preview(const json::value& value) {
  switch (value.kind()) {
    case json::kind::array:
      return fmt::format("an array of {} items", value.get_array().size());
    case json::kind::object:
      return fmt::format("an object of {} members", value.get_object().size());
    case json::kind::string: {
      const std::string_view text = value.get_string();
      if (text.size() <= kPreviewBytesMax) return ToJson(value);
      std::string_view cut = text.substr(0, kPreviewBytesMax);
      cut.remove_suffix(IncompleteUtf8Tail(cut));
      std::string preview;
      AppendJsonString(cut, /*ascii_only=*/false, &preview);
      return preview + "…";
    }
    case json::kind::double_:
      if (!std::isfinite(value.get_double())) return "a number too large for a double";
      return ToJson(value);
    case json::kind::null:
    case json::kind::bool_:
    case json::kind::int64:
    case json::kind::uint64:
      return ToJson(value);
  }
  return {};
}

std::string JoinPath(std::string_view parent, std::string_view name) {
  // A client chooses the names of unknown members; the ones that reach a path are short.
  return parent.empty() ? std::string(name) : fmt::format("{}.{}", parent, name);
}

std::string IndexPath(std::string_view parent, std::size_t index) {
  return fmt::format("{}[{}]", parent, index);
}

Result<double> ReadNumber(const json::value& value, std::string_view path, double min, double max) {
  double number = 0;
  if (value.is_double()) {
    number = value.get_double();
  } else if (value.is_int64()) {
    number = static_cast<double>(value.get_int64());
  } else if (value.is_uint64()) {
    number = static_cast<double>(value.get_uint64());
  } else {
    return FailParam(std::string(path), "{} must be a number from {} to {}, got {}", path, min, max, Preview(value));
  }
  if (!(number >= min && number <= max)) {
    return FailParam(std::string(path), "{} must be a number from {} to {}, got {}", path, min, max, Preview(value));
  }
  return number;
}

Result<std::int64_t> ReadInteger(const json::value& value, std::string_view path, std::int64_t min, std::int64_t max) {
  const auto refuse = [&] {
    return FailParam(std::string(path), "{} must be an integer from {} to {}, got {}", path, min, max, Preview(value));
  };
  std::int64_t number = 0;
  if (value.is_int64()) {
    number = value.get_int64();
  } else if (value.is_double()) {
    const double real = value.get_double();
    // Above 2^53 a double does not say which integer is meant.
    if (!(std::fabs(real) <= 9007199254740992.0) || real != std::trunc(real)) return refuse();
    number = static_cast<std::int64_t>(real);
  } else {
    return refuse();  // an uint64 here is larger than any int64
  }
  if (number < min || number > max) return refuse();
  return number;
}

Result<bool> ReadBool(const json::value& value, std::string_view path) {
  if (!value.is_bool()) {
    return FailParam(std::string(path), "{} must be true or false, got {}", path, Preview(value));
  }
  return value.get_bool();
}

Result<std::string> ReadString(const json::value& value, std::string_view path, std::size_t bytes_max) {
  if (!value.is_string()) {
    return FailParam(std::string(path), "{} must be a string, got {}", path, Preview(value));
  }
  const std::string_view text = value.get_string();
  if (text.size() > bytes_max) {
    return FailParam(std::string(path), "{} has {} bytes; at most {} are allowed", path, text.size(), bytes_max);
  }
  return std::string(text);
}

Result<const json::array*> ReadArray(const json::value& value, std::string_view path, std::size_t items_max) {
  if (!value.is_array()) {
    return FailParam(std::string(path), "{} must be an array, got {}", path, Preview(value));
  }
  if (value.get_array().size() > items_max) {
    return FailParam(std::string(path), "{} has {} items; at most {} are allowed", path, value.get_array().size(),
                     items_max);
  }
  return &value.get_array();
}

Result<const json::object*> ReadObject(const json::value& value, std::string_view path, std::size_t members_max) {
  if (!value.is_object()) {
    return FailParam(std::string(path), "{} must be an object, got {}", path, Preview(value));
  }
  if (value.get_object().size() > members_max) {
    return FailParam(std::string(path), "{} has {} members; at most {} are allowed", path, value.get_object().size(),
                     members_max);
  }
  return &value.get_object();
}

bool IsEmptyValue(const json::value& value) {
  return (value.is_string() && value.get_string().empty()) || (value.is_array() && value.get_array().empty()) ||
         (value.is_object() && value.get_object().empty());
}
bool IsFalse(const json::value& value) {
  return value.is_bool() && !value.get_bool();
}
bool IsZero(const json::value& value) {
  return (value.is_int64() && value.get_int64() == 0) || (value.is_double() && value.get_double() == 0);
}
bool IsOne(const json::value& value) {
  return (value.is_int64() && value.get_int64() == 1) || (value.is_double() && value.get_double() == 1);
}
bool IsNever(const json::value&) {
  return false;
}

Error UnsupportedFieldError(const std::string& path, const json::value& value) {
  return Error{ErrorCode::kUnsupported,
               fmt::format("{} is not supported by this server (got {}); leave it out", path, Preview(value)), path};
}

}  // namespace quire::server
