// SPDX-License-Identifier: Apache-2.0
//
// Pins of prefixes, for clients that know which ones they will come back to.
//
//   POST /cache/pin      {prompt | messages, …, cache_salt, isolate_after, ttl_s}
//                          → {"pin", "tokens", "bytes", "expires_in_s"}
//   POST /cache/release  {"pin"} → {"released": true}
//   GET  /cache/pins     {"pins": [{"pin", "tokens", "bytes", "expires_in_s", "salted", "lost"}]}
//
// What is pinned is the deepest checkpoint that a request with this prompt could start from: it
// goes after everything that is not pinned (memory/store/client_pins.h). Nothing is computed: a
// prompt of which no state is kept is 404 not_cached.
//
// With --isolate key a pin is of the API key it came with, and no other lists or releases it.
//
// Threads: any number.
#pragma once

#include "server/answer_context.h"
#include "server/chat_prompt.h"
#include "server/http_reply.h"

namespace tessera {

inline constexpr uint32_t kPinSecondsMax = 30 * 24 * 3600;

HttpReply HandlePin(const AnswerContext& context, const ChatPrompter& prompter,
                    const HttpRequest& request, const Caller& caller);
HttpReply HandleRelease(const AnswerContext& context, const HttpRequest& request,
                        const Caller& caller);
HttpReply HandlePins(const AnswerContext& context, const Caller& caller);

}  // namespace tessera
