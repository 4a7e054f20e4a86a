// SPDX-License-Identifier: Apache-2.0
#include "server/engine_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace tessera {
namespace {

ApiError TooLong(const ModelLimits& limits, const std::string& prompt_tokens, uint32_t max_tokens) {
  return InvalidField(
      "prompt", "context_length_exceeded",
      fmt::format("prompt: the model's context is {} tokens, the request needs more: {} in the "
                  "prompt and max_tokens {}",
                  limits.context_length, prompt_tokens, max_tokens));
}

ApiResult<std::vector<TokenId>> PromptIds(const PromptInput& prompt, uint32_t max_tokens,
                                          const Tokenizer& tokenizer, const ModelLimits& limits) {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  const auto& text = std::get<std::string>(prompt);
  const size_t tokens_min = text.size() / limits.token_bytes_max;
  if (tokens_min > limits.context_length) {
    return TooLong(limits, fmt::format("at least {}", tokens_min), max_tokens);
  }
  EncodeOptions options;
  options.parse_special = true;
  return tokenizer.Encode(text, options);
}

}  // namespace

ModelLimits ModelLimits::Of(const ModelShape& shape, const Tokenizer& tokenizer) {
  ModelLimits limits;
  limits.vocab_size = shape.vocab_size;
  limits.context_length = shape.context_length;
  for (uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    limits.token_bytes_max =
        std::max(limits.token_bytes_max,
                 tokenizer.TokenBytes(static_cast<TokenId>(id), /*special=*/true).size());
  }
  return limits;
}

ApiResult<std::vector<Request>> MakeEngineRequests(const CompletionRequest& request,
                                                   const Tokenizer& tokenizer,
                                                   const ModelLimits& limits, RequestSeed seed) {
  std::vector<Request> requests;
  for (const PromptInput& prompt : request.prompts) {
    ApiResult<std::vector<TokenId>> ids = PromptIds(prompt, request.max_tokens, tokenizer, limits);
    if (ApiError* error = std::get_if<ApiError>(&ids)) return std::move(*error);
    Request& one = requests.emplace_back();
    one.prompt = std::move(std::get<std::vector<TokenId>>(ids));
    if (one.prompt.empty()) {
      return InvalidField("prompt", "invalid_value",
                          "prompt: expected at least one token, got none: the text is empty and "
                          "the model has no token to begin with");
    }
    if (one.prompt.size() + uint64_t{request.max_tokens} > limits.context_length) {
      return TooLong(limits, std::to_string(one.prompt.size()), request.max_tokens);
    }
    one.max_tokens = request.max_tokens;
    one.sampling = request.sampling;
    one.sampling.seed = seed.bits;
    one.stop = request.stop;
    one.logprobs = request.logprobs;
  }
  return requests;
}

RequestSeed DrawSeed() {
  thread_local std::random_device device;
  const uint64_t high = device();
  return {((high << 32) | device()) >> 11, false};
}

}  // namespace tessera
