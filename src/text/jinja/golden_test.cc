// A thousand small templates against what jinja2 makes of them (tests/templates/snippets.py and make_golden.py).
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "text/chat_template.h"

namespace quire::text {
namespace {

TEST(JinjaGoldenTest, SnippetsRenderAsInJinja2) {
  const std::string path = std::string(QUIRE_SOURCE_DIR) + "/tests/templates/golden.json";
  std::ifstream file(path);
  std::stringstream stream;
  stream << file.rdbuf();
  const auto golden = ParseJson(stream.str(), path);
  ASSERT_TRUE(golden) << golden.error().message;
  const json::object& variables = golden->at("variables").get_object();
  const ChatTemplateInput input{.messages = variables.at("messages").get_array(),
                                .tools = variables.at("tools"),
                                .add_generation_prompt = variables.at("add_generation_prompt").get_bool(),
                                .kwargs = variables.at("kwargs").get_object(),
                                .now = std::string(golden->at("now").get_string())};
  int num_texts = 0, num_errors = 0;
  for (const json::value& item : golden->at("cases").get_array()) {
    const json::object& expected = item.get_object();
    const std::string source(expected.at("template").get_string());
    SCOPED_TRACE(source);
    auto compiled = ChatTemplate::Compile(source, "<s>", "</s>");
    const Result<std::string> text =
        compiled ? compiled->Render(input) : Result<std::string>(std::unexpected(compiled.error()));
    if (const json::value* error = expected.if_contains("error")) {
      ++num_errors;
      EXPECT_FALSE(text) << *text;
      if (!text && error->is_string()) {
        EXPECT_EQ(text.error().message, error->get_string());
      }
    } else if (expected.at("text").is_null()) {
      EXPECT_TRUE(text) << text.error().message;  // an address in memory: any text will do
    } else {
      ++num_texts;
      EXPECT_TRUE(text) << text.error().message;
      if (text) {
        EXPECT_EQ(*text, expected.at("text").get_string());
      }
    }
  }
  // The file is what make_golden.py wrote, and not an empty list.
  EXPECT_GT(num_texts, 700);
  EXPECT_GT(num_errors, 150);
}

}  // namespace
}  // namespace quire::text
