// SPDX-License-Identifier: Apache-2.0
//
// CompletionFormat writes the answer of /v1/completions: what the engine says of each choice, and
// before it, when asked for, the prompt.
//
// Threads: one answer, one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/completion_request.h"
#include "server/completion_response.h"

namespace tessera {

class CompletionFormat final : public AnswerFormat {
 public:
  // One prompt for every request.choices choices.
  CompletionFormat(AnswerHead head, const CompletionRequest& request,
                   std::vector<PromptTokens> prompts, const Tokenizer* tokenizer);

  std::string Body(std::vector<ChoiceEvent> choices, const RequestSeed& seed,
                   const AnswerTotals& totals) override;
  std::vector<std::string> Chunks(ChoiceEvent event, const StreamEnding* ending) override;
  std::string Usage(const AnswerTotals& totals) override;

 private:
  struct Choice {
    LogprobWriter logprobs;
    bool echo_due = false;
  };
  ChoicePart Part(ChoiceEvent&& event);
  // Puts the prompt before what the part says.
  void Echo(const ChoiceEvent& event, Choice* choice, ChoicePart* part);

  const AnswerHead head_;
  const bool usage_follows_;
  const bool with_logprobs_;
  const uint32_t choices_per_prompt_;
  const Tokenizer* const tokenizer_;
  const std::vector<PromptTokens> prompts_;
  std::vector<Choice> choices_;
};

}  // namespace tessera
