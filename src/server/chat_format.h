// SPDX-License-Identifier: Apache-2.0
//
// ChatFormat writes the answer of /v1/chat/completions: what the engine says of each choice as a
// message, with what was thought and calls of tools taken out of its text.
//
// In a stream the first chunk of a choice, with the role, comes before its first text.
//
// Threads: one answer, one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer.h"
#include "server/chat_prompt.h"
#include "server/chat_request.h"
#include "server/chat_response.h"

namespace tessera {

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(AnswerHead head, const ChatRequest& request, const AnswerReading& reading,
             const Tokenizer* tokenizer);

  std::string Body(std::vector<ChoiceEvent> choices, const RequestSeed& seed,
                   const AnswerTotals& totals) override;
  std::vector<std::string> Chunks(ChoiceEvent event, const StreamEnding* ending) override;
  std::string Usage(const AnswerTotals& totals) override;

 private:
  struct Choice {
    ReasoningReader reasoning;
    std::optional<ToolCallReader> calls;  // when the request has tools
    uint32_t call_count = 0;
    bool begun = false;  // its first chunk is out
  };
  ChatPart Part(ChoiceEvent&& event);
  // Adds what the text says to the part; `last`: and what was held back.
  static void Read(std::string_view text, bool last, Choice* choice, ChatPart* part);

  const AnswerHead head_;
  const bool usage_follows_;
  const bool with_logprobs_;
  const Tokenizer* const tokenizer_;
  std::vector<Choice> choices_;
};

}  // namespace tessera
