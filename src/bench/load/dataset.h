// Where requests come from: made-up prompts, files of prompts and chats, traces of real services.
#pragma once

#include <string_view>

#include "base/result.h"
#include "bench/load/config.h"
#include "bench/load/request.h"

namespace quire::bench::load {

// A function of the configuration and the file. Errors name the file and the line.
Result<Dataset> MakeDataset(const DatasetConfig& config);

// Made-up prompts of so many tokens; `first` sets those of one call apart from those of others.
Dataset MakeUpPrompts(const DatasetConfig& config, std::uint64_t first);

// The text of a file of prompts (a JSON array, or an object a line):
//   {"prompt": "…", "output_tokens": 20}     also "question" or "turns" (of which the first), and "answer" or "completion"
//   {"messages": [{"role": "user", …}, …]}   a last message of the assistant is the answer
//   {"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}   ShareGPT: the first two
// The recorded answer says how much to generate, unless output_len or output_tokens do.
Result<Dataset> ParsePrompts(std::string_view text, const DatasetConfig& config);
// Chats of several turns ({"messages": […]}): a request for each answer, sent when the one before has ended.
Result<Dataset> ParseChats(std::string_view text, const DatasetConfig& config);
// The two public kinds of trace: Azure's CSV (TIMESTAMP,ContextTokens,GeneratedTokens) and Mooncake's JSON lines, whose
// hash_ids name blocks of 512 tokens: prompts with the same first ids begin with the same tokens.
Result<Dataset> ParseTrace(std::string_view text, const DatasetConfig& config);

// Tokens of a text that nobody has counted: one for four bytes.
int EstimateTokens(std::string_view text);

}  // namespace quire::bench::load
