// Flags of the load generator, shared by `quire bench serve` and `quire bench sweep`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/load/config.h"

namespace quire::cli {

struct LoadFlags {
  bench::load::LoadConfig config;
  std::string dataset_path;
  std::vector<std::string> goodput;

  // What the flags come to, with the key of QUIRE_API_KEY when none is given.
  Result<bench::load::LoadConfig> Complete() const;
};

// Of the requests, and of how they are put. The load itself (rate, requests at a time) and the address are the command's.
void AddLoadFlags(LoadFlags* flags, CLI::App* command);

// "-" is standard output.
Result<> WriteTextFile(const std::string& path, std::string_view text);

// Many connections need as many descriptors: raises the soft limit to the hard one.
void RaiseDescriptorLimit();

}  // namespace quire::cli
