#include "cli/in_process.h"

#include <cstdint>

#include "cli/model_location.h"
#include "cli/units.h"

namespace quire::cli {

namespace {

// `load` is engine::LoadEngine or engine::LoadModel; the bar is drawn when `show` says so.
template <typename Load>
auto LoadWithBar(const engine::EngineOptions& options, bool show, Load load) {
  const SteadyClock clock;
  ProgressBar bar("loading " + options.model.string(), Terminal::Of(stderr), &clock);
  auto loaded = load(options, [&](std::int64_t done, std::int64_t total, std::string_view) {
    if (show) bar.Update(done, total);
  });
  if (loaded) bar.Finish();
  return loaded;
}

// What --quantization cost; nothing without it.
void PrintQuantization(const engine::EngineOptions& options, const engine::LoadedModel& loaded) {
  const std::string text = engine::DescribeQuantization(options, loaded);
  if (!text.empty()) fmt::print(stderr, "{}\n", text);
}

// What is wrong with a file of packed weights.
void WarnOfPackedCache(const engine::PackedCacheReport& report) {
  if (!report.warning.empty()) fmt::print(stderr, "quire: warning: {}\n", Printable(report.warning));
}

}  // namespace

Result<engine::LoadedEngine> LoadInProcess(engine::EngineOptions* options, bool quiet) {
  CompleteKvRedis(options);
  QUIRE_TRY_VOID(CompleteOptions(options));
  const bool show = Terminal::Of(stderr).is_tty || !quiet;
  QUIRE_TRY(engine::LoadedEngine loaded, LoadWithBar(*options, show, engine::LoadEngine));
  if (show) PrintQuantization(*options, loaded.loaded);
  WarnOfPackedCache(loaded.loaded.packed_cache);
  return loaded;
}

Result<engine::LoadedModel> LoadModelInProcess(const engine::EngineOptions& options) {
  QUIRE_TRY(engine::LoadedModel loaded, LoadWithBar(options, Terminal::Of(stderr).is_tty, engine::LoadModel));
  PrintQuantization(options, loaded);
  WarnOfPackedCache(loaded.packed_cache);
  return loaded;
}

std::string DescribeModel(const EngineInfo& info) {
  return fmt::format("{}, {} parameters, {} ({})", info.architecture, FormatCount(info.num_parameters),
                     info.weight_formats, FormatBytes(info.weight_bytes));
}

std::string DescribeCompute(const EngineInfo& info) {
  return fmt::format("{} thread{}, {}", info.num_threads, info.num_threads == 1 ? "" : "s", info.isa);
}

std::string DescribeContext(const EngineInfo& info) {
  return fmt::format("{} tokens each, {} at once; the {} cache holds {} tokens", info.max_model_len, info.max_num_seqs,
                     info.kv_dtype, FormatCount(std::int64_t{info.num_blocks} * info.block_size));
}

}  // namespace quire::cli
