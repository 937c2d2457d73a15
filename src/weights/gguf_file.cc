#include "weights/gguf_file.h"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "weights/byte_reader.h"
#include "weights/checked_math.h"

namespace quire::weights {
namespace {

constexpr std::uint64_t kKeyBytesMax = 65535;
constexpr std::uint64_t kTensorNameBytesMax = 256;
constexpr std::uint64_t kStringBytesMax = std::uint64_t{64} << 20;
constexpr std::uint32_t kDimensionsMax = 4;
constexpr std::uint32_t kAlignmentDefault = 32;
// The least that an entry takes: a key of one byte with a value of one, a name of one byte with one
// dimension.
constexpr std::uint64_t kPairBytesMin = 8 + 1 + 4 + 1;
constexpr std::uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;

struct TypeRow {
  std::string_view name;
  std::uint32_t bytes;  // 0: not of a fixed size
};
constexpr std::array<TypeRow, kNumGgufTypes> kTypeRows = {{{"UINT8", 1},
                                                           {"INT8", 1},
                                                           {"UINT16", 2},
                                                           {"INT16", 2},
                                                           {"UINT32", 4},
                                                           {"INT32", 4},
                                                           {"FLOAT32", 4},
                                                           {"BOOL", 1},
                                                           {"STRING", 0},
                                                           {"ARRAY", 0},
                                                           {"UINT64", 8},
                                                           {"INT64", 8},
                                                           {"FLOAT64", 8}}};

// Types that ggml has and quire does not read, so that an error can say what a file holds.
constexpr std::array<std::pair<std::uint32_t, std::string_view>, 16> kOtherTensorTypes = {{
    {9, "Q8_1"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {29, "IQ1_M"},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {40, "NVFP4"},
}};

Result<GgufType> ReadType(ByteReader* reader, std::string_view key, std::string_view file) {
  QUIRE_TRY(const auto id, reader->Read<std::uint32_t>("the type of a value"));
  if (id < kNumGgufTypes) return static_cast<GgufType>(id);
  return Fail(ErrorCode::kCorrupt, "{}: the value of {} has the unknown type {}", file, key, id);
}

// Moves past `count` values of one type. One comparison where their size is fixed (LOAD-07).
Result<> SkipValues(ByteReader* reader, GgufType type, std::uint64_t count, std::string_view key,
                    std::string_view file) {
  if (type == GgufType::kString) {
    if (count > reader->left() / 8) {
      return Fail(ErrorCode::kCorrupt, "{}: {} holds {} strings; the file has only {} bytes left", file, key, count,
                  reader->left());
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      QUIRE_TRY_VOID(reader->ReadString(key, kStringBytesMax));
    }
    return {};
  }
  const auto bytes = CheckedMultiply(count, kTypeRows[std::to_underlying(type)].bytes);
  if (!bytes) return Fail(ErrorCode::kCorrupt, "{}: the size of {} ({} elements) overflows", file, key, count);
  QUIRE_TRY_VOID(reader->Take(*bytes, key));
  return {};
}

Result<GgufValue> ReadValue(ByteReader* reader, std::span<const std::byte> whole, std::string_view key,
                            std::string_view file) {
  GgufValue value;
  QUIRE_TRY(value.type, ReadType(reader, key, file));
  if (value.type == GgufType::kArray) {
    value.is_array = true;
    QUIRE_TRY(value.type, ReadType(reader, key, file));
    if (value.type == GgufType::kArray) {
      return Fail(ErrorCode::kUnsupported, "{}: {} is an array of arrays", file, key);
    }
    QUIRE_TRY(value.count, reader->Read<std::uint64_t>(key));
  }
  const std::size_t begin = reader->position();
  QUIRE_TRY_VOID(SkipValues(reader, value.type, value.count, key, file));
  value.bytes = whole.subspan(begin, reader->position() - begin);
  return value;
}

Result<std::vector<std::int64_t>> ReadShape(ByteReader* reader, std::string_view tensor, std::string_view file) {
  QUIRE_TRY(const auto count, reader->Read<std::uint32_t>("a number of dimensions"));
  if (count == 0 || count > kDimensionsMax) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} has {} dimensions; 1 to {} are allowed", file, tensor, count,
                kDimensionsMax);
  }
  std::vector<std::int64_t> shape(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    QUIRE_TRY(const auto dimension, reader->Read<std::uint64_t>("a dimension"));
    if (dimension == 0 || !std::in_range<std::int64_t>(dimension)) {
      return Fail(ErrorCode::kCorrupt, "{}: tensor {}: a dimension of {} is out of range", file, tensor, dimension);
    }
    shape[count - 1 - i] = static_cast<std::int64_t>(dimension);
  }
  return shape;
}

Result<const TypeTraits*> ReadTensorType(ByteReader* reader, std::string_view tensor, std::string_view file) {
  QUIRE_TRY(const auto id, reader->Read<std::uint32_t>("a tensor's type"));
  if (const TypeTraits* type = FindTypeByGgufId(id)) return type;
  const auto known = std::ranges::find(kOtherTensorTypes, id, &std::pair<std::uint32_t, std::string_view>::first);
  return Fail(ErrorCode::kUnsupported, "{}: tensor {} has the type {} ({}); {} can be read", file, tensor,
              known == kOtherTensorTypes.end() ? "unknown" : known->second, id, TypeNames());
}

Result<std::uint64_t> TensorBytes(const TensorSource& tensor, std::string_view file) {
  const auto row = RowBytes(*tensor.type, tensor.columns(), tensor.name);
  if (!row) return Fail(row.error().code, "{}: {}", file, row.error().message);
  const auto elements = CheckedElements(std::span<const std::int64_t>(tensor.shape));
  const auto bytes =
      elements ? CheckedMultiply(*row, static_cast<std::uint64_t>(*elements / tensor.columns())) : std::nullopt;
  if (!bytes) return Fail(ErrorCode::kCorrupt, "{}: tensor {}: the size of its shape overflows", file, tensor.name);
  return *bytes;
}

struct TensorInfo {
  TensorSource tensor;
  std::uint64_t offset = 0, bytes = 0;
};

Result<TensorInfo> ReadTensorInfo(ByteReader* reader, std::string_view file) {
  TensorInfo info;
  QUIRE_TRY(info.tensor.name, reader->ReadString("a tensor's name", kTensorNameBytesMax));
  const std::string& name = info.tensor.name;
  QUIRE_TRY(info.tensor.shape, ReadShape(reader, name, file));
  QUIRE_TRY(info.tensor.type, ReadTensorType(reader, name, file));
  QUIRE_TRY(info.offset, reader->Read<std::uint64_t>("a tensor's offset"));
  QUIRE_TRY(info.bytes, TensorBytes(info.tensor, file));
  return info;
}

Result<std::uint32_t> Alignment(const GgufFile& file) {
  constexpr std::string_view kKey = "general.alignment";
  const GgufValue* value = file.Find(kKey);
  if (!value) return kAlignmentDefault;
  if (value->is_array || value->type != GgufType::kUint32) {
    return Fail(ErrorCode::kCorrupt, "{}: {} has the type {}; UINT32 is wanted", file.name(), kKey,
                value->is_array ? "ARRAY" : GgufTypeName(value->type));
  }
  std::uint32_t alignment;
  std::memcpy(&alignment, value->bytes.data(), sizeof alignment);
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    return Fail(ErrorCode::kCorrupt, "{}: {} is {}; a power of two is wanted", file.name(), kKey, alignment);
  }
  return alignment;
}

// Gives every tensor its bytes, which must be aligned, inside the file, and nobody else's (GGUF-02).
Result<std::vector<TensorSource>> PlaceTensors(std::vector<TensorInfo> infos, std::span<const std::byte> data,
                                               std::uint32_t alignment, std::string_view file) {
  std::unordered_set<std::string_view> names;
  for (TensorInfo& info : infos) {
    const std::string& name = info.tensor.name;
    if (!names.insert(name).second) {
      return Fail(ErrorCode::kCorrupt, "{}: the tensor {} stands there twice", file, name);
    }
    if (info.offset % alignment != 0) {
      return Fail(ErrorCode::kCorrupt, "{}: tensor {}: offset {} is not a multiple of the alignment {}", file, name,
                  info.offset, alignment);
    }
    const auto end = CheckedAdd(info.offset, info.bytes);
    if (!end || *end > data.size()) {
      return Fail(ErrorCode::kCorrupt,
                  "{}: tensor {}: {} bytes at offset {} end behind the {} bytes of data in the file "
                  "(truncated?)",
                  file, name, info.bytes, info.offset, data.size());
    }
    info.tensor.data = data.subspan(info.offset, info.bytes);
  }
  std::ranges::sort(infos, {}, &TensorInfo::offset);
  std::vector<TensorSource> tensors;
  tensors.reserve(infos.size());
  std::uint64_t end = 0;
  for (TensorInfo& info : infos) {
    if (info.offset < end) {
      return Fail(ErrorCode::kCorrupt, "{}: the tensors {} and {} overlap", file, tensors.back().name,
                  info.tensor.name);
    }
    end = info.offset + info.bytes;
    tensors.push_back(std::move(info.tensor));
  }
  return tensors;
}

Result<std::uint32_t> ReadVersion(ByteReader* reader, std::string_view file) {
  QUIRE_TRY(const auto magic, reader->Take(4, "the magic number"));
  if (std::string_view(reinterpret_cast<const char*>(magic.data()), 4) != "GGUF") {
    return Fail(ErrorCode::kCorrupt, "{}: not a GGUF file (it does not begin with \"GGUF\")", file);
  }
  QUIRE_TRY(const auto version, reader->Read<std::uint32_t>("the version"));
  if (version == 2 || version == 3) return version;
  if ((version & 0xFFFF) == 0) return Fail(ErrorCode::kUnsupported, "{}: a big-endian GGUF file", file);
  return Fail(ErrorCode::kUnsupported, "{}: version {} of GGUF; 2 and 3 can be read", file, version);
}

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  return kTypeRows[std::to_underlying(type)].name;
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes, std::string_view name) {
  GgufFile file;
  file.name_ = name;
  ByteReader reader(bytes, name);
  QUIRE_TRY(file.version_, ReadVersion(&reader, name));
  QUIRE_TRY(const auto num_tensors, reader.Read<std::uint64_t>("the number of tensors"));
  QUIRE_TRY(const auto num_pairs, reader.Read<std::uint64_t>("the number of metadata pairs"));
  if (num_pairs > reader.left() / kPairBytesMin || num_tensors > reader.left() / kTensorBytesMin) {
    return Fail(ErrorCode::kCorrupt, "{}: {} metadata pairs and {} tensors cannot be in the {} bytes that are left",
                name, num_pairs, num_tensors, reader.left());
  }
  for (std::uint64_t i = 0; i < num_pairs; ++i) {
    QUIRE_TRY(const std::string_view key, reader.ReadString("a metadata key", kKeyBytesMax));
    QUIRE_TRY(const GgufValue value, ReadValue(&reader, bytes, key, name));
    if (!file.metadata_.emplace(key, value).second) {
      return Fail(ErrorCode::kCorrupt, "{}: the key {} stands there twice", name, key);
    }
  }
  std::vector<TensorInfo> infos;
  for (std::uint64_t i = 0; i < num_tensors; ++i) {
    QUIRE_TRY(TensorInfo info, ReadTensorInfo(&reader, name));
    infos.push_back(std::move(info));
  }
  QUIRE_TRY(const std::uint32_t alignment, Alignment(file));
  // The position is at most the file's size, so that this cannot overflow.
  const std::size_t data_begin = (reader.position() + alignment - 1) / alignment * alignment;
  const auto data = bytes.subspan(std::min(data_begin, bytes.size()));
  QUIRE_TRY(file.tensors_, PlaceTensors(std::move(infos), data, alignment, name));
  return file;
}

const TensorSource* GgufFile::FindTensor(std::string_view tensor) const {
  const auto found = std::ranges::find(tensors_, tensor, &TensorSource::name);
  return found == tensors_.end() ? nullptr : &*found;
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

}  // namespace quire::weights
