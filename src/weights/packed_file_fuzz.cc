// Arbitrary bytes as a file of packed weights: an error, or matrices that can be read to their last byte. The input's
// trailer and table get the checksums that they should have, because nothing behind those would be reached otherwise.
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "weights/packed_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quire::weights;
  constexpr std::size_t kTrailerBytes = 64, kHashAt = 56, kTableHashAt = 40, kTableAt = 32;
  std::vector<std::uint8_t> file(data, data + size);
  if (size >= kTrailerBytes) {
    std::uint8_t* trailer = file.data() + size - kTrailerBytes;
    std::uint64_t table = 0;
    std::memcpy(&table, trailer + kTableAt, sizeof table);
    if (table <= size - kTrailerBytes) {
      const std::uint64_t hash = XXH3_64bits(file.data() + table, size - kTrailerBytes - table);
      std::memcpy(trailer + kTableHashAt, &hash, sizeof hash);
    }
    const std::uint64_t hash = XXH3_64bits(trailer, kHashAt);
    std::memcpy(trailer + kHashAt, &hash, sizeof hash);
  }
  const int fd = ::memfd_create("fuzz", 0);
  if (fd < 0 || ::write(fd, file.data(), file.size()) != static_cast<ssize_t>(file.size())) std::abort();
  {
    const auto reader = PackedReader::Open("/proc/self/fd/" + std::to_string(fd), 0);
    if (reader.has_value()) {
      (void)reader->VerifyData();
    } else if (reader.error().message.empty()) {
      std::abort();
    }
  }
  ::close(fd);
  return 0;
}
