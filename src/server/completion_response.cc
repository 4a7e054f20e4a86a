// SPDX-License-Identifier: Apache-2.0
#include "server/completion_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/utf8.h"

namespace tessera {
namespace {

template <typename T>
void AppendAll(std::vector<T>* to, std::vector<T>* from) {
  to->insert(to->end(), std::make_move_iterator(from->begin()),
             std::make_move_iterator(from->end()));
}

OrderedJson LogprobsJson(const std::optional<LogprobColumns>& columns) {
  if (!columns) return nullptr;
  OrderedJson json = {{"tokens", columns->tokens},
                      {"token_logprobs", OrderedJson::array()},
                      {"top_logprobs", OrderedJson::array()},
                      {"text_offset", columns->text_offset}};
  for (size_t i = 0; i < columns->tokens.size(); ++i) {
    const std::optional<float> logprob = columns->token_logprobs[i];
    if (!logprob) {
      json["token_logprobs"].push_back(nullptr);
      json["top_logprobs"].push_back(nullptr);
      continue;
    }
    json["token_logprobs"].push_back(LogprobNumber(*logprob));
    OrderedJson by_token = OrderedJson::object();
    for (const auto& [token, value] : columns->top_logprobs[i]) {
      by_token[token] = LogprobNumber(value);
    }
    json["top_logprobs"].push_back(std::move(by_token));
  }
  return json;
}

OrderedJson ChoiceJson(const ChoicePart& part) {
  OrderedJson json = {{"index", part.index},
                      {"text", part.text},
                      {"logprobs", LogprobsJson(part.logprobs)},
                      {"finish_reason", FinishJson(part.finish)}};
  if (part.finish != FinishReason::kNone) AddChoiceEnding(part.receipt, part.match, &json);
  return json;
}

uint64_t CountCharacters(std::string_view bytes) {
  // Every character has one byte that does not continue another.
  return static_cast<uint64_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

std::string TokenText(std::string_view bytes) {
  if (ValidUtf8Prefix(bytes) == bytes.size()) return std::string(bytes);
  std::string text = "bytes:";
  for (char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

void LogprobColumns::Append(LogprobColumns&& more) {
  AppendAll(&tokens, &more.tokens);
  AppendAll(&token_logprobs, &more.token_logprobs);
  AppendAll(&top_logprobs, &more.top_logprobs);
  AppendAll(&text_offset, &more.text_offset);
}

void LogprobWriter::WriteOne(TokenId id, const PositionLogprobs* position, bool special,
                             LogprobColumns* columns) {
  columns->tokens.push_back(TokenText(tokenizer_->TokenBytes(id, /*special=*/true)));
  columns->text_offset.push_back(offset_);
  offset_ += CountCharacters(tokenizer_->TokenBytes(id, special));
  auto& alternatives = columns->top_logprobs.emplace_back();
  if (position == nullptr) {
    columns->token_logprobs.push_back(std::nullopt);
    return;
  }
  columns->token_logprobs.push_back(position->chosen.logprob);
  bool has_chosen = false;
  for (const TokenLogprob& top : position->top) {
    has_chosen = has_chosen || top.id == id;
    alternatives.emplace_back(TokenText(tokenizer_->TokenBytes(top.id, /*special=*/true)),
                              top.logprob);
  }
  if (!has_chosen) alternatives.emplace_back(columns->tokens.back(), position->chosen.logprob);
}

LogprobColumns LogprobWriter::WritePrompt(const PromptTokens& prompt,
                                          std::span<const PositionLogprobs> positions) {
  LogprobColumns columns;
  const size_t own_end = prompt.ids.size() - prompt.added_after;
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    // The distribution after token i - 1 is that of token i.
    const PositionLogprobs* position = i == 0 ? nullptr : &positions[i - 1];
    WriteOne(prompt.ids[i], position, /*special=*/i >= prompt.added_before && i < own_end,
             &columns);
  }
  return columns;
}

LogprobColumns LogprobWriter::Write(std::span<const PositionLogprobs> positions) {
  LogprobColumns columns;
  for (const PositionLogprobs& position : positions) {
    WriteOne(position.chosen.id, &position, /*special=*/false, &columns);
  }
  return columns;
}

std::string CompletionBody(const AnswerHead& head, std::span<const ChoicePart> choices,
                           const RequestSeed& seed, const AnswerTotals& totals) {
  OrderedJson json = HeadJson(head, kCompletionObject);
  json["choices"] = OrderedJson::array();
  for (const ChoicePart& choice : choices) json["choices"].push_back(ChoiceJson(choice));
  json["usage"] = UsageJson(totals);
  AddAnswerEnding(seed, totals, &json);
  return DumpJson(json);
}

std::string CompletionChunk(const AnswerHead& head, const ChoicePart& part, bool usage_follows,
                            const StreamEnding* ending) {
  OrderedJson json = HeadJson(head, kCompletionObject);
  json["choices"] = OrderedJson::array({ChoiceJson(part)});
  if (usage_follows) json["usage"] = nullptr;
  if (ending != nullptr) AddAnswerEnding(ending->seed, ending->totals, &json);
  return DumpJson(json);
}

}  // namespace tessera
