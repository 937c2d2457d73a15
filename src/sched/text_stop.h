// The seam through which stop strings reach beam search: the scheduler knows tokens only.
#pragma once

#include <memory>
#include <span>

#include "api/sampling_params.h"
#include "base/result.h"
#include "base/strong_id.h"

namespace quire::sched {

// The text of one beam as it grows.
class TextStop {
 public:
  virtual ~TextStop() = default;
  // The same text, to go on in another way.
  virtual std::unique_ptr<TextStop> Clone() const = 0;
  // Takes the next token of the output; whether its text completes a stop string. Not called after that.
  virtual bool Push(TokenId token) = 0;
};

class TextStopMaker {
 public:
  virtual ~TextStopMaker() = default;
  // Whether Make() may be called; may take its time when it is called first. Any thread.
  virtual Result<> Prepare() = 0;
  // Before any output, for the stop strings of `stop`. Any thread, after a Prepare() that succeeded.
  virtual std::unique_ptr<TextStop> Make(std::span<const TokenId> prompt, const StopCriteria& stop) const = 0;
};

}  // namespace quire::sched
