// The `messages` of a chat request: checked, and brought into the one form that chat templates expect.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace quire::server {

inline constexpr std::size_t kMessagesMax = 4096;

// What comes out, for each message:
//   * content parts are joined to one string (by newlines, as vLLM does for templates that want strings);
//   * the arguments of tool calls, a string on the wire, are parsed: templates want the object (Hugging
//   Face's
//     convention); arguments that are not JSON are refused, by name;
//   * reasoning is found under both its names, `reasoning` and `reasoning_content`;
//   * members that no template knows are left out.
// Images, audio and files are refused by name.
Result<json::array> NormalizeMessages(const json::value& messages, std::string_view path);

// The `tools` of a request: each {"type": "function", "function": {"name": …}}; handed to the template as
// they are.
Result<json::array> CheckTools(const json::value& tools, std::string_view path);

}  // namespace quire::server
