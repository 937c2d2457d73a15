// Where a model's packed weights are kept between starts: chooses the file, reads it when it is good, and otherwise
// has it written while the model is packed. Whatever goes wrong costs time only: the model is packed from its own files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "models/model.h"
#include "weights/model_source.h"
#include "weights/packed_file.h"

namespace quire::engine {

// What EngineOptions::packed_cache says: "off" or "": no file; otherwise a folder, or a file whose name ends in
// ".packed", and "read:" before it when nothing is to be written.
struct PackedCachePlace {
  std::filesystem::path path;  // empty: off
  bool may_write = false;

  static PackedCachePlace Parse(std::string_view text);
  // The file for a model: in a folder one of its own, named after the model and its fingerprint.
  std::filesystem::path FileFor(const std::filesystem::path& model, std::uint64_t fingerprint) const;
};

// What became of it, for the log and the user.
struct PackedCacheReport {
  std::string note;               // "packed weights from …", or "" when there is nothing to say
  std::string warning;            // what is wrong with the file, or could not be done; "" when all is well
  std::int64_t mapped_bytes = 0;  // of weights that are pages of the file instead of memory of this process
};

class PackedCache {
 public:
  // `model` is the path of `source`; `variant` as for weights::ModelFingerprint.
  static PackedCache Open(const PackedCachePlace& place, const std::filesystem::path& model,
                          const weights::ModelSource& source, std::string_view variant);

  // Lets a load read or write the file. This object outlives the load.
  void Connect(models::LoadOptions* options);
  // After a load that succeeded: puts a file that was written in its place.
  PackedCacheReport Finish();

 private:
  void StartWriting(const std::filesystem::path& file, std::uint64_t fingerprint);

  std::filesystem::path file_;
  std::optional<weights::PackedReader> reader_;  // one of the two at most
  std::optional<weights::PackedWriter> writer_;
  std::string warning_;
};

}  // namespace quire::engine
