// What a load generator sends: requests with the time when each of them is due. Plain data.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace quire::bench::load {

// Tokens [0, num_tokens) of an endless stream of random tokens: two parts of the same stream begin alike.
struct PromptPart {
  std::uint64_t stream = 0;
  int num_tokens = 0;
};

struct Request {
  double arrival_seconds = 0;     // after the start of the run
  std::vector<PromptPart> parts;  // a made-up prompt: its parts in order. Or else
  std::string prompt_json;        // JSON: a text, or the messages of a chat
  bool is_chat = false;           // prompt_json holds messages
  int max_tokens = 1;
  int after = -1;  // the request whose answer must have ended before this one is sent; it stands before it. -1: none

  // As planned; 0 where only the server can count.
  int num_prompt_tokens() const {
    return std::transform_reduce(parts.begin(), parts.end(), 0, std::plus<>(),
                                 [](const PromptPart& part) { return part.num_tokens; });
  }
};

struct Dataset {
  std::vector<Request> requests;
  bool has_arrivals = false;  // the source says when they came
  int num_left_out = 0;       // longer than allowed
};

}  // namespace quire::bench::load
