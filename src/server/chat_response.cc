// SPDX-License-Identifier: Apache-2.0
#include "server/chat_response.h"

#include <fmt/format.h>

#include <utility>

#include "server/completion_response.h"

namespace tessera {
namespace {

OrderedJson TokenJson(const TokenLogprob& token, const Tokenizer& tokenizer) {
  const std::string bytes = tokenizer.TokenBytes(token.id, /*special=*/true);
  OrderedJson numbers = OrderedJson::array();
  for (char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  return {{"token", TokenText(bytes)},
          {"logprob", LogprobNumber(token.logprob)},
          {"bytes", std::move(numbers)}};
}

OrderedJson LogprobsJson(const ChatPart& part, const Tokenizer& tokenizer) {
  if (!part.logprobs) return nullptr;
  OrderedJson content = OrderedJson::array();
  for (const PositionLogprobs& position : *part.logprobs) {
    OrderedJson token = TokenJson(position.chosen, tokenizer);
    token["top_logprobs"] = OrderedJson::array();
    for (const TokenLogprob& top : position.top) {
      token["top_logprobs"].push_back(TokenJson(top, tokenizer));
    }
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// `chunk`: a call of a stream says which it is.
OrderedJson CallsJson(const AnswerHead& head, const ChatPart& part, bool chunk) {
  OrderedJson calls = OrderedJson::array();
  for (uint32_t i = 0; i < part.calls.size(); ++i) {
    const uint32_t number = part.first_call + i;
    OrderedJson call = OrderedJson::object();
    if (chunk) call["index"] = number;
    call["id"] = fmt::format("call_{}_{}_{}", head.id, part.index, number);
    call["type"] = "function";
    call["function"] = {{"name", part.calls[i].name}, {"arguments", part.calls[i].arguments}};
    calls.push_back(std::move(call));
  }
  return calls;
}

OrderedJson ReasonJson(const ChatPart& part) {
  return part.called && part.finish == FinishReason::kStop ? OrderedJson("tool_calls")
                                                           : FinishJson(part.finish);
}

OrderedJson MessageJson(const AnswerHead& head, const ChatPart& part) {
  OrderedJson message = {{"role", "assistant"}, {"content", part.content}, {"refusal", nullptr}};
  if (!part.reasoning.empty()) message["reasoning_content"] = part.reasoning;
  if (part.calls.empty()) return message;
  if (part.content.empty()) message["content"] = nullptr;
  message["tool_calls"] = CallsJson(head, part, /*chunk=*/false);
  return message;
}

OrderedJson DeltaJson(const AnswerHead& head, const ChatPart& part, bool first) {
  OrderedJson delta = OrderedJson::object();
  if (first) delta["role"] = "assistant";
  if (!part.reasoning.empty()) delta["reasoning_content"] = part.reasoning;
  if (first || !part.content.empty()) delta["content"] = part.content;
  if (first) delta["refusal"] = nullptr;
  if (!part.calls.empty()) delta["tool_calls"] = CallsJson(head, part, /*chunk=*/true);
  return delta;
}

}  // namespace

std::string ChatBody(const AnswerHead& head, std::span<const ChatPart> choices,
                     const Tokenizer& tokenizer, const RequestSeed& seed,
                     const AnswerTotals& totals) {
  OrderedJson json = HeadJson(head, kChatObject);
  json["choices"] = OrderedJson::array();
  for (const ChatPart& part : choices) {
    OrderedJson choice = {{"index", part.index},
                          {"message", MessageJson(head, part)},
                          {"logprobs", LogprobsJson(part, tokenizer)},
                          {"finish_reason", ReasonJson(part)}};
    AddChoiceEnding(part.receipt, part.match, &choice);
    json["choices"].push_back(std::move(choice));
  }
  json["usage"] = UsageJson(totals);
  AddAnswerEnding(seed, totals, &json);
  return DumpJson(json);
}

std::string ChatChunk(const AnswerHead& head, const ChatPart& part, const Tokenizer& tokenizer,
                      const ChatChunkOptions& options) {
  OrderedJson choice = {{"index", part.index},
                        {"delta", DeltaJson(head, part, options.first)},
                        {"logprobs", LogprobsJson(part, tokenizer)},
                        {"finish_reason", ReasonJson(part)}};
  if (part.finish != FinishReason::kNone) AddChoiceEnding(part.receipt, part.match, &choice);
  OrderedJson json = HeadJson(head, kChatChunkObject);
  json["choices"] = OrderedJson::array({std::move(choice)});
  if (options.usage_follows) json["usage"] = nullptr;
  if (options.ending != nullptr) {
    AddAnswerEnding(options.ending->seed, options.ending->totals, &json);
  }
  return DumpJson(json);
}

}  // namespace tessera
