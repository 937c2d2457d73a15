// What a run of the load generator is told: which requests, when, and how they are sent.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire::bench::load {

enum class DatasetKind : std::uint8_t { kRandom, kSharedPrefix, kJsonl, kShareGpt, kChats, kTrace };

std::string_view DatasetName(DatasetKind kind);
Result<DatasetKind> ParseDataset(std::string_view name);
inline constexpr const char* kDatasetNames = "random, shared-prefix, jsonl, sharegpt, chats, trace";

struct DatasetConfig {
  DatasetKind kind = DatasetKind::kRandom;
  std::filesystem::path path;     // of all but random and shared-prefix
  int num_prompts = 100;          // 0: all that the file holds
  std::optional<int> input_len;   // tokens of a made-up prompt, its prefix among them
  std::optional<int> output_len;  // tokens that are generated; default of files: what they say
  std::optional<int> prefix_len;  // tokens that made-up prompts of one group begin with
  int num_prefixes = 1;           // groups
  double range_ratio = 0;         // lengths vary uniformly by this part of themselves
  double length_scale = 1;        // of a trace's lengths
  double trace_speed = 1;         // of a trace's clock
  int max_total_len = 0;          // longer requests of a file are left out; 0: none
  int seed = 1;

  bool is_made_up() const { return kind == DatasetKind::kRandom || kind == DatasetKind::kSharedPrefix; }
  int input_tokens() const { return input_len.value_or(kind == DatasetKind::kSharedPrefix ? 768 : 256); }
  int prefix_tokens() const { return prefix_len.value_or(kind == DatasetKind::kSharedPrefix ? 512 : 0); }
  Result<> Validate() const;
};

struct TrafficConfig {
  double request_rate = std::numeric_limits<double>::infinity();  // requests a second
  double burstiness = 1;    // shape of the gamma distribution of the gaps; 1: a Poisson process, less: burstier
  int max_concurrency = 0;  // requests at a time; 0: no limit
  int num_warmup = 1;       // requests before the run, which are not measured
  std::chrono::milliseconds timeout{600'000};  // of one request
  std::chrono::milliseconds connect_timeout{10'000};

  Result<> Validate() const;
};

enum class PromptFormat : std::uint8_t { kAuto, kIds, kText };

std::string_view PromptFormatName(PromptFormat format);
Result<PromptFormat> ParsePromptFormat(std::string_view name);

// How requests are put to the server.
struct ClientConfig {
  std::string base_url = "http://127.0.0.1:8000";
  std::string endpoint = "auto";  // completions, chat; auto: chat for chats, else completions
  std::string model;              // empty: the first that the server names
  PromptFormat prompt_format = PromptFormat::kAuto;
  int vocab_size = 0;  // ids of made-up prompts are below; 0: as the server says
  double temperature = 0;
  bool ignore_eos = true;
  std::string extra_body;  // a JSON object
  std::string api_key;
  std::vector<std::string> headers;  // "Name: value"

  Result<> Validate() const;
};

// Limits that a request must keep to count as good, in milliseconds.
struct GoodputConfig {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;
  bool is_set() const { return ttft_ms || tpot_ms || e2el_ms; }
  // From "ttft:500", "tpot:50", "e2el:3000".
  static Result<GoodputConfig> Parse(const std::vector<std::string>& pairs);
};

struct LoadConfig {
  DatasetConfig dataset;
  TrafficConfig traffic;
  ClientConfig client;
  GoodputConfig goodput;

  // kInvalidArgument names the flag.
  Result<> Validate() const;
};

}  // namespace quire::bench::load
