// A file of packed weight matrices, mapped at the next start so that nothing is packed again and processes share its
// pages. It only replaces work: everything else about a model still comes from its own files.
//
//   | matrix, from a multiple of 4096 bytes | matrix | … | table: a Record for each | Trailer |
//
// The trailer comes last because the file is written from front to back. Numbers are in the order of the machine that
// wrote them, which the trailer tells. A file is hostile input: the reader believes no size or place in it unchecked,
// and refuses the file as a whole when the trailer, the table or the file's length is not what was written. The bytes
// of the matrices have checksums too, but reading them all would cost the time that the file saves: see VerifyData. In a
// matrix's place can lie a note, a few bytes about matrices (quantization_note.h), whose checksum is looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "kernels/kernel_table.h"
#include "weights/atomic_file.h"
#include "weights/model_source.h"

namespace quire::weights {

// A hash of all that the bytes of a packed matrix are made of, within one model.
struct PackedKey {
  std::uint64_t low = 0, high = 0;
  bool operator==(const PackedKey&) const = default;
};
PackedKey MakePackedKey(std::string_view description, std::span<const std::int32_t> input_order);

struct PackedShape {
  kernels::WeightFormat format = kernels::WeightFormat::kF32;
  std::int64_t n = 0, k = 0;
};

// A hash of the whole contents of a model's files, 32 hexadecimal digits: the same for copies, whatever their names and
// times. Reads all of them.
Result<std::string> ModelContentDigest(const std::filesystem::path& path);

// Says of which model a file was made: a hash of the tensors' names, types, shapes and some bytes of each, and of the
// sizes and times of the model's files. Not of its path: a model that was moved stays the same. `variant` says what else
// the weights depend on: the quantization that they get while they are loaded.
Result<std::uint64_t> ModelFingerprint(const ModelSource& source, const std::filesystem::path& path,
                                       std::string_view variant);

// Immutable; any number of threads.
class PackedReader {
 public:
  // Errors say why the file is of no use: missing (kNotFound), damaged, of another version or another model.
  static Result<PackedReader> Open(const std::filesystem::path& path, std::uint64_t fingerprint);

  // The matrix's bytes, on a page, or an empty span when the file does not hold this matrix in this shape.
  std::span<const std::byte> Find(const PackedKey& key, const PackedShape& shape) const;
  // A note's bytes; an empty span when the file does not hold it; an error when they do not have their checksum.
  Result<std::span<const std::byte>> FindNote(const PackedKey& key) const;
  // Compares every matrix and note with its checksum: reads the whole file.
  Result<> VerifyData() const;

  std::int64_t bytes() const { return static_cast<std::int64_t>(file_->bytes().size()); }
  int num_matrices() const;
  const std::filesystem::path& path() const { return file_->path(); }
  // Shared with every matrix that views it.
  const std::shared_ptr<const MappedFile>& file() const { return file_; }

  struct Record {
    PackedKey key;
    std::uint64_t offset = 0, bytes = 0, hash = 0;
    std::int64_t n = 0, k = 0;
    std::uint32_t format_tag = 0, reserved = 0;
  };

 private:
  PackedReader(std::shared_ptr<const MappedFile> file, std::vector<Record> records)
      : file_(std::move(file)), records_(std::move(records)) {}
  const Record* FindRecord(const PackedKey& key) const;  // null when there is none

  std::shared_ptr<const MappedFile> file_;
  std::vector<Record> records_;  // sorted by key
};

// Writes such a file while a model is packed. After a failure (a full disk) nothing more is written, what was is
// removed, and Commit says what happened: the model loads all the same. One thread.
class PackedWriter {
 public:
  static Result<PackedWriter> Create(const std::filesystem::path& path, std::uint64_t fingerprint);

  void Add(const PackedKey& key, const PackedShape& shape, std::span<const std::byte> bytes);
  void AddNote(const PackedKey& key, std::span<const std::byte> bytes);
  // Puts the file in its place, where it replaces another one at once; who has that one mapped keeps it.
  Result<> Commit();

 private:
  PackedWriter(AtomicFile file, std::uint64_t fingerprint) : file_(std::move(file)), fingerprint_(fingerprint) {}
  // `record` says what it is; where it lies is filled in.
  void Append(PackedReader::Record record, std::span<const std::byte> bytes);
  Result<> Write(PackedReader::Record record, std::span<const std::byte> bytes);
  Result<> Finish();

  std::optional<AtomicFile> file_;  // gone after a failure
  std::uint64_t fingerprint_;
  std::vector<PackedReader::Record> records_;
  Result<> outcome_;
};

}  // namespace quire::weights
