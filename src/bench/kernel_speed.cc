#include "bench/kernel_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/json.h"
#include "bench/kernel_meter.h"

namespace quire::bench {
namespace {

using kernels::KernelTable;

constexpr std::string_view kKernels[] = {
    "gemm", "prepare_activations", "attention", "store_kv", "rms_norm", "add_rms_norm", "rope", "silu_mul", "add_bias",
    "add",  "max_value",           "sum_exp"};

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of one call, averaged over `count` of them.
double Time(const KernelJob& job, std::int64_t count) {
  const double begin = SecondsNow();
  for (std::int64_t i = 0; i < count; ++i) job.run();
  return (SecondsNow() - begin) / static_cast<double>(count);
}

// Of the rounds of a measurement.
struct Spread {
  double median = 0, min = 0, max = 0;
  explicit Spread(std::vector<double> values) {
    std::ranges::sort(values);
    median = values[values.size() / 2];
    min = values.front();
    max = values.back();
  }
};

// What the rounds of one job gave.
struct Rounds {
  std::int64_t calls = 1;  // a round
  std::vector<double> seconds, fractions;
  bool memory_bound = false;
};

KernelSpeedRow MakeRow(const KernelJob& job, const Rounds& rounds, int num_threads) {
  KernelSpeedRow row{job.what};
  row.num_threads = num_threads;
  const double seconds = Spread(rounds.seconds).median;
  const Spread fraction(rounds.fractions);
  row.microseconds = seconds * 1e6;
  row.gb_per_second = job.bytes / seconds / 1e9;
  row.gop_per_second = job.operations / seconds / 1e9;
  row.limit_fraction = fraction.median;
  row.limit_fraction_min = fraction.min;
  row.limit_fraction_max = fraction.max;
  row.memory_bound = rounds.memory_bound;
  return row;
}

void AddSpeedup(const Rounds& rounds, const Rounds& alone, KernelSpeedRow* row) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < rounds.seconds.size(); ++i) ratios.push_back(alone.seconds[i] / rounds.seconds[i]);
  const Spread speedup(std::move(ratios));
  row->speedup = speedup.median;
  row->speedup_min = speedup.min;
  row->speedup_max = speedup.max;
}

// "down_proj int8g32", "bf16 32 x 1088, 1024 shared, grouped"
std::string CaseText(const KernelCase& what) {
  if (what.num_sequences == 0) {
    return what.projection.empty() ? what.format : fmt::format("{} {}", what.projection, what.format);
  }
  std::string text = fmt::format("{} {} x {}", what.format, what.num_sequences, what.context);
  if (what.prefix > 0) text += fmt::format(", {} shared, {}", what.prefix, what.grouped ? "grouped" : "alone");
  return text;
}

}  // namespace

std::span<const std::string_view> MeasuredKernels() {
  return kKernels;
}

std::vector<kernels::KvDtype> WantedKvDtypes(const KernelSpeedOptions& options) {
  if (!options.kv_dtypes.empty()) return options.kv_dtypes;
  return {std::begin(kernels::kKvDtypes), std::end(kernels::kKvDtypes)};
}

kernels::KvLayout LayoutInWorkingSet(const kernels::ModelShape& model, kernels::KvDtype dtype, std::int32_t num_blocks,
                                     const KernelSpeedOptions& options) {
  kernels::KvLayout layout{
      .num_layers = 1, .num_kv_heads = model.num_kv_heads, .head_dim = model.head_dim, .dtype = dtype};
  layout.num_layers = static_cast<int>(NumCopies(options, Size(num_blocks) * layout.block_bytes()));
  return layout;
}

void KernelMeter::Measure(std::span<const KernelJob> jobs) {
  constexpr double kRoundSeconds = 0.02;
  std::vector<Rounds> all(jobs.size());
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const double once = Time(jobs[j], 1);  // and warms up
    all[j].calls = std::clamp<std::int64_t>(static_cast<std::int64_t>(kRoundSeconds / once), 1, 10000);
  }
  for (int round = 0; round < repeats_; ++round) {
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const double bandwidth = roofline_->Measure(Limit::kReadBandwidth) * 1e9;
      const double peak = roofline_->Measure(jobs[j].peak) * 1e9;
      const double seconds = Time(jobs[j], all[j].calls);
      const double memory = jobs[j].bytes / bandwidth, compute = jobs[j].operations / peak;
      all[j].seconds.push_back(seconds);
      all[j].fractions.push_back(std::max(memory, compute) / seconds);
      all[j].memory_bound = memory > compute;
    }
  }
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    rows_.push_back(MakeRow(jobs[j], all[j], pool_->num_threads()));
    if (j + 1 < jobs.size()) AddSpeedup(all[j], all.back(), &rows_.back());
  }
}

Result<std::vector<KernelSpeedRow>> RunKernelSpeed(ThreadPool* pool, const KernelSpeedOptions& options) {
  std::vector<const KernelTable*> tables;
  for (const std::string& isa : options.isas) {
    QUIRE_TRY(const KernelTable* table, kernels::SelectKernels(isa));
    tables.push_back(table);
  }
  if (tables.empty()) tables.push_back(*kernels::SelectKernels(""));
  QUIRE_TRY(Roofline roofline, Roofline::Create(pool, std::size_t{512} << 20));
  KernelMeter meter(pool, &roofline, options.repeats);
  for (const std::string& kernel : options.kernel_names) {
    if (kernel == "gemm") {
      QUIRE_TRY_VOID(MeasureGemm(options, tables, &meter));
    } else if (kernel == "attention") {
      QUIRE_TRY_VOID(MeasureAttention(options, tables, &meter));
    } else if (kernel == "store_kv") {
      QUIRE_TRY_VOID(MeasureStoreKv(options, tables, &meter));
    } else {
      QUIRE_TRY_VOID(MeasureRowKernel(kernel, options, tables, &meter));
    }
  }
  return meter.TakeRows();
}

std::string KernelSpeedText(const std::vector<KernelSpeedRow>& rows) {
  std::string text = fmt::format("{:<11} {:<19} {:<13} {:<36} {:>4} {:>3} {:>11} {:>8} {:>9}  {}\n", "tier", "kernel",
                                 "model", "case", "m", "thr", "us", "GB/s", "GOP/s", "of the limit (min-max)");
  for (const KernelSpeedRow& row : rows) {
    text +=
        fmt::format("{:<11} {:<19} {:<13} {:<36} {:>4} {:>3} {:>11.1f} {:>8.1f} {:>9.1f}  {:.2f} ({:.2f}-{:.2f}) {}",
                    row.isa, row.kernel, row.model, CaseText(row), row.m, row.num_threads, row.microseconds,
                    row.gb_per_second, row.gop_per_second, row.limit_fraction, row.limit_fraction_min,
                    row.limit_fraction_max, row.memory_bound ? "memory" : "compute");
    if (row.speedup > 0) {
      text += fmt::format("; {:.2f} ({:.2f}-{:.2f}) x alone", row.speedup, row.speedup_min, row.speedup_max);
    }
    text += '\n';
  }
  return text;
}

std::string KernelSpeedJson(const std::vector<KernelSpeedRow>& rows) {
  std::string out;
  JsonWriter writer(&out);
  writer.BeginArray();
  for (const KernelSpeedRow& row : rows) {
    writer.BeginObject();
    writer.Key("isa").String(row.isa).Key("kernel").String(row.kernel).Key("model").String(row.model);
    if (!row.projection.empty()) writer.Key("projection").String(row.projection);
    if (!row.format.empty()) writer.Key("format").String(row.format);
    writer.Key("m").Int(row.m).Key("n").Int(row.n);
    if (row.k > 0) writer.Key("k").Int(row.k);
    if (row.num_sequences > 0) {
      writer.Key("num_sequences").Int(row.num_sequences).Key("context").Int(row.context);
      writer.Key("prefix").Int(row.prefix).Key("grouped").Bool(row.grouped);
    }
    writer.Key("num_threads").Int(row.num_threads).Key("microseconds").Double(row.microseconds);
    writer.Key("gb_per_second").Double(row.gb_per_second).Key("gop_per_second").Double(row.gop_per_second);
    writer.Key("limit_fraction").Double(row.limit_fraction).Key("limit_fraction_min").Double(row.limit_fraction_min);
    writer.Key("limit_fraction_max").Double(row.limit_fraction_max);
    writer.Key("limit").String(row.memory_bound ? "memory" : "compute");
    if (row.speedup > 0) {
      writer.Key("speedup").Double(row.speedup).Key("speedup_min").Double(row.speedup_min);
      writer.Key("speedup_max").Double(row.speedup_max);
    }
    writer.EndObject();
  }
  writer.EndArray();
  return out;
}

}  // namespace quire::bench
