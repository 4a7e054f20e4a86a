// SPDX-License-Identifier: Apache-2.0
#include "server/completion_format.h"

#include <utility>

namespace tessera {
namespace {

// What the client wrote, as far as tokens tell: ids may spell something that is not UTF-8.
std::string TextOf(std::span<const TokenId> tokens, const Tokenizer* tokenizer) {
  StreamingDetokenizer detokenizer(tokenizer, /*special=*/true);
  std::string text;
  for (TokenId token : tokens) text += detokenizer.Append(token);
  return text + detokenizer.Finish();
}

}  // namespace

CompletionFormat::CompletionFormat(AnswerHead head, const CompletionRequest& request,
                                   std::vector<PromptTokens> prompts, const Tokenizer* tokenizer)
    : head_(std::move(head)),
      usage_follows_(request.include_usage),
      with_logprobs_(request.logprobs >= 0),
      choices_per_prompt_(request.choices),
      tokenizer_(tokenizer),
      prompts_(std::move(prompts)),
      choices_(prompts_.size() * request.choices, {LogprobWriter(tokenizer), request.echo}) {}

void CompletionFormat::Echo(const ChoiceEvent& event, Choice* choice, ChoicePart* part) {
  const PromptTokens& prompt = prompts_[event.choice / choices_per_prompt_];
  part->text = TextOf(prompt.own(), tokenizer_);
  if (with_logprobs_) part->logprobs = choice->logprobs.WritePrompt(prompt, event.prompt_logprobs);
  choice->echo_due = false;
}

ChoicePart CompletionFormat::Part(ChoiceEvent&& event) {
  ChoicePart part;
  Choice& choice = choices_[event.choice];
  part.index = event.choice;
  if (with_logprobs_) part.logprobs.emplace();
  if (choice.echo_due) Echo(event, &choice, &part);
  part.text += event.text;
  if (with_logprobs_) part.logprobs->Append(choice.logprobs.Write(event.logprobs));
  part.finish = event.finish;
  part.receipt = event.receipt;
  part.match = event.match;
  return part;
}

std::string CompletionFormat::Body(std::vector<ChoiceEvent> choices, const RequestSeed& seed,
                                   const AnswerTotals& totals) {
  std::vector<ChoicePart> parts;
  for (ChoiceEvent& choice : choices) parts.push_back(Part(std::move(choice)));
  return CompletionBody(head_, parts, seed, totals);
}

std::vector<std::string> CompletionFormat::Chunks(ChoiceEvent event, const StreamEnding* ending) {
  std::vector<std::string> chunks;
  if (event.progress) {
    chunks.push_back(ProgressChunk(head_, kCompletionObject, event.choice, *event.progress));
    // Nothing but progress: the prompt, echoed, comes with its log-probabilities.
    if (event.text.empty() && event.logprobs.empty() && event.prompt_logprobs.empty() &&
        event.finish == FinishReason::kNone) {
      return chunks;
    }
  }
  const ChoicePart part = Part(std::move(event));
  chunks.push_back(CompletionChunk(head_, part, usage_follows_, ending));
  return chunks;
}

std::string CompletionFormat::Usage(const AnswerTotals& totals) {
  return UsageChunk(head_, kCompletionObject, totals);
}

}  // namespace tessera
