// SPDX-License-Identifier: Apache-2.0
//
// POST /tokenize and /detokenize, in the two shapes that clients know:
//
//   llama-server  {content, add_special = false, parse_special = true, with_pieces = false}
//                   → {tokens: [id…]}, with pieces [{id, piece}…], where a piece that is not UTF-8
//                   is an array of bytes
//                 {tokens} → {content}
//   vLLM          {prompt, add_special_tokens = true} or {messages, …as for chats}, and
//                 {return_token_strs = false} → {count, max_model_len, tokens, token_strs}
//                 {tokens} → {prompt}
//
// Detokenizing answers with both names. Special tokens are spelled out.
//
// Threads: any number.
#pragma once

#include "server/answer_context.h"
#include "server/chat_prompt.h"
#include "server/http_reply.h"

namespace tessera {

HttpReply HandleTokenize(const AnswerContext& context, const ChatPrompter& prompter,
                         const HttpRequest& request);
HttpReply HandleDetokenize(const AnswerContext& context, const HttpRequest& request);

}  // namespace tessera
