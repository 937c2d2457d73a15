// A model's chat template (Jinja), compiled once and rendered as Hugging Face's apply_chat_template renders it.
// Immutable after construction; Render may be called from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace quire::text {

struct ChatTemplateInput {
  json::array messages;         // as in the request, {"role": …, "content": …, "tool_calls": …}
  json::value tools = nullptr;  // array, or null
  bool add_generation_prompt = true;
  // Further variables of the template (enable_thinking, …). The names above, bos_token and eos_token are refused.
  json::object kwargs;
  std::string now = {};  // for strftime_now: "" is the current local time, else "YYYY-MM-DD HH:MM:SS"
};

class ChatTemplate {
 public:
  // Syntax errors say the line. `bos_token` and `eos_token` are variables of the template.
  static Result<ChatTemplate> Compile(std::string_view source, std::string_view bos_token, std::string_view eos_token);
  // The template of models that bring none: ChatML.
  static std::string_view DefaultSource();

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // kInvalidArgument: the template's own raise_exception, with its words; kOutOfRange: a limit of steps, depth or
  // output; kInvalidArgument also for everything else that this input makes go wrong.
  Result<std::string> Render(const ChatTemplateInput& input) const;

  const std::string& source() const;

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<const Program> program);
  std::unique_ptr<const Program> program_;
};

}  // namespace quire::text
