// SPDX-License-Identifier: Apache-2.0
#include "server/answer_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/engine_requests.h"

namespace tessera {

std::optional<ApiError> AnswerContext::CheckModel(const std::string& asked) const {
  if (asked.empty() || asked == model_id) return std::nullopt;
  return ModelNotFound(asked, model_id);
}

AnswerHead AnswerContext::MakeHead(std::string_view prefix) const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const RequestSeed random = DrawSeed();
  return {fmt::format("{}-{:014x}{:014x}", prefix, random.bits, DrawSeed().bits),
          std::chrono::duration_cast<std::chrono::seconds>(now).count(), model_id};
}

HttpReply AnswerContext::Refuse(const GenerationRequest& request,
                                std::span<const PromptTokens> prompts,
                                const ApiError& error) const {
  RefusedRequest refused;
  refused.reason =
      error.code == "context_length_exceeded" ? RefusalReason::kContext : RefusalReason::kInvalid;
  refused.error = InvalidArgument(error.message);
  for (const PromptTokens& prompt : prompts) {
    refused.prompt_tokens =
        std::max(refused.prompt_tokens, static_cast<uint32_t>(prompt.ids.size()));
  }
  refused.max_tokens = request.max_tokens.value_or(0);
  refused.salted = !request.cache_salt.empty();
  engine->NoteRefused(refused);
  return HttpReply::Error(error);
}

HttpReply AnswerContext::Reply(const GenerationRequest& request, std::vector<Request> requests,
                               RequestSeed seed, std::unique_ptr<AnswerFormat> format,
                               const Caller& caller) const {
  AnswerOptions options;
  options.seed = seed;
  options.choices = requests.size();
  options.choices_per_prompt = request.choices;
  options.include_usage = request.include_usage;
  options.keep_alive = keep_alive;
  options.cancel_all = cancel_all;
  Result<std::unique_ptr<AnswerEvents>> events = AnswerEvents::Submit(engine, std::move(requests));
  if (!events) return HttpReply::Error(FromEngineStatus(events.error()));
  return ReplyWith(std::make_shared<Answer>(options, std::move(format), std::move(*events)),
                   request.stream, *caller.peer);
}

}  // namespace tessera
