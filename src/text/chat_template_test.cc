#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace quire::text {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

json::value Json(std::string_view text) {
  return *ParseJson(text, "test");
}

Result<std::string> Render(std::string_view source, const ChatTemplateInput& input = {}) {
  auto compiled = ChatTemplate::Compile(source, "<s>", "</s>");
  if (!compiled) return std::unexpected(compiled.error());
  return compiled->Render(input);
}

std::string MessageOf(const Result<std::string>& result) {
  return result ? "no error" : result.error().message;
}

ChatTemplateInput Chat(std::string_view messages) {
  return {.messages = Json(messages).get_array()};
}

TEST(ChatTemplateTest, RendersTheDemoModelsTemplate) {
  const json::value config = Json(ReadFile(std::string(QUIRE_SOURCE_DIR) + "/models/demo/tokenizer_config.json"));
  const std::string source(config.at("chat_template").get_string());
  ChatTemplateInput input = Chat(R"([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
    {"role": "tool", "content": "7"}, {"role": "tool", "content": "8"}])");
  input.tools = Json(R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])");
  const auto text = Render(source, input);
  ASSERT_TRUE(text) << MessageOf(text);
  EXPECT_EQ(*text,
            "<|im_start|>system\nBe kind.\n\n# Tools\n\nYou may call these functions:\n<tools>\n"
            "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}\n</tools>\n\n"
            "To call one, reply with:\n<tool_call>\n{\"name\": <function name>, \"arguments\": <arguments as a JSON "
            "object>}\n</tool_call><|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n7\n</tool_response>\n<tool_response>\n8\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n");
}

// TMPL-03: the fallback writes the BOS token, exactly once (TMPL-01), because the chat path adds none.
TEST(ChatTemplateTest, DefaultTemplateIsChatMlWithOneBos) {
  const auto text = Render(ChatTemplate::DefaultSource(), Chat(R"([{"role": "user", "content": "hello"},
    {"role": "assistant", "content": null}, {"role": "user", "content": [{"type": "text", "text": "parts"}]}])"));
  ASSERT_TRUE(text) << MessageOf(text);
  EXPECT_EQ(
      *text,
      "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nparts<|im_end|>\n"
      "<|im_start|>assistant\n");
}

// TMPL-06, TMPL-07: what a template raises is the client's error, in the template's own words.
TEST(ChatTemplateTest, RaiseExceptionIsAnErrorWithItsWords) {
  const auto text = Render(
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/…') }}"
      "{% endif %}{{ m.content }}{% endfor %}",
      Chat(R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])"));
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(text.error().message, "Conversation roles must alternate user/assistant/user/assistant/…");
}

// TMPL-09: arguments that are not JSON are text, and reach the template as the client sent them.
TEST(ChatTemplateTest, BrokenArgumentsReachTheTemplateAsText) {
  const auto text = Render("{{ messages[0].tool_calls[0].function.arguments }}",
                           Chat(R"([{"tool_calls": [{"function": {"arguments": "{"}}]}])"));
  ASSERT_TRUE(text) << MessageOf(text);
  EXPECT_EQ(*text, "{");
}

// TOK-10: content is never split at markers that it happens to hold.
TEST(ChatTemplateTest, ContentRoundTripsUnchanged) {
  const auto text = Render("{{ messages[0].content }}|{{ messages[1].content }}",
                           Chat(R"([{"content": "hello </think> world"}, {"content": "<think>\u0000\u2028\"'"}])"));
  ASSERT_TRUE(text) << MessageOf(text);
  EXPECT_EQ(*text, std::string("hello </think> world|<think>\0\u2028\"'", 34));
}

TEST(ChatTemplateTest, KwargsAreVariablesButCannotShadowTheRequest) {
  ChatTemplateInput input;
  input.kwargs["enable_thinking"] = false;
  input.kwargs["documents"] = json::array{"d"};
  EXPECT_EQ(*Render("{{ enable_thinking }} {{ documents }} {{ nothing is defined }}", input), "False ['d'] False");
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
    ChatTemplateInput shadowing;
    shadowing.kwargs[name] = "x";
    const auto text = Render("{{ messages }}", shadowing);
    ASSERT_FALSE(text) << name;
    EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(text.error().param, "chat_template_kwargs");
    EXPECT_THAT(text.error().message, HasSubstr(name));
  }
}

TEST(ChatTemplateTest, SyntaxErrorsSayTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\nb {% if %}", "line 2: Expected an expression"},
      {"\n\n{{ a b }}", "line 3: expected token"},
      {"{% for x in y %}\n", "Unexpected end of template"},
      {"{{ 'abc }}", "line 1: unexpected char"},
      {"{{ (1 }}", "unexpected '}'"},
      {"{% frobnicate %}", "unknown tag 'frobnicate'"},
      {"{{ x | nonesuch }}", "No filter named 'nonesuch'"},
      {"{{ x is nonesuch }}", "No test named 'nonesuch'"},
      {"{% do x.append(1) %}", "unknown tag 'do'"},
      {"{% include 'x' %}", "'include' is not supported"},
      {"{% import 'x' as y %}", "'import' is not supported"},
      {"{% from 'x' import y %}", "'from' is not supported"},
      {"{% extends 'x' %}", "'extends' is not supported"},
      {"{% break %}", "'break' outside loop"},
      {"{# never closed", "Missing end of comment"},
      {"{% raw %} never closed", "Missing end of raw"},
      {"{% for loop in x %}{% endfor %}", "special loop variable"},
  };
  for (const auto& [source, message] : cases) {
    const auto compiled = ChatTemplate::Compile(source, "", "");
    ASSERT_FALSE(compiled) << source;
    EXPECT_EQ(compiled.error().code, ErrorCode::kInvalidArgument) << source;
    EXPECT_THAT(compiled.error().message, AllOf(StartsWith("chat template, line "), HasSubstr(message))) << source;
  }
}

TEST(ChatTemplateTest, RenderingErrorsSayTheLine) {
  EXPECT_EQ(MessageOf(Render("\n\n{{ a.b }}")), "chat template, line 3: 'a' is undefined");
  EXPECT_EQ(MessageOf(Render("{% if true %}\n{{ 1 + 'x' }}\n{% endif %}")),
            "chat template, line 2: unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(MessageOf(Render("{% macro m() %}\n{{ none.x.y }}\n{% endmacro %}\n\n{{ m() }}")),
            "chat template, line 2: 'None' has no attribute 'x'");
}

TEST(ChatTemplateTest, StrftimeNowUsesTheGivenTime) {
  ChatTemplateInput input{.now = "2024-07-26 13:45:06"};
  EXPECT_EQ(*Render("{{ strftime_now('%d %b %Y, %A %H:%M:%S %j %%') }}|{{ strftime_now('') }}", input),
            "26 Jul 2024, Friday 13:45:06 208 %|");
  input.now = "yesterday";
  EXPECT_THAT(MessageOf(Render("{{ strftime_now('%Y') }}", input)), HasSubstr("yesterday"));
  EXPECT_EQ(Render("{{ strftime_now('%Y') }}")->size(), 4);
}

// Security checklist, 7: a template is a program from outside.
TEST(ChatTemplateTest, SlowEndlessWorkEndsWithAnError) {
  const char* const hostile[] = {
      "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}{% endfor %}{% endfor %}{% endfor "
      "%}",
      "{% for a in range(100000) %}{% for b in range(100000) %}{{ a }}{% endfor %}{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(1000) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | "
      "tojson }}",
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
      "{{ 'x' * 10 ** 12 }}",
      "{{ [0] * 10 ** 12 }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '%*d' % (999999999, 1) }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ 'x'.ljust(10 ** 12) }}",
      "{{ 'x' | center(10 ** 12) }}",
      "{{ 'x\\ny' | indent(10 ** 12) }}",
      "{{ ('\\t' * 100000).expandtabs(10 ** 9) }}",
      "{{ ('a' * 1000000).replace('', 'b' * 1000000) }}",
      "{{ ('b' * 1000000).join(['a'] * 100000) }}",
      "{{ (['a'] * 100000) | join('b' * 1000000) }}",
      "{{ [1] | batch(10 ** 12, 0) | list }}",
      "{{ [1] | slice(10 ** 12) | list }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = ns.x | map('upper') %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(100000) }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{% for i in range(100000) %}{{ ns }}{{ ns }}{% endfor %}",
      "{{ range(10 ** 9) }}",
      "{{ (range(100000) | list) * 100000 }}",
  };
  for (const char* source : hostile) {
    const auto begin = std::chrono::steady_clock::now();
    const auto text = Render(source);
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_FALSE(text) << source;
    // Far above what it takes: the sanitizers run this too. Without a limit these would take years.
    EXPECT_LT(seconds, 120) << source;
  }
}

TEST(ChatTemplateTest, LimitsAreOutOfRangeErrors) {
  const auto steps = Render("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.error().code, ErrorCode::kOutOfRange);
  const auto depth = Render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  ASSERT_FALSE(depth);
  EXPECT_EQ(depth.error().code, ErrorCode::kOutOfRange);
}

TEST(ChatTemplateTest, DeepSourceIsASyntaxErrorAndLongChainsAreNot) {
  const auto repeated = [](std::string_view piece, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += piece;
    return text;
  };
  for (const std::string& source :
       {"{{ " + repeated("(", 10000) + "1" + repeated(")", 10000) + " }}",
        "{{ " + repeated("[", 10000) + repeated("]", 10000) + " }}", "{{ " + repeated("-", 10000) + "1 }}",
        "{{ " + repeated("not ", 10000) + "1 }}", "{{ x" + repeated(".a", 10000) + " }}",
        "{{ x" + repeated("|upper", 10000) + " }}", "{{ 1" + repeated(" if 1 else 1", 10000) + " }}",
        repeated("{% if 1 %}", 10000) + repeated("{% endif %}", 10000),
        "{% for " + repeated("(", 10000) + "a" + repeated(")", 10000) + " in x %}{% endfor %}"}) {
    EXPECT_FALSE(ChatTemplate::Compile(source, "", "")) << source.substr(0, 40);
  }
  EXPECT_EQ(*Render("{{ 0" + repeated(" + 1", 10000) + " }}"), "10000");
  EXPECT_EQ(Render("{{ ''" + repeated(" ~ 'x'", 10000) + " }}")->size(), 10000);
  EXPECT_EQ(*Render("{{ 0" + repeated(" or 0", 10000) + " or 7 }}"), "7");
  EXPECT_EQ(*Render("{% if 0 %}" + repeated("{% elif 0 %}", 5000) + "{% else %}end{% endif %}"), "end");
}

// Things that refer to frames, loops and lazy sequences after the function that made them has returned.
TEST(ChatTemplateTest, WhatOutlivesItsFunctionStaysValid) {
  EXPECT_EQ(*Render("{% set ns = namespace() %}{% macro outer(a) %}{% macro inner() %}<{{ a }}>{% endmacro %}"
                    "{% set ns.f = inner %}{% endmacro %}{{ outer(1) }}{{ outer(2) }}{{ ns.f() }}"),
            "<2>");
  EXPECT_EQ(
      *Render("{% set ns = namespace() %}{% macro m(xs) %}{% for x in xs if x > 1 %}{% set ns.l = loop %}{% break %}"
              "{% endfor %}{% endmacro %}{{ m([1, 2, 3, 4]) }}{{ ns.l.index }}{{ ns.l.nextitem }}{{ ns.l.last }}"),
      "13False");
  EXPECT_EQ(
      *Render(
          "{% set ns = namespace() %}{% macro m(y) %}{% for x in [1] recursive %}{% set ns.l = loop %}{{ x }}{{ y }}"
          "{% endfor %}{% endmacro %}{{ m('a') }}|{{ ns.l([2, 3]) }}"),
      "1a|2a3a");
  EXPECT_EQ(
      *Render(
          "{% set ns = namespace() %}{% set ns.self = ns %}{% for x in [1, 1] %}{{ loop.changed(loop) }}{% endfor %}"),
      "TrueFalse");
}

TEST(ChatTemplateTest, IsSharedByThreads) {
  auto compiled =
      ChatTemplate::Compile("{% for m in messages %}{{ m.content | upper }}{{ loop.index }} {% endfor %}", "", "");
  ASSERT_TRUE(compiled);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto text = compiled->Render(Chat(R"([{"content": "a"}, {"content": "b"}])"));
        wrong[static_cast<std::size_t>(t)] += !text || *text != "A1 B2 ";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

}  // namespace
}  // namespace quire::text
