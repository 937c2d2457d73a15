#include "bench/papers/paper.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"

namespace quire::bench {
namespace {

constexpr PaperExperiment kExperiments[] = {
    {"paged-kv",
     "memory waste under 4 % against 60 to 80 % for max-length reservation; at least 2 x more sequences and throughput "
     "at "
     "equal memory",
     RunPagedKv},
    {"radix",
     "at least 5 x throughput on few-shot, multi-turn and tree-of-thought workloads; hit rates LPM > FCFS > random",
     RunRadix},
    {"continuous-batching", "at least 3 x throughput over static batching on chat lengths", RunContinuousBatching},
    {"chunked-prefill", "lower p99 inter-token latency than whole-prompt prefill, throughput kept", RunChunkedPrefill},
    {"sharing", "memory saved by sharing: 6 to 10 % in parallel sampling, 37 to 55 % in beam search", RunSharing},
    {"async", "planning a step while one is computed: where it helps and where it does not", RunAsync},
};

std::string CellText(const PaperRow::Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  const double number = std::get<double>(cell);
  if (number == std::round(number)) return fmt::format("{:.0f}", number);
  return fmt::format("{:.{}f}", number, std::abs(number) < 10 ? 2 : 1);
}

RequestTrace LogNormalTrace(int num_requests, int input_len, int output_len, int max_model_len) {
  RequestTrace trace = MakeTrace(
      {.num_prompts = num_requests, .input_len = input_len, .output_len = output_len, .length_cv = 1, .seed = 7});
  trace.SetRate(0);
  for (TraceRequest& request : trace.requests) {
    int& prompt = request.segments.back().num_tokens;
    prompt = std::min(prompt, max_model_len / 2);
    request.num_output_tokens = std::min(request.num_output_tokens, max_model_len - prompt);
  }
  return trace;
}

}  // namespace

std::string PaperReport::ToJson() const {
  std::string text;
  JsonWriter writer(&text);
  writer.BeginObject().Key("name").String(name).Key("claim").String(claim).Key("figure").String(figure);
  writer.Key("claim_met").Bool(claim_met).Key("rows").BeginArray();
  for (const PaperRow& row : rows) {
    writer.BeginObject();
    for (const auto& [key, cell] : row.cells) {
      writer.Key(key);
      if (const auto* words = std::get_if<std::string>(&cell)) {
        writer.String(*words);
      } else {
        writer.Double(std::get<double>(cell));
      }
    }
    writer.EndObject();
  }
  writer.EndArray().EndObject();
  return text;
}

std::string PaperReport::ToTable() const {
  std::string text = fmt::format("{}\nclaim:    {}\nmeasured: {}\n          the claim is {}\n\n", name, claim, figure,
                                 claim_met ? "met" : "NOT met");
  if (rows.empty()) return text;
  std::vector<std::size_t> widths;
  for (const auto& [key, cell] : rows.front().cells) widths.push_back(key.size());
  for (const PaperRow& row : rows) {
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      widths[i] = std::max(widths[i], CellText(row.cells[i].second).size());
    }
  }
  const auto line = [&](auto cell_text) {
    std::string cells;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      cells +=
          i == 0 ? fmt::format("{:<{}}", cell_text(i), widths[i]) : fmt::format("  {:>{}}", cell_text(i), widths[i]);
    }
    return cells + "\n";
  };
  text += line([&](std::size_t i) { return rows.front().cells[i].first; });
  for (const PaperRow& row : rows) text += line([&](std::size_t i) { return CellText(row.cells[i].second); });
  return text;
}

std::span<const PaperExperiment> PaperExperiments() {
  return kExperiments;
}

Result<const PaperExperiment*> FindPaperExperiment(std::string_view name) {
  const auto* const found = std::ranges::find(kExperiments, name, &PaperExperiment::name);
  if (found == std::end(kExperiments)) {
    std::vector<std::string_view> names;
    for (const PaperExperiment& experiment : kExperiments) names.push_back(experiment.name);
    return Fail(ErrorCode::kInvalidArgument, "there is no experiment \"{}\"; known are {}", name,
                fmt::join(names, ", "));
  }
  return found;
}

Result<PaperReport> RunPaperExperiment(std::string_view name, PaperRig* rig) {
  QUIRE_TRY(const PaperExperiment* const experiment, FindPaperExperiment(name));
  QUIRE_TRY(PaperReport report, experiment->run(rig));
  report.name = experiment->name;
  report.claim = experiment->claim;
  return report;
}

RequestTrace ChatTrace(int num_requests, int max_model_len) {
  return LogNormalTrace(num_requests, 161, 338, max_model_len);
}

RequestTrace InstructionTrace(int num_requests, int max_model_len) {
  return LogNormalTrace(num_requests, 19, 58, max_model_len);
}

int BlocksForAll(const sched::SchedulerConfig& config) {
  return config.max_num_seqs * ((config.max_model_len + config.block_size - 1) / config.block_size + 1);
}

double Percent(double share) {
  return 100 * share;
}

}  // namespace quire::bench
