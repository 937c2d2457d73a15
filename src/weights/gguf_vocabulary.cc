// The tokenizer block of a GGUF file.

#include "base/mapped_file.h"
#include "weights/config_limits.h"
#include "weights/gguf_model.h"

namespace quire::weights {
namespace {

Result<> CheckLength(const GgufFile& file, std::string_view key, std::size_t size, std::size_t tokens) {
  if (size == 0 || size == tokens) return {};
  return Fail(ErrorCode::kCorrupt, "{}: {} has {} elements for {} tokens", file.name(), key, size, tokens);
}

std::vector<std::string> Copy(const std::vector<std::string_view>& views) {
  return {views.begin(), views.end()};
}

Result<> ReadIds(const GgufFile& file, GgufVocabulary* vocabulary) {
  const auto last = static_cast<std::int64_t>(vocabulary->tokens.size()) - 1;
  QUIRE_TRY(vocabulary->bos_id, file.OptionalInt("tokenizer.ggml.bos_token_id", 0, last));
  QUIRE_TRY(vocabulary->eos_id, file.OptionalInt("tokenizer.ggml.eos_token_id", 0, last));
  QUIRE_TRY(vocabulary->unk_id, file.OptionalInt("tokenizer.ggml.unknown_token_id", 0, last));
  QUIRE_TRY(vocabulary->add_bos, file.OptionalBool("tokenizer.ggml.add_bos_token"));
  QUIRE_TRY(vocabulary->add_eos, file.OptionalBool("tokenizer.ggml.add_eos_token"));
  QUIRE_TRY(vocabulary->add_space_prefix, file.OptionalBool("tokenizer.ggml.add_space_prefix"));
  return {};
}

}  // namespace

Result<TextAssets> ReadGgufTextAssets(const GgufFile& file) {
  GgufVocabulary vocabulary;
  QUIRE_TRY(const auto model, file.OptionalString("tokenizer.ggml.model"));
  QUIRE_TRY(const auto tokens, file.Strings("tokenizer.ggml.tokens"));
  if (!model || tokens.empty()) {
    return Fail(ErrorCode::kNotFound, "{}: there is no tokenizer (tokenizer.ggml.model and tokenizer.ggml.tokens)",
                file.name());
  }
  if (tokens.size() > static_cast<std::size_t>(kVocabSizeMax)) {
    return Fail(ErrorCode::kOutOfRange, "{}: {} tokens; at most {} are allowed", file.name(), tokens.size(),
                kVocabSizeMax);
  }
  vocabulary.model = *model;
  vocabulary.tokens = Copy(tokens);
  QUIRE_TRY(const auto pre, file.OptionalString("tokenizer.ggml.pre"));
  vocabulary.pre = pre.value_or("");
  QUIRE_TRY(vocabulary.scores, file.Floats("tokenizer.ggml.scores"));
  QUIRE_TRY_VOID(CheckLength(file, "tokenizer.ggml.scores", vocabulary.scores.size(), tokens.size()));
  QUIRE_TRY(vocabulary.token_types, file.Int32s("tokenizer.ggml.token_type"));
  QUIRE_TRY_VOID(CheckLength(file, "tokenizer.ggml.token_type", vocabulary.token_types.size(), tokens.size()));
  QUIRE_TRY(const auto merges, file.Strings("tokenizer.ggml.merges"));
  vocabulary.merges = Copy(merges);
  QUIRE_TRY_VOID(ReadIds(file, &vocabulary));

  TextAssets assets;
  QUIRE_TRY(const auto chat_template, file.OptionalString("tokenizer.chat_template"));
  assets.chat_template = chat_template.value_or("");
  const auto text_of = [&](const std::optional<std::int64_t>& id) {
    return id ? vocabulary.tokens[static_cast<std::size_t>(*id)] : std::string();
  };
  assets.bos_token = text_of(vocabulary.bos_id);
  assets.eos_token = text_of(vocabulary.eos_id);
  assets.gguf_vocabulary = std::move(vocabulary);
  return assets;
}

Result<TextAssets> ReadGgufTextAssets(const std::filesystem::path& path) {
  QUIRE_TRY(const MappedFile mapped, MappedFile::Open(path));
  QUIRE_TRY(const GgufFile file, GgufFile::Parse(mapped.bytes(), path.string()));
  return ReadGgufTextAssets(file);
}

}  // namespace quire::weights
