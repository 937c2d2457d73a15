// Server-sent events out of a body that comes in pieces. Lines end with LF or CR LF; only data is kept, names, ids and
// comments are not.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace quire::bench::load {

class SseParser {
 public:
  static constexpr std::size_t kEventBytesMax = std::size_t{4} << 20;

  // `take` is called with the data of each event that `bytes` complete, in order; its error ends the call.
  template <typename Take>
  Result<> Feed(std::string_view bytes, Take&& take) {
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      if (line_.size() + data_.size() + std::min(end, bytes.size()) > kEventBytesMax) {
        return Fail(ErrorCode::kOutOfRange, "an event is larger than {} bytes", kEventBytesMax);
      }
      if (end == std::string_view::npos) {
        line_.append(bytes);
        return {};
      }
      const std::string_view tail = bytes.substr(0, end);
      bytes.remove_prefix(end + 1);
      if (line_.empty()) {
        QUIRE_TRY_VOID(TakeLine(tail, take));
      } else {
        line_.append(tail);
        const std::string line = std::exchange(line_, {});
        QUIRE_TRY_VOID(TakeLine(line, take));
      }
    }
    return {};
  }

  // At the end of the body: an event that lacks its empty line counts, too.
  template <typename Take>
  Result<> Finish(Take&& take) {
    const std::string line = std::exchange(line_, {});
    if (!line.empty()) QUIRE_TRY_VOID(TakeLine(line, take));
    return TakeLine({}, take);
  }

 private:
  template <typename Take>
  Result<> TakeLine(std::string_view line, Take&& take) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) {
      if (!std::exchange(has_data_, false)) return {};
      const std::string data = std::exchange(data_, {});
      return take(std::string_view(data));
    }
    if (!line.starts_with("data") || (line.size() > 4 && line[4] != ':')) return {};
    line.remove_prefix(std::min<std::size_t>(line.size(), 5));
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (std::exchange(has_data_, true)) data_ += '\n';
    data_.append(line);
    return {};
  }

  std::string line_;  // the beginning of a line
  std::string data_;  // of the event so far
  bool has_data_ = false;
};

}  // namespace quire::bench::load
