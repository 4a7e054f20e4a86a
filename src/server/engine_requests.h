// SPDX-License-Identifier: Apache-2.0
//
// From a checked CompletionRequest to what the engine runs: text becomes ids, lengths are held
// against the context, the seed is settled.
//
// The prompt of /v1/completions is the client's own text, template included, so special tokens
// written in it (<|im_start|>) are special tokens, as in other servers; BOS is prepended to text
// when the file asks for it, never to ids.
//
// Threads: pure functions, but for DrawSeed.
#pragma once

#include <vector>

#include "compute/tokenizer/tokenizer.h"
#include "engine/engine.h"
#include "server/completion_request.h"
#include "server/model_limits.h"
#include "server/openai_error.h"

namespace tessera {

// One request per prompt.
ApiResult<std::vector<Request>> MakeEngineRequests(const CompletionRequest& request,
                                                   const Tokenizer& tokenizer,
                                                   const ModelLimits& limits, RequestSeed seed);

// A random seed below 2^53, so that clients whose numbers are doubles can send it back.
RequestSeed DrawSeed();

}  // namespace tessera
