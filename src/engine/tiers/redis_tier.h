// Blocks in a Redis or Valkey server that several quire servers share.
//
// Each block is a string (kv_entry.h) under "quire:kv:1:<key>", with a time to live. Every call has a timeout; after a
// failure the connection is given up, and for a while that doubles nothing is tried: a server that is gone or slow costs
// no more than a timeout now and then. Checksums find damage, but whoever may write to the server decides what is found
// there: it has to be as trusted as the model's files.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "engine/tiers/back_off.h"
#include "engine/tiers/kv_tier.h"

struct redisContext;
struct redisReply;

namespace quire::engine {

// redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], unix://[[USER]:PASSWORD@]/PATH; valkey: is redis:.
struct RedisAddress {
  std::string host;  // "" with a path
  int port = 6379;
  std::string path;  // of a Unix socket
  std::string user, password;
  int database = 0;

  static Result<RedisAddress> Parse(std::string_view url);
  std::string ToString() const;  // without user and password
};

class RedisTier final : public KvTier {
 public:
  struct Config {
    RedisAddress address;
    std::size_t block_bytes = 0;
    Duration timeout = std::chrono::milliseconds(250);  // of connecting, and of each wait for the server
    std::chrono::seconds time_to_live{86400};           // since a block was written; 0: the server decides
  };

  // `clock` outlives the tier. Connects when it is first needed.
  RedisTier(Config config, const Clock* clock);
  ~RedisTier() override;

  std::string_view name() const override { return "redis"; }
  void Contains(std::span<const kv::ContentKey> keys, std::span<bool> found) override;
  bool Get(const kv::ContentKey& key, std::span<std::byte> block) override;
  void Put(const kv::ContentKey& key, std::span<const std::byte> block) override;

 private:
  struct FreeContext {
    void operator()(redisContext* context) const;
  };
  struct FreeReply {
    void operator()(redisReply* reply) const;
  };
  using Reply = std::unique_ptr<redisReply, FreeReply>;

  // Whether there is a connection, which is made if it is time to.
  bool IsConnected();
  Result<> Connect();
  // Sends one command and waits for its answer; an error that the server sends is an answer with kUnavailable.
  Result<Reply> Call(std::span<const std::string_view> command);
  Result<> Send(std::span<const std::string_view> command);
  Result<Reply> Receive();
  // Counts, logs the first of a row, and hangs up.
  void GiveUp(const Error& error);

  const Config config_;
  const Clock* const clock_;
  BackOff back_off_;
  BackOff write_back_off_;  // for a server that is full, or a replica
  std::unique_ptr<redisContext, FreeContext> context_;
  std::string entry_;  // reused
};

}  // namespace quire::engine
