// `quire pack`: keeps a model's packed weights in a file, for the next starts to map.
#include <cstdio>
#include <memory>
#include <system_error>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/config_fields.h"
#include "cli/model_location.h"
#include "cli/progress_bar.h"
#include "cli/units.h"
#include "engine/loader.h"
#include "weights/packed_file.h"

namespace quire::cli {
namespace {

struct PackFlags {
  engine::EngineOptions load;
  bool verify_only = false;
};

// Writes the file by loading the model once.
Result<> WriteFile(const engine::EngineOptions& options, const std::filesystem::path& file) {
  const SteadyClock clock;
  ProgressBar bar("packing " + options.model.string(), Terminal::Of(stderr), &clock);
  QUIRE_TRY(const engine::LoadedModel loaded,
            engine::LoadModel(
                options, [&](std::int64_t done, std::int64_t total, std::string_view) { bar.Update(done, total); }));
  bar.Finish();
  if (loaded.packed_cache.note.empty()) return Fail(ErrorCode::kIo, "{}", loaded.packed_cache.warning);
  const std::string quantized = engine::DescribeQuantization(options, loaded);
  if (!quantized.empty()) fmt::print("{}\n", quantized);
  fmt::print("{}: {}, written in {}\n", file.string(), FormatBytes(loaded.model->weight_bytes()),
             FormatSeconds(loaded.load_seconds));
  return {};
}

Result<> Pack(engine::EngineOptions options, bool verify_only) {
  if (options.packed_cache.empty()) options.packed_cache = "auto";
  QUIRE_TRY_VOID(CompleteOptions(&options));
  QUIRE_TRY(const auto source, weights::ModelSource::Open(options.model));
  QUIRE_TRY(const std::uint64_t fingerprint,
            weights::ModelFingerprint(*source, options.model, weights::QuantizationName(options.quantization)));
  const auto file = engine::PackedCachePlace::Parse(options.packed_cache).FileFor(options.model, fingerprint);
  const Result<weights::PackedReader> reader = weights::PackedReader::Open(file, fingerprint);
  const Result<> whole = reader ? reader->VerifyData() : std::unexpected(reader.error());
  if (whole) {
    fmt::print("{} is whole: {} matrices, {}\n", file.string(), reader->num_matrices(), FormatBytes(reader->bytes()));
    return {};
  }
  if (verify_only) return whole;
  if (whole.error().code != ErrorCode::kNotFound) {
    fmt::print(stderr, "quire pack: packing again: {}\n", Printable(whole.error().message));
    std::error_code ignored;  // a table that is in order would be believed
    if (reader) std::filesystem::remove(file, ignored);
  }
  return WriteFile(options, file);
}

}  // namespace

void AddPackCommand(CLI::App* app, CommandSlot* slot) {
  CLI::App* command = app->add_subcommand(
      "pack",
      "keep a model's packed weights in a file, so that later starts only map it\n\n"
      "  quire pack llama-3.2-1b-q4_0.gguf                   under the user's cache folder: serve, run, chat … find "
      "it\n"
      "  quire pack Qwen3-0.6B qwen3.packed                  and: quire serve Qwen3-0.6B --packed-cache qwen3.packed\n"
      "  quire pack llama-3.2-1b-q4_0.gguf --verify          check every byte of the file\n"
      "  quire pack Qwen3-0.6B --quantization int4           for quire serve Qwen3-0.6B --quantization int4\n\n"
      "A file that is there and whole is left alone; one that is damaged, or of another model or version, is written\n"
      "again. It takes about as much space as the model. The model itself is needed all the same.");
  auto flags = std::make_shared<PackFlags>();  // shared by the parser's callback and the flags that fill it
  command
      ->add_option_function<std::string>(
          "model,--model", [flags](const std::string& text) { flags->load.model = text; },
          "a Hugging Face folder or a .gguf file (default: the demo model)")
      ->type_name("PATH");
  command
      ->add_option("output", flags->load.packed_cache,
                   "a folder, or a file that ends in .packed (default: quire under $XDG_CACHE_HOME or ~/.cache)")
      ->type_name("PATH");
  FlagVisitor visitor(command, command->option_defaults()->get_group());  // among the others
  visitor.Field("quantization", QuantizationChoice(flags->load.quantization),
                "quantise a model in F32, F16 or BF16 while it is packed; the file is for starts with the same value");
  command->add_option("--threads", flags->load.num_threads, "threads that pack; 0: one for each core that may be used")
      ->capture_default_str();
  command->add_flag("--verify", flags->verify_only, "write nothing; status 1 unless the file is there and whole");
  SetRun(command, slot, "pack", [flags] {
    const Result<> packed = Pack(flags->load, flags->verify_only);
    return packed ? kExitSuccess : ReportError("pack", packed.error());
  });
}

}  // namespace quire::cli
