// The vocabulary of a GGUF file, `tokenizer.ggml.*`. It stands here because weights reads and writes it, text makes a
// tokenizer of it, and neither may include the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace quire {

// Arrays that are present have tokens.size() entries, but for the merges.
struct GgufVocabulary {
  std::string model;  // "gpt2" (byte-level BPE), "llama" (SentencePiece BPE)
  std::string pre;    // "qwen2", "llama-bpe", …: the pre-tokenizer
  std::vector<std::string> tokens;
  std::vector<float> scores;              // "llama"
  std::vector<std::int32_t> token_types;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<std::string> merges;        // "gpt2": "a b"
  std::optional<std::int64_t> bos_id, eos_id, unk_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

}  // namespace quire
