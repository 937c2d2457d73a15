// Renders chat templates for the scripts of this folder, which compare the outcome with jinja2's.
// One JSON object a line on standard input: {"template", "messages"?, "tools"?, "add_generation_prompt"?, "bos_token"?,
// "eos_token"?, "kwargs"?, "now"?}; one on standard output: {"text": …} or {"error": …}.
#include <cstdio>
#include <iostream>
#include <string>

#include "base/json.h"
#include "text/chat_template.h"

namespace quire {
namespace {

std::string StringField(const json::object& request, std::string_view name) {
  const json::value* value = request.if_contains(name);
  return value && value->is_string() ? std::string(value->get_string()) : "";
}

Result<std::string> RenderRequest(std::string_view line) {
  QUIRE_TRY(const json::value parsed, ParseJson(line, "request", {.depth_max = 512}));
  if (!parsed.is_object()) return Fail(ErrorCode::kInvalidArgument, "a request is an object");
  const json::object& request = parsed.get_object();
  QUIRE_TRY(const text::ChatTemplate compiled,
            text::ChatTemplate::Compile(StringField(request, "template"), StringField(request, "bos_token"),
                                        StringField(request, "eos_token")));
  text::ChatTemplateInput input;
  const auto* messages = request.if_contains("messages");
  if (messages && messages->is_array()) input.messages = messages->get_array();
  if (const auto* tools = request.if_contains("tools")) input.tools = *tools;
  if (const auto* kwargs = request.if_contains("kwargs")) input.kwargs = kwargs->get_object();
  if (const auto* add = request.if_contains("add_generation_prompt")) input.add_generation_prompt = add->get_bool();
  input.now = StringField(request, "now");
  return compiled.Render(input);
}

}  // namespace
}  // namespace quire

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto text = quire::RenderRequest(line);
    std::string reply;
    quire::JsonWriter(&reply)
        .BeginObject()
        .Key(text ? "text" : "error")
        .String(text ? *text : text.error().message)
        .EndObject();
    std::cout << reply << std::endl;
  }
}
