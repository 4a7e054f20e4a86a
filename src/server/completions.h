// SPDX-License-Identifier: Apache-2.0
//
// Completions answers POST /v1/completions: parses, makes the engine's requests, and hands them and
// the format to an Answer.
//
// Threads: any number.
#pragma once

#include "server/answer_context.h"
#include "server/http_reply.h"

namespace tessera {

HttpReply HandleCompletion(const AnswerContext& context, const HttpRequest& request,
                           const Caller& caller);

}  // namespace tessera
