// One streamed answer as its client sees it: what came when.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace quire::bench::load {

// What became of a request. Times in seconds; those of an answer count from the moment when the request was sent.
struct Outcome {
  double start_seconds = 0;  // after the start of the run
  double late_seconds = 0;   // sent so much after it was due, when nothing but the generator held it back
  double ttft_seconds = 0;
  double latency_seconds = 0;       // to the last chunk with a choice
  std::vector<double> itl_seconds;  // between such chunks
  int num_prompt_tokens = 0, num_cached_tokens = 0, num_output_tokens = 0;
  bool has_usage = false;  // the server counted; else output tokens are chunks with text
  std::string error;       // why it failed; empty: it did not

  bool is_ok() const { return error.empty(); }
  double tpot_seconds() const {
    return num_output_tokens > 1 ? (latency_seconds - ttft_seconds) / (num_output_tokens - 1) : 0;
  }
};

// Takes the events of a stream. A chunk counts as a token when it holds a choice, with or without text: an opening
// chunk that names the role of a chat and nothing else does not.
class AnswerMeter {
 public:
  AnswerMeter(bool is_chat, Outcome* outcome) : is_chat_(is_chat), outcome_(outcome) {}

  // The data of one event that came at `now`. An error means that the request has failed.
  Result<> Take(std::string_view data, double now_seconds);
  // The body is complete. An error when the answer is not.
  Result<> Finish();

 private:
  void TakeChoice(const json::object& choice, double now_seconds);
  void TakeUsage(const json::object& usage);

  bool is_chat_;
  Outcome* outcome_;
  int num_chunks_ = 0, num_texts_ = 0;
  bool is_done_ = false, is_finished_ = false;
};

}  // namespace quire::bench::load
