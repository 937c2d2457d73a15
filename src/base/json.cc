#include "base/json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <charconv>
#include <cmath>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/utf8.h"

namespace quire {
namespace {

// Builds the value, as the library's own handler does, with two differences: the first key that an open object already
// holds can end the parse, and a double is the one nearest to its text (the library's may be its neighbour).
struct ValueHandler {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();
  using error_code = boost::system::error_code;
  using string_view = json::string_view;

  explicit ValueHandler(bool refuse_duplicate_keys) : refuse_duplicates(refuse_duplicate_keys) { stack.reset(); }

  const bool refuse_duplicates;
  json::value_stack stack;
  std::vector<std::unordered_set<std::string>> open_objects;  // their keys so far, where duplicates are refused
  std::string key;
  bool has_duplicate = false;  // it is `key`
  std::string number;          // what came of one before its last part

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    if (refuse_duplicates) open_objects.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t size, error_code&) {
    if (refuse_duplicates) open_objects.pop_back();
    stack.push_object(size);
    return true;
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(std::size_t size, error_code&) {
    stack.push_array(size);
    return true;
  }
  bool on_key_part(string_view part, std::size_t, error_code&) {
    if (refuse_duplicates) key.append(part.data(), part.size());
    stack.push_chars(part);
    return true;
  }
  bool on_key(string_view part, std::size_t, error_code& error) {
    if (refuse_duplicates) {
      key.append(part.data(), part.size());
      has_duplicate = !open_objects.back().insert(key).second;
      if (has_duplicate) {
        error = json::make_error_code(json::error::exception);
        return false;
      }
      key.clear();
    }
    stack.push_key(part);
    return true;
  }
  bool on_string_part(string_view part, std::size_t, error_code&) {
    stack.push_chars(part);
    return true;
  }
  bool on_string(string_view part, std::size_t, error_code&) {
    stack.push_string(part);
    return true;
  }
  bool on_number_part(string_view part, error_code&) {
    number.append(part.data(), part.size());
    return true;
  }
  bool on_int64(std::int64_t value, string_view, error_code&) {
    number.clear();
    stack.push_int64(value);
    return true;
  }
  bool on_uint64(std::uint64_t value, string_view, error_code&) {
    number.clear();
    stack.push_uint64(value);
    return true;
  }
  bool on_double(double value, string_view part, error_code&) {
    number.append(part.data(), part.size());
    // Where there is no nearest one, the library's infinity or zero stays.
    std::from_chars(number.data(), number.data() + number.size(), value);
    number.clear();
    stack.push_double(value);
    return true;
  }
  bool on_bool(bool value, error_code&) {
    stack.push_bool(value);
    return true;
  }
  bool on_null(error_code&) {
    stack.push_null();
    return true;
  }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }
};

}  // namespace

Result<json::value> ParseJson(std::string_view text, std::string_view what, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return Fail(ErrorCode::kOutOfRange, "{}: {} bytes of JSON; at most {} are allowed", what, text.size(),
                limits.bytes_max);
  }
  json::parse_options options;
  options.max_depth = limits.depth_max;
  // Library code may throw (out of memory); it ends here.
  try {
    json::basic_parser<ValueHandler> parser(options, limits.refuse_duplicate_keys);
    boost::system::error_code error;
    const std::size_t consumed = parser.write_some(false, text.data(), text.size(), error);
    if (parser.handler().has_duplicate) {
      return Fail(ErrorCode::kCorrupt, "{}: the key \"{}\" stands twice in one object", what, parser.handler().key);
    }
    if (error) {
      return Fail(ErrorCode::kInvalidArgument, "{}: not valid JSON at byte {}: {}", what, consumed, error.message());
    }
    if (text.find_first_not_of(" \t\r\n", consumed) != std::string_view::npos) {
      return Fail(ErrorCode::kInvalidArgument, "{}: text after the end of the JSON value at byte {}", what, consumed);
    }
    return parser.handler().stack.release();
  } catch (const std::exception& exception) {
    return Fail(ErrorCode::kInvalidArgument, "{}: cannot be read as JSON: {}", what, exception.what());
  }
}

void AppendJsonString(std::string_view text, bool ascii_only, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  const auto escape = [&](std::uint32_t unit) {
    out->append("\\u");
    for (int shift = 12; shift >= 0; shift -= 4) out->push_back(kHex[(unit >> shift) & 15]);
  };
  out->push_back('"');
  for (std::size_t i = 0; i < text.size();) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      const Utf8Char character = DecodeUtf8(text.substr(i));
      if (!ascii_only) {
        character.valid ? void(out->append(text, i, character.size)) : void(out->append("\xEF\xBF\xBD"));
      } else if (character.code_point >= 0x10000) {
        escape(0xD800 + ((character.code_point - 0x10000) >> 10));
        escape(0xDC00 + ((character.code_point - 0x10000) & 0x3FF));
      } else {
        escape(character.code_point);
      }
      i += character.size;
      continue;
    }
    ++i;
    switch (c) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      case '\b':
        out->append("\\b");
        break;
      case '\f':
        out->append("\\f");
        break;
      default:
        c < 0x20 || (ascii_only && c == 0x7F) ? escape(c) : out->push_back(static_cast<char>(c));
    }
  }
  out->push_back('"');
}

namespace {
template <typename Number>
void AppendShortest(Number value, std::string* out) {
  if (!std::isfinite(value)) {
    out->append("null");
    return;
  }
  // Python's repr: the shortest digits, positional from 1e-4 up to 1e16, and always recognisable as a float.
  char buffer[32];
  const Number magnitude = std::fabs(value);
  const bool positional = magnitude == 0 || (magnitude >= Number(1e-4) && magnitude < Number(1e16));
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 positional ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  const std::string_view digits(buffer, static_cast<std::size_t>(end - buffer));
  out->append(digits);
  if (positional && digits.find('.') == std::string_view::npos) out->append(".0");
}
}  // namespace

void AppendJsonDouble(double value, std::string* out) {
  AppendShortest(value, out);
}

JsonWriter& JsonWriter::Open(char bracket) {
  BeforeValue();
  out_->push_back(bracket);
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  out_->push_back(bracket);
  needs_comma_ = true;
  return *this;
}

void JsonWriter::BeforeValue() {
  if (needs_comma_) out_->push_back(',');
  needs_comma_ = true;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  BeforeValue();
  AppendJsonString(key, /*ascii_only=*/false, out_);
  out_->push_back(':');
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view value) {
  BeforeValue();
  AppendJsonString(value, /*ascii_only=*/false, out_);
  return *this;
}

JsonWriter& JsonWriter::Int(std::int64_t value) {
  return Raw(std::to_string(value));
}
JsonWriter& JsonWriter::Uint(std::uint64_t value) {
  return Raw(std::to_string(value));
}

JsonWriter& JsonWriter::Double(double value) {
  BeforeValue();
  AppendShortest(value, out_);
  return *this;
}

JsonWriter& JsonWriter::Float(float value) {
  BeforeValue();
  AppendShortest(value, out_);
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) {
  return Raw(value ? "true" : "false");
}
JsonWriter& JsonWriter::Null() {
  return Raw("null");
}

JsonWriter& JsonWriter::Raw(std::string_view json_text) {
  BeforeValue();
  out_->append(json_text);
  return *this;
}

JsonWriter& JsonWriter::Value(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return Null();
    case json::kind::bool_:
      return Bool(value.get_bool());
    case json::kind::int64:
      return Int(value.get_int64());
    case json::kind::uint64:
      return Uint(value.get_uint64());
    case json::kind::double_:
      return Double(value.get_double());
    case json::kind::string:
      return String(value.get_string());
    case json::kind::array:
      BeginArray();
      for (const json::value& item : value.get_array()) Value(item);
      return EndArray();
    case json::kind::object:
      BeginObject();
      for (const auto& [key, item] : value.get_object()) Key(key).Value(item);
      return EndObject();
  }
  return *this;
}

std::string ToJson(const json::value& value) {
  std::string text;
  JsonWriter(&text).Value(value);
  return text;
}

}  // namespace quire
