// The JSON that a request becomes on its way to an OpenAI-compatible server.
#pragma once

#include <string>

#include "base/json.h"
#include "bench/load/config.h"
#include "bench/load/request.h"

namespace quire::bench::load {

// What is known of the server, and how it is spoken to. Immutable during a run.
struct BodyStyle {
  std::string model;
  bool is_chat = false;        // the chat route: a prompt is the only message of a user
  int vocab_size = 0;          // made-up prompts are arrays of ids below it; 0: words
  double words_per_token = 1;  // of made-up prompts in words, as the server counted
  double temperature = 0;
  bool ignore_eos = true;
  int seed = 1;        // of the ids and words, and of sampling
  json::object extra;  // members that every body has; they win over those above
};

const char* RouteOf(const BodyStyle& style);

// `index` of the request: its seed when tokens are sampled.
std::string MakeBody(const Request& request, int index, const BodyStyle& style);

// The words of a made-up prompt.
std::string MakeWords(const Request& request, const BodyStyle& style);

}  // namespace quire::bench::load
