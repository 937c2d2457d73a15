#include "engine/beam_text.h"

#include <utility>

#include "base/check.h"
#include "engine/text_side.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"

namespace quire::engine {
namespace {

class DecodedText final : public sched::TextStop {
 public:
  DecodedText(const text::Tokenizer* tokenizer, std::span<const TokenId> prompt, const StopCriteria& stop)
      : decoder_(tokenizer, prompt, stop.skip_special_tokens),
        matcher_(stop.stop_strings, /*include_stop=*/false),
        min_tokens_(stop.min_tokens) {}

  std::unique_ptr<sched::TextStop> Clone() const override { return std::make_unique<DecodedText>(*this); }

  bool Push(TokenId token) override {
    const std::string text = decoder_.Push(token);
    if (++num_tokens_ > min_tokens_) {
      matcher_.Push(text);
    } else {
      matcher_.PushWithoutMatch(text);
    }
    return matcher_.matched().has_value();
  }

 private:
  text::StreamDecoder decoder_;
  text::StopMatcher matcher_;
  const int min_tokens_;  // no stop string ends within the text of the first so many
  int num_tokens_ = 0;
};

}  // namespace

Result<> BeamText::Prepare() {
  const std::lock_guard lock(mutex_);
  if (tokenizer_ != nullptr) return {};
  if (!failure_) {
    Result<TextSide> side = LoadTextSide(model_);
    if (side) {
      tokenizer_ = std::move(side->tokenizer);
      return {};
    }
    failure_ =
        Error{ErrorCode::kUnsupported,
              "stop strings of beams need a tokenizer, and the engine has none: " + side.error().message, "stop"};
  }
  return std::unexpected(*failure_);
}

std::unique_ptr<sched::TextStop> BeamText::Make(std::span<const TokenId> prompt, const StopCriteria& stop) const {
  CHECK(tokenizer_ != nullptr);
  return std::make_unique<DecodedText>(tokenizer_.get(), prompt, stop);
}

}  // namespace quire::engine
