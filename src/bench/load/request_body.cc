#include "bench/load/request_body.h"

#include <cmath>
#include <functional>
#include <iterator>
#include <string_view>

#include "bench/load/random_draws.h"

namespace quire::bench::load {
namespace {

// Short, common, and with a space before them one token each in most vocabularies.
constexpr std::string_view kWords[] = {
    "time",   "year",  "people", "way",   "day",   "man",    "thing",   "woman",  "life",  "child", "world",
    "school", "state", "week",   "group", "hand",  "part",   "place",   "case",   "point", "home",  "water",
    "room",   "area",  "money",  "story", "fact",  "month",  "lot",     "right",  "study", "book",  "eye",
    "job",    "word",  "side",   "kind",  "head",  "house",  "page",    "friend", "power", "hour",  "game",
    "line",   "end",   "law",    "car",   "city",  "name",   "team",    "idea",   "body",  "back",  "face",
    "level",  "door",  "art",    "war",   "party", "change", "morning", "air",    "food",
};

template <typename Take>
void ForEachDraw(const PromptPart& part, int count, int seed, Take take) {
  for (int i = 0; i < count; ++i) {
    take(DrawAt(static_cast<std::uint64_t>(seed), part.stream, static_cast<std::uint32_t>(i)));
  }
}

void WriteIds(const Request& request, const BodyStyle& style, JsonWriter* writer) {
  writer->BeginArray();
  for (const PromptPart& part : request.parts) {
    ForEachDraw(part, part.num_tokens, style.seed,
                [&](double draw) { writer->Int(static_cast<std::int64_t>(draw * style.vocab_size)); });
  }
  writer->EndArray();
}

void WriteMessages(const Request& request, const BodyStyle& style, JsonWriter* writer) {
  if (request.is_chat) {
    writer->Raw(request.prompt_json);
    return;
  }
  writer->BeginArray().BeginObject().Key("role").String("user").Key("content");
  request.parts.empty() ? writer->Raw(request.prompt_json) : writer->String(MakeWords(request, style));
  writer->EndObject().EndArray();
}

void WritePrompt(const Request& request, const BodyStyle& style, JsonWriter* writer) {
  if (request.parts.empty()) {
    writer->Raw(request.prompt_json);
  } else if (style.vocab_size > 0) {
    WriteIds(request, style, writer);
  } else {
    writer->String(MakeWords(request, style));
  }
}

}  // namespace

const char* RouteOf(const BodyStyle& style) {
  return style.is_chat ? "/v1/chat/completions" : "/v1/completions";
}

std::string MakeWords(const Request& request, const BodyStyle& style) {
  std::string text;
  for (const PromptPart& part : request.parts) {
    const int count = std::max(1, static_cast<int>(std::lround(part.num_tokens * style.words_per_token)));
    ForEachDraw(part, count, style.seed, [&](double draw) {
      if (!text.empty()) text += ' ';
      text += kWords[static_cast<std::size_t>(draw * static_cast<double>(std::size(kWords)))];
    });
  }
  return text;
}

std::string MakeBody(const Request& request, int index, const BodyStyle& style) {
  std::string body;
  JsonWriter writer(&body);
  writer.BeginObject();
  const auto member = [&](std::string_view key, const std::function<void()>& write_value) {
    if (style.extra.contains(key)) return;
    writer.Key(key);
    write_value();
  };
  member("model", [&] { writer.String(style.model); });
  if (style.is_chat) {
    member("messages", [&] { WriteMessages(request, style, &writer); });
  } else {
    member("prompt", [&] { WritePrompt(request, style, &writer); });
  }
  member("max_tokens", [&] { writer.Int(request.max_tokens); });
  member("temperature", [&] { writer.Double(style.temperature); });
  if (style.temperature > 0) member("seed", [&] { writer.Int(std::int64_t{style.seed} * 1'000'003 + index); });
  if (style.ignore_eos) member("ignore_eos", [&] { writer.Bool(true); });
  member("stream", [&] { writer.Bool(true); });
  member("stream_options", [&] { writer.BeginObject().Key("include_usage").Bool(true).EndObject(); });
  for (const auto& [key, value] : style.extra) writer.Key(key).Value(value);
  writer.EndObject();
  return body;
}

}  // namespace quire::bench::load
