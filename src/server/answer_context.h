// SPDX-License-Identifier: Apache-2.0
//
// AnswerContext is what the routes that generate share: the engine, what the model's requests are
// held against, and how to get from checked requests to a reply.
//
// Threads: any number; what it points to outlives it and the replies.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/answer.h"
#include "server/generation_request.h"
#include "server/http_reply.h"
#include "server/model_limits.h"
#include "server/prompt_input.h"

namespace tessera {

// Who asks.
struct Caller {
  Peer* peer = nullptr;
  std::string_view isolation_key;  // of the API key it came with; empty without keys
};

struct AnswerContext {
  Engine* engine = nullptr;
  std::string model_id;
  ModelLimits limits;
  uint32_t max_model_len = 0;  // tokens of one sequence: of the context, what the budget can hold
  std::chrono::milliseconds keep_alive{15'000};
  const std::atomic<bool>* cancel_all = nullptr;

  // The 404 of another model than this server's; `asked` may be empty.
  std::optional<ApiError> CheckModel(const std::string& asked) const;
  // `prefix` of the id: "cmpl", "chatcmpl".
  AnswerHead MakeHead(std::string_view prefix) const;
  // The reply to a request that is not submitted, which the engine is told of.
  HttpReply Refuse(const GenerationRequest& request, std::span<const PromptTokens> prompts,
                   const ApiError& error) const;
  // Submits and answers.
  HttpReply Reply(const GenerationRequest& request, std::vector<Request> requests, RequestSeed seed,
                  std::unique_ptr<AnswerFormat> format, const Caller& caller) const;
};

}  // namespace tessera
