#include "server/answer.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "text/stream_decoder.h"

namespace quire::server {

std::string SseEvent(std::string_view data) {
  return fmt::format("data: {}\n\n", data);
}

Answer::Answer(GenerationSpec spec, const text::Tokenizer* tokenizer, const Observers& observers, RequestOrigin origin)
    : spec_(std::move(spec)),
      tokenizer_(tokenizer),
      metrics_(observers.metrics),
      spans_(observers.spans),
      clock_(observers.clock),
      origin_(std::move(origin)),
      json_(&spec_, tokenizer, &origin_.arrival),
      prompt_logprobs_(spec_.prompts.size()),
      cached_tokens_(spec_.prompts.size(), 0) {
  ChoiceOptions options;
  options.tokenizer = tokenizer;
  options.stops = spec_.stop_strings;
  options.include_stop = spec_.include_stop_str_in_output;
  options.skip_special_tokens = spec_.skip_special_tokens;
  options.min_tokens = spec_.stop.min_tokens;
  options.keep_tokens = spec_.logprobs.has_value() || spec_.return_token_ids || spec_.returns_best();
  for (int prompt = 0; prompt < static_cast<int>(spec_.prompts.size()); ++prompt) {
    const PreparedPrompt& prepared = spec_.prompts[static_cast<std::size_t>(prompt)];
    options.text_offset = CountCodePoints(prepared.text);
    for (int i = 0; i < spec_.sampling.n; ++i) {
      choices_.push_back(Choice{
          .output = ChoiceOutput(options, prepared.ids), .index = static_cast<int>(choices_.size()), .prompt = prompt});
    }
    metrics_->ObserveRequest(static_cast<int>(prepared.ids.size()), spec_.n, prepared.max_tokens);
  }
  num_unfinished_ = static_cast<int>(choices_.size());
}

GenerateRequest Answer::MakeRequest(int prompt, RequestId id) const {
  const PreparedPrompt& prepared = spec_.prompts[static_cast<std::size_t>(prompt)];
  GenerateRequest request;
  request.id = id;
  request.prompt = prepared.ids;
  request.sampling = spec_.sampling;
  request.sampling.seed = prepared.seed;
  request.stop = spec_.stop;
  request.stop.max_tokens = prepared.max_tokens;
  request.cache_salt = spec_.cache_salt;
  request.cache_retention_s = spec_.cache_retention_s;
  request.terms = spec_.terms;
  return request;
}

void Answer::NoteSubmission(int prompt, const Submission& submission) {
  for (int i = 0; i < spec_.sampling.n; ++i) ChoiceOf(prompt, i).timings.submission = submission;
}

Answer::Choice& Answer::ChoiceOf(int prompt, int choice) {
  return choices_[static_cast<std::size_t>(prompt * spec_.sampling.n + choice)];
}

std::vector<const Answer::Choice*> Answer::ReturnedChoices(int prompt) const {
  std::vector<std::pair<double, const Choice*>> ranked;
  for (const Choice& choice : choices_) {
    if (choice.prompt != prompt) continue;
    double logprob = 0;  // cumulative, of the output
    for (const OutputToken& token : choice.tokens) {
      if (!token.is_prompt && token.logprobs) logprob += static_cast<double>(token.logprobs->chosen.logprob);
    }
    ranked.emplace_back(logprob, &choice);
  }
  if (spec_.returns_best()) {
    std::ranges::sort(ranked, [](const auto& a, const auto& b) {
      return std::tuple(-a.first, a.second->index) < std::tuple(-b.first, b.second->index);
    });
  }
  std::vector<const Choice*> returned;
  for (int i = 0; i < spec_.n; ++i) returned.push_back(ranked[static_cast<std::size_t>(i)].second);
  return returned;
}

bool Answer::is_prompt_done(int prompt) const {
  return std::ranges::all_of(choices_, [&](const Choice& choice) {
    return choice.prompt != prompt || choice.output.finish_reason() != FinishReason::kNone;
  });
}

void Answer::KeepPromptLogprobs(int prompt, const EngineEvent& event) {
  if (event.prompt_logprobs.empty()) return;
  PromptLogprobs& kept = prompt_logprobs_[static_cast<std::size_t>(prompt)];
  if (kept.empty()) kept = event.prompt_logprobs;
}

bool Answer::OnEvent(int prompt, const EngineEvent& event, TimePoint now, std::string* out) {
  if (is_done() || event.choice < 0 || event.choice >= spec_.sampling.n) return false;
  Choice& choice = ChoiceOf(prompt, event.choice);
  if (choice.output.finish_reason() != FinishReason::kNone) return false;  // ended by a stop string
  if (event.finish_reason == FinishReason::kError) {
    Fail(
        {.status = 500, .message = "the engine could not finish the request: " + event.error, .param = {}, .code = {}});
    return false;
  }
  if (event.finish_reason == FinishReason::kShed) {
    Fail({.status = 503,
          .message = event.error,
          .param = {},
          .code = "overloaded",
          .retry_after_s = std::max(1, event.retry_after_s)});
    return false;
  }
  if (event.finish_reason == FinishReason::kAbort) {
    Fail({.status = 503, .message = "the request was aborted", .param = {}, .code = {}});
    return false;
  }
  KeepPromptLogprobs(prompt, event);
  int& cached = cached_tokens_[static_cast<std::size_t>(prompt)];
  cached = std::max(cached, event.num_cached_tokens);
  choice.output.Push(event);
  ObserveTokens(&choice, event, now);
  const bool is_finished = choice.output.finish_reason() != FinishReason::kNone;
  if (is_finished) {
    --num_unfinished_;
    ObserveFinish(&choice, now);
  }
  if (spec_.stream) StreamChoice(&choice, out);
  if (!spec_.stream) Collect(&choice);
  if (num_unfinished_ == 0) ExportSpan();
  return is_finished && event.finish_reason == FinishReason::kNone;
}

void Answer::FinishWithoutEngine(std::string* out) {
  for (Choice& choice : choices_) {
    EngineEvent event;
    event.finish_reason = FinishReason::kLength;
    choice.output.Push(event);
    if (spec_.stream) StreamChoice(&choice, out);
    if (!spec_.stream) Collect(&choice);
    --num_unfinished_;
  }
}

void Answer::Fail(ApiError error) {
  if (is_done()) return;
  error_ = std::move(error);
  for (Choice& choice : choices_) {
    if (choice.output.finish_reason() != FinishReason::kNone) continue;
    choice.timings.ended = clock_->Now();
    metrics_->ObserveFailure(error_->status == 503);
  }
  ExportSpan();
}

std::string Answer::EchoText(int prompt) const {
  return spec_.prompts[static_cast<std::size_t>(prompt)].text;
}

std::vector<OutputToken> Answer::EchoTokens(int prompt) const {
  std::vector<OutputToken> tokens;
  if (!spec_.echo || spec_.is_chat || !spec_.logprobs) return tokens;
  const PreparedPrompt& prepared = spec_.prompts[static_cast<std::size_t>(prompt)];
  const PromptLogprobs& logprobs = prompt_logprobs_[static_cast<std::size_t>(prompt)];
  text::StreamDecoder decoder(tokenizer_, {}, spec_.skip_special_tokens);
  std::size_t offset = 0;
  tokens.reserve(prepared.ids.size());
  for (std::size_t i = 0; i < prepared.ids.size(); ++i) {
    OutputToken& token = tokens.emplace_back(
        OutputToken{.id = prepared.ids[i], .text_offset = offset, .is_prompt = true, .logprobs = {}});
    if (i < logprobs.size()) token.logprobs = logprobs[i];
    offset += CountCodePoints(decoder.Push(token.id));
  }
  return tokens;
}

std::optional<Usage> Answer::ChunkUsage(const Choice& choice, int completion_tokens) const {
  if (!spec_.continuous_usage_stats) return std::nullopt;
  const auto prompt = static_cast<std::size_t>(choice.prompt);
  return Usage{.prompt_tokens = static_cast<std::int64_t>(spec_.prompts[prompt].ids.size()),
               .completion_tokens = completion_tokens,
               .cached_tokens = cached_tokens_[prompt]};
}

void Answer::StreamChoice(Choice* choice, std::string* out) {
  ChoiceView view{.index = choice->index};
  std::string text;
  std::vector<OutputToken> tokens;
  const FinishReason finish = choice->output.finish_reason();
  if (!choice->is_started) {
    view.prompt_ids = spec_.prompts[static_cast<std::size_t>(choice->prompt)].ids;
    if (spec_.is_chat) {
      out->append(SseEvent(json_.RoleChunk(view, ChunkUsage(*choice, 0))));
      choice->is_started = true;
    }
    text = EchoText(choice->prompt);
    tokens = EchoTokens(choice->prompt);
  }
  // Nothing to show yet: the text is held back, or is the beginning of a character.
  if (text.empty() && !choice->output.has_text() && finish == FinishReason::kNone) return;
  choice->is_started = true;
  text.append(choice->output.TakeText());
  std::ranges::move(choice->output.TakeTokens(), std::back_inserter(tokens));
  view.text = text;
  view.tokens = tokens;
  view.finish_reason = finish;
  view.stop_reason = &choice->output.stop_reason();
  if (spec_.return_timings && finish != FinishReason::kNone) view.timings = &choice->timings;
  out->append(SseEvent(json_.Chunk(view, ChunkUsage(*choice, choice->output.num_tokens()))));
}

void Answer::Collect(Choice* choice) {
  if (!choice->is_started) {
    choice->is_started = true;
    choice->text = EchoText(choice->prompt);
    choice->tokens = EchoTokens(choice->prompt);
  }
  choice->text.append(choice->output.TakeText());
  std::ranges::move(choice->output.TakeTokens(), std::back_inserter(choice->tokens));
}

Usage Answer::TotalUsage() const {
  Usage usage;
  for (std::size_t i = 0; i < spec_.prompts.size(); ++i) {
    usage.prompt_tokens += static_cast<std::int64_t>(spec_.prompts[i].ids.size());
    usage.cached_tokens += cached_tokens_[i];
  }
  for (const Choice& choice : choices_) usage.completion_tokens += choice.output.num_tokens();
  return usage;
}

std::string Answer::StreamEnd() const {
  CHECK(is_done());
  std::string end;
  if (error_) {
    end = SseEvent(ErrorJson(*error_));
  } else if (spec_.include_usage) {
    end = SseEvent(json_.UsageChunk(TotalUsage()));
  }
  end.append(kSseDone);
  return end;
}

Reply Answer::Body() const {
  CHECK(is_done());
  if (error_) return ErrorReply(*error_);
  std::vector<ChoiceView> views;
  for (std::size_t prompt = 0; prompt < spec_.prompts.size(); ++prompt) {
    for (const Choice* choice : ReturnedChoices(static_cast<int>(prompt))) {
      views.push_back(ChoiceView{.index = static_cast<int>(views.size()),
                                 .text = choice->text,
                                 .tokens = choice->tokens,
                                 .finish_reason = choice->output.finish_reason(),
                                 .stop_reason = &choice->output.stop_reason(),
                                 .prompt_ids = spec_.prompts[prompt].ids,
                                 .prompt_logprobs = spec_.prompt_logprobs ? &prompt_logprobs_[prompt] : nullptr,
                                 .timings = spec_.return_timings ? &choice->timings : nullptr});
    }
  }
  return Reply{.body = json_.Body(views, TotalUsage())};
}

void Answer::ObserveTokens(Choice* choice, const EngineEvent& event, TimePoint now) {
  const TimePoint last_token = choice->timings.engine.last_token;
  choice->timings.engine = event.times;
  choice->timings.num_tokens = choice->output.num_tokens();
  if (event.tokens.empty()) return;
  // Gaps are the engine's; those between tokens that came in one event are known together only.
  auto num_gaps = std::ssize(event.tokens);
  Duration gaps = event.times.last_token - last_token;
  if (choice->timings.first_token == TimePoint{}) {
    choice->timings.first_token = now;
    metrics_->ObserveTimeToFirstToken(Seconds(now - origin_.arrival.at));
    --num_gaps;
    gaps = event.times.last_token - event.times.first_token;
  }
  if (num_gaps > 0) metrics_->ObserveInterTokenLatency(Seconds(gaps) / static_cast<double>(num_gaps), num_gaps);
}

void Answer::ObserveFinish(Choice* choice, TimePoint now) {
  ChoiceTimings& timings = choice->timings;
  timings.ended = now;
  const auto prompt = static_cast<std::size_t>(choice->prompt);
  metrics_->ObserveFinish(
      {.reason = choice->output.finish_reason(),
       .generation_tokens = timings.num_tokens,
       .computed_prompt_tokens = static_cast<int>(spec_.prompts[prompt].ids.size()) - cached_tokens_[prompt],
       .end_to_end_s = Seconds(now - origin_.arrival.at),
       .times = &timings.engine});
  if (!is_prompt_done(choice->prompt)) return;
  int most = 0;
  for (const Choice& other : choices_) {
    if (other.prompt == choice->prompt) most = std::max(most, other.timings.num_tokens);
  }
  metrics_->ObserveMostGenerated(most);
}

void Answer::ExportSpan() const {
  if (spans_ == nullptr || !IsSampled(origin_)) return;
  std::vector<ChoiceTimings> choices;
  choices.reserve(choices_.size());
  for (const Choice& choice : choices_) choices.push_back(choice.timings);
  spans_->Push(MakeRequestSpan(spec_, origin_, TotalUsage(), choices, error_ ? error_->message : ""));
}

}  // namespace quire::server
