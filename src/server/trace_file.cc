#include "server/trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/json.h"

namespace quire::server {
namespace {

constexpr std::string_view kHead = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
constexpr std::string_view kTail = "\n]}\n";

// Microseconds, to the nanosecond.
void AppendMicroseconds(std::int64_t nanoseconds, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

void AppendArguments(const TraceEvent& event, const TraceLabelInfo& info, std::string* out) {
  out->append(",\"args\":{");
  for (std::size_t i = 0; i < info.values.size() && !info.values[i].empty(); ++i) {
    fmt::format_to(std::back_inserter(*out), "{}\"{}\":{}", i == 0 ? "" : ",", info.values[i], event.values[i]);
  }
  out->push_back('}');
}

struct Place {
  int pid = 0;
  int tid = 0;
  Duration offset{};
};

void AppendHead(char phase, const TraceLabelInfo& info, const Place& place, TimePoint at, std::string* out) {
  fmt::format_to(std::back_inserter(*out),
                 "{{\"ph\":\"{}\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":", phase, info.name,
                 info.category, place.pid, place.tid);
  AppendMicroseconds((at + place.offset).time_since_epoch().count(), out);
}

// The choices of one request are tracks of their own.
std::uint64_t AsyncId(const TraceEvent& event, const TraceLabelInfo& info) {
  const auto id = static_cast<std::uint64_t>(static_cast<std::uint32_t>(event.values[0]));
  return info.values[1] == "choice" ? id << 8 | static_cast<std::uint8_t>(event.values[1]) : id;
}

void AppendEvent(const TraceEvent& event, const Place& place, std::string* out) {
  const TraceLabelInfo& info = InfoOf(event.label);
  switch (info.kind) {
    case TraceKind::kSpan:
      AppendHead('X', info, place, event.begin, out);
      out->append(",\"dur\":");
      AppendMicroseconds(event.duration.count(), out);
      AppendArguments(event, info, out);
      out->push_back('}');
      return;
    case TraceKind::kCounter:
      AppendHead('C', info, place, event.begin, out);
      AppendArguments(event, info, out);
      out->push_back('}');
      return;
    case TraceKind::kAsync:
      for (const bool is_end : {false, true}) {
        if (is_end) out->append(",\n");
        AppendHead(is_end ? 'e' : 'b', info, place, is_end ? event.begin + event.duration : event.begin, out);
        fmt::format_to(std::back_inserter(*out), ",\"id2\":{{\"local\":\"{:#x}\"}}", AsyncId(event, info));
        AppendArguments(event, info, out);
        out->push_back('}');
      }
      return;
  }
}

void AppendName(std::string_view what, int pid, int tid, std::string_view name, std::string* out) {
  fmt::format_to(std::back_inserter(*out),
                 "{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":", what, pid, tid);
  AppendJsonString(name, /*ascii_only=*/true, out);
  out->append("}},\n");
}

}  // namespace

Result<TraceFile> TraceFile::Create(const std::string& path, Mode mode, std::int64_t bytes_max) {
  int flags = O_WRONLY | O_CREAT | O_CLOEXEC;
  if (mode == Mode::kOwn) {
    ::unlink(path.c_str());
    flags |= O_EXCL | O_NOFOLLOW;
  } else {
    flags |= O_TRUNC;
  }
  UniqueFd fd(::open(path.c_str(), flags, mode == Mode::kOwn ? 0600 : 0644));
  if (!fd.valid()) return Fail(ErrorCode::kIo, "cannot write the trace {}: {}", path, std::strerror(errno));
  TraceFile file(path, std::move(fd), bytes_max);
  QUIRE_TRY_VOID(file.WriteAt(fmt::format("{}{}", kHead, kTail), 0));
  file.end_ = static_cast<std::int64_t>(kHead.size());
  return file;
}

int TraceFile::ThreadOf(int pid, const std::string& lane, std::string_view process, std::string* out) {
  const auto [entry, is_new] = threads_.try_emplace({pid, lane}, 0);
  if (!is_new) return entry->second;
  int& count = num_threads_[pid];
  if (count == 0) AppendName("process_name", pid, 0, process, out);
  entry->second = ++count;
  AppendName("thread_name", pid, entry->second, lane, out);
  return entry->second;
}

Result<> TraceFile::Append(const TraceBatch& batch, std::string_view process, Duration offset) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  std::string text;
  std::int64_t num_events = 0;
  const auto flush = [&]() -> Result<> {
    if (text.empty()) return {};
    text.resize(text.size() - 2);  // the last comma
    QUIRE_TRY_VOID(WriteAtEnd(std::exchange(text, {})));
    num_events_ += std::exchange(num_events, 0);
    return {};
  };
  for (const TraceBatch::Lane& lane : batch.lanes) {
    const Place place{batch.pid, ThreadOf(batch.pid, lane.name, process, &text), offset};
    for (const TraceEvent& event : lane.events) {
      AppendEvent(event, place, &text);
      text.append(",\n");
      ++num_events;
      if (text.size() >= kPieceBytes) QUIRE_TRY_VOID(flush());
    }
  }
  return flush();
}

Result<> TraceFile::WriteAtEnd(std::string text) {
  if (end_ > static_cast<std::int64_t>(kHead.size())) text.insert(0, ",\n");
  const auto size = static_cast<std::int64_t>(text.size());
  if (end_ + size > bytes_max_) {
    return Fail(ErrorCode::kOutOfRange, "the trace {} has reached its largest size of {} bytes", path_, bytes_max_);
  }
  text.append(kTail);
  if (Result<> written = WriteAt(text, end_); !written) {
    // The last end had its place, so that it has it again.
    if (::ftruncate(fd_.get(), end_) == 0) (void)WriteAt(kTail, end_);
    return written;
  }
  end_ += size;
  return {};
}

Result<> TraceFile::WriteAt(std::string_view text, std::int64_t offset) {
  while (!text.empty()) {
    const ssize_t count = ::pwrite(fd_.get(), text.data(), text.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Fail(ErrorCode::kIo, "cannot write the trace {}: {}", path_, std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(count));
    offset += count;
  }
  return {};
}

}  // namespace quire::server
