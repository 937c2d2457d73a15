// `quire chat`: a conversation in the terminal.
#include <cstdio>
#include <utility>

#include "cli/command.h"
#include "cli/config_fields.h"
#include "cli/in_process.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/model_location.h"
#include "cli/text_generator.h"
#include "engine/text_side.h"

namespace quire::cli {
namespace {

struct ChatFlags {
  engine::EngineOptions engine;
  SamplingFlags sampling;
  std::string system;
};

constexpr const char* kCommands =
    "  /reset          forget the conversation\n"
    "  /system [TEXT]  set the system message, or remove it; forgets the conversation\n"
    "  /retry          answer the last message again\n"
    "  /help           this\n"
    "  /exit           leave, as Ctrl-D does\n"
    "  Ctrl-C stops an answer; a \\ at the end of a line goes on in the next.\n";

// Escape sequences where they mean something.
struct Style {
  bool on = false;
  // libedit must know what takes no space: between \1. It drops such a piece at the very end, hence the space there.
  std::string Prompt(std::string_view text) const {
    return on ? fmt::format("\1\x1b[1;36m\1{}\1\x1b[0m\1 ", text) : fmt::format("{} ", text);
  }
  std::string Dim(std::string_view text) const {
    return on ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text);
  }
};

std::filesystem::path HistoryFile() {
  if (const auto state = EnvironmentVariable("XDG_STATE_HOME"))
    return std::filesystem::path(*state) / "quire/chat_history";
  if (const auto home = EnvironmentVariable("HOME")) {
    return std::filesystem::path(*home) / ".local/state/quire/chat_history";
  }
  return {};
}

class Conversation {
 public:
  Conversation(const engine::TextSide* text, TextGenerator* generator, ChatFlags flags)
      : text_(text),
        generator_(generator),
        flags_(std::move(flags)),
        editor_(HistoryFile()),
        style_{editor_.is_interactive()} {
    Reset();
  }

  Result<> Run() {
    std::string line;
    while (ReadMessage(&line)) {
      if (line.starts_with('/')) {
        if (!RunCommand(line)) break;
      } else if (!line.empty()) {
        messages_.push_back(json::object{{"role", "user"}, {"content", line}});
        Answer();
      }
    }
    if (editor_.is_interactive()) fmt::print("\n");
    return {};
  }

 private:
  // A message may have several lines, each but the last with a backslash at its end.
  bool ReadMessage(std::string* message) {
    message->clear();
    std::string line;
    while (true) {
      interrupt_.Clear();
      const auto outcome = editor_.Read(style_.Prompt(message->empty() ? ">" : "."), &line);
      if (outcome == LineEditor::Outcome::kEnd) return false;
      if (outcome == LineEditor::Outcome::kInterrupted) {
        fmt::print("\n{}\n", style_.Dim("/exit or Ctrl-D leaves"));
        message->clear();
        continue;
      }
      const bool goes_on = line.ends_with('\\');
      if (goes_on) line.back() = '\n';
      *message += line;
      if (!goes_on) return true;
    }
  }

  // False: leave.
  bool RunCommand(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string argument = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/reset") {
      Reset();
      fmt::print("{}\n", style_.Dim("a new conversation"));
    } else if (name == "/system") {
      flags_.system = argument;
      Reset();
      fmt::print("{}\n", style_.Dim(argument.empty() ? "no system message; a new conversation"
                                                     : "system message set; a new conversation"));
    } else if (name == "/retry") {
      Retry();
    } else if (name == "/help") {
      fmt::print("{}", kCommands);
    } else {
      fmt::print("there is no command {}; these are:\n{}", name, kCommands);
    }
    return true;
  }

  void Reset() {
    messages_.clear();
    if (!flags_.system.empty()) messages_.push_back(json::object{{"role", "system"}, {"content", flags_.system}});
  }

  void Retry() {
    if (!messages_.empty() && messages_.back().at("role") == "assistant") messages_.pop_back();
    if (messages_.empty() || messages_.back().at("role") != "user") {
      fmt::print("there is no message to answer\n");
      return;
    }
    Answer();
  }

  // Writes the answer to the last message. When that fails, the message is taken back.
  void Answer() {
    const Result<Generation> answer = Generate();
    if (!answer) {
      fmt::print(stderr, "{}\n", answer.error().message);
      messages_.pop_back();
      return;
    }
    messages_.push_back(json::object{{"role", "assistant"}, {"content", answer->text}});
    if (!answer->text.ends_with('\n')) fmt::print("\n");
    if (editor_.is_interactive()) fmt::print("{}\n", style_.Dim(Footnote(*answer)));
  }

  Result<Generation> Generate() {
    QUIRE_TRY(std::string rendered, text_->chat_template.Render({.messages = messages_}));
    return generator_->Generate(
        {.text = std::move(rendered), .add_special_tokens = false}, flags_.sampling,
        [](std::string_view piece) {
          fmt::print("{}", piece);
          std::fflush(stdout);
        },
        [&] { return interrupt_.interrupted(); });
  }

  static std::string Footnote(const Generation& answer) {
    std::string note = fmt::format("[{} tokens", answer.num_tokens);
    if (answer.tokens_per_second() > 0) note += fmt::format(", {:.1f} tokens/s", answer.tokens_per_second());
    note += fmt::format(", first after {:.0f} ms; prompt {} tokens, {} of them cached", answer.ttft_seconds() * 1e3,
                        answer.num_prompt_tokens, answer.num_cached_tokens);
    if (answer.finish_reason == FinishReason::kAbort) note += "; stopped";
    if (answer.finish_reason == FinishReason::kLength) note += "; cut off by its length";
    return note + "]";
  }

  const engine::TextSide* text_;
  TextGenerator* generator_;
  ChatFlags flags_;
  LineEditor editor_;
  Style style_;
  InterruptCatcher interrupt_;
  json::array messages_;
};

Result<> Chat(ChatFlags flags) {
  QUIRE_TRY(const engine::LoadedEngine loaded, LoadInProcess(&flags.engine, /*quiet=*/true));
  QUIRE_TRY(const engine::TextSide text, engine::LoadTextSide(flags.engine.model));
  TextGenerator generator(loaded.engine.get(), text.tokenizer.get(), text.generation_config);
  Conversation conversation(&text, &generator, std::move(flags));
  if (Terminal::Of(stdout).is_tty) {
    fmt::print("{}: {}\n{}, up to {} tokens. /help lists commands.\n", text.name, DescribeModel(loaded.info),
               DescribeCompute(loaded.info), loaded.info.max_model_len);
  }
  return conversation.Run();
}

}  // namespace

void AddChatCommand(CLI::App* app, CommandSlot* slot) {
  CLI::App* command =
      app->add_subcommand("chat",
                          "talk to a model in the terminal\n\n"
                          "  quire chat Qwen3-0.6B --system \"You answer in one sentence.\"\n"
                          "  printf 'Hello!\\nAnd in French?\\n' | quire chat        one message per line\n\n"
                          "In the conversation:\n" +
                              std::string(kCommands));
  auto flags = std::make_shared<ChatFlags>();  // shared by the parser's callback and the flags that fill it
  command->add_option("--system", flags->system, "system message");
  AddFlags(flags->sampling, command, "Sampling");
  AddFlags(flags->engine, command, "Engine");
  SetRun(command, slot, "chat", [flags] {
    const Result<> chat = Chat(*flags);
    return chat ? kExitSuccess : ReportError("chat", chat.error());
  });
}

}  // namespace quire::cli
