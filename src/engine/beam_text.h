// Stop strings of beams: the tokenizer, for a scheduler that knows tokens only.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/result.h"
#include "sched/text_stop.h"
#include "text/tokenizer.h"

namespace quire::engine {

// Finds what the front end finds in the text of a choice, by the same decoder and matcher.
class BeamText final : public sched::TextStopMaker {
 public:
  // The tokenizer of this model is loaded by the first Prepare(): few requests need it, and a start should not wait.
  explicit BeamText(std::filesystem::path model) : model_(std::move(model)) {}
  explicit BeamText(std::unique_ptr<const text::Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  Result<> Prepare() override;
  std::unique_ptr<sched::TextStop> Make(std::span<const TokenId> prompt, const StopCriteria& stop) const override;

 private:
  const std::filesystem::path model_;
  std::mutex mutex_;  // guards the next one, and that one until it is set
  std::optional<Error> failure_;
  std::unique_ptr<const text::Tokenizer> tokenizer_;  // not changed once Prepare() has succeeded
};

}  // namespace quire::engine
