// Arbitrary source, compiled and rendered with fixed messages. Small limits keep each run short; the real ones are the
// same code.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/chat_template.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja/resolver.h"

namespace {
constexpr std::string_view kVariables = R"({
  "messages": [{"role": "system", "content": "Be kind."},
               {"role": "user", "content": [{"type": "text", "text": "Grüße"}]},
               {"role": "assistant", "content": null,
                "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "array"}}}}}],
  "add_generation_prompt": true, "bos_token": "<s>", "i": 7, "s": "Hello World"})";
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quire;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  auto tree = text::jinja::Parse(source);
  const auto compiled = text::ChatTemplate::Compile(source, "<s>", "</s>");
  if (!tree || !text::jinja::Resolve(&*tree)) {
    CHECK(!compiled);
    return 0;
  }
  CHECK(compiled.has_value());
  static const json::value values = *ParseJson(kVariables, "variables");
  text::jinja::DictObject variables;
  for (const auto& [name, value] : values.get_object()) {
    variables.Set(text::jinja::Value::String(std::string(name)), text::jinja::Value::FromJson(value));
  }
  const text::jinja::Limits limits{
      .steps_max = 20'000, .bytes_max = 1 << 22, .value_bytes_max = 1 << 20, .output_bytes_max = 1 << 18};
  text::jinja::Interpreter interpreter(limits, std::move(variables), "2024-07-26 13:45:06");
  const auto text = interpreter.Render(*tree);
  if (text) {
    CHECK(text->size() <= limits.output_bytes_max);
    CHECK(IsValidUtf8(*text));
  } else {
    CHECK(text.error().code == ErrorCode::kInvalidArgument || text.error().code == ErrorCode::kOutOfRange);
  }
  return 0;
}
