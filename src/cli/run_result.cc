// SPDX-License-Identifier: Apache-2.0
#include "cli/run_result.h"

#include <nlohmann/json.hpp>

#include "engine/receipt.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

const char* FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    default:
      return "error";
  }
}

Json ToJson(const TokenLogprob& entry, const Tokenizer& tokenizer) {
  return {{"id", entry.id},
          {"token", tokenizer.TokenBytes(entry.id, /*special=*/true)},
          {"logprob", entry.logprob}};
}

Json ToJson(const std::vector<PositionLogprobs>& positions, const Tokenizer& tokenizer) {
  Json lists = Json::array();
  for (const PositionLogprobs& position : positions) {
    Json list = Json::array();
    list.push_back(ToJson(position.chosen, tokenizer));
    for (const TokenLogprob& entry : position.top) list.push_back(ToJson(entry, tokenizer));
    lists.push_back(std::move(list));
  }
  return lists;
}

double PerSecond(double count, double ms) { return count > 0 && ms > 0 ? count * 1000 / ms : 0; }
double PerToken(double ms, double count) { return count > 0 ? ms / count : 0; }

Json TimingsToJson(const RunResult& result) {
  const uint32_t computed = result.prompt_tokens - result.cached_tokens;
  const uint32_t n = result.completion_tokens;
  const Speeds speeds = SpeedsOf(result);
  return {{"cache_n", result.cached_tokens},
          {"prompt_n", computed},
          {"prompt_ms", result.timings.prompt_ms},
          {"prompt_per_token_ms", PerToken(result.timings.prompt_ms, computed)},
          {"prompt_per_second", speeds.prompt_per_second},
          {"predicted_n", n},
          {"predicted_ms", result.timings.predicted_ms},
          {"predicted_per_token_ms", PerToken(result.timings.predicted_ms, n > 0 ? n - 1.0 : 0)},
          {"predicted_per_second", speeds.predicted_per_second}};
}

}  // namespace

void RunResult::Add(const RequestEvent& event) {
  tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
  text += event.text;
  logprobs.insert(logprobs.end(), event.logprobs.begin(), event.logprobs.end());
  prompt_logprobs.insert(prompt_logprobs.end(), event.prompt_logprobs.begin(),
                         event.prompt_logprobs.end());
  if (event.finish == FinishReason::kNone) return;
  finish = event.finish;
  error = event.error;
  prompt_tokens = event.prompt_tokens;
  cached_tokens = event.cached_tokens;
  completion_tokens = event.completion_tokens;
  receipt = event.receipt;
  timings = event.timings;
}

Speeds SpeedsOf(const RunResult& result) {
  const double computed = result.prompt_tokens - result.cached_tokens;
  const double intervals = result.completion_tokens > 0 ? result.completion_tokens - 1.0 : 0;
  return {.prompt_per_second = PerSecond(computed, result.timings.prompt_ms),
          .predicted_per_second = PerSecond(intervals, result.timings.predicted_ms)};
}

std::string ToJson(const RunResult& result, const JsonRequest& request, const Engine& engine) {
  Json object;
  object["model"] = engine.shape().name;
  object["prompt_tokens"] = request.prompt;
  object["tokens"] = result.tokens;
  object["text"] = result.text;
  object["finish_reason"] = FinishName(result.finish);
  if (request.logprobs) object["logprobs"] = ToJson(result.logprobs, engine.tokenizer());
  if (request.prompt_logprobs) {
    object["prompt_logprobs"] = ToJson(result.prompt_logprobs, engine.tokenizer());
  }
  object["usage"] = {{"prompt_tokens", result.prompt_tokens},
                     {"cached_tokens", result.cached_tokens},
                     {"completion_tokens", result.completion_tokens}};
  object["timings"] = TimingsToJson(result);
  object["receipt"] = ReceiptHex(result.receipt);
  // A token may be half a UTF-8 sequence: its text then has U+FFFD in it.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera::cli
