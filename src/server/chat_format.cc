// SPDX-License-Identifier: Apache-2.0
#include "server/chat_format.h"

#include <iterator>
#include <utility>

namespace tessera {

namespace {

// At the end of the list of calls.
void Add(ToolText&& text, ChatPart* part) {
  part->content += text.content;
  part->calls.insert(part->calls.end(), std::make_move_iterator(text.calls.begin()),
                     std::make_move_iterator(text.calls.end()));
}

}  // namespace

ChatFormat::ChatFormat(AnswerHead head, const ChatRequest& request, const AnswerReading& reading,
                       const Tokenizer* tokenizer)
    : head_(std::move(head)),
      usage_follows_(request.include_usage),
      with_logprobs_(request.logprobs),
      tokenizer_(tokenizer) {
  Choice choice{ReasoningReader(reading.reasoning, reading.begins_in_reasoning), std::nullopt};
  if (reading.calls != nullptr) choice.calls.emplace(*reading.calls);
  choices_ = std::vector<Choice>(request.choices, choice);
}

void ChatFormat::Read(std::string_view text, bool last, Choice* choice, ChatPart* part) {
  ReasonedText reasoned = choice->reasoning.Append(text);
  if (last) {
    ReasonedText rest = choice->reasoning.Finish();
    reasoned.reasoning += rest.reasoning;
    reasoned.content += rest.content;
  }
  part->reasoning = std::move(reasoned.reasoning);
  if (!choice->calls) {
    part->content = std::move(reasoned.content);
    return;
  }
  Add(choice->calls->Append(reasoned.content), part);
  if (last) Add(choice->calls->Finish(), part);
  part->called = last && choice->calls->has_calls();
}

ChatPart ChatFormat::Part(ChoiceEvent&& event) {
  Choice& choice = choices_[event.choice];
  ChatPart part;
  part.index = event.choice;
  part.first_call = choice.call_count;
  part.finish = event.finish;
  part.receipt = event.receipt;
  part.match = event.match;
  if (with_logprobs_) part.logprobs = std::move(event.logprobs);
  Read(event.text, event.finish != FinishReason::kNone, &choice, &part);
  choice.call_count += static_cast<uint32_t>(part.calls.size());
  return part;
}

std::string ChatFormat::Body(std::vector<ChoiceEvent> choices, const RequestSeed& seed,
                             const AnswerTotals& totals) {
  std::vector<ChatPart> parts;
  for (ChoiceEvent& choice : choices) parts.push_back(Part(std::move(choice)));
  return ChatBody(head_, parts, *tokenizer_, seed, totals);
}

std::vector<std::string> ChatFormat::Chunks(ChoiceEvent event, const StreamEnding* ending) {
  std::vector<std::string> chunks;
  if (event.progress) {
    chunks.push_back(ProgressChunk(head_, kChatChunkObject, event.choice, *event.progress));
  }
  const ChatPart part = Part(std::move(event));
  const bool says_something = !part.reasoning.empty() || !part.content.empty() ||
                              !part.calls.empty() || (part.logprobs && !part.logprobs->empty()) ||
                              part.finish != FinishReason::kNone;
  if (!says_something) return chunks;
  Choice& choice = choices_[part.index];
  ChatChunkOptions options;
  options.usage_follows = usage_follows_;
  if (!choice.begun) {
    ChatPart role;
    role.index = part.index;
    options.first = true;
    chunks.push_back(ChatChunk(head_, role, *tokenizer_, options));
    options.first = false;
    choice.begun = true;
  }
  options.ending = ending;
  chunks.push_back(ChatChunk(head_, part, *tokenizer_, options));
  return chunks;
}

std::string ChatFormat::Usage(const AnswerTotals& totals) {
  return UsageChunk(head_, kChatChunkObject, totals);
}

}  // namespace tessera
