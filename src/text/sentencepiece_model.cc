// Reads SentencePiece's `.model` file: the few fields of its protobuf message that decide ids, straight off the wire.
#include <cstring>

#include "text/sentencepiece_parts.h"
#include "text/tokenizer.h"

namespace quire::text {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr std::uint32_t kModelPieces = 1, kModelTrainer = 2, kModelNormalizer = 3;
constexpr std::uint32_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr std::uint32_t kTrainerModelType = 3, kTrainerWhitespaceAsSuffix = 24, kTrainerByteFallback = 35;
constexpr std::uint32_t kTrainerUnknownId = 40, kTrainerBosId = 41, kTrainerEosId = 42;
constexpr std::uint32_t kNormalizerName = 1, kNormalizerCharsmap = 2, kNormalizerDummyPrefix = 3;
constexpr std::uint32_t kNormalizerExtraSpaces = 4, kNormalizerEscapeSpaces = 5;

// One field of a message: its number and its value, which is one of a number and bytes.
struct WireField {
  std::uint32_t number = 0;
  std::uint32_t wire_type = 0;  // 0 varint, 1 64 bits, 2 bytes, 5 32 bits
  std::uint64_t value = 0;
  std::string_view bytes;
};

class WireReader {
 public:
  WireReader(std::string_view message, std::string_view name) : rest_(message), name_(name) {}

  bool AtEnd() const { return rest_.empty(); }

  Result<WireField> Next() {
    QUIRE_TRY(const std::uint64_t tag, Varint());
    WireField field{.number = static_cast<std::uint32_t>(tag >> 3), .wire_type = static_cast<std::uint32_t>(tag & 7)};
    if (tag >> 32 != 0 || field.number == 0) return Broken("a field number is out of range");
    switch (field.wire_type) {
      case 0: {
        QUIRE_TRY(field.value, Varint());
        return field;
      }
      case 1: {
        QUIRE_TRY(field.bytes, Take(8));
        return field;
      }
      case 2: {
        QUIRE_TRY(const std::uint64_t size, Varint());
        QUIRE_TRY(field.bytes, Take(size));
        return field;
      }
      case 5: {
        QUIRE_TRY(field.bytes, Take(4));
        return field;
      }
      default:  // the six values that are left are not in use
        return Broken("a wire type is unknown");
    }
  }

 private:
  std::unexpected<Error> Broken(std::string_view what) const {
    return Fail(ErrorCode::kCorrupt, "{}: not a SentencePiece model: {}", name_, what);
  }

  Result<std::uint64_t> Varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return Broken("it ends inside a number");
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return Broken("a number is too long");
  }

  Result<std::string_view> Take(std::uint64_t size) {
    if (size > rest_.size()) return Broken("a field is longer than what is left of the file");
    const std::string_view bytes = rest_.substr(0, static_cast<std::size_t>(size));
    rest_.remove_prefix(bytes.size());
    return bytes;
  }

  std::string_view rest_;
  std::string_view name_;
};

class SentencePieceReader {
 public:
  SentencePieceReader(std::string_view name, const SentencePieceOptions& options) : name_(name) {
    pieces_.add_bos = options.add_bos;
    pieces_.add_eos = options.add_eos;
    pieces_.remove_extra_whitespaces = true;  // protobuf's default for a field that is absent
    pieces_.unknown_id = 0;
    pieces_.bos_id = 1;
    pieces_.eos_id = 2;
  }

  Result<std::unique_ptr<Tokenizer>> Read(std::string_view bytes) {
    for (WireReader reader(bytes, name_); !reader.AtEnd();) {
      QUIRE_TRY(const WireField field, reader.Next());
      if (field.wire_type != 2) continue;
      if (field.number == kModelPieces) QUIRE_TRY_VOID(ReadPiece(field.bytes));
      if (field.number == kModelTrainer) QUIRE_TRY_VOID(ReadTrainer(field.bytes));
      if (field.number == kModelNormalizer) QUIRE_TRY_VOID(ReadNormalizer(field.bytes));
    }
    if (model_type_ != 2) {
      constexpr std::string_view kNames[] = {"?", "unigram", "BPE", "word", "char"};
      return Fail(ErrorCode::kUnsupported, "{}: SentencePiece models of the type {} are not supported; only BPE is",
                  name_, model_type_ < std::size(kNames) ? kNames[model_type_] : kNames[0]);
    }
    if (whitespace_is_suffix_) {
      return Fail(ErrorCode::kUnsupported, "{}: treat_whitespace_as_suffix is not supported", name_);
    }
    if (has_charsmap_) {
      return Fail(ErrorCode::kUnsupported, "{}: the normalisation rule \"{}\" is not supported; only identity is",
                  name_, normalizer_name_);
    }
    // Negative ids (protobuf's −1) say that there is no such token.
    for (auto* id : {&pieces_.unknown_id, &pieces_.bos_id, &pieces_.eos_id}) {
      if (**id < 0) id->reset();
    }
    pieces_.add_bos &= pieces_.bos_id.has_value();
    pieces_.add_eos &= pieces_.eos_id.has_value();
    if (!byte_fallback_) {
      // Without the flag "<0x41>" is a text like any other.
      for (PieceType& type : pieces_.types) type = type == PieceType::kByte ? PieceType::kNormal : type;
    }
    return MakeSentencePieceTokenizer(pieces_, name_);
  }

 private:
  Result<> ReadPiece(std::string_view bytes) {
    std::string_view text;
    float score = 0;
    std::uint64_t type = 1;
    for (WireReader reader(bytes, name_); !reader.AtEnd();) {
      QUIRE_TRY(const WireField field, reader.Next());
      if (field.number == kPieceText && field.wire_type == 2) text = field.bytes;
      if (field.number == kPieceScore && field.wire_type == 5) std::memcpy(&score, field.bytes.data(), sizeof score);
      if (field.number == kPieceType && field.wire_type == 0) type = field.value;
    }
    if (type < 1 || type > 6) {
      return Fail(ErrorCode::kCorrupt, "{}: piece {} has the unknown type {}", name_, pieces_.pieces.size(), type);
    }
    if (pieces_.pieces.size() >= static_cast<std::size_t>(kVocabularySizeMax)) {
      return Fail(ErrorCode::kCorrupt, "{}: more than {} pieces", name_, kVocabularySizeMax);
    }
    pieces_.pieces.emplace_back(text);
    pieces_.scores.push_back(score);
    pieces_.types.push_back(static_cast<PieceType>(type));
    return {};
  }

  Result<> ReadTrainer(std::string_view bytes) {
    for (WireReader reader(bytes, name_); !reader.AtEnd();) {
      QUIRE_TRY(const WireField field, reader.Next());
      if (field.wire_type != 0) continue;
      // int32 fields come as 64 bits, sign-extended.
      const auto number = static_cast<std::int64_t>(field.value);
      if (field.number == kTrainerModelType) model_type_ = field.value;
      if (field.number == kTrainerByteFallback) byte_fallback_ = field.value != 0;
      if (field.number == kTrainerWhitespaceAsSuffix) whitespace_is_suffix_ = field.value != 0;
      if (field.number == kTrainerUnknownId) pieces_.unknown_id = number;
      if (field.number == kTrainerBosId) pieces_.bos_id = number;
      if (field.number == kTrainerEosId) pieces_.eos_id = number;
    }
    return {};
  }

  Result<> ReadNormalizer(std::string_view bytes) {
    for (WireReader reader(bytes, name_); !reader.AtEnd();) {
      QUIRE_TRY(const WireField field, reader.Next());
      if (field.number == kNormalizerName && field.wire_type == 2) normalizer_name_ = field.bytes;
      if (field.number == kNormalizerCharsmap && field.wire_type == 2) has_charsmap_ = !field.bytes.empty();
      if (field.wire_type != 0) continue;
      if (field.number == kNormalizerDummyPrefix) pieces_.add_dummy_prefix = field.value != 0;
      if (field.number == kNormalizerExtraSpaces) pieces_.remove_extra_whitespaces = field.value != 0;
      if (field.number == kNormalizerEscapeSpaces) pieces_.escape_whitespaces = field.value != 0;
    }
    return {};
  }

  std::string name_;
  SentencePieceVocabulary pieces_;
  std::uint64_t model_type_ = 1;  // protobuf's default: unigram
  bool byte_fallback_ = false;
  bool whitespace_is_suffix_ = false;
  bool has_charsmap_ = false;
  std::string_view normalizer_name_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> LoadSentencePiece(std::string_view bytes, std::string_view name,
                                                     const SentencePieceOptions& options) {
  return SentencePieceReader(name, options).Read(bytes);
}

}  // namespace quire::text
