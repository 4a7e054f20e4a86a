// SPDX-License-Identifier: Apache-2.0
#include "server/chat.h"

#include <memory>
#include <utility>
#include <vector>

#include "server/answer_json.h"
#include "server/chat_format.h"
#include "server/chat_request.h"
#include "server/engine_requests.h"

namespace tessera {
namespace {

struct RenderedRequest {
  ChatRequest request;
  RenderedChat chat;
};

ApiResult<RenderedRequest> ParseAndRender(const AnswerContext& context,
                                          const ChatPrompter& prompter, const std::string& body) {
  ApiResult<ChatRequest> parsed = ParseChatRequest(body, context.limits);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  ChatRequest& request = std::get<ChatRequest>(parsed);
  if (std::optional<ApiError> error = context.CheckModel(request.model)) return std::move(*error);
  ApiResult<RenderedChat> chat = prompter.Render(request);
  if (ApiError* error = std::get_if<ApiError>(&chat)) return std::move(*error);
  return RenderedRequest{std::move(request), std::move(std::get<RenderedChat>(chat))};
}

}  // namespace

HttpReply HandleChat(const AnswerContext& context, const ChatPrompter& prompter,
                     const HttpRequest& http, const Caller& caller) {
  ApiResult<RenderedRequest> rendered = ParseAndRender(context, prompter, http.body);
  if (const ApiError* error = std::get_if<ApiError>(&rendered)) return HttpReply::Error(*error);
  const auto& [request, chat] = std::get<RenderedRequest>(rendered);
  EngineDemand demand;
  demand.logprobs = request.logprobs ? request.top_logprobs : -1;
  demand.tokens_max = context.max_model_len;
  demand.message_ends = chat.message_ends;
  demand.isolate_after = chat.isolate_after;
  demand.shown_special = chat.reading.shown_special;
  demand.isolation_key = caller.isolation_key;
  demand.prompt_field = "messages";
  const RequestSeed seed = request.seed ? *request.seed : DrawSeed();
  ApiResult<std::vector<Request>> requests =
      MakeEngineRequests(request, demand, {&chat.prompt, 1}, context.limits, seed);
  if (const ApiError* error = std::get_if<ApiError>(&requests)) {
    return context.Refuse(request, {&chat.prompt, 1}, *error);
  }
  auto format = std::make_unique<ChatFormat>(context.MakeHead("chatcmpl"), request, chat.reading,
                                             &context.engine->tokenizer());
  return context.Reply(request, std::move(std::get<std::vector<Request>>(requests)), seed,
                       std::move(format), caller);
}

HttpReply HandleInputTokens(const AnswerContext& context, const ChatPrompter& prompter,
                            const HttpRequest& http) {
  ApiResult<RenderedRequest> rendered = ParseAndRender(context, prompter, http.body);
  if (const ApiError* error = std::get_if<ApiError>(&rendered)) return HttpReply::Error(*error);
  const RenderedChat& chat = std::get<RenderedRequest>(rendered).chat;
  return HttpReply::Json(
      DumpJson({{"object", "response.input_tokens"}, {"input_tokens", chat.prompt.ids.size()}}));
}

HttpReply HandleApplyTemplate(const AnswerContext& context, const ChatPrompter& prompter,
                              const HttpRequest& http) {
  ApiResult<RenderedRequest> rendered = ParseAndRender(context, prompter, http.body);
  if (const ApiError* error = std::get_if<ApiError>(&rendered)) return HttpReply::Error(*error);
  const RenderedChat& chat = std::get<RenderedRequest>(rendered).chat;
  return HttpReply::Json(DumpJson({{"prompt", chat.text}, {"message_ends", chat.message_ends}}));
}

}  // namespace tessera
