// `quire bench sweep`: the throughput–latency curve of several servers, or of quire with several flags.
#include <stdio.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/mapped_file.h"
#include "bench/load/report.h"
#include "bench/load/sweep.h"
#include "cli/command.h"
#include "cli/config_visitor.h"
#include "cli/load_flags.h"
#include "cli/serve_process.h"
#include "cli/units.h"

namespace quire::cli {
namespace {

using namespace bench::load;

constexpr std::size_t kSweepBytesMax = 64 << 20;

struct BenchSweepFlags {
  LoadFlags load;
  std::string model_path;
  std::vector<std::string> servers, configs;  // "NAME=URL", "NAME=FLAGS"
  std::vector<int> token_budgets;
  std::string serve_flags;
  std::vector<double> rates;
  std::vector<int> concurrencies;
  std::vector<std::string> earlier;  // files of earlier sweeps
  std::string json_path, csv_path;
  std::vector<std::string> plots;
};

// A server of the sweep: at an address, or to be started.
struct Candidate {
  std::string name;
  std::string url;                     // or else
  std::vector<std::string> arguments;  // of `quire serve`
};

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// "NAME=REST"
Result<std::pair<std::string, std::string>> SplitName(const char* flag, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return FailParam(flag, "\"{}\" has no name; write NAME=…", text);
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

Result<std::vector<Candidate>> Candidates(const BenchSweepFlags& flags) {
  std::vector<Candidate> candidates;
  for (const std::string& text : flags.servers) {
    QUIRE_TRY(auto split, SplitName("server", text));
    QUIRE_TRY_VOID(Target::Parse(split.second));
    candidates.push_back({.name = split.first, .url = split.second, .arguments = {}});
  }
  std::vector<std::string> common;
  if (!flags.model_path.empty()) common.push_back(flags.model_path);
  for (std::string& word : Words(flags.serve_flags)) common.push_back(std::move(word));
  const auto add = [&](std::string name, const std::vector<std::string>& more) {
    Candidate candidate{.name = std::move(name), .url = {}, .arguments = common};
    candidate.arguments.insert(candidate.arguments.end(), more.begin(), more.end());
    candidates.push_back(std::move(candidate));
  };
  for (const std::string& text : flags.configs) {
    QUIRE_TRY(auto split, SplitName("config", text));
    add(split.first, Words(split.second));
  }
  for (const int budget : flags.token_budgets) {
    if (budget < 1) return FailParam("token-budgets", "a budget of {} tokens is not possible", budget);
    add(fmt::format("budget {}", budget), {"--max-num-batched-tokens", std::to_string(budget)});
  }
  if (candidates.empty() && flags.earlier.empty()) add("quire", {});
  return candidates;
}

Result<std::vector<TrafficConfig>> Loads(const BenchSweepFlags& flags, const TrafficConfig& common) {
  std::vector<TrafficConfig> loads;
  for (const int concurrency : flags.concurrencies) {
    if (concurrency < 1) return FailParam("concurrencies", "{} requests at a time are not possible", concurrency);
    loads.push_back(common);
    loads.back().max_concurrency = concurrency;
  }
  for (const double rate : flags.rates) {
    if (!std::isfinite(rate)) return FailParam("request-rates", "only --concurrencies has no rate");
    loads.push_back(common);
    loads.back().request_rate = rate;
    QUIRE_TRY_VOID(loads.back().Validate());
  }
  if (loads.empty()) return FailParam("request-rates", "no load is given: this, or --concurrencies");
  return loads;
}

// Every load on one server. Each has prompts of its own, so that none finds those of another in a cache.
Result<> SweepServer(const Candidate& candidate, LoadConfig config, const std::vector<TrafficConfig>& loads,
                     std::vector<SweepPoint>* points) {
  std::optional<ServeProcess> server;
  if (candidate.url.empty()) {
    QUIRE_TRY(ServeProcess started, ServeProcess::Start(candidate.arguments));
    server.emplace(std::move(started));
  }
  config.client.base_url = server ? server->url() : candidate.url;
  const int seed = config.dataset.seed;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    config.traffic = loads[i];
    config.dataset.seed = seed + static_cast<int>(i);
    QUIRE_TRY(const LoadReport report, RunServeBench(config));
    points->push_back(MakePoint(candidate.name, report));
    fmt::print(stderr, "{}: {}: {:.1f} output tokens/s\n", Printable(candidate.name), DescribeLoad(report),
               points->back().output_throughput);
  }
  return {};
}

Result<> Draw(const std::vector<SweepPoint>& points, const std::string& path) {
  QUIRE_TRY(const std::string script, SweepPlotScript(points, path));
  std::FILE* const gnuplot = ::popen("gnuplot", "w");
  if (gnuplot == nullptr) return Fail(ErrorCode::kIo, "cannot run gnuplot");
  const bool is_written = std::fwrite(script.data(), 1, script.size(), gnuplot) == script.size();
  if (::pclose(gnuplot) != 0 || !is_written) return Fail(ErrorCode::kIo, "gnuplot could not draw {}", path);
  return {};
}

Result<> CheckOutputs(const BenchSweepFlags& flags) {
  if (flags.plots.empty()) return {};
  for (const std::string& path : flags.plots) {
    if (!path.ends_with(".svg") && !path.ends_with(".png")) return FailParam("plot", "{} is no .svg or .png", path);
  }
  if (std::system("command -v gnuplot >/dev/null 2>&1") != 0) {
    return Fail(ErrorCode::kUnavailable, "--plot needs gnuplot (Debian: gnuplot-nox); --json and --csv do not");
  }
  return {};
}

Result<> RunBenchSweep(const BenchSweepFlags& flags) {
  QUIRE_TRY_VOID(CheckOutputs(flags));
  std::vector<SweepPoint> points;
  for (const std::string& path : flags.earlier) {
    QUIRE_TRY(const std::string text, ReadFile(path, kSweepBytesMax));
    Result<std::vector<SweepPoint>> read = ParseSweep(text);
    if (!read) return Fail(read.error().code, "{}: {}", path, read.error().message);
    points.insert(points.end(), read->begin(), read->end());
  }
  QUIRE_TRY(const std::vector<Candidate> candidates, Candidates(flags));
  if (!candidates.empty()) {
    QUIRE_TRY(const LoadConfig config, flags.load.Complete());
    QUIRE_TRY(const std::vector<TrafficConfig> loads, Loads(flags, config.traffic));
    RaiseDescriptorLimit();
    for (const Candidate& candidate : candidates) QUIRE_TRY_VOID(SweepServer(candidate, config, loads, &points));
  }
  if (flags.json_path != "-" && flags.csv_path != "-") fmt::print("{}", Printable(SweepText(points)));
  if (!flags.json_path.empty()) QUIRE_TRY_VOID(WriteTextFile(flags.json_path, SweepJson(points) + "\n"));
  if (!flags.csv_path.empty()) QUIRE_TRY_VOID(WriteTextFile(flags.csv_path, SweepCsv(points)));
  for (const std::string& path : flags.plots) QUIRE_TRY_VOID(Draw(points, path));
  return {};
}

void AddServerFlags(BenchSweepFlags* flags, CLI::App* command) {
  command
      ->add_option("model-path,--model-path", flags->model_path,
                   "what the servers that are started serve; default: the demo model")
      ->group("Servers");
  const auto add = [&](const char* name, std::vector<std::string>& field, const char* help) {
    command->add_option(name, field, help)->allow_extra_args(false)->group("Servers");
  };
  add("--server", flags->servers, "NAME=URL of a server that runs; again for each");
  add("--config", flags->configs, "NAME=FLAGS of a `quire serve` to start; again for each");
  command
      ->add_option("--token-budgets", flags->token_budgets,
                   "start a `quire serve` with each of these as --max-num-batched-tokens; separated by commas")
      ->delimiter(',')
      ->group("Servers");
  command
      ->add_option("--serve-flags", flags->serve_flags,
                   "flags of all servers that are started: --serve-flags=\"--threads 4\"")
      ->group("Servers");
  command->add_option("--request-rates", flags->rates, "requests a second, a run for each; separated by commas")
      ->delimiter(',')
      ->group("Loads");
  command
      ->add_option("--concurrencies", flags->concurrencies, "requests at a time, a run for each; separated by commas")
      ->delimiter(',')
      ->group("Loads");
  FlagVisitor(command, "Loads")
      .Field("max-concurrency", flags->load.config.traffic.max_concurrency,
             "requests at a time, of runs with a rate; 0: no limit");
}

}  // namespace

void AddBenchSweep(CLI::App* bench, CommandSlot* slot) {
  CLI::App* command = bench->add_subcommand(
      "sweep",
      "throughput against latency over loads, for several servers or flags in one picture\n\n"
      "  quire bench sweep Qwen3-0.6B --token-budgets 128,512,2048 --request-rates 1,2,4,8 --plot a.svg,a.png\n"
      "  quire bench sweep --server a=http://host:8000 --server b=http://host:8001 --concurrencies 1,8,32\n"
      "  quire bench sweep --earlier a.json --earlier b.json --plot both.png     draws what was measured before");
  auto flags = std::make_shared<BenchSweepFlags>();  // shared by the parser's callback and the flags that fill it
  AddServerFlags(flags.get(), command);
  FlagVisitor output(command, "Output");
  output.Field("json", flags->json_path, "file for the points; - is standard output");
  output.Field("csv", flags->csv_path, "file for a line per point; - likewise");
  output.Field("plot", flags->plots, "pictures, each an .svg or a .png; drawn by gnuplot");
  output.Field("earlier", flags->earlier, "files that --json wrote, whose points come first");
  AddLoadFlags(&flags->load, command);
  SetRun(command, slot, "bench sweep", [flags] {
    const Result<> run = RunBenchSweep(*flags);
    return run ? kExitSuccess : ReportError("bench sweep", run.error());
  });
}

}  // namespace quire::cli
