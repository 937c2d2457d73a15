#include "cli/load_flags.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "cli/config_visitor.h"
#include "cli/model_location.h"

namespace quire::cli {

using namespace bench::load;

Result<LoadConfig> LoadFlags::Complete() const {
  LoadConfig complete = config;
  complete.dataset.path = dataset_path;
  QUIRE_TRY(complete.goodput, GoodputConfig::Parse(goodput));
  if (complete.client.api_key.empty()) {
    if (const auto keys = EnvironmentVariable("QUIRE_API_KEY"))
      complete.client.api_key = keys->substr(0, keys->find(','));
  }
  QUIRE_TRY_VOID(complete.Validate());
  return complete;
}

void AddLoadFlags(LoadFlags* flags, CLI::App* command) {
  DatasetConfig& dataset = flags->config.dataset;
  FlagVisitor requests(command, "Requests");
  requests.Field("dataset", Choice(dataset.kind, DatasetName, ParseDataset, kDatasetNames), "where prompts come from");
  requests.Field("dataset-path", flags->dataset_path, "its file; random and shared-prefix have none");
  requests.Field("num-prompts", dataset.num_prompts, "requests that are measured; 0: all that the file holds");
  requests.Field("input-len", dataset.input_len,
                 "tokens of a made-up prompt, its prefix among them [256; shared-prefix: 768]");
  requests.Field("output-len", dataset.output_len, "tokens that are generated [64; files: as recorded]");
  requests.Field("prefix-len", dataset.prefix_len,
                 "tokens that made-up prompts of one group begin with [0; shared-prefix: 512]");
  requests.Field("num-prefixes", dataset.num_prefixes, "such groups");
  requests.Field("range-ratio", dataset.range_ratio,
                 "made-up lengths vary evenly by this part of themselves, up to 0.99");
  requests.Field("length-scale", dataset.length_scale, "factor for the lengths of a trace");
  requests.Field("trace-speed", dataset.trace_speed, "a trace is replayed so many times as fast as it was recorded");
  requests.Field("max-total-len", dataset.max_total_len,
                 "requests of a file with more tokens in and out are left out; 0: none are");
  requests.Field("seed", dataset.seed, "of prompts, their order and the arrivals");
  ClientConfig& client = flags->config.client;
  FlagVisitor server(command, "Server");
  server.Field("endpoint", client.endpoint, "completions, chat, or auto: chat for chats");
  server.Field("prompt-format",
               Choice(client.prompt_format, PromptFormatName, ParsePromptFormat,
                      "auto (ids where the vocabulary is known), ids, text"),
               "made-up prompts are token ids, which have an exact length everywhere, or words");
  server.Field("vocab-size", client.vocab_size, "token ids are below; 0: as the server says");
  server.Field("temperature", client.temperature, "of sampling");
  server.Field("ignore-eos", client.ignore_eos, "generate as many tokens as planned, whatever the model says");
  server.Field("extra-body", client.extra_body, "JSON object whose members every request has");
  server.Field("api-key", client.api_key, "sent as Authorization: Bearer KEY; default: the variable QUIRE_API_KEY");
  command->add_option("--header", client.headers, "\"Name: value\", sent with every request; again for each")
      ->allow_extra_args(false)
      ->group("Server");
  server.Field("timeout", flags->config.traffic.timeout, "a request that takes longer has failed");
  server.Field("connect-timeout", flags->config.traffic.connect_timeout, "of a new connection");
  FlagVisitor traffic(command, "Load");
  traffic.Field("burstiness", flags->config.traffic.burstiness,
                "shape of the gamma distribution of the gaps: 1 is a Poisson process, less is burstier, inf is even");
  traffic.Field("num-warmup", flags->config.traffic.num_warmup, "requests before the run that are not measured");
  traffic.Field("goodput", flags->goodput,
                "limits that a good request keeps, such as ttft:500,tpot:50,e2el:3000, in milliseconds");
}

Result<> WriteTextFile(const std::string& path, std::string_view text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return {};
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "we"), &std::fclose);
  if (file == nullptr) return Fail(ErrorCode::kIo, "cannot write {}: {}", path, std::strerror(errno));
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() || std::fflush(file.get()) != 0) {
    return Fail(ErrorCode::kIo, "cannot write {}: {}", path, std::strerror(errno));
  }
  return {};
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace quire::cli
