// SPDX-License-Identifier: Apache-2.0
#include "server/completions.h"

#include <memory>
#include <utility>
#include <vector>

#include "server/completion_format.h"
#include "server/completion_request.h"
#include "server/engine_requests.h"

namespace tessera {

HttpReply HandleCompletion(const AnswerContext& context, const HttpRequest& http,
                           const Caller& caller) {
  ApiResult<CompletionRequest> parsed = ParseCompletionRequest(http.body, context.limits);
  if (const ApiError* error = std::get_if<ApiError>(&parsed)) return HttpReply::Error(*error);
  const CompletionRequest& request = std::get<CompletionRequest>(parsed);
  if (const auto error = context.CheckModel(request.model)) return HttpReply::Error(*error);

  const Tokenizer& tokenizer = context.engine->tokenizer();
  std::vector<PromptTokens> prompts;
  for (const PromptInput& prompt : request.prompts) {
    ApiResult<PromptTokens> tokens = TokensOf(prompt, tokenizer);
    if (const ApiError* error = std::get_if<ApiError>(&tokens)) return HttpReply::Error(*error);
    prompts.push_back(std::move(std::get<PromptTokens>(tokens)));
  }
  EngineDemand demand;
  demand.logprobs = request.logprobs;
  if (request.echo) demand.prompt_logprobs = request.logprobs;
  demand.isolation_key = caller.isolation_key;
  demand.isolate_after = request.isolate_after;
  const RequestSeed seed = request.seed ? *request.seed : DrawSeed();
  ApiResult<std::vector<Request>> requests =
      MakeEngineRequests(request, demand, prompts, context.limits, seed);
  if (const ApiError* error = std::get_if<ApiError>(&requests)) {
    return context.Refuse(request, prompts, *error);
  }
  auto format = std::make_unique<CompletionFormat>(context.MakeHead("cmpl"), request,
                                                   std::move(prompts), &tokenizer);
  return context.Reply(request, std::move(std::get<std::vector<Request>>(requests)), seed,
                       std::move(format), caller);
}

}  // namespace tessera
