// SPDX-License-Identifier: Apache-2.0
#include "server/engine_requests.h"

#include <fmt/format.h>

#include <optional>
#include <random>

namespace tessera {
namespace {

ApiResult<std::vector<TokenId>> PromptIds(const PromptInput& prompt, const Tokenizer& tokenizer) {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  const auto& text = std::get<std::string>(prompt);
  EncodeOptions options;
  options.parse_special = true;
  return tokenizer.Encode(text, options);
}

// The last one: positions ascend.
std::optional<ApiError> CheckCheckpoints(const CompletionRequest& request, size_t index,
                                         size_t prompt_tokens) {
  if (request.checkpoint_at.empty() || request.checkpoint_at.back() <= prompt_tokens) {
    return std::nullopt;
  }
  const std::string prompt =
      request.prompts.size() == 1 ? "the prompt" : fmt::format("prompt[{}]", index);
  return InvalidField("checkpoint_at", "invalid_value",
                      fmt::format("checkpoint_at: expected positions from 1 to {}, the tokens of "
                                  "{}, got {}",
                                  prompt_tokens, prompt, request.checkpoint_at.back()));
}

}  // namespace

ApiResult<std::vector<Request>> MakeEngineRequests(const CompletionRequest& request,
                                                   const Tokenizer& tokenizer,
                                                   const ModelLimits& limits, RequestSeed seed) {
  std::vector<Request> requests;
  for (const PromptInput& prompt : request.prompts) {
    ApiResult<std::vector<TokenId>> ids = PromptIds(prompt, tokenizer);
    if (ApiError* error = std::get_if<ApiError>(&ids)) return std::move(*error);
    Request& one = requests.emplace_back();
    one.prompt = std::move(std::get<std::vector<TokenId>>(ids));
    if (one.prompt.empty()) {
      return InvalidField("prompt", "invalid_value",
                          "prompt: expected at least one token, got none: the text is empty and "
                          "the model has no token to begin with");
    }
    if (one.prompt.size() + uint64_t{request.max_tokens} > limits.context_length) {
      return PromptTooLong(limits, fmt::format("{} in the prompt and max_tokens {}",
                                               one.prompt.size(), request.max_tokens));
    }
    if (std::optional<ApiError> error =
            CheckCheckpoints(request, requests.size() - 1, one.prompt.size())) {
      return std::move(*error);
    }
    one.max_tokens = request.max_tokens;
    one.sampling = request.sampling;
    one.sampling.seed = seed.bits;
    one.stop = request.stop;
    one.ignore_eos = request.ignore_eos;
    one.logprobs = request.logprobs;
    one.cache_salt = request.cache_salt;
    one.checkpoint_at = request.checkpoint_at;
    one.reuse = request.cache_prompt;
  }
  return requests;
}

RequestSeed DrawSeed() {
  thread_local std::random_device device;
  const uint64_t high = device();
  return {((high << 32) | device()) >> 11, false};
}

}  // namespace tessera
