// `quire perplexity`: how well a model predicts a text, and how far it is from a reference model.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/mapped_file.h"
#include "bench/perplexity.h"
#include "cli/command.h"
#include "cli/config_fields.h"
#include "cli/in_process.h"
#include "cli/model_location.h"
#include "cli/progress_bar.h"
#include "engine/loader.h"
#include "engine/text_side.h"

namespace quire::cli {
namespace {

// What tokenizers take at most.
constexpr std::size_t kTextBytesMax = std::size_t{256} << 20;

struct PerplexityFlags {
  engine::EngineOptions load;
  std::filesystem::path file, reference;
  bench::PerplexityOptions options;
  bool json = false;
};

// A model that is to be loaded, and its tokenizer.
struct Side {
  engine::EngineOptions load;
  engine::TextSide text;

  std::string name() const { return load.model.string(); }
};

Result<Side> OpenSide(engine::EngineOptions load) {
  QUIRE_TRY_VOID(CompleteOptions(&load));
  QUIRE_TRY(engine::TextSide text, engine::LoadTextSide(load.model));
  return Side{std::move(load), std::move(text)};
}

// The tokens of a text, and those that the tokenizer puts before every text (BOS).
struct Tokens {
  std::vector<TokenId> text, prefix;
};

Result<Tokens> Tokenize(const text::Tokenizer& tokenizer, std::string_view text) {
  Tokens tokens;
  QUIRE_TRY(tokens.text, tokenizer.Encode(text, {.add_special_tokens = false}));
  QUIRE_TRY(const std::vector<TokenId> with_special, tokenizer.Encode(text, {}));
  const auto found = std::ranges::search(with_special, tokens.text);
  if (!found.empty()) tokens.prefix.assign(with_special.begin(), found.begin());
  return tokens;
}

Result<Tokens> ReadTokens(const PerplexityFlags& flags, const Side& side) {
  QUIRE_TRY(const std::string text, ReadFile(flags.file, kTextBytesMax));
  const std::string name = flags.file.string();
  if (text.empty()) return Fail(ErrorCode::kInvalidArgument, "{} is empty", name);
  QUIRE_TRY(Tokens tokens, Tokenize(*side.text.tokenizer, text));
  if (tokens.text.size() < 2) {
    return Fail(ErrorCode::kInvalidArgument, "{} has {} token; perplexity needs at least two", name,
                tokens.text.size());
  }
  const int vocab_size = side.text.config.vocab_size;
  const auto largest = std::ranges::max(tokens.text);
  if (largest.value() >= vocab_size) {
    return Fail(ErrorCode::kCorrupt, "{}: the tokenizer gives token {}, but the model has {}", side.name(),
                largest.value(), vocab_size);
  }
  return tokens;
}

// Distributions can be compared only over the same tokens.
Result<> CheckSameVocabulary(const Side& model, const Side& reference) {
  const auto fail = [&](const std::string& difference) {
    return Fail(ErrorCode::kInvalidArgument, "{} and {} have different vocabularies: {}", model.name(),
                reference.name(), difference);
  };
  const int size = model.text.config.vocab_size, reference_size = reference.text.config.vocab_size;
  if (size != reference_size) return fail(fmt::format("{} tokens and {}", size, reference_size));
  const text::Tokenizer &ours = *model.text.tokenizer, &theirs = *reference.text.tokenizer;
  // A file may name tokens that fill the embedding up, where the other leaves them out.
  for (int i = 0; i < std::min(ours.vocab_size(), theirs.vocab_size()); ++i) {
    const std::string_view a = ours.TokenText(TokenId(i)), b = theirs.TokenText(TokenId(i));
    if (a != b) return fail(fmt::format("token {} is \"{}\" and \"{}\"", i, a, b));
  }
  return {};
}

Result<> CheckSameTokens(const PerplexityFlags& flags, const Tokens& tokens, const Side& model, const Side& reference) {
  QUIRE_TRY(const Tokens other, ReadTokens(flags, reference));
  if (other.text == tokens.text && other.prefix == tokens.prefix) return {};
  return Fail(ErrorCode::kInvalidArgument, "the tokenizers of {} and {} make different tokens of {}", model.name(),
              reference.name(), flags.file.string());
}

Result<Side> OpenReference(const PerplexityFlags& flags, const Side& model, const Tokens& tokens) {
  engine::EngineOptions load = flags.load;
  load.model = flags.reference;
  // So that a small type of the cache shows in the comparison, too.
  if (load.kv_dtype != kernels::KvDtype::kF32) load.kv_dtype = kernels::KvDtype::kBf16;
  load.quantization = weights::Quantization::kNone;  // that is what the model is compared with
  load.quantization_report.clear();
  QUIRE_TRY(Side reference, OpenSide(std::move(load)));
  QUIRE_TRY_VOID(CheckSameVocabulary(model, reference));
  QUIRE_TRY_VOID(CheckSameTokens(flags, tokens, model, reference));
  return reference;
}

// What can be wrong with files and flags is found before weights are loaded, which may take long.
Result<> MeasurePerplexity(const PerplexityFlags& flags) {
  QUIRE_TRY(const Side model, OpenSide(flags.load));
  QUIRE_TRY(Tokens tokens, ReadTokens(flags, model));
  int length_max = engine::ModelLengthDefault(model.text.config);
  std::optional<Side> reference;
  if (!flags.reference.empty()) {
    QUIRE_TRY(reference, OpenReference(flags, model, tokens));
    length_max = std::min(length_max, engine::ModelLengthDefault(reference->text.config));
  }
  bench::PerplexityRun run;
  QUIRE_TRY(run.options, flags.options.Complete(length_max, static_cast<int>(tokens.prefix.size())));
  run.prefix = std::move(tokens.prefix);
  run.tokens = std::move(tokens.text);

  QUIRE_TRY(const engine::LoadedModel loaded, LoadModelInProcess(model.load));
  run.model = {loaded.model.get(), loaded.kernels};
  run.pool = loaded.pool.get();
  engine::LoadedModel loaded_reference;
  if (reference) {
    QUIRE_TRY(loaded_reference, LoadModelInProcess(reference->load));
    run.reference = bench::ModelUnderTest{loaded_reference.model.get(), loaded_reference.kernels};
    loaded_reference.pool.reset();  // one set of threads computes both
  }
  const SteadyClock clock;
  ProgressBar bar("perplexity", Terminal::Of(stderr), &clock, ProgressUnit::kTokens);
  run.progress = [&](std::int64_t done, std::int64_t total) { bar.Update(done, total); };
  QUIRE_TRY(const bench::PerplexityReport report, bench::MeasurePerplexity(run));
  bar.Finish();
  fmt::print("{}", flags.json ? report.ToJson() + "\n" : report.ToText());
  return {};
}

}  // namespace

void AddPerplexityCommand(CLI::App* app, CommandSlot* slot) {
  CLI::App* command = app->add_subcommand(
      "perplexity",
      "how well a model predicts a text, and how far it is from a reference model\n\n"
      "  quire perplexity model-q4_0.gguf wiki.test.raw\n"
      "  quire perplexity model-q4_0.gguf wiki.test.raw --reference Qwen3-0.6B\n\n"
      "The file is one text: special tokens written in it are taken as such, and no chat template is applied. It is\n"
      "cut into windows of --context tokens, one every --stride tokens. Where the tokenizer begins texts with BOS,\n"
      "each window begins with it; BOS is not scored. Every other token is scored once, in the first window that\n"
      "holds it; the first token of a text without BOS is not. Perplexity is e to the mean negative log likelihood,\n"
      "± its standard error with tokens taken as independent. --reference adds the Kullback-Leibler divergence\n"
      "KL(reference || model) of the next-token distributions, in nats.");
  auto flags = std::make_shared<PerplexityFlags>();  // shared by the parser's callback and the flags that fill it
  const auto add_path = [&](const std::string& name, std::filesystem::path* path, const std::string& help) {
    return command
        ->add_option_function<std::string>(
            name, [flags, path](const std::string& text) { *path = text; }, help)
        ->type_name("PATH");
  };
  add_path("model", &flags->load.model, "a Hugging Face folder or a .gguf file")->required();
  add_path("file", &flags->file, "a text in UTF-8")->required();
  add_path("--reference", &flags->reference, "a model of the same vocabulary to compare with: the unquantised one");
  command->add_flag("--json", flags->json, "one line of JSON");
  command
      ->add_option("--context", flags->options.context,
                   "tokens of a window, BOS among them; 0: 512, or the model's length if that is less")
      ->capture_default_str();
  command->add_option("--stride", flags->options.stride, "tokens from one window to the next; 0: half of --context")
      ->capture_default_str();
  command->add_option("--max-windows", flags->options.max_windows, "only the first windows of the text; 0: all")
      ->capture_default_str();
  FlagVisitor engine(command, "Engine");
  AddComputeFields(&flags->load, &engine);
  engine.Field("kv-cache-dtype",
               Choice(flags->load.kv_dtype, engine::KvDtypeName, engine::ParseKvDtype,
                      "auto (bf16), bf16, f32, fp8 (fp8_e4m3), int8 or int4"),
               "type of cached keys and values; the reference has BF16 where this is smaller");
  engine.Field("quantization", QuantizationChoice(flags->load.quantization),
               "quantise the model while it is loaded; the reference stays as it is");
  engine.Field("quantization-report", flags->load.quantization_report,
               "file to write the relative RMS error of each quantised matrix to, the worst first");
  SetRun(command, slot, "perplexity", [flags] {
    const Result<> measured = MeasurePerplexity(*flags);
    return measured ? kExitSuccess : ReportError("perplexity", measured.error());
  });
}

}  // namespace quire::cli
