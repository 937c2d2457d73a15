// Claims of the papers that quire stands on, each an experiment with this engine: the thing as the paper has it against what
// came before, on the same requests and, where it matters, the same memory.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "bench/simulation/replay.h"
#include "sched/scheduler_config.h"

namespace quire::bench {

// One line of a table: named cells, the same in every row of a report.
struct PaperRow {
  using Cell = std::variant<std::string, double>;
  std::vector<std::pair<std::string, Cell>> cells;

  PaperRow& Set(std::string name, Cell cell) {
    cells.emplace_back(std::move(name), std::move(cell));
    return *this;
  }
};

struct PaperReport {
  std::string name;
  std::string claim;
  std::string figure;  // what was measured of the claim, in words
  bool claim_met = false;
  std::vector<PaperRow> rows;

  std::string ToJson() const;
  std::string ToTable() const;
};

struct RunOptions {
  ReplayOptions replay;
  int async_scheduling = 0;    // EngineConfig's
  bool spares_a_core = false;  // a real runner computes on one core less than it may, if it has several
};

// What an experiment runs on: a real model, or a simulated one in the tests.
class PaperRig {
 public:
  virtual ~PaperRig() = default;
  // What the model says of a configuration: vocabulary, block size, the length that it takes. Everything else is default,
  // and num_blocks is 0.
  virtual sched::SchedulerConfig BaseConfig() const = 0;
  virtual Result<ReplaySamples> Run(const sched::SchedulerConfig& config, const RequestTrace& trace,
                                    const RunOptions& options) = 0;
};

struct PaperExperiment {
  std::string_view name;
  std::string_view claim;
  Result<PaperReport> (*run)(PaperRig* rig);  // fills in all but name and claim
};

// By the names of the command line.
std::span<const PaperExperiment> PaperExperiments();
// kInvalidArgument lists the names.
Result<const PaperExperiment*> FindPaperExperiment(std::string_view name);
Result<PaperReport> RunPaperExperiment(std::string_view name, PaperRig* rig);

Result<PaperReport> RunPagedKv(PaperRig* rig);
Result<PaperReport> RunRadix(PaperRig* rig);
Result<PaperReport> RunContinuousBatching(PaperRig* rig);
Result<PaperReport> RunChunkedPrefill(PaperRig* rig);
Result<PaperReport> RunSharing(PaperRig* rig);
Result<PaperReport> RunAsync(PaperRig* rig);

// ---- Workloads that several of them use -----------------------------------------------------------------------------

// Lengths of conversations, log-normal with the means that Kwon et al. give for ShareGPT ("Efficient memory management for
// large language model serving with PagedAttention", SOSP 2023, figure 11): 161 tokens in, 338 out. All arrive at once, and
// none is longer than `max_model_len`.
RequestTrace ChatTrace(int num_requests, int max_model_len);
// The same for Alpaca's instructions: 19 tokens in, 58 out.
RequestTrace InstructionTrace(int num_requests, int max_model_len);

// Enough for every sequence at its longest.
int BlocksForAll(const sched::SchedulerConfig& config);
double Percent(double share);

}  // namespace quire::bench
