#include "weights/packed_file.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "kernels/panel_layout_version.h"
#include "weights/checked_math.h"

namespace quire::weights {
namespace {

using Record = PackedReader::Record;

constexpr std::array<char, 8> kMagic = {'q', 'u', 'i', 'r', 'e', 'p', 'k', '\n'};
constexpr std::uint32_t kByteOrder = 0x01020304;
constexpr std::uint32_t kFileVersion = 2;       // of Record and Trailer, and of what is stored under which key
constexpr std::uint64_t kPageBytes = 4096;      // matrices start on pages, as those in memory do
constexpr std::uint64_t kRecordsMax = 1 << 20;  // far above any model's matrices

struct Trailer {
  std::array<char, 8> magic = kMagic;
  std::uint32_t byte_order = kByteOrder, file_version = kFileVersion, layout_version = kernels::kPanelLayoutVersion;
  std::uint32_t num_records = 0;
  std::uint64_t fingerprint = 0, table_offset = 0, table_hash = 0, file_bytes = 0;
  std::uint64_t hash = 0;  // of everything before it
};

static_assert(sizeof(Record) == 64 && std::has_unique_object_representations_v<Record>);
static_assert(sizeof(Trailer) == 64 && std::has_unique_object_representations_v<Trailer>);

std::uint64_t HashOf(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t HashOf(const Trailer& trailer) {
  return XXH3_64bits(&trailer, offsetof(Trailer, hash));
}

// By a name: numbers change when formats are added.
std::uint32_t Tag(std::string_view name) {
  return XXH32(name.data(), name.size(), 0);
}
std::uint32_t FormatTag(kernels::WeightFormat format) {
  return Tag(kernels::Traits(format).name);
}
std::uint32_t NoteTag() {
  return Tag("note");
}

auto Order(const PackedKey& key) {
  return std::tuple(key.high, key.low);
}

// The trailer when it, and the file around it, are whole and of this version and model.
Result<Trailer> ReadTrailer(std::span<const std::byte> bytes, std::uint64_t fingerprint, const std::string& name) {
  Trailer trailer;
  if (bytes.size() < sizeof trailer) return Fail(ErrorCode::kCorrupt, "{} is cut short", name);
  std::memcpy(&trailer, bytes.last(sizeof trailer).data(), sizeof trailer);
  if (trailer.magic != kMagic) {
    return Fail(ErrorCode::kCorrupt, "{} is cut short, or no file of packed weights", name);
  }
  if (trailer.byte_order != kByteOrder) {
    return Fail(ErrorCode::kUnsupported, "{} was written by a machine with another byte order", name);
  }
  if (trailer.file_version != kFileVersion || trailer.layout_version != kernels::kPanelLayoutVersion) {
    return Fail(ErrorCode::kUnsupported, "{} is of version {}.{}, this program's is {}.{}", name, trailer.file_version,
                trailer.layout_version, kFileVersion, kernels::kPanelLayoutVersion);
  }
  if (trailer.hash != HashOf(trailer)) return Fail(ErrorCode::kCorrupt, "{}: the trailer is damaged", name);
  if (trailer.file_bytes != bytes.size()) {
    return Fail(ErrorCode::kCorrupt, "{} has {} bytes, but {} were written", name, bytes.size(), trailer.file_bytes);
  }
  if (trailer.fingerprint != fingerprint) {
    return Fail(ErrorCode::kInvalidArgument,
                "{} was made of another model, of this one before it changed, or with another quantization", name);
  }
  return trailer;
}

// A checksum proves no good will: every place is checked all the same.
Result<std::vector<Record>> ReadTable(std::span<const std::byte> bytes, const Trailer& trailer,
                                      const std::string& name) {
  const std::uint64_t table_bytes = std::uint64_t{trailer.num_records} * sizeof(Record);
  const std::uint64_t before_trailer = bytes.size() - sizeof trailer;
  if (trailer.num_records > kRecordsMax || table_bytes > before_trailer ||
      trailer.table_offset != before_trailer - table_bytes) {
    return Fail(ErrorCode::kCorrupt, "{}: a table of {} matrices at byte {} does not end at the trailer", name,
                trailer.num_records, trailer.table_offset);
  }
  const auto table = bytes.subspan(trailer.table_offset, table_bytes);
  if (HashOf(table) != trailer.table_hash) return Fail(ErrorCode::kCorrupt, "{}: the table is damaged", name);
  std::vector<Record> records(trailer.num_records);
  if (!table.empty()) std::memcpy(records.data(), table.data(), table.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto end = CheckedAdd(records[i].offset, records[i].bytes);
    if (records[i].offset % kPageBytes != 0 || !end || *end > trailer.table_offset) {
      return Fail(ErrorCode::kCorrupt, "{}: matrix {} of {} bytes at byte {} is not on a page before byte {}", name, i,
                  records[i].bytes, records[i].offset, trailer.table_offset);
    }
  }
  std::ranges::sort(records, {}, [](const Record& record) { return Order(record.key); });
  return records;
}

}  // namespace

PackedKey MakePackedKey(std::string_view description, std::span<const std::int32_t> input_order) {
  const XXH128_hash_t text = XXH3_128bits(description.data(), description.size());
  const XXH128_hash_t both = XXH3_128bits_withSeed(input_order.data(), input_order.size_bytes(), text.low64);
  return {both.low64 ^ text.high64, both.high64};
}

Result<PackedReader> PackedReader::Open(const std::filesystem::path& path, std::uint64_t fingerprint) {
  std::error_code error;
  const std::string name = path.string();
  if (!std::filesystem::exists(path, error)) return Fail(ErrorCode::kNotFound, "{} does not exist", name);
  QUIRE_TRY(MappedFile mapped, MappedFile::Open(path));
  QUIRE_TRY(const Trailer trailer, ReadTrailer(mapped.bytes(), fingerprint, name));
  QUIRE_TRY(std::vector<Record> records, ReadTable(mapped.bytes(), trailer, name));
  mapped.ReadAhead();
  return PackedReader(std::make_shared<const MappedFile>(std::move(mapped)), std::move(records));
}

int PackedReader::num_matrices() const {
  return static_cast<int>(std::ranges::count_if(records_, [](const Record& r) { return r.format_tag != NoteTag(); }));
}

const Record* PackedReader::FindRecord(const PackedKey& key) const {
  const auto found = std::ranges::lower_bound(records_, Order(key), {}, [](const Record& r) { return Order(r.key); });
  return found != records_.end() && found->key == key ? &*found : nullptr;
}

std::span<const std::byte> PackedReader::Find(const PackedKey& key, const PackedShape& shape) const {
  const Record* found = FindRecord(key);
  if (found == nullptr) return {};
  if (found->format_tag != FormatTag(shape.format) || found->n != shape.n || found->k != shape.k) return {};
  return file_->bytes().subspan(found->offset, found->bytes);
}

Result<std::span<const std::byte>> PackedReader::FindNote(const PackedKey& key) const {
  const Record* found = FindRecord(key);
  if (found == nullptr || found->format_tag != NoteTag()) return std::span<const std::byte>();
  const auto bytes = file_->bytes().subspan(found->offset, found->bytes);
  if (HashOf(bytes) == found->hash) return bytes;
  return Fail(ErrorCode::kCorrupt, "the {} bytes at byte {} do not have their checksum", found->bytes, found->offset);
}

Result<> PackedReader::VerifyData() const {
  for (const Record& record : records_) {
    const auto bytes = file_->bytes().subspan(record.offset, record.bytes);
    if (HashOf(bytes) == record.hash) continue;
    return Fail(ErrorCode::kCorrupt, "{}: the {} of {} bytes at byte {} is damaged", path().string(),
                record.format_tag == NoteTag() ? "note" : "matrix", record.bytes, record.offset);
  }
  return {};
}

Result<PackedWriter> PackedWriter::Create(const std::filesystem::path& path, std::uint64_t fingerprint) {
  QUIRE_TRY(AtomicFile file, AtomicFile::Create(path));
  return PackedWriter(std::move(file), fingerprint);
}

void PackedWriter::Add(const PackedKey& key, const PackedShape& shape, std::span<const std::byte> bytes) {
  Append({.key = key, .n = shape.n, .k = shape.k, .format_tag = FormatTag(shape.format)}, bytes);
}

void PackedWriter::AddNote(const PackedKey& key, std::span<const std::byte> bytes) {
  Append({.key = key, .format_tag = NoteTag()}, bytes);
}

void PackedWriter::Append(Record record, std::span<const std::byte> bytes) {
  if (!file_) return;
  outcome_ = Write(record, bytes);
  if (!outcome_) file_.reset();
}

Result<> PackedWriter::Write(Record record, std::span<const std::byte> bytes) {
  constexpr std::array<std::byte, kPageBytes> kZeros{};
  const std::uint64_t padding = (kPageBytes - file_->size() % kPageBytes) % kPageBytes;
  QUIRE_TRY_VOID(file_->Write(std::span(kZeros).first(padding)));
  record.offset = file_->size();
  record.bytes = bytes.size();
  record.hash = HashOf(bytes);
  records_.push_back(record);
  return file_->Write(bytes);
}

Result<> PackedWriter::Commit() {
  if (file_) outcome_ = Finish();
  file_.reset();
  return outcome_;
}

Result<> PackedWriter::Finish() {
  const auto table = std::as_bytes(std::span(records_));
  Trailer trailer{.num_records = static_cast<std::uint32_t>(records_.size()),
                  .fingerprint = fingerprint_,
                  .table_offset = file_->size(),
                  .table_hash = HashOf(table),
                  .file_bytes = file_->size() + table.size() + sizeof trailer};
  trailer.hash = HashOf(trailer);
  QUIRE_TRY_VOID(file_->Write(table));
  QUIRE_TRY_VOID(file_->Write(std::as_bytes(std::span(&trailer, 1))));
  return file_->Commit();
}

}  // namespace quire::weights
