// How --help looks: one line for a flag and its default, the explanation beside it, wrapped.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace quire::cli {

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
};

// `text` in lines of at most `width` columns, all but the first indented.
std::string Wrap(std::string_view text, std::size_t width, std::size_t indent);

// The flag that sets a configuration field: "max_model_len" → "--max-model-len".
std::string FlagOfField(std::string_view field);

}  // namespace quire::cli
