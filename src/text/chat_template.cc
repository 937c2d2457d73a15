#include "text/chat_template.h"

#include <array>
#include <utility>

#include "base/utf8.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja/resolver.h"

namespace quire::text {

struct ChatTemplate::Program {
  std::string source;
  std::string bos_token, eos_token;
  jinja::TemplateTree tree;
};

namespace {

// What the client may not replace: what quire passes in itself.
constexpr std::array<std::string_view, 5> kReservedNames = {"messages", "tools", "add_generation_prompt", "bos_token",
                                                            "eos_token"};

Result<jinja::DictObject> Variables(const ChatTemplateInput& input, std::string_view bos, std::string_view eos) {
  using jinja::Value;
  jinja::DictObject variables;
  const auto set = [&](std::string_view name, Value value) {
    variables.Set(Value::String(SanitizeUtf8(name)), std::move(value));
  };
  set("messages", Value::FromJson(input.messages));
  set("tools", Value::FromJson(input.tools));
  set("documents", Value::None());  // Hugging Face always passes it
  set("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  set("bos_token", Value::String(SanitizeUtf8(bos)));
  set("eos_token", Value::String(SanitizeUtf8(eos)));
  for (const auto& [key, value] : input.kwargs) {
    for (const std::string_view reserved : kReservedNames) {
      if (key == reserved) {
        return FailParam("chat_template_kwargs", "chat_template_kwargs may not set {}, which the request itself gives",
                         reserved);
      }
    }
    set(key, Value::FromJson(value));
  }
  return variables;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::Compile(std::string_view source, std::string_view bos_token,
                                           std::string_view eos_token) {
  auto program = std::make_unique<Program>();
  program->source = source;
  program->bos_token = bos_token;
  program->eos_token = eos_token;
  QUIRE_TRY(program->tree, jinja::Parse(source));
  QUIRE_TRY_VOID(jinja::Resolve(&program->tree));
  return ChatTemplate(std::move(program));
}

std::string_view ChatTemplate::DefaultSource() {
  // TMPL-03: the tokenizer adds no BOS to a chat, so that the template writes the one that the model has.
  return "{{- bos_token -}}"
         "{%- for message in messages -%}"
         "{{- '<|im_start|>' + message.role + '\\n' -}}"
         "{%- if message.content is string -%}{{- message.content -}}"
         "{%- elif message.content is iterable -%}"
         "{%- for part in message.content -%}{{- part.text -}}{%- endfor -%}"
         "{%- endif -%}"
         "{{- '<|im_end|>\\n' -}}"
         "{%- endfor -%}"
         "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";
}

ChatTemplate::ChatTemplate(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<std::string> ChatTemplate::Render(const ChatTemplateInput& input) const {
  QUIRE_TRY(jinja::DictObject variables, Variables(input, program_->bos_token, program_->eos_token));
  jinja::Interpreter interpreter({}, std::move(variables), input.now);
  return interpreter.Render(program_->tree);
}

const std::string& ChatTemplate::source() const {
  return program_->source;
}

}  // namespace quire::text
