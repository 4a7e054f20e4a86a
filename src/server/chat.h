// SPDX-License-Identifier: Apache-2.0
//
// POST /v1/chat/completions, and what tells of a chat's prompt without running it.
//
// Threads: any number.
#pragma once

#include "server/answer_context.h"
#include "server/chat_prompt.h"
#include "server/http_reply.h"

namespace tessera {

HttpReply HandleChat(const AnswerContext& context, const ChatPrompter& prompter,
                     const HttpRequest& request, const Caller& caller);
// POST /v1/chat/completions/input_tokens: how many tokens the prompt of this request has.
HttpReply HandleInputTokens(const AnswerContext& context, const ChatPrompter& prompter,
                            const HttpRequest& request);
// POST /apply-template: the prompt itself.
HttpReply HandleApplyTemplate(const AnswerContext& context, const ChatPrompter& prompter,
                              const HttpRequest& request);

}  // namespace tessera
