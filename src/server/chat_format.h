// SPDX-License-Identifier: Apache-2.0
//
// ChatFormat writes the answer of /v1/chat/completions: what the engine says of each choice as a
// message, and calls of tools taken out of its text when the request has tools.
//
// In a stream the first chunk of a choice, with the role, comes before its first text.
//
// Threads: one answer, one thread.
#pragma once

#include <string>
#include <vector>

#include "server/answer.h"
#include "server/chat_request.h"
#include "server/chat_response.h"

namespace tessera {

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(AnswerHead head, const ChatRequest& request, const Tokenizer* tokenizer);

  std::string Body(std::vector<ChoiceEvent> choices, const RequestSeed& seed,
                   const AnswerTotals& totals) override;
  std::vector<std::string> Chunks(ChoiceEvent event, const StreamEnding* ending) override;
  std::string Usage(const AnswerTotals& totals) override;

 private:
  struct Choice {
    ToolCallReader calls;
    uint32_t call_count = 0;
    bool begun = false;  // its first chunk is out
  };
  ChatPart Part(ChoiceEvent&& event);

  const AnswerHead head_;
  const bool usage_follows_;
  const bool with_logprobs_;
  const bool with_tools_;
  const Tokenizer* const tokenizer_;
  std::vector<Choice> choices_;
};

}  // namespace tessera
