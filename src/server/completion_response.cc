// SPDX-License-Identifier: Apache-2.0
#include "server/completion_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "compute/tokenizer/utf8.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename T>
void AppendAll(std::vector<T>* to, std::vector<T>* from) {
  to->insert(to->end(), std::make_move_iterator(from->begin()),
             std::make_move_iterator(from->end()));
}

// JSON has no -inf; OpenAI writes -9999 for a token that could not have come.
double JsonLogprob(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

Json LogprobsJson(const std::optional<LogprobColumns>& columns) {
  if (!columns) return nullptr;
  Json json = {{"tokens", columns->tokens},
               {"token_logprobs", Json::array()},
               {"top_logprobs", Json::array()},
               {"text_offset", columns->text_offset}};
  for (float logprob : columns->token_logprobs) {
    json["token_logprobs"].push_back(JsonLogprob(logprob));
  }
  for (const auto& alternatives : columns->top_logprobs) {
    Json by_token = Json::object();
    for (const auto& [token, logprob] : alternatives) by_token[token] = JsonLogprob(logprob);
    json["top_logprobs"].push_back(std::move(by_token));
  }
  return json;
}

Json FinishJson(FinishReason finish) {
  switch (finish) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    default:
      return nullptr;
  }
}

Json ReuseJson(const MatchReport& match) {
  Json ranges = Json::array();
  for (uint32_t i = 0; i < match.computed_count; ++i) {
    const ComputedRange& range = match.computed[i];
    ranges.push_back(
        {{"from", range.begin}, {"to", range.end}, {"reason", ComputeReasonName(range.reason)}});
  }
  return {{"reused", match.reused},       {"attention", match.attention},
          {"recurrent", match.recurrent}, {"diverged_at", match.diverged_at},
          {"from_row", match.from_row},   {"computed", std::move(ranges)}};
}

Json ChoiceJson(const ChoicePart& part) {
  Json json = {{"index", part.index},
               {"text", part.text},
               {"logprobs", LogprobsJson(part.logprobs)},
               {"finish_reason", FinishJson(part.finish)}};
  if (part.finish != FinishReason::kNone) {
    json["receipt"] = FormatReceipt(part.receipt);
    json["reuse"] = ReuseJson(part.match);
  }
  return json;
}

Json HeadJson(const CompletionHead& head) {
  return {{"id", head.id},
          {"object", "text_completion"},
          {"created", head.created},
          {"model", head.model}};
}

Json UsageJson(const CompletionTotals& totals) {
  return {{"prompt_tokens", totals.prompt_tokens},
          {"completion_tokens", totals.completion_tokens},
          {"total_tokens", totals.prompt_tokens + totals.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", totals.cached_tokens}}}};
}

Json SeedJson(const RequestSeed& seed) {
  return seed.negative ? Json(static_cast<int64_t>(seed.bits)) : Json(seed.bits);
}

// To the microsecond: what a clock is good for.
double Milliseconds(double ms) { return std::round(ms * 1000) / 1000; }

double Ratio(double numerator, double denominator) {
  return denominator > 0 ? numerator / denominator : 0;
}

Json TimingsJson(const CompletionTotals& totals) {
  const uint64_t prompt_n = totals.prompt_tokens - totals.cached_tokens;
  const auto prompt = static_cast<double>(prompt_n);
  const auto predicted = static_cast<double>(totals.predicted_intervals);
  return {{"cache_n", totals.cached_tokens},
          {"prompt_n", prompt_n},
          {"prompt_ms", Milliseconds(totals.prompt_ms)},
          {"prompt_per_token_ms", Ratio(totals.prompt_ms, prompt)},
          {"prompt_per_second", Ratio(1000 * prompt, totals.prompt_ms)},
          {"predicted_n", totals.completion_tokens},
          {"predicted_ms", Milliseconds(totals.predicted_ms)},
          {"predicted_per_token_ms", Ratio(totals.predicted_ms, predicted)},
          {"predicted_per_second", Ratio(1000 * predicted, totals.predicted_ms)}};
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

LogprobColumns LogprobWriter::Write(std::span<const PositionLogprobs> positions) {
  LogprobColumns columns;
  for (const PositionLogprobs& position : positions) {
    const std::string bytes = tokenizer_->TokenBytes(position.chosen.id, /*special=*/true);
    columns.tokens.push_back(TokenText(bytes));
    columns.token_logprobs.push_back(position.chosen.logprob);
    columns.text_offset.push_back(offset_);
    // Control tokens are not in the text.
    offset_ += CountCharacters(tokenizer_->TokenBytes(position.chosen.id));
    auto& alternatives = columns.top_logprobs.emplace_back();
    bool has_chosen = false;
    for (const TokenLogprob& top : position.top) {
      has_chosen = has_chosen || top.id == position.chosen.id;
      alternatives.emplace_back(TokenText(tokenizer_->TokenBytes(top.id, /*special=*/true)),
                                top.logprob);
    }
    if (!has_chosen) {
      alternatives.emplace_back(columns.tokens.back(), position.chosen.logprob);
    }
  }
  return columns;
}

std::string FormatReceipt(uint64_t receipt) { return fmt::format("{:016x}", receipt); }

std::string CompletionBody(const CompletionHead& head, std::span<const ChoicePart> choices,
                           const RequestSeed& seed, const CompletionTotals& totals) {
  Json json = HeadJson(head);
  json["choices"] = Json::array();
  for (const ChoicePart& choice : choices) json["choices"].push_back(ChoiceJson(choice));
  json["usage"] = UsageJson(totals);
  json["seed"] = SeedJson(seed);
  json["timings"] = TimingsJson(totals);
  return Dump(json);
}

std::string CompletionChunk(const CompletionHead& head, const ChoicePart& part, bool usage_follows,
                            const StreamEnding* ending) {
  Json json = HeadJson(head);
  json["choices"] = Json::array({ChoiceJson(part)});
  if (usage_follows) json["usage"] = nullptr;
  if (ending != nullptr) {
    json["seed"] = SeedJson(ending->seed);
    json["timings"] = TimingsJson(ending->totals);
  }
  return Dump(json);
}

std::string UsageChunk(const CompletionHead& head, const CompletionTotals& totals) {
  Json json = HeadJson(head);
  json["choices"] = Json::array();
  json["usage"] = UsageJson(totals);
  return Dump(json);
}

}  // namespace tessera
