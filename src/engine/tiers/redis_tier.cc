#include "engine/tiers/redis_tier.h"

#include <hiredis/hiredis.h>
#include <sys/time.h>

#include <array>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/tiers/kv_entry.h"

namespace quire::engine {
namespace {

constexpr std::string_view kPrefix = "quire:kv:1:";
constexpr Duration kFirstPause = std::chrono::milliseconds(100), kLongestPause = std::chrono::seconds(10);
constexpr int kWaitsPerAnswer = 4;
// Keys that are asked about in one go.
constexpr std::size_t kPipelined = 512;

timeval ToTimeval(Duration duration) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  return {.tv_sec = us / 1000000, .tv_usec = us % 1000000};
}

std::string NameOf(const kv::ContentKey& key) {
  return std::string(kPrefix).append(key.ToHex());
}

bool ParseNumber(std::string_view text, int least, int most, int* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && *number >= least && *number <= most;
}

// Takes what stands before the first `separator` out of `text`; false when there is none.
bool TakeBefore(char separator, std::string_view* text, std::string_view* before) {
  const std::size_t place = text->find(separator);
  if (place == std::string_view::npos) return false;
  *before = text->substr(0, place);
  text->remove_prefix(place + 1);
  return true;
}

}  // namespace

Result<RedisAddress> RedisAddress::Parse(std::string_view url) {
  const auto fail = [](const char* what) {
    return FailParam("kv_redis", "kv_redis {}; it is redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE] or unix:///PATH",
                     what);
  };
  RedisAddress address;
  const std::size_t colon = url.find("://");
  if (colon == std::string_view::npos) return fail("has no scheme");
  const std::string_view scheme = url.substr(0, colon);
  std::string_view rest = url.substr(colon + 3);
  const bool is_unix = scheme == "unix";
  if (!is_unix && scheme != "redis" && scheme != "valkey") return fail("has an unknown scheme (there is no TLS)");
  std::string_view login;
  const std::size_t at = rest.rfind('@');
  if (at != std::string_view::npos) {
    login = rest.substr(0, at);
    rest.remove_prefix(at + 1);
    std::string_view user;
    if (!TakeBefore(':', &login, &user)) return fail("has a user without a password");
    address.user = user;
    address.password = login;
  }
  if (is_unix) {
    if (!rest.starts_with('/')) return fail("needs an absolute path behind unix://");
    address.path = rest;
    return address;
  }
  std::string_view place = rest, database;
  if (TakeBefore('/', &rest, &place)) database = rest;
  if (!database.empty() && !ParseNumber(database, 0, 65535, &address.database))
    return fail("has a bad database number");
  std::string_view port;
  if (place.starts_with('[')) {  // an IPv6 address
    const std::size_t end = place.find(']');
    if (end == std::string_view::npos) return fail("has a [ without ]");
    address.host = place.substr(1, end - 1);
    port = place.substr(end + 1);
    if (!port.empty() && !port.starts_with(':')) return fail("has something between ] and the port");
  } else {
    const std::size_t before = std::min(place.find(':'), place.size());
    address.host = place.substr(0, before);
    port = place.substr(before);
  }
  if (address.host.empty()) return fail("names no host");
  if (!port.empty() && !ParseNumber(port.substr(1), 1, 65535, &address.port)) return fail("has a bad port");
  return address;
}

std::string RedisAddress::ToString() const {
  return path.empty() ? fmt::format("{}:{}/{}", host, port, database) : path;
}

void RedisTier::FreeContext::operator()(redisContext* context) const {
  redisFree(context);
}
void RedisTier::FreeReply::operator()(redisReply* reply) const {
  freeReplyObject(reply);
}

RedisTier::RedisTier(Config config, const Clock* clock)
    : config_(std::move(config)),
      clock_(clock),
      back_off_(kFirstPause, kLongestPause),
      write_back_off_(kFirstPause, kLongestPause) {
  stats_.kind = KvTierKind::kRedis;
}

RedisTier::~RedisTier() = default;

bool RedisTier::IsConnected() {
  if (context_) return true;
  if (!back_off_.IsOpen(clock_->Now())) return false;
  if (const Result<> connected = Connect(); !connected) {
    GiveUp(connected.error());
    return false;
  }
  if (back_off_.has_failed()) spdlog::info("the KV tier at {} is back", config_.address.ToString());
  back_off_.Succeed();
  return true;
}

Result<> RedisTier::Connect() {
  const RedisAddress& address = config_.address;
  const timeval timeout = ToTimeval(config_.timeout);
  context_.reset(address.path.empty() ? redisConnectWithTimeout(address.host.c_str(), address.port, timeout)
                                      : redisConnectUnixWithTimeout(address.path.c_str(), timeout));
  if (!context_) return Fail(ErrorCode::kIo, "no memory for a connection");
  if (context_->err != 0) return Fail(ErrorCode::kIo, "cannot connect: {}", context_->errstr);
  if (redisSetTimeout(context_.get(), timeout) != REDIS_OK) return Fail(ErrorCode::kIo, "cannot set a timeout");
  if (!address.password.empty()) {
    std::vector<std::string_view> command{"AUTH"};
    if (!address.user.empty()) command.push_back(address.user);
    command.push_back(address.password);
    QUIRE_TRY([[maybe_unused]] const Reply reply, Call(command));
  }
  if (address.database != 0) {
    const std::string number = std::to_string(address.database);
    const std::array<std::string_view, 2> command{"SELECT", number};
    QUIRE_TRY([[maybe_unused]] const Reply reply, Call(command));
  }
  return {};
}

Result<> RedisTier::Send(std::span<const std::string_view> command) {
  std::array<const char*, 8> words{};
  std::array<std::size_t, 8> lengths{};
  for (std::size_t i = 0; i < command.size(); ++i) {
    words[i] = command[i].data();
    lengths[i] = command[i].size();
  }
  if (redisAppendCommandArgv(context_.get(), static_cast<int>(command.size()), words.data(), lengths.data()) !=
      REDIS_OK) {
    return Fail(ErrorCode::kIo, "cannot send: {}", context_->errstr);
  }
  return {};
}

Result<RedisTier::Reply> RedisTier::Receive() {
  // The timeout is that of each wait; a server that sends a byte now and then must not hold us for ever either.
  const TimePoint deadline = clock_->Now() + kWaitsPerAnswer * config_.timeout;
  void* raw = nullptr;
  int is_sent = 0;
  while (raw == nullptr) {
    if (clock_->Now() > deadline) return Fail(ErrorCode::kIo, "the answer takes too long");
    const int status = is_sent == 0 ? redisBufferWrite(context_.get(), &is_sent) : redisBufferRead(context_.get());
    if (status != REDIS_OK || redisGetReplyFromReader(context_.get(), &raw) != REDIS_OK) {
      return Fail(ErrorCode::kIo, "no answer: {}", context_->errstr);
    }
  }
  Reply reply(static_cast<redisReply*>(raw));
  if (reply->type == REDIS_REPLY_ERROR) {
    return Fail(ErrorCode::kUnavailable, "it says \"{}\"", std::string_view(reply->str, reply->len));
  }
  return reply;
}

Result<RedisTier::Reply> RedisTier::Call(std::span<const std::string_view> command) {
  QUIRE_TRY_VOID(Send(command));
  return Receive();
}

void RedisTier::GiveUp(const Error& error) {
  ++stats_.errors;
  if (!back_off_.has_failed()) spdlog::warn("the KV tier at {} pauses: {}", config_.address.ToString(), error.message);
  context_.reset();
  back_off_.Fail(clock_->Now());
}

void RedisTier::Contains(std::span<const kv::ContentKey> keys, std::span<bool> found) {
  for (std::size_t first = 0; first < keys.size(); first += kPipelined) {
    const std::size_t end = std::min(keys.size(), first + kPipelined);
    if (std::all_of(found.begin() + static_cast<std::ptrdiff_t>(first),
                    found.begin() + static_cast<std::ptrdiff_t>(end), [](bool is_found) { return is_found; })) {
      continue;
    }
    if (!IsConnected()) return;
    for (std::size_t i = first; i < end; ++i) {
      const std::string name = NameOf(keys[i]);
      const std::array<std::string_view, 2> command{"EXISTS", name};
      if (const Result<> sent = Send(command); !sent) return GiveUp(sent.error());
    }
    bool is_missing = false;
    for (std::size_t i = first; i < end; ++i) {
      const Result<Reply> reply = Receive();
      if (!reply) return GiveUp(reply.error());
      const bool exists = (*reply)->type == REDIS_REPLY_INTEGER && (*reply)->integer == 1;
      found[i] = found[i] || exists;
      is_missing = is_missing || !found[i];
    }
    if (is_missing) return;  // what comes after a gap is of no use
  }
}

bool RedisTier::Get(const kv::ContentKey& key, std::span<std::byte> block) {
  if (!IsConnected()) return false;
  const std::string name = NameOf(key);
  const std::array<std::string_view, 2> command{"GET", name};
  const Result<Reply> reply = Call(command);
  if (!reply) {
    GiveUp(reply.error());
    return false;
  }
  if ((*reply)->type == REDIS_REPLY_NIL) {
    ++stats_.misses;
    return false;
  }
  const std::span<const std::byte> entry = (*reply)->type == REDIS_REPLY_STRING
                                               ? std::as_bytes(std::span((*reply)->str, (*reply)->len))
                                               : std::span<const std::byte>();
  if (entry.size() == kKvEntryHeadBytes + block.size()) {
    std::memcpy(block.data(), entry.data() + kKvEntryHeadBytes, block.size());
    if (IsIntactKvEntry(key, entry.first(kKvEntryHeadBytes), block)) {
      ++stats_.hits;
      stats_.read_bytes += block.size();
      return true;
    }
  }
  ++stats_.damaged;
  const std::array<std::string_view, 2> removal{"DEL", name};
  if (const Result<Reply> removed = Call(removal); !removed) GiveUp(removed.error());
  return false;
}

void RedisTier::Put(const kv::ContentKey& key, std::span<const std::byte> block) {
  if (!write_back_off_.IsOpen(clock_->Now()) || !IsConnected()) return;
  const KvEntryHead head = MakeKvEntryHead(key, block);
  entry_.assign(reinterpret_cast<const char*>(head.data()), head.size());
  entry_.append(reinterpret_cast<const char*>(block.data()), block.size());
  const std::string name = NameOf(key), seconds = std::to_string(config_.time_to_live.count());
  const std::array<std::string_view, 5> command{"SET", name, entry_, "EX", seconds};
  const bool expires = config_.time_to_live.count() > 0;
  const Result<Reply> reply = Call(std::span(command).first(expires ? 5 : 3));
  if (reply) {
    write_back_off_.Succeed();
    ++stats_.stored;
    stats_.written_bytes += block.size();
    return;
  }
  if (reply.error().code != ErrorCode::kUnavailable) return GiveUp(reply.error());
  // It answers, but takes nothing: it is full, or may not be written to.
  ++stats_.errors;
  if (!write_back_off_.has_failed()) {
    spdlog::warn("the KV tier at {} takes no blocks: {}", config_.address.ToString(), reply.error().message);
  }
  write_back_off_.Fail(clock_->Now());
}

}  // namespace quire::engine
