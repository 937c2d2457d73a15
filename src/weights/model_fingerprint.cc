// Which model a file of packed weights belongs to; declared in packed_file.h.
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <vector>

#include "base/mapped_file.h"
#include "weights/packed_file.h"

namespace quire::weights {
namespace {

namespace fs = std::filesystem;

// Of every tensor, so that another training of the same model is another model even when all files have the same times,
// as some ways to copy them leave it. A cache line each: no more than a page of each is read.
constexpr std::size_t kSampleBytes = 64;

class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }

  void Add(std::span<const std::byte> bytes) {
    const std::uint64_t size = bytes.size();
    XXH3_64bits_update(state_.get(), &size, sizeof size);  // so that "ab", "c" is not "a", "bc"
    XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
  }
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text))); }
  void Add(std::int64_t number) { Add(std::as_bytes(std::span(&number, 1))); }
  std::uint64_t Digest() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

void AddTensor(const TensorSource& tensor, Hasher* hasher) {
  hasher->Add(tensor.name);
  hasher->Add(tensor.type->name);
  for (const std::int64_t dimension : tensor.shape) hasher->Add(dimension);
  const std::size_t sample = std::min(tensor.data.size(), kSampleBytes);
  hasher->Add(tensor.data.subspan((tensor.data.size() - sample) / 2, sample));
}

Result<> AddFile(const fs::path& path, Hasher* hasher) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    return Fail(ErrorCode::kIo, "cannot read the size of {}: {}", path.string(), std::strerror(errno));
  }
  hasher->Add(std::int64_t{status.st_size});
  hasher->Add(std::int64_t{status.st_mtim.tv_sec});
  hasher->Add(std::int64_t{status.st_mtim.tv_nsec});
  return {};
}

// What may decide how the weights of a folder are read.
bool IsModelFile(const fs::path& path) {
  return path.extension() == ".safetensors" || path.extension() == ".gguf" || path.filename() == "config.json" ||
         path.filename() == "model.safetensors.index.json";
}

// The model's files, sorted by name; the file itself, if it is one.
Result<std::vector<fs::path>> ListModelFiles(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector{path};
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    if (IsModelFile(entry->path())) files.push_back(entry->path());
  }
  if (error) return Fail(ErrorCode::kIo, "cannot list {}: {}", path.string(), error.message());
  std::ranges::sort(files);
  return files;
}

}  // namespace

Result<std::string> ModelContentDigest(const fs::path& path) {
  QUIRE_TRY(const std::vector<fs::path> files, ListModelFiles(path));
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  for (const fs::path& file : files) {
    QUIRE_TRY(const MappedFile mapped, MappedFile::Open(file));
    const std::span<const std::byte> bytes = mapped.bytes();
    const std::uint64_t size = bytes.size();
    XXH3_128bits_update(state.get(), &size, sizeof size);
    XXH3_128bits_update(state.get(), bytes.data(), bytes.size());
  }
  const XXH128_hash_t digest = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

Result<std::uint64_t> ModelFingerprint(const ModelSource& source, const fs::path& path, std::string_view variant) {
  Hasher hasher;
  hasher.Add(variant);
  for (const TensorSource& tensor : source.tensors()) AddTensor(tensor, &hasher);
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    QUIRE_TRY_VOID(AddFile(path, &hasher));
    return hasher.Digest();
  }
  QUIRE_TRY(const std::vector<fs::path> files, ListModelFiles(path));
  for (const fs::path& file : files) {
    hasher.Add(file.filename().native());
    QUIRE_TRY_VOID(AddFile(file, &hasher));
  }
  return hasher.Digest();
}

}  // namespace quire::weights
