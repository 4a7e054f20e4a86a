// SPDX-License-Identifier: Apache-2.0
//
// The JSON of /v1/completions: the whole answer, or the chunks of a stream. The fields are those of
// OpenAI's CreateCompletionResponse, and
//
//   choices[i].receipt   16 hex digits; equal receipts mean the same bits were computed
//   choices[i].reuse     how much of the prompt was reused, and why each other token was not
//   seed                 the one used: sending it again repeats the answer
//   timings              llama-server's names
//
// In a stream these come with the chunks that carry finish_reason: receipt and reuse with their
// choice, seed and timings with the last of them.
//
// Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "server/completion_request.h"

namespace tessera {

// The same for every chunk of an answer.
struct CompletionHead {
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

// OpenAI's logprobs object, a column each; one entry per token.
struct LogprobColumns {
  std::vector<std::string> tokens;
  std::vector<float> token_logprobs;
  // The most probable tokens and the chosen one, which may make it one longer than asked for.
  std::vector<std::vector<std::pair<std::string, float>>> top_logprobs;
  // Characters (code points) of the generated text before the token.
  std::vector<uint64_t> text_offset;

  void Append(LogprobColumns&& more);
};

// Makes columns from what the engine says of tokens, in order; it counts the characters.
// A token that is not UTF-8 by itself is written as OpenAI does, "bytes:\xe6\x97".
class LogprobWriter {
 public:
  explicit LogprobWriter(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}
  LogprobColumns Write(std::span<const PositionLogprobs> positions);

 private:
  const Tokenizer* tokenizer_;
  uint64_t offset_ = 0;
};

// "bytes:\xe6\x97" unless `bytes` is valid UTF-8.
std::string TokenText(std::string_view bytes);

// A choice, or what a chunk adds to it.
struct ChoicePart {
  uint32_t index = 0;
  std::string text;
  std::optional<LogprobColumns> logprobs;
  FinishReason finish = FinishReason::kNone;  // kStop or kLength when done
  uint64_t receipt = 0;                       // when done
  MatchReport match;                          // when done
};

// Sums over the choices of an answer, but times are the longest of any: choices run together.
struct CompletionTotals {
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t completion_tokens = 0;
  // predicted_ms runs from the first token of a choice to its last: one interval less than tokens.
  uint64_t predicted_intervals = 0;
  double prompt_ms = 0;
  double predicted_ms = 0;
};

std::string FormatReceipt(uint64_t receipt);

std::string CompletionBody(const CompletionHead& head, std::span<const ChoicePart> choices,
                           const RequestSeed& seed, const CompletionTotals& totals);

// What the last chunk with a finish_reason carries besides.
struct StreamEnding {
  RequestSeed seed;
  CompletionTotals totals;
};
// `usage_follows` puts "usage": null into the chunk, as OpenAI does under include_usage.
std::string CompletionChunk(const CompletionHead& head, const ChoicePart& part, bool usage_follows,
                            const StreamEnding* ending);
// The chunk with empty choices that include_usage asks for.
std::string UsageChunk(const CompletionHead& head, const CompletionTotals& totals);

}  // namespace tessera
