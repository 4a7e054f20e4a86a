// SPDX-License-Identifier: Apache-2.0
#include "server/engine_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <random>

#include "base/random.h"

namespace tessera {
namespace {

// What is counted in tokens of the prompt lies within each.
std::optional<ApiError> CheckPositions(const Request& one, size_t index, size_t prompts) {
  const size_t tokens = one.prompt.size();
  const std::string prompt = prompts == 1 ? "the prompt" : fmt::format("prompt[{}]", index);
  // The last one: positions ascend.
  if (!one.checkpoint_at.empty() && one.checkpoint_at.back() > tokens) {
    return InvalidField("checkpoint_at", "invalid_value",
                        fmt::format("checkpoint_at: expected positions from 1 to {}, the tokens of "
                                    "{}, got {}",
                                    tokens, prompt, one.checkpoint_at.back()));
  }
  if (one.isolate_after <= tokens) return std::nullopt;
  return InvalidField("isolate_after", "invalid_value",
                      fmt::format("isolate_after: expected 0 to {}, the tokens of {}, got {}",
                                  tokens, prompt, one.isolate_after));
}

// Of a prompt of so many tokens; at least 1 where the client left it to us.
uint32_t MaxTokens(const GenerationRequest& request, const EngineDemand& demand,
                   size_t prompt_tokens) {
  if (request.max_tokens) return *request.max_tokens;
  const uint32_t rest = prompt_tokens < demand.tokens_max
                            ? demand.tokens_max - static_cast<uint32_t>(prompt_tokens)
                            : 1;
  return std::max(rest, request.min_tokens);
}

uint64_t SeedOfChoice(uint64_t seed, uint32_t choice) {
  return choice == 0 ? seed : CounterRandom(seed, choice);
}

Request MakeRequest(const GenerationRequest& request, const EngineDemand& demand,
                    const PromptTokens& prompt) {
  Request one;
  one.prompt = prompt.ids;
  one.max_tokens = MaxTokens(request, demand, prompt.ids.size());
  one.min_tokens = request.min_tokens;
  one.sampling = request.sampling;
  one.stop = request.stop;
  one.stop_ids = request.stop_ids;
  one.ignore_eos = request.ignore_eos;
  one.logprobs = demand.logprobs;
  one.prompt_logprobs = demand.prompt_logprobs;
  one.cache_salt = request.cache_salt;
  one.isolate_after = demand.isolate_after;
  one.isolation_key = demand.isolation_key;
  one.priority = request.priority;
  one.checkpoint_at = request.checkpoint_at;
  one.message_ends.assign(demand.message_ends.begin(), demand.message_ends.end());
  one.shown_special.assign(demand.shown_special.begin(), demand.shown_special.end());
  one.reuse = request.cache_prompt;
  one.report_progress = request.return_progress;
  return one;
}

}  // namespace

ApiResult<std::vector<Request>> MakeEngineRequests(const GenerationRequest& request,
                                                   const EngineDemand& demand,
                                                   std::span<const PromptTokens> prompts,
                                                   const ModelLimits& limits, RequestSeed seed) {
  std::vector<Request> requests;
  for (size_t index = 0; index < prompts.size(); ++index) {
    const Request one = MakeRequest(request, demand, prompts[index]);
    if (one.prompt.size() + uint64_t{one.max_tokens} > limits.context_length) {
      return PromptTooLong(
          limits, demand.prompt_field,
          fmt::format("{} in the prompt and max_tokens {}", one.prompt.size(), one.max_tokens));
    }
    if (std::optional<ApiError> error = CheckPositions(one, index, prompts.size())) {
      return std::move(*error);
    }
    for (uint32_t choice = 0; choice < request.choices; ++choice) {
      requests.push_back(one);
      requests.back().sampling.seed = SeedOfChoice(seed.bits, choice);
    }
  }
  return requests;
}

RequestSeed DrawSeed() {
  thread_local std::random_device device;
  const uint64_t high = device();
  return {((high << 32) | device()) >> 11, false};
}

}  // namespace tessera
