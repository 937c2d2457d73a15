// Any bytes, and real messages with some bytes changed: Decode must return, and what it accepts must survive being
// written and read again.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "wire/codec.h"

namespace quire::wire {
namespace {

void CheckOnce(std::span<const std::byte> frame) {
  const Result<Message> first = Decode(frame);
  if (!first) return;
  Encoder encoder;
  const std::size_t kind = first->body.index();
  const auto again = std::visit(
      [&](const auto& body) {
        std::span<const std::byte> bytes = encoder.Encode(first->call, body);
        return std::vector<std::byte>(bytes.begin(), bytes.end());
      },
      first->body);
  const Result<Message> second = Decode(again);
  CHECK(second.has_value());
  CHECK(second->call == first->call);
  CHECK(second->body.index() == kind);
}

// A message with something in every field.
std::vector<std::byte> Sample(std::size_t which) {
  GenerateRequest request{.id = RequestId(1), .prompt = {TokenId(1), TokenId(2)}, .cache_salt = "salt"};
  request.sampling.logit_bias = {{TokenId(3), 1.f}};
  request.sampling.logprobs = 2;
  request.sampling.beam = {.width = 2};
  request.stop.stop_token_ids = {TokenId(4)};
  request.stop.stop_strings = {"stop"};
  const PositionLogprobs position{.chosen = {TokenId(1), -1.f, 1}, .top = {{TokenId(1), -1.f, 1}}};
  EngineEvent event{.request = RequestId(1), .choice = 1, .tokens = {TokenId(7)}, .logprobs = {position}};
  event.prompt_logprobs = {std::nullopt, position};
  event.finish_reason = FinishReason::kError;
  event.error = "why";
  const std::vector<EngineEvent> events = {event, event};
  EngineInfo info{.model_path = "p",
                  .architecture = "a",
                  .vocab_size = 5,
                  .max_model_len = 5,
                  .block_size = 5,
                  .num_blocks = 5,
                  .max_num_seqs = 5,
                  .max_num_batched_tokens = 5};
  EngineStats stats;
  stats.step_tokens_histogram = {1, 2, 3};
  Encoder encoder;
  std::span<const std::byte> bytes;
  switch (which % 6) {
    case 0:
      bytes = encoder.Encode(1, request);
      break;
    case 1:
      bytes = encoder.Encode(2, std::span<const EngineEvent>(events));
      break;
    case 2:
      bytes = encoder.Encode(3, info);
      break;
    case 3:
      bytes = encoder.Encode(4, stats);
      break;
    case 4:
      bytes = encoder.Encode(5, LoadProgress{1, 2, "tensor"});
      break;
    case 5:
      bytes = encoder.Encode(6, Status(std::unexpected(Error{ErrorCode::kIo, "m", "p"})));
      break;
  }
  return {bytes.begin(), bytes.end()};
}

// The first byte chooses the message, each three after it a place and what to change there.
void CheckChangedSample(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> frame = Sample(data[0]);
  for (std::size_t i = 1; i + 2 < size; i += 3) {
    const std::size_t place = (std::size_t{data[i]} << 8 | data[i + 1]) % frame.size();
    if (place >= kFramePrefixBytes) frame[place] ^= static_cast<std::byte>(data[i + 2]);
  }
  CheckOnce(frame);
}

}  // namespace
}  // namespace quire::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The prefix is made right, so that the fuzzer spends its time behind it.
  if (size == 0 || size > 1 << 20) return 0;
  quire::wire::CheckChangedSample(data, size);
  std::vector<std::byte> frame(quire::wire::kFramePrefixBytes + size);
  const auto length = static_cast<std::uint32_t>(size);
  std::memcpy(frame.data(), &length, sizeof length);
  std::memcpy(frame.data() + quire::wire::kFramePrefixBytes, data, size);
  quire::wire::CheckOnce(frame);
  return 0;
}
