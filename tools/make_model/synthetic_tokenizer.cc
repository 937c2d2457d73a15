#include "synthetic_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"

namespace quire::make_model {
namespace {

struct AddedToken {
  std::string content;
  bool special = true;
};

struct Vocabulary {
  std::vector<std::string> tokens;                          // by id
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::vector<AddedToken> added;                            // ids follow each other from first_added
  int first_added = 0;
};

// GPT-2's alphabet: printable bytes of Latin-1 stand for themselves, the others for U+0100 on, in order.
std::string ByteCharacter(int byte) {
  const auto stands_for_itself = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  std::uint32_t code = static_cast<std::uint32_t>(byte);
  if (!stands_for_itself(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += !stands_for_itself(b);
  }
  std::string text;
  AppendUtf8(code, &text);
  return text;
}

// `count` merges that add one letter to a token: first all words of two letters, then of three, … A word may begin
// with a space or a capital. Each level is walked with a stride that is prime to its size, so that a part of a level
// is spread over the alphabet.
std::vector<std::pair<std::string, std::string>> MakeMerges(std::string_view space, std::size_t count) {
  constexpr std::string_view kLetters = "etaoinshrdlcumwfgypbvkjxqz";
  std::vector<std::string> words;
  words.emplace_back(space);
  for (const char letter : kLetters) words.emplace_back(1, letter);
  for (const char letter : kLetters) words.emplace_back(1, static_cast<char>(letter - 'a' + 'A'));
  std::vector<std::pair<std::string, std::string>> merges;
  while (merges.size() < count) {
    const std::size_t pairs = words.size() * kLetters.size();
    constexpr std::size_t kStride = 1'000'003;  // a prime that divides no level: 53 · 26ⁿ
    std::vector<std::string> longer;
    for (std::size_t i = 0; i < pairs && merges.size() < count; ++i) {
      const std::size_t at = i * kStride % pairs;
      const std::string& word = words[at / kLetters.size()];
      const std::string letter(1, kLetters[at % kLetters.size()]);
      merges.emplace_back(word, letter);
      longer.push_back(word + letter);
    }
    words = std::move(longer);
  }
  return merges;
}

Vocabulary MakeByteLevel(int num_tokens, std::vector<AddedToken> added) {
  Vocabulary vocabulary{.added = std::move(added)};
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.push_back(ByteCharacter(byte));
  const std::size_t specials = vocabulary.added.size();
  CHECK(static_cast<std::size_t>(num_tokens) >= 256 + specials);
  vocabulary.merges = MakeMerges(ByteCharacter(' '), static_cast<std::size_t>(num_tokens) - 256 - specials);
  for (const auto& [left, right] : vocabulary.merges) vocabulary.tokens.push_back(left + right);
  vocabulary.first_added = static_cast<int>(vocabulary.tokens.size());
  for (const AddedToken& token : vocabulary.added) vocabulary.tokens.push_back(token.content);
  return vocabulary;
}

// As SentencePiece lays it out: control tokens, bytes, merged pieces, single characters.
Vocabulary MakeSentencePiece(int num_tokens) {
  Vocabulary vocabulary{.tokens = {"<unk>", "<s>", "</s>"}, .added = {{"<unk>"}, {"<s>"}, {"</s>"}}};
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.push_back(fmt::format("<0x{:02X}>", byte));
  std::vector<std::string> characters = {"▁"};
  for (char c = '!'; c <= '~'; ++c) characters.emplace_back(1, c);
  const std::size_t others = vocabulary.tokens.size() + characters.size();
  CHECK(static_cast<std::size_t>(num_tokens) >= others);
  vocabulary.merges = MakeMerges("▁", static_cast<std::size_t>(num_tokens) - others);
  for (const auto& [left, right] : vocabulary.merges) vocabulary.tokens.push_back(left + right);
  std::ranges::copy(characters, std::back_inserter(vocabulary.tokens));
  return vocabulary;
}

constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kChatMlTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr std::string_view kLlama3Template =
    "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\\n\\n' + "
    "message['content'] + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";
constexpr std::string_view kLlama2Template =
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}{{ ' ' + message['content'] + "
    "eos_token }}{% else %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% endif %}{% endfor %}";

// "component": {"type": …, "add_prefix_space": …}
void WriteByteLevel(bool use_regex, JsonWriter* json) {
  json->BeginObject().Key("type").String("ByteLevel").Key("add_prefix_space").Bool(false);
  json->Key("trim_offsets").Bool(false).Key("use_regex").Bool(use_regex).EndObject();
}

void WriteReplace(std::string_view from, std::string_view to, JsonWriter* json) {
  json->BeginObject().Key("type").String("Replace").Key("pattern").BeginObject().Key("String").String(from).EndObject();
  json->Key("content").String(to).EndObject();
}

// Puts `token` before every text.
void WriteBosTemplate(std::string_view token, int id, JsonWriter* json) {
  const auto sequence = [&](std::string_view name, int type) {
    json->BeginObject().Key("Sequence").BeginObject().Key("id").String(name).Key("type_id").Int(type);
    json->EndObject().EndObject();
  };
  const auto special = [&](int type) {
    json->BeginObject().Key("SpecialToken").BeginObject().Key("id").String(token).Key("type_id").Int(type);
    json->EndObject().EndObject();
  };
  json->BeginObject().Key("type").String("TemplateProcessing").Key("single").BeginArray();
  special(0);
  sequence("A", 0);
  json->EndArray().Key("pair").BeginArray();
  special(0);
  sequence("A", 0);
  special(1);
  sequence("B", 1);
  json->EndArray().Key("special_tokens").BeginObject().Key(token).BeginObject().Key("id").String(token);
  json->Key("ids").BeginArray().Int(id).EndArray().Key("tokens").BeginArray().String(token).EndArray();
  json->EndObject().EndObject().EndObject();
}

void WriteSentencePieceSteps(JsonWriter* json) {
  json->Key("normalizer").BeginObject().Key("type").String("Sequence").Key("normalizers").BeginArray();
  json->BeginObject().Key("type").String("Prepend").Key("prepend").String("▁").EndObject();
  WriteReplace(" ", "▁", json);
  json->EndArray().EndObject().Key("pre_tokenizer").Null().Key("post_processor");
  WriteBosTemplate("<s>", 1, json);
  json->Key("decoder").BeginObject().Key("type").String("Sequence").Key("decoders").BeginArray();
  WriteReplace("▁", " ", json);
  json->BeginObject().Key("type").String("ByteFallback").EndObject();
  json->BeginObject().Key("type").String("Fuse").EndObject();
  json->BeginObject().Key("type").String("Strip").Key("content").String(" ").Key("start").Int(1).Key("stop").Int(0);
  json->EndObject().EndArray().EndObject();
}

void WriteByteLevelSteps(std::string_view pattern, bool nfc, std::string_view bos, int bos_id, JsonWriter* json) {
  json->Key("normalizer");
  nfc ? json->BeginObject().Key("type").String("NFC").EndObject() : json->Null();
  json->Key("pre_tokenizer").BeginObject().Key("type").String("Sequence").Key("pretokenizers").BeginArray();
  json->BeginObject().Key("type").String("Split").Key("pattern").BeginObject().Key("Regex").String(pattern).EndObject();
  json->Key("behavior").String("Isolated").Key("invert").Bool(false).EndObject();
  WriteByteLevel(false, json);
  json->EndArray().EndObject().Key("post_processor");
  if (bos.empty()) {
    WriteByteLevel(false, json);
  } else {
    json->BeginObject().Key("type").String("Sequence").Key("processors").BeginArray();
    WriteByteLevel(true, json);
    WriteBosTemplate(bos, bos_id, json);
    json->EndArray().EndObject();
  }
  json->Key("decoder");
  WriteByteLevel(true, json);
}

void WriteModel(TokenizerKind kind, const Vocabulary& vocabulary, JsonWriter* json) {
  const bool pieces = kind == TokenizerKind::kLlama2;
  json->Key("model").BeginObject().Key("type").String("BPE").Key("dropout").Null().Key("unk_token");
  pieces ? json->String("<unk>") : json->Null();
  json->Key("continuing_subword_prefix").Null().Key("end_of_word_suffix").Null().Key("fuse_unk").Bool(pieces);
  json->Key("byte_fallback").Bool(pieces).Key("ignore_merges").Bool(kind == TokenizerKind::kLlama3);
  json->Key("vocab").BeginObject();
  const std::size_t in_model = pieces ? vocabulary.tokens.size() : static_cast<std::size_t>(vocabulary.first_added);
  for (std::size_t id = 0; id < in_model; ++id) json->Key(vocabulary.tokens[id]).Uint(id);
  json->EndObject().Key("merges").BeginArray();
  for (const auto& [left, right] : vocabulary.merges) json->String(left + " " + right);
  json->EndArray().EndObject();
}

std::string TokenizerJson(TokenizerKind kind, const Vocabulary& vocabulary) {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Key("version").String("1.0").Key("truncation").Null().Key("padding").Null();
  json.Key("added_tokens").BeginArray();
  for (std::size_t i = 0; i < vocabulary.added.size(); ++i) {
    const AddedToken& token = vocabulary.added[i];
    json.BeginObject().Key("id").Int(vocabulary.first_added + static_cast<int>(i)).Key("content").String(token.content);
    json.Key("single_word").Bool(false).Key("lstrip").Bool(false).Key("rstrip").Bool(false);
    json.Key("normalized").Bool(false).Key("special").Bool(token.special).EndObject();
  }
  json.EndArray();
  switch (kind) {
    case TokenizerKind::kQwen:
      WriteByteLevelSteps(kQwenPattern, true, "", 0, &json);
      break;
    case TokenizerKind::kLlama3:
      WriteByteLevelSteps(kLlama3Pattern, false, vocabulary.added.front().content, vocabulary.first_added, &json);
      break;
    case TokenizerKind::kLlama2:
      WriteSentencePieceSteps(&json);
      break;
  }
  WriteModel(kind, vocabulary, &json);
  json.EndObject();
  return text;
}

std::vector<AddedToken> QwenAddedTokens() {
  std::vector<AddedToken> tokens = {{"<|endoftext|>"}, {"<|im_start|>"}, {"<|im_end|>"}};
  for (const char* text : {"<tool_call>", "</tool_call>"}) tokens.push_back({text, false});
  return tokens;
}

// The ids that Llama 3 gives them: the tenth ends a turn.
std::vector<AddedToken> Llama3AddedTokens(int num_tokens) {
  std::vector<AddedToken> tokens = {{"<|begin_of_text|>"},
                                    {"<|end_of_text|>"},
                                    {"<|reserved_special_token_0|>"},
                                    {"<|reserved_special_token_1|>"},
                                    {"<|finetune_right_pad_id|>"},
                                    {"<|reserved_special_token_2|>"},
                                    {"<|start_header_id|>"},
                                    {"<|end_header_id|>"},
                                    {"<|eom_id|>"},
                                    {"<|eot_id|>"},
                                    {"<|python_tag|>"}};
  const std::size_t all = num_tokens > 100'000 ? 256 : 16;
  for (int i = 3; tokens.size() < all; ++i) tokens.push_back({fmt::format("<|reserved_special_token_{}|>", i)});
  return tokens;
}

std::string TokenizerConfigJson(const SyntheticTokenizer& tokenizer, int positions) {
  std::string text;
  JsonWriter json(&text);
  const auto token = [&](std::string_view key, const std::string& content) {
    json.Key(key);
    content.empty() ? json.Null() : json.String(content);
  };
  json.BeginObject().Key("tokenizer_class").String("PreTrainedTokenizerFast");
  json.Key("clean_up_tokenization_spaces").Bool(false).Key("model_max_length").Int(positions);
  token("bos_token", tokenizer.bos_token);
  token("eos_token", tokenizer.eos_token);
  json.Key("chat_template").String(tokenizer.chat_template).EndObject();
  return text;
}

}  // namespace

SyntheticTokenizer MakeTokenizer(TokenizerKind kind, int num_tokens) {
  SyntheticTokenizer tokenizer;
  Vocabulary vocabulary;
  const auto id_of = [&](std::size_t added) { return TokenId(vocabulary.first_added + static_cast<int>(added)); };
  switch (kind) {
    case TokenizerKind::kQwen:
      vocabulary = MakeByteLevel(num_tokens, QwenAddedTokens());
      tokenizer.chat_template = kChatMlTemplate;
      tokenizer.eos_token = "<|im_end|>";
      tokenizer.eos_ids = {id_of(2), id_of(0)};
      break;
    case TokenizerKind::kLlama3:
      vocabulary = MakeByteLevel(num_tokens, Llama3AddedTokens(num_tokens));
      tokenizer.chat_template = kLlama3Template;
      tokenizer.bos_token = "<|begin_of_text|>";
      tokenizer.eos_token = "<|eot_id|>";
      tokenizer.bos_ids = {id_of(0)};
      tokenizer.eos_ids = {id_of(9), id_of(1), id_of(8)};
      break;
    case TokenizerKind::kLlama2:
      vocabulary = MakeSentencePiece(num_tokens);
      tokenizer.chat_template = kLlama2Template;
      tokenizer.bos_token = "<s>";
      tokenizer.eos_token = "</s>";
      tokenizer.bos_ids = {id_of(1)};
      tokenizer.eos_ids = {id_of(2)};
      break;
  }
  tokenizer.tokenizer_json = TokenizerJson(kind, vocabulary);
  tokenizer.tokenizer_config_json = TokenizerConfigJson(tokenizer, 1 << 20);
  return tokenizer;
}

}  // namespace quire::make_model
