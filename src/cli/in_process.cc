#include "cli/in_process.h"

#include <cstdint>

#include "cli/model_location.h"
#include "cli/units.h"

namespace quire::cli {

Result<engine::LoadedEngine> LoadInProcess(engine::EngineOptions* options, bool quiet) {
  QUIRE_TRY_VOID(CompleteOptions(options));
  const SteadyClock clock;
  const Terminal terminal = Terminal::Of(stderr);
  ProgressBar bar("loading " + options->model.string(), terminal, &clock);
  const bool show = terminal.is_tty || !quiet;
  QUIRE_TRY(engine::LoadedEngine loaded,
            engine::LoadEngine(*options, [&](std::int64_t done, std::int64_t total, std::string_view) {
              if (show) bar.Update(done, total);
            }));
  bar.Finish();
  if (show) PrintQuantization(*options, loaded.loaded);
  WarnOfPackedCache(loaded.loaded.packed_cache);
  return loaded;
}

void PrintQuantization(const engine::EngineOptions& options, const engine::LoadedModel& loaded) {
  const std::string text = engine::DescribeQuantization(options, loaded);
  if (!text.empty()) fmt::print(stderr, "{}\n", text);
}

void WarnOfPackedCache(const engine::PackedCacheReport& report) {
  if (!report.warning.empty()) fmt::print(stderr, "quire: warning: {}\n", Printable(report.warning));
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
