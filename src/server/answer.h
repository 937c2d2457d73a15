// One generation request from its submission to its last byte: events in, stream text or a whole body out. It
// knows nothing of sockets, and one thread at a time uses it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/events.h"
#include "api/request.h"
#include "base/clock.h"
#include "server/answer_json.h"
#include "server/choice_output.h"
#include "server/metrics.h"
#include "server/prepare.h"
#include "server/reply.h"
#include "server/request_span.h"
#include "server/span_exporter.h"
#include "server/timings.h"

namespace quire::server {

class Answer {
 public:
  // What is told about the answer besides the answer; all outlive it.
  struct Observers {
    Metrics* metrics = nullptr;
    SpanExporter* spans = nullptr;  // or null
    const Clock* clock = nullptr;
  };
  // `origin` says when the request came, before it was tokenised, and whose span it belongs to. `tokenizer` outlives
  // the answer.
  Answer(GenerationSpec spec, const text::Tokenizer* tokenizer, const Observers& observers, RequestOrigin origin);

  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  const GenerationSpec& spec() const { return spec_; }

  // What the engine is asked for the prompt with this index.
  GenerateRequest MakeRequest(int prompt, RequestId id) const;
  // That prompt has been submitted.
  void NoteSubmission(int prompt, const Submission& submission);

  // Takes an event of that prompt which reached the front end at `now`. In streams, appends server-sent
  // events. True when a stop string has just ended its choice, which the engine does not know.
  bool OnEvent(int prompt, const EngineEvent& event, TimePoint now, std::string* out);
  // For requests that need no engine: the echo is the whole answer.
  void FinishWithoutEngine(std::string* out);
  // The engine or the server ended the request; what follows is ignored.
  void Fail(ApiError error);

  // Every choice has ended, or the request has failed.
  bool is_done() const { return error_.has_value() || num_unfinished_ == 0; }
  bool has_failed() const { return error_.has_value(); }
  // The choices of this prompt have all ended, some by a stop string that the engine does not know of.
  bool is_prompt_done(int prompt) const;

  // When it is done: the end of a stream (usage, [DONE], or the error), or the whole reply.
  std::string StreamEnd() const;
  Reply Body() const;

 private:
  struct Choice {
    ChoiceOutput output;
    int index = 0;
    int prompt = 0;
    bool is_started = false;  // its first chunk was written
    std::string text;         // not streamed: all of it
    std::vector<OutputToken> tokens;
    ChoiceTimings timings;
  };

  Choice& ChoiceOf(int prompt, int choice);
  // What is returned for a prompt: all of its choices, or with best_of the best of them, best first.
  std::vector<const Choice*> ReturnedChoices(int prompt) const;
  void StreamChoice(Choice* choice, std::string* out);
  void Collect(Choice* choice);
  void ObserveTokens(Choice* choice, const EngineEvent& event, TimePoint now);
  void ObserveFinish(Choice* choice, TimePoint now);
  // Everything has ended.
  void ExportSpan() const;
  void KeepPromptLogprobs(int prompt, const EngineEvent& event);
  std::string EchoText(int prompt) const;
  std::vector<OutputToken> EchoTokens(int prompt) const;
  Usage TotalUsage() const;
  std::optional<Usage> ChunkUsage(const Choice& choice, int completion_tokens) const;

  GenerationSpec spec_;
  const text::Tokenizer* tokenizer_;
  Metrics* metrics_;
  SpanExporter* spans_;
  const Clock* clock_;
  const RequestOrigin origin_;
  AnswerJson json_;
  std::vector<Choice> choices_;                  // index = choice + prompt · n
  std::vector<PromptLogprobs> prompt_logprobs_;  // one for each prompt
  std::vector<int> cached_tokens_;               // one for each prompt
  int num_unfinished_ = 0;
  std::optional<ApiError> error_;
};

// Server-sent events.
std::string SseEvent(std::string_view data);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";

}  // namespace quire::server
