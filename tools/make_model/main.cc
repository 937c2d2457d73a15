// make_model: random models of real shapes, for speed, and of tiny ones, for tests.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/cpu_topology.h"
#include "base/thread_pool.h"
#include "folder_writer.h"
#include "gguf_model_writer.h"
#include "shapes.h"
#include "synthetic_tokenizer.h"
#include "weights/gguf_export.h"

namespace quire::make_model {
namespace {

struct Arguments {
  std::string shape, output, type = "BF16";
  std::uint64_t seed = 1;
  int shards = 1, threads = 0, layers = 0;
  bool list = false, quiet = false;
};

std::string ShapeList() {
  std::string text = "shapes:\n";
  for (const Shape& shape : AllShapes()) text += fmt::format("  {:<18} {}\n", shape.name, shape.description);
  return text;
}

void ShowProgress(std::int64_t done, std::int64_t total, std::string_view tensor) {
  std::fputs(fmt::format("\r{:3}% {:<48}", done * 100 / total, tensor).c_str(), stderr);
  if (done == total) std::fputs("\n", stderr);
}

Result<> Run(const Arguments& arguments) {
  const Shape* found = FindShape(arguments.shape);
  if (!found) return Fail(ErrorCode::kInvalidArgument, "unknown shape \"{}\"\n{}", arguments.shape, ShapeList());
  Shape shape = *found;
  if (arguments.layers > 0) {
    shape.config.num_layers = arguments.layers;
    shape.config.layer_uses_sliding_window.resize(static_cast<std::size_t>(arguments.layers),
                                                  shape.config.layer_uses_sliding_window.back());
  }
  ThreadPool pool(arguments.threads > 0 ? arguments.threads : DetectCpuTopology().num_threads);
  const SyntheticTokenizer tokenizer = MakeTokenizer(shape.tokenizer, shape.num_tokens);
  WriteOptions options{.seed = arguments.seed, .num_shards = arguments.shards};
  if (!arguments.quiet) options.progress = ShowProgress;

  if (!std::filesystem::path(arguments.output).extension().string().ends_with("gguf")) {
    const weights::TypeTraits* type = weights::FindTypeByName(arguments.type);
    if (!type || type->safetensors_name.empty()) {
      return Fail(ErrorCode::kInvalidArgument, "a folder's type is F32, F16 or BF16, not {}", arguments.type);
    }
    return WriteFolder(arguments.output, shape, tokenizer, *type, options, &pool);
  }
  const weights::GgufFileType* type = weights::FindGgufFileType(arguments.type);
  if (!type) return Fail(ErrorCode::kInvalidArgument, "unknown type {}", arguments.type);
  if (arguments.shards != 1) return Fail(ErrorCode::kInvalidArgument, "a GGUF file has no shards");
  std::vector<std::string> notes;
  QUIRE_TRY_VOID(WriteGguf(arguments.output, shape, tokenizer, *type, options, &pool, &notes));
  if (!arguments.quiet && !notes.empty()) {
    fmt::print(stderr, "{} tensors are stored in another type, the first: {}\n", notes.size(), notes.front());
  }
  return {};
}

}  // namespace
}  // namespace quire::make_model

int main(int argc, char** argv) {
  using namespace quire::make_model;
  Arguments arguments;
  CLI::App app(
      "Writes a model with random weights: a GGUF file when OUTPUT ends in .gguf, else a Hugging Face folder. The "
      "tokenizer works, the text that the model writes is noise. The same seed gives the same weights in every "
      "format.");
  app.footer(ShapeList());
  app.add_option("shape", arguments.shape, "the shape, see below");
  app.add_option("output", arguments.output, "where to write");
  app.add_option("-t,--type", arguments.type,
                 "GGUF: " + quire::weights::GgufFileTypeNames() + "; folder: F32, F16, BF16")
      ->capture_default_str();
  app.add_option("--seed", arguments.seed, "of the weights")->capture_default_str();
  app.add_option("--shards", arguments.shards, "number of safetensors files of a folder")->capture_default_str();
  app.add_option("--layers", arguments.layers, "another number of layers than the shape's")->check(CLI::Range(1, 4096));
  app.add_option("--threads", arguments.threads, "0: as many as there are cores")->check(CLI::Range(0, 1024));
  app.add_flag("--list", arguments.list, "show the shapes and stop");
  app.add_flag("-q,--quiet", arguments.quiet, "no progress");
  CLI11_PARSE(app, argc, argv);
  if (arguments.list) {
    fmt::print("{}", ShapeList());
    return 0;
  }
  if (arguments.shape.empty() || arguments.output.empty()) {
    fmt::print(stderr, "make_model: a shape and an output are wanted; --help says more\n");
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto result = Run(arguments);
  if (!result.has_value()) {
    fmt::print(stderr, "make_model: {}\n", result.error().message);
    return 1;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (!arguments.quiet) fmt::print(stderr, "{} in {:.1f} s\n", arguments.output, took.count());
  return 0;
}
