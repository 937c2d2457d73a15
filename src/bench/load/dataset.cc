#include "bench/load/dataset.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "bench/load/random_draws.h"

namespace quire::bench::load {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{2} << 30;
constexpr int kOutputDefault = 64;   // made-up prompts
constexpr int kOutputUnknown = 128;  // nothing says how long the answer is
constexpr std::size_t kItemsMax = 10'000'000;

// The lines that are not empty, numbered from 1.
template <typename Take>
Result<> ForEachLine(std::string_view text, Take take) {
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (!line.empty()) QUIRE_TRY_VOID(take(line, number));
  }
  return {};
}

// The objects of a JSON array, or one a line.
Result<std::vector<json::object>> ParseItems(std::string_view text) {
  std::vector<json::object> items;
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && text[start] == '[') {
    QUIRE_TRY(json::value all, ParseJson(text, "dataset", {.bytes_max = kFileBytesMax}));
    for (json::value& item : all.as_array()) {
      if (!item.is_object()) return Fail(ErrorCode::kCorrupt, "item {} is not a JSON object", items.size());
      items.push_back(std::move(item.as_object()));
    }
    return items;
  }
  QUIRE_TRY_VOID(ForEachLine(text, [&](std::string_view line, std::size_t number) -> Result<> {
    QUIRE_TRY(json::value item, ParseJson(line, fmt::format("line {}", number)));
    if (!item.is_object()) return Fail(ErrorCode::kCorrupt, "line {} is not a JSON object", number);
    if (items.size() == kItemsMax) return Fail(ErrorCode::kOutOfRange, "more than {} items", kItemsMax);
    items.push_back(std::move(item.as_object()));
    return {};
  }));
  return items;
}

const json::string* FindText(const json::object& object, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (const json::value* value = object.if_contains(key); value != nullptr && value->is_string()) {
      return &value->get_string();
    }
  }
  return nullptr;
}

const json::array* FindArray(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_array() ? &value->get_array() : nullptr;
}

std::string_view RoleOf(const json::value& message) {
  if (!message.is_object()) return {};
  const json::string* role = FindText(message.get_object(), {"role"});
  return role == nullptr ? std::string_view() : std::string_view(role->data(), role->size());
}

int LengthOf(const json::value& message) {
  const json::string* content = message.is_object() ? FindText(message.get_object(), {"content", "value"}) : nullptr;
  return content == nullptr ? 0 : EstimateTokens({content->data(), content->size()});
}

std::string TextJson(const json::string& text) {
  std::string out;
  JsonWriter(&out).String({text.data(), text.size()});
  return out;
}

// The first `count` messages.
std::string MessagesJson(const json::array& messages, std::size_t count) {
  std::string out;
  JsonWriter writer(&out);
  writer.BeginArray();
  for (std::size_t i = 0; i < count; ++i) writer.Value(messages[i]);
  writer.EndArray();
  return out;
}

// What one item asks, or nothing when it asks nothing. `answer_tokens`: of the recorded answer; 0: none.
std::optional<Request> PromptOf(const json::object& item, int* answer_tokens) {
  Request request;
  if (const json::array* messages = FindArray(item, "messages")) {
    std::size_t count = messages->size();
    if (count > 0 && RoleOf(messages->back()) == "assistant") *answer_tokens = LengthOf((*messages)[--count]);
    if (count == 0) return std::nullopt;
    request.is_chat = true;
    request.prompt_json = MessagesJson(*messages, count);
    return request;
  }
  if (const json::array* turns = FindArray(item, "conversations")) {
    if (turns->size() < 2 || !turns->front().is_object()) return std::nullopt;
    const json::string* first = FindText(turns->front().get_object(), {"value"});
    if (first == nullptr || first->empty()) return std::nullopt;
    *answer_tokens = LengthOf((*turns)[1]);
    request.prompt_json = TextJson(*first);
    return request;
  }
  const json::array* turns = FindArray(item, "turns");
  const json::string* text = turns != nullptr && !turns->empty() && turns->front().is_string()
                                 ? &turns->front().get_string()
                                 : FindText(item, {"prompt", "question"});
  if (text == nullptr || text->empty()) return std::nullopt;
  if (const json::string* answer = FindText(item, {"answer", "completion"})) {
    *answer_tokens = EstimateTokens({answer->data(), answer->size()});
  }
  request.prompt_json = TextJson(*text);
  return request;
}

int OutputTokens(const json::object& item, int answer_tokens, const DatasetConfig& config) {
  if (config.output_len) return *config.output_len;
  if (const json::value* value = item.if_contains("output_tokens"); value != nullptr && value->is_int64()) {
    return static_cast<int>(std::clamp<std::int64_t>(value->get_int64(), 1, 1 << 22));
  }
  return answer_tokens > 0 ? answer_tokens : kOutputUnknown;
}

bool IsTooLong(const Request& request, const DatasetConfig& config) {
  if (config.max_total_len == 0) return false;
  const int prompt = request.parts.empty() ? EstimateTokens(request.prompt_json) : request.num_prompt_tokens();
  return prompt > config.max_total_len - request.max_tokens;
}

bool IsFull(const Dataset& dataset, const DatasetConfig& config) {
  return config.num_prompts > 0 && dataset.requests.size() >= static_cast<std::size_t>(config.num_prompts);
}

// Fisher and Yates.
void Shuffle(std::vector<json::object>* items, int seed) {
  Draws draws(static_cast<std::uint64_t>(seed), kOrderStream);
  for (std::size_t i = items->size(); i > 1; --i) {
    const auto j = static_cast<std::size_t>(draws.Uniform() * static_cast<double>(i));
    std::swap((*items)[i - 1], (*items)[j]);
  }
}

Result<Dataset> OrEmpty(Dataset dataset, std::string_view what) {
  if (!dataset.requests.empty()) return dataset;
  if (dataset.num_left_out > 0) {
    return FailParam("max-total-len", "all {} {} are longer or have no prompt", dataset.num_left_out, what);
  }
  return Fail(ErrorCode::kCorrupt, "it holds no {}", what);
}

}  // namespace

int EstimateTokens(std::string_view text) {
  constexpr std::size_t kBytesPerToken = 4;
  return static_cast<int>(
      std::clamp<std::size_t>((text.size() + kBytesPerToken - 1) / kBytesPerToken, 1, std::size_t{1} << 22));
}

Dataset MakeUpPrompts(const DatasetConfig& config, std::uint64_t first) {
  Dataset dataset;
  Draws lengths(static_cast<std::uint64_t>(config.seed), kLengthStream + first);
  const auto vary = [&](int length) {
    if (config.range_ratio == 0) return length;
    const int low = static_cast<int>(length * (1 - config.range_ratio));
    const int high = static_cast<int>(length * (1 + config.range_ratio));
    return std::max(1, lengths.Between(low, high));
  };
  for (int i = 0; i < config.num_prompts; ++i) {
    Request request;
    const int length = vary(config.input_tokens());
    const int prefix = std::min(config.prefix_tokens(), length);
    const auto group = static_cast<std::uint64_t>(i % config.num_prefixes);
    if (prefix > 0) request.parts.push_back({.stream = kPrefixStreams + group, .num_tokens = prefix});
    if (length > prefix) {
      request.parts.push_back(
          {.stream = kPromptStreams + first + static_cast<std::uint64_t>(i), .num_tokens = length - prefix});
    }
    request.max_tokens = vary(config.output_len.value_or(kOutputDefault));
    dataset.requests.push_back(std::move(request));
  }
  return dataset;
}

Result<Dataset> ParsePrompts(std::string_view text, const DatasetConfig& config) {
  QUIRE_TRY(std::vector<json::object> items, ParseItems(text));
  Shuffle(&items, config.seed);
  Dataset dataset;
  for (const json::object& item : items) {
    if (IsFull(dataset, config)) break;
    int answer_tokens = 0;
    std::optional<Request> request = PromptOf(item, &answer_tokens);
    if (request) request->max_tokens = OutputTokens(item, answer_tokens, config);
    if (!request || IsTooLong(*request, config)) {
      ++dataset.num_left_out;
      continue;
    }
    dataset.requests.push_back(*std::move(request));
  }
  return OrEmpty(std::move(dataset), "prompts");
}

Result<Dataset> ParseChats(std::string_view text, const DatasetConfig& config) {
  QUIRE_TRY(std::vector<json::object> items, ParseItems(text));
  Shuffle(&items, config.seed);
  Dataset dataset;
  for (const json::object& item : items) {
    const json::array* messages = FindArray(item, "messages");
    int after = -1;
    for (std::size_t i = 0; messages != nullptr && i < messages->size() && !IsFull(dataset, config); ++i) {
      if (RoleOf((*messages)[i]) != "user") continue;
      Request request;
      request.is_chat = true;
      request.prompt_json = MessagesJson(*messages, i + 1);
      request.after = after;
      const int answer_tokens = i + 1 < messages->size() ? LengthOf((*messages)[i + 1]) : 0;
      request.max_tokens = OutputTokens(item, answer_tokens, config);
      if (IsTooLong(request, config)) {  // and so are the turns that follow
        ++dataset.num_left_out;
        break;
      }
      after = static_cast<int>(dataset.requests.size());
      dataset.requests.push_back(std::move(request));
    }
  }
  return OrEmpty(std::move(dataset), "chats with a message of a user");
}

namespace {

Result<> AddTraced(Request request, double seconds, const DatasetConfig& config, Dataset* dataset) {
  if (IsFull(*dataset, config)) return {};
  if (config.output_len) request.max_tokens = *config.output_len;
  if (IsTooLong(request, config)) {
    ++dataset->num_left_out;
    return {};
  }
  request.arrival_seconds = seconds / config.trace_speed;
  dataset->requests.push_back(std::move(request));
  return {};
}

int Scaled(std::int64_t tokens, const DatasetConfig& config) {
  constexpr double kTokensMax = 1 << 22;
  return static_cast<int>(std::clamp(std::round(static_cast<double>(tokens) * config.length_scale), 1.0, kTokensMax));
}

// Blocks of a prompt; what follows the named ones is the request's own.
std::vector<PromptPart> BlocksOf(const std::vector<std::uint64_t>& ids, int length, std::size_t index,
                                 const DatasetConfig& config) {
  constexpr std::int64_t kBlockTokens = 512;
  std::vector<PromptPart> parts;
  int done = 0;
  for (std::size_t b = 0; b < ids.size() && done < length; ++b) {
    const int end = std::min(length, Scaled(kBlockTokens * static_cast<std::int64_t>(b + 1), config));
    if (end > done) parts.push_back({.stream = kBlockStreams + ids[b], .num_tokens = end - done});
    done = std::max(done, end);
  }
  if (done < length) parts.push_back({.stream = kPromptStreams + index, .num_tokens = length - done});
  return parts;
}

Result<std::int64_t> Number(const json::object& object, std::string_view key, std::size_t line) {
  const json::value* value = object.if_contains(key);
  if (value != nullptr && value->is_int64() && value->get_int64() >= 0) return value->get_int64();
  return Fail(ErrorCode::kCorrupt, "line {}: {} is not a number of at least 0", line, key);
}

Result<Dataset> ParseMooncake(std::string_view text, const DatasetConfig& config) {
  Dataset dataset{.has_arrivals = true};
  std::optional<std::int64_t> first_ms;
  QUIRE_TRY_VOID(ForEachLine(text, [&](std::string_view line, std::size_t number) -> Result<> {
    if (IsFull(dataset, config)) return {};
    QUIRE_TRY(const json::value value, ParseJson(line, fmt::format("line {}", number)));
    if (!value.is_object()) return Fail(ErrorCode::kCorrupt, "line {} is not a JSON object", number);
    const json::object& object = value.get_object();
    QUIRE_TRY(const std::int64_t ms, Number(object, "timestamp", number));
    QUIRE_TRY(const std::int64_t input, Number(object, "input_length", number));
    QUIRE_TRY(const std::int64_t output, Number(object, "output_length", number));
    std::vector<std::uint64_t> ids;
    if (const json::array* hashes = FindArray(object, "hash_ids")) {
      for (const json::value& hash : *hashes) {
        if (!hash.is_int64() || hash.get_int64() < 0) {
          return Fail(ErrorCode::kCorrupt, "line {}: hash_ids holds what is no number of at least 0", number);
        }
        ids.push_back(static_cast<std::uint64_t>(hash.get_int64()));
      }
    }
    if (!first_ms) first_ms = ms;
    Request request;
    request.parts = BlocksOf(ids, Scaled(input, config), number, config);
    request.max_tokens = Scaled(output, config);
    return AddTraced(std::move(request), static_cast<double>(ms - *first_ms) * 1e-3, config, &dataset);
  }));
  return OrEmpty(std::move(dataset), "requests");
}

// "2023-11-16 18:17:03.9799600" in seconds.
std::optional<double> ParseTimestamp(const std::string& text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, used = 0;
  double second = 0;
  const int count =
      std::sscanf(text.c_str(), "%4d-%2d-%2d %2d:%2d:%lf%n", &year, &month, &day, &hour, &minute, &second, &used);
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (count != 6 || static_cast<std::size_t>(used) != text.size() || !date.ok() || !(second >= 0 && second < 61)) {
    return std::nullopt;
  }
  const double days = static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count());
  return days * 86400 + hour * 3600.0 + minute * 60.0 + second;
}

Result<Dataset> ParseAzure(std::string_view text, const DatasetConfig& config) {
  Dataset dataset{.has_arrivals = true};
  std::optional<double> first;
  QUIRE_TRY_VOID(ForEachLine(text, [&](std::string_view line, std::size_t number) -> Result<> {
    if (number == 1) return {};  // the header
    const std::string row(line);
    const std::size_t comma = row.find(',');
    long long input = 0, output = 0;
    int used = 0;
    const std::optional<double> at = ParseTimestamp(row.substr(0, comma));
    if (!at || std::sscanf(row.c_str() + comma, ",%lld,%lld%n", &input, &output, &used) != 2 || input < 0 ||
        output < 0 || comma + static_cast<std::size_t>(used) != row.size()) {
      return Fail(ErrorCode::kCorrupt, "line {} is not \"TIMESTAMP,ContextTokens,GeneratedTokens\"", number);
    }
    if (!first) first = at;
    Request request;
    request.parts = {{.stream = kPromptStreams + number, .num_tokens = Scaled(input, config)}};
    request.max_tokens = Scaled(output, config);
    return AddTraced(std::move(request), std::max(0.0, *at - *first), config, &dataset);
  }));
  return OrEmpty(std::move(dataset), "requests");
}

}  // namespace

Result<Dataset> ParseTrace(std::string_view text, const DatasetConfig& config) {
  QUIRE_TRY(Dataset dataset, text.starts_with("TIMESTAMP,") ? ParseAzure(text, config) : ParseMooncake(text, config));
  // Those that came at the same time stay in their order.
  std::vector<std::pair<double, std::size_t>> order;
  for (const Request& request : dataset.requests) order.emplace_back(request.arrival_seconds, order.size());
  std::ranges::sort(order);
  std::vector<Request> sorted;
  for (const auto& [at, index] : order) sorted.push_back(std::move(dataset.requests[index]));
  dataset.requests = std::move(sorted);
  return dataset;
}

Result<Dataset> MakeDataset(const DatasetConfig& config) {
  if (config.is_made_up()) return MakeUpPrompts(config, 0);
  QUIRE_TRY(const std::string text, ReadFile(config.path, kFileBytesMax));
  Result<Dataset> dataset = config.kind == DatasetKind::kTrace   ? ParseTrace(text, config)
                            : config.kind == DatasetKind::kChats ? ParseChats(text, config)
                                                                 : ParsePrompts(text, config);
  if (!dataset) {
    Error error = dataset.error();
    error.message = fmt::format("{}: {}", config.path.native(), error.message);
    return std::unexpected(std::move(error));
  }
  return dataset;
}

}  // namespace quire::bench::load
