// JSON in and out. Reading is Boost.JSON behind limits; writing is our own, because clients compare text: 0.7 is
// written 0.7 (Boost writes 7E-1), and no NaN or infinity can slip out.
#pragma once

#include <boost/json/value.hpp>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

namespace json = boost::json;

struct JsonLimits {
  std::size_t bytes_max = std::size_t{256} << 20;
  std::size_t depth_max = 64;
  // Model files say everything once; a key that stands twice is an attack or an accident. Clients' requests are
  // allowed to repeat a key (the last one counts), as every peer does.
  bool refuse_duplicate_keys = false;
};

// The errors say where (byte offset) and what; `what` names the text in them ("config.json", "request body").
Result<json::value> ParseJson(std::string_view text, std::string_view what, const JsonLimits& limits = {});

// Appends JSON to a string. The caller is responsible for balanced Begin/End and for keys only inside objects; commas
// are the writer's own. Invalid UTF-8 in strings is written as U+FFFD, non-finite numbers as null.
//
//   JsonWriter w(&out);
//   w.BeginObject().Key("id").String(id).Key("created").Int(now).EndObject();
class JsonWriter {
 public:
  explicit JsonWriter(std::string* out) : out_(out) {}

  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(std::string_view key);
  JsonWriter& String(std::string_view value);
  JsonWriter& Int(std::int64_t value);
  JsonWriter& Uint(std::uint64_t value);
  JsonWriter& Double(double value);  // shortest text that reads back as the same double
  JsonWriter& Float(float value);    // shortest text that reads back as the same float
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  JsonWriter& Raw(std::string_view json_text);  // a value that is JSON already
  JsonWriter& Value(const json::value& value);  // a whole DOM

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  void BeforeValue();

  std::string* out_;
  bool needs_comma_ = false;
};

// The DOM as one line of text.
std::string ToJson(const json::value& value);

// Appends `text` as a JSON string with its quotes; `ascii_only` escapes everything above 0x7E (as Python's
// json.dumps with ensure_ascii).
void AppendJsonString(std::string_view text, bool ascii_only, std::string* out);
// Appends the shortest text that reads back as the same double, in Python's notation (1.0, 1e-07, 1e+16 → 1e+16).
void AppendJsonDouble(double value, std::string* out);

}  // namespace quire
