#include "sched/sequence.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace quire::sched {

Sequence::Sequence(const Request* request, int choice, kv::SequenceBlocks blocks)
    : request_(request), choice_(choice), blocks_(std::move(blocks)), lanes_{this} {
  times_.queued = request->queued;
}

std::span<const TokenId> Sequence::masked(int num_output_tokens) const {
  if (num_output_tokens >= request_->stop.min_tokens) return {};
  return request_->masked_ids;
}

bool Sequence::IsOlder(const Sequence* a, const Sequence* b) {
  return std::tuple(a->request_->arrival, a->choice_) < std::tuple(b->request_->arrival, b->choice_);
}

std::size_t Sequence::num_cacheable_tokens() const {
  const std::size_t all_but_last = tokens_.size() - 1;
  if (!wants_prompt_logprobs() || AllPromptLogprobsKnown()) return all_but_last;
  // The logits of position p tell about token p + 1, and the first token needs none.
  return prompt_logprobs_.empty() ? 0 : std::min(prompt_logprobs_.size() - 1, all_but_last);
}

void Sequence::NoteChange(LifeChange change, TimePoint at) {
  if (times_.marks.size() < kLifeMarksMax) times_.marks.push_back({change, at});
}

void Sequence::NoteStep(TimePoint began, TimePoint ended) {
  if (times_.num_steps++ == 0) times_.inference_begin = std::max(began, times_.first_scheduled);
  times_.inference_end = ended;
}

bool Sequence::AllPromptLogprobsKnown() const {
  return prompt_logprobs_reported_ || static_cast<int>(prompt_logprobs_.size()) >= num_prompt_tokens();
}

void Sequence::StorePromptLogprobs(int first_position, std::vector<PositionLogprobs>* found) {
  if (prompt_logprobs_.empty()) prompt_logprobs_.emplace_back();
  for (std::size_t i = 0; i < found->size(); ++i) {
    const std::size_t token = static_cast<std::size_t>(first_position) + 1 + i;
    if (token == prompt_logprobs_.size()) prompt_logprobs_.emplace_back(std::move((*found)[i]));
  }
}

}  // namespace quire::sched
