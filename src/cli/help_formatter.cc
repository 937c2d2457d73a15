#include "cli/help_formatter.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace quire::cli {
namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kHelpColumn = 34;
constexpr std::size_t kWidth = 100;

std::string PositionalName(const CLI::Option& option) {
  std::string name = option.get_name(true, false);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

// "--host TEXT", "--[no-]enable-prefix-caching", "-p, --prompt TEXT"
std::string Spelling(const CLI::Option& option, bool is_positional) {
  if (is_positional) return PositionalName(option);
  std::string text;
  for (const std::string& name : option.get_snames()) text += (text.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames()) {
    const auto& negated = option.get_fnames();
    if (std::ranges::find(negated, name) != negated.end()) continue;
    const bool has_opposite = std::ranges::find(negated, "no-" + name) != negated.end();
    text += (text.empty() ? "--" : ", --") + std::string(has_opposite ? "[no-]" : "") + name;
  }
  if (option.get_type_size() != 0 && !option.get_type_name().empty()) {
    text += option.get_type_name() == "UINT" ? " INT" : " " + option.get_type_name();
  }
  return text;
}

}  // namespace

HelpFormatter::HelpFormatter() {
  column_width(kHelpColumn);
}

std::string Wrap(std::string_view text, std::size_t width, std::size_t indent) {
  std::string out;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (column > 0 && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const {
  std::string description = app->get_description();
  while (description.ends_with('\n')) description.pop_back();
  std::string help = make_usage(app, "") + "\n" + description + "\n";
  for (const std::string& group : app->get_groups()) {
    std::string lines;
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_group() != group) continue;
      // What can be given by place and by flag is explained as the flag.
      const bool by_flag = !option->get_lnames().empty() || !option->get_snames().empty();
      lines += make_option(option, !by_flag);
    }
    if (!lines.empty()) help += "\n" + (group == "Options" ? "Flags" : group) + ":\n" + lines;
  }
  std::string commands;
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    commands += make_subcommand(command);
  }
  if (!commands.empty()) help += "\nCommands:\n" + commands;
  if (!app->get_footer().empty()) help += "\n" + app->get_footer() + "\n";
  return help;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string line = std::string(kIndent, ' ') + Spelling(*option, is_positional);
  std::string help = option->get_description();
  if (!option->get_default_str().empty()) help += " [" + option->get_default_str() + "]";
  if (option->get_required()) help += " (required)";
  if (line.size() + 2 > kHelpColumn) {
    line += "\n" + std::string(kHelpColumn, ' ');
  } else {
    line.resize(kHelpColumn, ' ');
  }
  return line + Wrap(help, kWidth - kHelpColumn, kHelpColumn) + "\n";
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  std::string line = std::string(kIndent, ' ') + command->get_name();
  line.resize(14, ' ');
  // The first line of a description is its summary.
  const std::string& description = command->get_description();
  return line + description.substr(0, description.find('\n')) + "\n";
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string) const {
  std::string chain = app->get_name();
  for (const CLI::App* parent = app->get_parent(); parent != nullptr; parent = parent->get_parent()) {
    chain = parent->get_name() + " " + chain;
  }
  std::string usage = "Usage: " + chain;
  if (!app->get_subcommands([](const CLI::App*) { return true; }).empty()) usage += " COMMAND";
  for (const CLI::Option* option : app->get_options()) {
    if (!option->get_positional()) continue;
    const std::string positional = PositionalName(*option);
    usage += option->get_required() ? " " + positional : " [" + positional + "]";
  }
  return usage + " [flags]\n";
}

std::string FlagOfField(std::string_view field) {
  // Fields whose flags have vLLM's names, or shorter ones.
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"num_threads", "threads"},
      {"kv_memory_bytes", "kv-memory"},
      {"swap_memory_bytes", "swap-memory"},
      {"kv_transfer_bytes", "kv-transfer-memory"},
      {"kv_dtype", "kv-cache-dtype"},
      {"policy", "scheduling-policy"},
      {"max_num_queued_requests", "max-queued-requests"},
      {"max_num_queued_tokens", "max-queued-tokens"},
      {"waiting_tokens_max", "max-waiting-tokens"},
      {"api_keys", "api-key"},
      {"requests_max", "max-requests"},
      {"connections_max", "max-connections"},
      {"logprobs_max", "max-logprobs"},
      {"body_bytes_max", "max-body-size"},
      {"all_bodies_bytes_max", "max-total-body-size"},
      {"header_bytes_max", "max-header-size"},
      {"trace_bytes_max", "max-trace-size"},
      {"header_fields_max", "max-header-fields"},
      {"unread_output_bytes_max", "max-unread-output"},
      {"worker_threads", "http-threads"},
  };
  for (const auto& [name, flag] : kOthers) {
    if (field == name) return "--" + std::string(flag);
  }
  std::string flag(field);
  std::ranges::replace(flag, '_', '-');
  return "--" + flag;
}

}  // namespace quire::cli
