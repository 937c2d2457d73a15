#include "engine/text_side.h"

#include <system_error>
#include <utility>

#include "base/json.h"
#include "weights/model_source.h"

namespace quire::engine {
namespace {

Result<text::SentencePieceOptions> SentencePieceOptionsOf(const weights::TextAssets& assets, const std::string& name) {
  text::SentencePieceOptions options;
  if (assets.tokenizer_config_json.empty()) return options;
  QUIRE_TRY(const json::value config, ParseJson(assets.tokenizer_config_json, name + "/tokenizer_config.json"));
  if (!config.is_object()) return options;
  const auto flag = [&](std::string_view key, bool standard) {
    const json::value* value = config.get_object().if_contains(key);
    return value != nullptr && value->is_bool() ? value->get_bool() : standard;
  };
  options.add_bos = flag("add_bos_token", options.add_bos);
  options.add_eos = flag("add_eos_token", options.add_eos);
  return options;
}

Result<std::unique_ptr<text::Tokenizer>> MakeTokenizer(weights::TextAssets* assets, const std::string& name) {
  if (!assets->tokenizer_json.empty()) return text::LoadTokenizerJson(assets->tokenizer_json, name + "/tokenizer.json");
  if (assets->gguf_vocabulary) return text::LoadGgufTokenizer(*std::move(assets->gguf_vocabulary), name);
  if (!assets->sentencepiece_model.empty()) {
    QUIRE_TRY(const text::SentencePieceOptions options, SentencePieceOptionsOf(*assets, name));
    return text::LoadSentencePiece(assets->sentencepiece_model, name + "/tokenizer.model", options);
  }
  return Fail(ErrorCode::kNotFound, "{} has no tokenizer (tokenizer.json, tokenizer.model or a GGUF vocabulary)", name);
}

}  // namespace

std::string ModelName(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::path full = std::filesystem::weakly_canonical(path, ignored);
  if (ignored || full.empty()) full = path;
  if (!full.has_filename()) full = full.parent_path();
  return full.extension() == ".gguf" ? full.stem().string() : full.filename().string();
}

Result<TextSide> LoadTextSide(const std::filesystem::path& path) {
  const std::string name = path.string();
  QUIRE_TRY(const std::unique_ptr<weights::ModelSource> source, weights::ModelSource::Open(path));
  QUIRE_TRY(weights::TextAssets assets, source->ReadTextAssets());
  QUIRE_TRY(std::unique_ptr<text::Tokenizer> tokenizer, MakeTokenizer(&assets, name));
  const bool has_own_template = !assets.chat_template.empty();
  QUIRE_TRY(text::ChatTemplate chat_template,
            text::ChatTemplate::Compile(
                has_own_template ? std::string_view(assets.chat_template) : text::ChatTemplate::DefaultSource(),
                assets.bos_token, assets.eos_token));
  return TextSide{.name = ModelName(path),
                  .tokenizer = std::move(tokenizer),
                  .chat_template = std::move(chat_template),
                  .has_own_template = has_own_template,
                  .generation_config = source->generation_config(),
                  .config = source->config()};
}

}  // namespace quire::engine
