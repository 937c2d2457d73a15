#include "weights/text_assets.h"

#include <string>
#include <system_error>

#include "base/mapped_file.h"
#include "weights/json_fields.h"

namespace quire::weights {
namespace {

constexpr std::size_t kTokenizerBytesMax = std::size_t{256} << 20;
constexpr std::size_t kTemplateBytesMax = std::size_t{4} << 20;

// "" when there is no such file. Whatever else has its name is an error, and so is a file with nothing in it: a broken
// download must not pass for a model that has no template.
Result<std::string> ReadIfThere(const std::filesystem::path& path, std::size_t bytes_max) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) return std::string();
  QUIRE_TRY(std::string text, ReadFile(path, bytes_max));
  if (text.empty()) return Fail(ErrorCode::kCorrupt, "{} is empty", path.string());
  return text;
}

Result<> ReadSpecialTokens(const std::string& text, const std::string& name, TextAssets* assets) {
  if (text.empty()) return {};
  QUIRE_TRY(const json::value config, ParseJson(text, name, {.refuse_duplicate_keys = true}));
  if (assets->bos_token.empty()) {
    QUIRE_TRY(assets->bos_token, SpecialTokenOf(config, "bos_token", name));
  }
  if (assets->eos_token.empty()) {
    QUIRE_TRY(assets->eos_token, SpecialTokenOf(config, "eos_token", name));
  }
  if (assets->chat_template.empty()) {
    QUIRE_TRY(assets->chat_template, ChatTemplateOf(config, name));
  }
  return {};
}

}  // namespace

Result<std::string> ChatTemplateOf(const json::value& config, std::string_view name) {
  const json::object* object = config.if_object();
  if (!object) return Fail(ErrorCode::kCorrupt, "{}: not a JSON object", name);
  const json::value* value = object->if_contains("chat_template");
  if (!value || value->is_null()) return std::string();
  if (value->is_string()) return std::string(value->get_string());
  const json::array* list = value->if_array();
  if (!list) return Fail(ErrorCode::kCorrupt, "{}: \"chat_template\" is neither a string nor a list", name);
  for (const json::value& item : *list) {
    const json::object* named = item.if_object();
    const json::value* its_name = named ? named->if_contains("name") : nullptr;
    const json::value* source = named ? named->if_contains("template") : nullptr;
    if (!its_name || !its_name->is_string() || !source || !source->is_string()) {
      return Fail(ErrorCode::kCorrupt, "{}: an entry of \"chat_template\" is not a {{\"name\", \"template\"}} object",
                  name);
    }
    if (its_name->get_string() == "default" || list->size() == 1) return std::string(source->get_string());
  }
  return Fail(ErrorCode::kUnsupported, "{}: none of the {} chat templates is named \"default\"", name, list->size());
}

Result<std::string> SpecialTokenOf(const json::value& config, std::string_view key, std::string_view name) {
  const json::object* object = config.if_object();
  if (!object) return Fail(ErrorCode::kCorrupt, "{}: not a JSON object", name);
  const json::value* value = object->if_contains(key);
  if (!value || value->is_null()) return std::string();
  const json::value* content = value->is_object() ? value->get_object().if_contains("content") : value;
  if (!content || !content->is_string()) {
    return Fail(ErrorCode::kCorrupt, "{}: \"{}\" is neither a string nor an object with \"content\"", name, key);
  }
  return std::string(content->get_string());
}

Result<TextAssets> ReadTextAssetsOfFolder(const std::filesystem::path& folder) {
  TextAssets assets;
  QUIRE_TRY(assets.tokenizer_json, ReadIfThere(folder / "tokenizer.json", kTokenizerBytesMax));
  if (assets.tokenizer_json.empty()) {
    QUIRE_TRY(assets.sentencepiece_model, ReadIfThere(folder / "tokenizer.model", kTokenizerBytesMax));
  }
  if (assets.tokenizer_json.empty() && assets.sentencepiece_model.empty()) {
    return Fail(ErrorCode::kNotFound, "{} holds neither tokenizer.json nor tokenizer.model", folder.string());
  }
  // A template in a file of its own wins over the one in tokenizer_config.json.
  QUIRE_TRY(assets.chat_template, ReadIfThere(folder / "chat_template.jinja", kTemplateBytesMax));
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  QUIRE_TRY(assets.tokenizer_config_json, ReadIfThere(config_path, kTokenizerBytesMax));
  QUIRE_TRY_VOID(ReadSpecialTokens(assets.tokenizer_config_json, config_path.string(), &assets));
  for (const std::string_view file : {"special_tokens_map.json", "chat_template.json"}) {
    QUIRE_TRY(const std::string text, ReadIfThere(folder / file, kTokenizerBytesMax));
    QUIRE_TRY_VOID(ReadSpecialTokens(text, (folder / file).string(), &assets));
  }
  return assets;
}

}  // namespace quire::weights
