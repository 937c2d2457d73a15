#include "engine/packed_cache.h"

#include <system_error>
#include <utility>

namespace quire::engine {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kReadPrefix = "read:";
constexpr std::string_view kExtension = ".packed";
constexpr std::size_t kNameBytesMax = 100;  // of the model's name in the file's: file systems take 255 in all

}  // namespace

PackedCachePlace PackedCachePlace::Parse(std::string_view text) {
  if (text.empty() || text == "off") return {};
  const bool read_only = text.starts_with(kReadPrefix);
  if (read_only) text.remove_prefix(kReadPrefix.size());
  return {.path = text, .may_write = !read_only};
}

fs::path PackedCachePlace::FileFor(const fs::path& model, std::uint64_t fingerprint) const {
  if (path.extension() == kExtension) return path;
  std::error_code error;
  const fs::path absolute = fs::weakly_canonical(model, error);
  const std::string name = (error ? model : absolute).filename().string();
  return path / fmt::format("{}-{:016x}{}", name.substr(0, kNameBytesMax), fingerprint, kExtension);
}

PackedCache PackedCache::Open(const PackedCachePlace& place, const fs::path& model, const weights::ModelSource& source,
                              std::string_view variant) {
  PackedCache cache;
  if (place.path.empty()) return cache;
  // What is not there needs no fingerprint, for which a page of every tensor is read.
  if (std::error_code error; !place.may_write && !fs::exists(place.path, error)) return cache;
  const Result<std::uint64_t> fingerprint = weights::ModelFingerprint(source, model, variant);
  if (!fingerprint) {
    cache.warning_ = fingerprint.error().message;
    return cache;
  }
  cache.file_ = place.FileFor(model, *fingerprint);
  Result<weights::PackedReader> reader = weights::PackedReader::Open(cache.file_, *fingerprint);
  if (reader) {
    cache.reader_ = *std::move(reader);
    return cache;
  }
  if (reader.error().code != ErrorCode::kNotFound) {
    cache.warning_ = fmt::format("packed weights are not used: {}", reader.error().message);
  }
  if (place.may_write) cache.StartWriting(cache.file_, *fingerprint);
  return cache;
}

void PackedCache::StartWriting(const fs::path& file, std::uint64_t fingerprint) {
  std::error_code error;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), error);  // else Create says what is wrong
  Result<weights::PackedWriter> writer = weights::PackedWriter::Create(file, fingerprint);
  if (writer) {
    writer_.emplace(*std::move(writer));
  } else {
    warning_ = fmt::format("packed weights are not kept: {}", writer.error().message);
  }
}

void PackedCache::Connect(models::LoadOptions* options) {
  options->packed = reader_ ? &*reader_ : nullptr;
  options->packing = writer_ ? &*writer_ : nullptr;
}

PackedCacheReport PackedCache::Finish() {
  PackedCacheReport report{.note = "", .warning = std::move(warning_)};
  if (reader_) {
    report.note = fmt::format("packed weights from {}", file_.string());
    report.mapped_bytes = reader_->bytes();
  } else if (writer_) {
    if (const Result<> committed = writer_->Commit(); committed) {
      report.note = fmt::format("packed weights kept in {}", file_.string());
    } else {
      report.warning = fmt::format("packed weights are not kept: {}", committed.error().message);
    }
  }
  return report;
}

}  // namespace quire::engine
