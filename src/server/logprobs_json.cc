#include "server/logprobs_json.h"

#include <algorithm>

#include "base/utf8.h"

namespace quire::server {
namespace {

void WriteBytes(const std::string& bytes, JsonWriter* writer) {
  writer->BeginArray();
  for (const char byte : bytes) writer->Int(static_cast<unsigned char>(byte));
  writer->EndArray();
}

void WriteChatToken(const TokenLogprob& token, const LogprobStyle& style, JsonWriter* writer) {
  writer->Key("token").String(TokenString(style, token.id));
  writer->Key("logprob").Float(FloorLogprob(token.logprob));
  writer->Key("bytes");
  WriteBytes(TokenBytesOf(*style.tokenizer, token.id), writer);
}

std::span<const TokenLogprob> Top(const PositionLogprobs& position, int num_top) {
  return std::span(position.top).first(std::min<std::size_t>(position.top.size(), static_cast<std::size_t>(num_top)));
}

// Several ids can have the same text (halves of characters all read U+FFFD), but a key may stand only once:
// the likeliest of them is kept, and the chosen token always.
void WriteTopObject(const PositionLogprobs& position, const LogprobStyle& style, JsonWriter* writer) {
  std::vector<std::string> written;
  const auto write = [&](const TokenLogprob& token) {
    std::string name = TokenString(style, token.id);
    if (std::ranges::find(written, name) != written.end()) return;
    writer->Key(name).Float(FloorLogprob(token.logprob));
    written.push_back(std::move(name));
  };
  writer->BeginObject();
  write(position.chosen);
  for (const TokenLogprob& token : Top(position, style.num_top)) write(token);
  writer->EndObject();
}

}  // namespace

std::string TokenBytesOf(const text::Tokenizer& tokenizer, TokenId id) {
  // A model may have more rows than its vocabulary has entries.
  if (id.value() < 0 || id.value() >= tokenizer.vocab_size()) return {};
  if (tokenizer.IsSpecial(id)) return std::string(tokenizer.TokenText(id));
  return tokenizer.TokenBytes(id);
}

std::string TokenString(const LogprobStyle& style, TokenId id) {
  if (style.tokens_as_ids) return fmt::format("token_id:{}", id);
  return SanitizeUtf8(TokenBytesOf(*style.tokenizer, id));
}

float FloorLogprob(float logprob) {
  constexpr float kFloor = -9999.0f;
  return logprob > kFloor ? logprob : kFloor;
}

void WriteChatLogprobs(std::span<const OutputToken> tokens, const LogprobStyle& style, JsonWriter* writer) {
  writer->BeginObject().Key("content").BeginArray();
  for (const OutputToken& token : tokens) {
    writer->BeginObject();
    const TokenLogprob missing{.id = token.id, .logprob = FloorLogprob(-9999.0f)};
    WriteChatToken(token.logprobs ? token.logprobs->chosen : missing, style, writer);
    writer->Key("top_logprobs").BeginArray();
    if (token.logprobs) {
      for (const TokenLogprob& top : Top(*token.logprobs, style.num_top)) {
        writer->BeginObject();
        WriteChatToken(top, style, writer);
        writer->EndObject();
      }
    }
    writer->EndArray().EndObject();
  }
  writer->EndArray().Key("refusal").Null().EndObject();
}

void WriteCompletionLogprobs(std::span<const OutputToken> tokens, const LogprobStyle& style, JsonWriter* writer) {
  writer->BeginObject();
  writer->Key("text_offset").BeginArray();
  for (const OutputToken& token : tokens) writer->Uint(token.text_offset);
  writer->EndArray();
  writer->Key("token_logprobs").BeginArray();
  for (const OutputToken& token : tokens) {
    token.logprobs ? writer->Float(FloorLogprob(token.logprobs->chosen.logprob)) : writer->Null();
  }
  writer->EndArray();
  writer->Key("tokens").BeginArray();
  for (const OutputToken& token : tokens) writer->String(TokenString(style, token.id));
  writer->EndArray();
  writer->Key("top_logprobs").BeginArray();
  for (const OutputToken& token : tokens) {
    token.logprobs ? WriteTopObject(*token.logprobs, style, writer) : void(writer->Null());
  }
  writer->EndArray().EndObject();
}

void WritePromptLogprobs(std::span<const std::optional<PositionLogprobs>> positions, const LogprobStyle& style,
                         JsonWriter* writer) {
  writer->BeginArray();
  for (const auto& position : positions) {
    if (!position) {
      writer->Null();
      continue;
    }
    writer->BeginObject();
    const auto write = [&](const TokenLogprob& token) {
      writer->Key(std::to_string(token.id.value())).BeginObject();
      writer->Key("logprob").Float(FloorLogprob(token.logprob));
      writer->Key("rank").Int(token.rank);
      writer->Key("decoded_token").String(TokenString(style, token.id));
      writer->EndObject();
    };
    write(position->chosen);
    for (const TokenLogprob& token : Top(*position, style.num_top)) {
      if (token.id != position->chosen.id) write(token);
    }
    writer->EndObject();
  }
  writer->EndArray();
}

}  // namespace quire::server
