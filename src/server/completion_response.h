// SPDX-License-Identifier: Apache-2.0
//
// The JSON of /v1/completions: the whole answer, or the chunks of a stream. The fields are those of
// OpenAI's CreateCompletionResponse and ours (answer_json.h).
//
// With `echo` the prompt's tokens come first. Nothing predicts the first token of a prompt: its
// log-probability and alternatives are null, as in OpenAI's own answers.
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
#include "server/answer_json.h"
#include "server/prompt_input.h"

namespace tessera {

inline constexpr std::string_view kCompletionObject = "text_completion";

// OpenAI's logprobs object, a column each; one entry per token.
struct LogprobColumns {
  std::vector<std::string> tokens;
  std::vector<std::optional<float>> token_logprobs;
  // The most probable tokens and the chosen one, which may make it one longer than asked for. Empty
  // where there is no log-probability.
  std::vector<std::vector<std::pair<std::string, float>>> top_logprobs;
  // Characters (code points) of the choice's text before the token.
  std::vector<uint64_t> text_offset;

  void Append(LogprobColumns&& more);
};

// Makes columns from what the engine says of tokens, in order; it counts the characters.
// A token that is not UTF-8 by itself is written as OpenAI does, "bytes:\xe6\x97".
class LogprobWriter {
 public:
  explicit LogprobWriter(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}
  // Of an echoed prompt: `positions` are the engine's prompt_logprobs. What the tokenizer put around
  // the text is listed, and not in it.
  LogprobColumns WritePrompt(const PromptTokens& prompt,
                             std::span<const PositionLogprobs> positions);
  LogprobColumns Write(std::span<const PositionLogprobs> positions);

 private:
  // `special`: control tokens are in the text.
  void WriteOne(TokenId id, const PositionLogprobs* position, bool special,
                LogprobColumns* columns);

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

std::string CompletionBody(const AnswerHead& head, std::span<const ChoicePart> choices,
                           const RequestSeed& seed, const AnswerTotals& totals);

// `usage_follows` puts "usage": null into the chunk, as OpenAI does under include_usage.
std::string CompletionChunk(const AnswerHead& head, const ChoicePart& part, bool usage_follows,
                            const StreamEnding* ending);

}  // namespace tessera
