// `quire run`: completes one text.
#include <cstdio>
#include <iostream>
#include <iterator>

#include "cli/command.h"
#include "cli/config_fields.h"
#include "cli/in_process.h"
#include "cli/interrupt.h"
#include "cli/text_generator.h"
#include "engine/text_side.h"

namespace quire::cli {
namespace {

struct RunFlags {
  engine::EngineOptions engine;
  SamplingFlags sampling{.max_tokens = 256};
  std::string prompt;
  bool chat = false;
  bool stats = false;
};

constexpr std::size_t kPromptBytesMax = std::size_t{64} << 20;

Result<std::string> ReadPrompt(const std::string& argument) {
  if (argument != "-") return argument;
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (text.size() > kPromptBytesMax) {
    return Fail(ErrorCode::kOutOfRange, "the prompt on standard input has {} bytes; at most {} are allowed",
                text.size(), kPromptBytesMax);
  }
  return text;
}

Result<TextGenerator::Prompt> MakePrompt(const engine::TextSide& text, std::string prompt, bool chat) {
  if (!chat) return TextGenerator::Prompt{std::move(prompt)};
  text::ChatTemplateInput input;
  input.messages.push_back(json::object{{"role", "user"}, {"content", prompt}});
  QUIRE_TRY(std::string rendered, text.chat_template.Render(input));
  return TextGenerator::Prompt{std::move(rendered), /*add_special_tokens=*/false};
}

Result<> Run(RunFlags flags) {
  QUIRE_TRY(std::string prompt_text, ReadPrompt(flags.prompt));
  QUIRE_TRY(const engine::LoadedEngine loaded, LoadInProcess(&flags.engine, /*quiet=*/true));
  QUIRE_TRY(const engine::TextSide text, engine::LoadTextSide(flags.engine.model));
  QUIRE_TRY(const TextGenerator::Prompt prompt, MakePrompt(text, std::move(prompt_text), flags.chat));
  TextGenerator generator(loaded.engine.get(), text.tokenizer.get(), text.generation_config);
  const InterruptCatcher interrupt;
  const auto show = [](std::string_view piece) {
    fmt::print("{}", piece);
    std::fflush(stdout);
  };
  QUIRE_TRY(const Generation result,
            generator.Generate(prompt, flags.sampling, show, [&] { return interrupt.interrupted(); }));
  if (!result.text.ends_with('\n')) fmt::print("\n");
  if (flags.stats) {
    fmt::print(stderr, "{} prompt tokens, first token after {:.0f} ms, {} tokens, {:.1f} tokens/s\n",
               result.num_prompt_tokens, result.ttft_seconds() * 1e3, result.num_tokens, result.tokens_per_second());
  }
  return {};
}

}  // namespace

void AddRunCommand(CLI::App* app, CommandSlot* slot) {
  CLI::App* command = app->add_subcommand(
      "run",
      "complete one text on standard output\n\n"
      "  quire run Qwen3-0.6B -p \"The three primary colours are\" --max-tokens 40\n"
      "  cat letter.txt | quire run model.gguf -p - --temperature 0\n"
      "  quire run -p \"What is a quire?\" --chat        as a chat message, through the model's template\n\n"
      "Only the text goes to standard output. Ctrl-C stops it.");
  auto flags = std::make_shared<RunFlags>();  // shared by the parser's callback and the flags that fill it
  command->add_option("-p,--prompt", flags->prompt, "the text to complete; - reads standard input")->required();
  command->add_flag("--chat", flags->chat, "the prompt is a user's message: use the chat template");
  command->add_flag("--stats", flags->stats, "print times on standard error afterwards");
  AddFlags(flags->sampling, command, "Sampling");
  AddFlags(flags->engine, command, "Engine");
  SetRun(command, slot, "run", [flags] {
    const Result<> run = Run(*flags);
    return run ? kExitSuccess : ReportError("run", run.error());
  });
}

}  // namespace quire::cli
