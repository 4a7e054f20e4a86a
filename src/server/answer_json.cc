// SPDX-License-Identifier: Apache-2.0
#include "server/answer_json.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace tessera {
namespace {

OrderedJson SeedJson(const RequestSeed& seed) {
  return seed.negative ? OrderedJson(static_cast<int64_t>(seed.bits)) : OrderedJson(seed.bits);
}

// To the microsecond: what a clock is good for.
double Milliseconds(double ms) { return std::round(ms * 1000) / 1000; }

double Ratio(double numerator, double denominator) {
  return denominator > 0 ? numerator / denominator : 0;
}

OrderedJson TimingsJson(const AnswerTotals& totals) {
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

OrderedJson ReuseJson(const MatchReport& match) {
  OrderedJson ranges = OrderedJson::array();
  for (uint32_t i = 0; i < match.computed_count; ++i) {
    const ComputedRange& range = match.computed[i];
    ranges.push_back(
        {{"from", range.begin}, {"to", range.end}, {"reason", ComputeReasonName(range.reason)}});
  }
  return {{"reused", match.reused},       {"attention", match.attention},
          {"recurrent", match.recurrent}, {"diverged_at", match.diverged_at},
          {"from_row", match.from_row},   {"computed", std::move(ranges)}};
}

}  // namespace

std::string DumpJson(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson HeadJson(const AnswerHead& head, std::string_view object) {
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

OrderedJson UsageJson(const AnswerTotals& totals) {
  return {{"prompt_tokens", totals.prompt_tokens},
          {"completion_tokens", totals.completion_tokens},
          {"total_tokens", totals.prompt_tokens + totals.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", totals.cached_tokens}}}};
}

OrderedJson FinishJson(FinishReason finish) {
  switch (finish) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    default:
      return nullptr;
  }
}

std::string FormatReceipt(uint64_t receipt) { return fmt::format("{:016x}", receipt); }

void AddChoiceEnding(uint64_t receipt, const MatchReport& match, OrderedJson* choice) {
  (*choice)["receipt"] = FormatReceipt(receipt);
  (*choice)["reuse"] = ReuseJson(match);
}

void AddAnswerEnding(const RequestSeed& seed, const AnswerTotals& totals, OrderedJson* answer) {
  (*answer)["seed"] = SeedJson(seed);
  (*answer)["timings"] = TimingsJson(totals);
}

double LogprobNumber(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

std::string ProgressChunk(const AnswerHead& head, std::string_view object, uint32_t choice,
                          const PromptProgress& progress) {
  OrderedJson json = HeadJson(head, object);
  json["choices"] = OrderedJson::array();
  json["prompt_progress"] = {{"index", choice},
                             {"total", progress.total},
                             {"cache", progress.cached},
                             {"processed", progress.processed},
                             {"time_ms", Milliseconds(progress.elapsed_ms)}};
  return DumpJson(json);
}

std::string UsageChunk(const AnswerHead& head, std::string_view object,
                       const AnswerTotals& totals) {
  OrderedJson json = HeadJson(head, object);
  json["choices"] = OrderedJson::array();
  json["usage"] = UsageJson(totals);
  return DumpJson(json);
}

}  // namespace tessera
