// What the front end is told at start: where to listen, whom to let in, its limits, and the model that it
// serves.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "wire/engine_client.h"

namespace quire::server {

struct ServerConfig {
  std::string host = "127.0.0.1";  // an IPv4 or IPv6 address, or "localhost"
  int port = 8000;                 // 0: any free one, see Server::port

  // Any one of them (as a bearer token) opens the routes that compute or change something, and the list of models; with
  // none they are open to everybody. Health, metrics and version never need one.
  std::vector<std::string> api_keys;
  // While the server listens on a loopback address only, requests must name a loopback host in Host and
  // Origin (a web page that has rebound its own name to 127.0.0.1 does not). These host names are let in as
  // well.
  std::vector<std::string> allowed_hosts;
  // Web pages of these origins ("https://example.org", or "*") may call the server: CORS. None: no page may.
  std::vector<std::string> allowed_origins;

  std::size_t body_bytes_max = std::size_t{16} << 20;
  std::size_t all_bodies_bytes_max = std::size_t{256} << 20;  // of all requests that are being read or prepared
  std::size_t header_bytes_max = 16 << 10;                    // request line and all header fields
  int header_fields_max = 100;
  int connections_max = 1024;
  // Generation requests in the house, tokenised or not; further ones get 503 with Retry-After before any
  // work.
  int requests_max = 512;
  // Prompt tokens of requests that wait for their first token; while there are more, generation requests get 503
  // before their bodies are read.
  int waiting_tokens_max = 1 << 22;
  int logprobs_max = 20;  // the most alternatives that a request may ask for
  // Output that a client does not read is held up to this size; then the request is aborted and the
  // connection closed.
  std::size_t unread_output_bytes_max = std::size_t{4} << 20;
  int worker_threads = 2;  // parse, render and tokenise

  // A trace of everything from the start on: the file, in Chrome's format; "": none.
  std::string trace;
  // Where POST /start_profile writes its trace.
  std::string profile_dir = "/tmp";
  std::size_t trace_bytes_max = std::size_t{1} << 30;  // of a trace; then it ends
  // Where spans of requests go, by OTLP over HTTP: "http://127.0.0.1:4318/v1/traces"; "": nowhere.
  std::string otlp_traces_endpoint;

  std::chrono::milliseconds idle_timeout{75'000};         // between the requests of a connection
  std::chrono::milliseconds header_timeout{15'000};       // from the first byte of a request to the end of its headers
  std::chrono::milliseconds body_timeout{60'000};         // from the headers to the end of the body
  std::chrono::milliseconds write_timeout{30'000};        // without any progress, for a client that does not read
  std::chrono::milliseconds keep_alive_interval{15'000};  // SSE comment lines in silent streams; 0: none
  std::chrono::milliseconds drain_timeout{30'000};        // after SIGTERM, until running requests are aborted

  // Says which field is wrong, and its range.
  Result<> Validate() const;
};

// What the model's authors recommend (generation_config.json). A request's own values win.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
};

struct ServedModel {
  std::vector<std::string> names;  // what clients may call it; the first is what responses say
  EngineClient* engine = nullptr;  // outlives the server, or is own_engine
  std::unique_ptr<EngineClient> own_engine;
  // Both are immutable and shared with whoever loaded them; the template may be null: then chat gets 400.
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;
  GenerationDefaults defaults;
  // In tokens, prompt and output together. 0: as the engine says when it is ready; until then requests get
  // 503.
  int max_model_len = 0;
};

}  // namespace quire::server
