// SPDX-License-Identifier: Apache-2.0
//
// The JSON of /v1/chat/completions: the whole answer, or the chunks of a stream. The fields are
// those of OpenAI's CreateChatCompletionResponse and CreateChatCompletionStreamResponse, and ours
// (answer_json.h).
//
// Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer_json.h"
#include "server/tool_calls.h"

namespace tessera {

inline constexpr std::string_view kChatObject = "chat.completion";
inline constexpr std::string_view kChatChunkObject = "chat.completion.chunk";

// A choice, or what a chunk adds to it.
struct ChatPart {
  uint32_t index = 0;
  std::string reasoning;  // comes before the content
  std::string content;
  std::vector<ToolCall> calls;
  uint32_t first_call = 0;  // of this choice, before `calls`
  std::optional<std::vector<PositionLogprobs>> logprobs;
  FinishReason finish = FinishReason::kNone;
  bool called = false;   // when done: the reason is tool_calls
  uint64_t receipt = 0;  // when done
  MatchReport match;     // when done
};

std::string ChatBody(const AnswerHead& head, std::span<const ChatPart> choices,
                     const Tokenizer& tokenizer, const RequestSeed& seed,
                     const AnswerTotals& totals);

struct ChatChunkOptions {
  bool first = false;          // the delta says the role
  bool usage_follows = false;  // "usage": null, as OpenAI does under include_usage
  const StreamEnding* ending = nullptr;
};
std::string ChatChunk(const AnswerHead& head, const ChatPart& part, const Tokenizer& tokenizer,
                      const ChatChunkOptions& options);

}  // namespace tessera
