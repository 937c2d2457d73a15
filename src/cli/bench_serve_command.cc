// `quire bench serve`: a load generator for any OpenAI-compatible server.
#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "bench/load/report.h"
#include "bench/load/serve_load.h"
#include "cli/command.h"
#include "cli/config_visitor.h"
#include "cli/load_flags.h"
#include "cli/progress_bar.h"
#include "cli/units.h"

namespace quire::cli {
namespace {

using namespace bench::load;

struct BenchServeFlags {
  LoadFlags load;
  std::string json_path, csv_path, html_path;
};

Result<> RunBenchServe(const BenchServeFlags& flags) {
  QUIRE_TRY(const LoadConfig config, flags.load.Complete());
  RaiseDescriptorLimit();
  const SteadyClock clock;
  ProgressBar bar("requests", Terminal::Of(stderr), &clock, ProgressUnit::kRequests);
  const bool shows_bar = Terminal::Of(stderr).is_tty;
  QUIRE_TRY(const LoadReport report, RunServeBench(config, [&](int done, int total) {
              if (shows_bar) bar.Update(done, total);
            }));
  bar.Finish();
  const std::string* const paths[] = {&flags.json_path, &flags.csv_path, &flags.html_path};
  if (std::ranges::none_of(paths, [](const std::string* path) { return *path == "-"; })) {
    fmt::print("{}", Printable(ReportText(report)));
  }
  if (!flags.json_path.empty()) QUIRE_TRY_VOID(WriteTextFile(flags.json_path, ReportJson(report) + "\n"));
  if (!flags.csv_path.empty()) QUIRE_TRY_VOID(WriteTextFile(flags.csv_path, ReportCsv(report)));
  if (!flags.html_path.empty()) QUIRE_TRY_VOID(WriteTextFile(flags.html_path, ReportHtml(report)));
  if (report.metrics.num_completed > 0) return {};
  return Fail(ErrorCode::kUnavailable, "no request was answered: {}", report.run.outcomes.front().error);
}

}  // namespace

void AddBenchServe(CLI::App* bench, CommandSlot* slot) {
  CLI::App* command = bench->add_subcommand(
      "serve",
      "load on a running OpenAI-compatible server, and what its clients wait\n\n"
      "  quire bench serve --max-concurrency 16                        16 requests at a time, at quire's own address\n"
      "  quire bench serve --base-url http://host:8080 --request-rate 4 --html report.html\n"
      "  quire bench serve --dataset shared-prefix --prefix-len 512 --input-len 768\n"
      "  quire bench serve --dataset trace --dataset-path conversation.jsonl --trace-speed 10 --num-prompts 500\n\n"
      "TTFT, TPOT, ITL, E2EL and goodput are defined as vLLM's benchmark defines them.");
  auto flags = std::make_shared<BenchServeFlags>();  // shared by the parser's callback and the flags that fill it
  FlagVisitor output(command, "Output");
  output.Field("json", flags->json_path, "file for all figures, under vLLM's names; - is standard output");
  output.Field("csv", flags->csv_path, "file for a line per request; - likewise");
  output.Field("html", flags->html_path, "file for a page with charts, which needs nothing else; - likewise");
  ClientConfig& client = flags->load.config.client;
  TrafficConfig& traffic = flags->load.config.traffic;
  FlagVisitor server(command, "Server");
  server.Field("base-url", client.base_url, "http://HOST:PORT, with or without /v1");
  server.Field("model", client.model, "its name at the server; default: the first that /v1/models lists");
  FlagVisitor load(command, "Load");
  load.Field("request-rate", traffic.request_rate,
             "requests a second; inf: as soon as --max-concurrency allows, or as a trace says");
  load.Field("max-concurrency", traffic.max_concurrency, "requests at a time; 0: no limit");
  AddLoadFlags(&flags->load, command);
  SetRun(command, slot, "bench serve", [flags] {
    const Result<> run = RunBenchServe(*flags);
    return run ? kExitSuccess : ReportError("bench serve", run.error());
  });
}

}  // namespace quire::cli
