#include "bench/model_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <sstream>
#include <vector>

#include "base/counter_rng.h"
#include "base/json.h"

namespace quire::bench {
namespace {

constexpr int kTokensMax = 1 << 20;
constexpr int kSequencesMax = 4096;

// Distinguishes the prompts of all runs of this process from each other, so that the prefix cache never helps.
std::uint64_t NextRun() {
  static std::atomic<std::uint64_t> run{0};
  return ++run;
}

GenerateRequest MakeRequest(RequestId id, std::uint64_t run, int prompt_tokens, int max_tokens, int vocab_size) {
  GenerateRequest request;
  request.id = id;
  request.cache_salt = fmt::format("bench {} {}", run, id);
  request.prompt.reserve(static_cast<std::size_t>(prompt_tokens));
  for (int i = 0; i < prompt_tokens; ++i) {
    const double draw = UniformDouble(run * 1000003 + id.value(), static_cast<std::uint64_t>(i));
    request.prompt.emplace_back(static_cast<std::int32_t>(draw * vocab_size));
  }
  request.sampling.temperature = 0;
  request.stop = {.max_tokens = max_tokens, .ignore_eos = true};
  return request;
}

struct Finished {
  RequestTimes times;
  int num_tokens = 0;
};

// Waits for `count` requests to end.
Result<std::vector<Finished>> Collect(EngineClient* engine, std::size_t count) {
  std::vector<Finished> finished;
  std::vector<std::pair<RequestId, int>> tokens;  // few: a linear search does
  while (finished.size() < count) {
    auto events = engine->Next(std::chrono::seconds(600));
    if (!events) return Fail(ErrorCode::kUnavailable, "the engine is gone");
    if (events->empty()) return Fail(ErrorCode::kUnavailable, "the engine said nothing for ten minutes");
    for (const EngineEvent& event : *events) {
      auto at = std::find_if(tokens.begin(), tokens.end(), [&](const auto& t) { return t.first == event.request; });
      if (at == tokens.end()) at = tokens.insert(tokens.end(), {event.request, 0});
      at->second += static_cast<int>(event.tokens.size());
      if (HasFailed(event.finish_reason)) return Fail(ErrorCode::kInternal, "{}", event.error);
      if (event.finish_reason != FinishReason::kNone) finished.push_back({event.times, at->second});
    }
  }
  return finished;
}

}  // namespace

std::string ModelBenchResult::ToJson() const {
  std::string line;
  JsonWriter(&line)
      .BeginObject()
      .Key("kind")
      .String(measured.kind == ModelBenchCase::Kind::kPrefill ? "prefill" : "decode")
      .Key("num_tokens")
      .Int(measured.num_tokens)
      .Key("num_sequences")
      .Int(measured.num_sequences)
      .Key("context")
      .Int(measured.context)
      .Key("seconds")
      .Double(seconds)
      .Key("prompt_seconds")
      .Double(prompt_seconds)
      .Key("tokens_per_second")
      .Double(tokens_per_second)
      .EndObject();
  return line;
}

Result<ModelBenchCase> ParseModelBenchCase(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::string kind;
  in >> kind;
  std::vector<int> numbers;
  for (std::string word; in >> word;) {
    int number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool is_number = error == std::errc() && end == word.data() + word.size();
    numbers.push_back(is_number ? number : 0);  // which is refused below
  }
  const bool in_bounds = std::ranges::all_of(numbers, [](int n) { return n >= 1 && n <= kTokensMax; });
  if (in_bounds && kind == "prefill" && numbers.size() == 1) return ModelBenchCase{.num_tokens = numbers[0]};
  if (in_bounds && kind == "decode" && (numbers.size() == 2 || numbers.size() == 3)) {
    const ModelBenchCase decode{.kind = ModelBenchCase::Kind::kDecode,
                                .num_tokens = numbers[0],
                                .num_sequences = numbers[1],
                                .context = numbers.size() == 3 ? numbers[2] : 1};
    if (decode.num_sequences <= kSequencesMax && (decode.num_sequences == 1 || decode.context == 1)) return decode;
  }
  return FailParam("case",
                   "\"{}\" is not a case; write \"prefill TOKENS\", \"decode STEPS SEQUENCES\" or "
                   "\"decode STEPS 1 CONTEXT\"",
                   text);
}

Result<ModelBenchResult> RunModelBench(EngineClient* engine, const ModelBenchCase& bench_case) {
  QUIRE_TRY(const EngineInfo info, engine->Info());
  const bool prefill = bench_case.kind == ModelBenchCase::Kind::kPrefill;
  const std::uint64_t run = NextRun();
  for (int sequence = 0; sequence < bench_case.num_sequences; ++sequence) {
    QUIRE_TRY_VOID(engine->Submit(MakeRequest(RequestId(run << 20 | static_cast<std::uint64_t>(sequence)), run,
                                              prefill ? bench_case.num_tokens : bench_case.context,
                                              prefill ? 1 : bench_case.num_tokens + 1, info.vocab_size)));
  }
  QUIRE_TRY(const auto finished, Collect(engine, static_cast<std::size_t>(bench_case.num_sequences)));

  ModelBenchResult result{.measured = bench_case};
  result.prompt_seconds = Seconds(finished[0].times.first_token - finished[0].times.first_scheduled);
  if (prefill) {
    result.seconds = result.prompt_seconds;
    result.tokens_per_second = bench_case.num_tokens / result.seconds;
    return result;
  }
  for (const Finished& sequence : finished) {
    const double seconds = Seconds(sequence.times.last_token - sequence.times.first_token);
    result.tokens_per_second += (sequence.num_tokens - 1) / seconds;
    result.seconds = std::max(result.seconds, seconds);
  }
  return result;
}

}  // namespace quire::bench
