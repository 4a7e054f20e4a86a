// SPDX-License-Identifier: Apache-2.0
//
// From a checked request to what the engine runs: lengths are held against the context, the seed is
// settled, every prompt becomes `n` requests.
//
// Choice j of a prompt draws with the seed itself when j is 0, else with one mixed from both, so
// that choice 0 is what n = 1 would answer and no two are the same draw.
//
// Threads: pure functions, but for DrawSeed.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "compute/tokenizer/tokenizer.h"
#include "engine/engine.h"
#include "server/generation_request.h"
#include "server/model_limits.h"
#include "server/openai_error.h"
#include "server/prompt_input.h"

namespace tessera {

// What a route asks for beyond its GenerationRequest.
struct EngineDemand {
  std::string_view isolation_key;
  std::string_view prompt_field = "prompt";  // what messages call where the prompt came from
  std::span<const uint32_t> message_ends;    // of the one prompt of a chat
  uint32_t isolate_after = 0;
  int logprobs = -1;
  int prompt_logprobs = -1;
  std::span<const TokenId> shown_special;
  uint32_t tokens_max = 0;  // of prompt and answer: what max_tokens is when the client gave none
};

// choices requests for each prompt, one prompt after the other.
ApiResult<std::vector<Request>> MakeEngineRequests(const GenerationRequest& request,
                                                   const EngineDemand& demand,
                                                   std::span<const PromptTokens> prompts,
                                                   const ModelLimits& limits, RequestSeed seed);

// A random seed below 2^53, so that clients whose numbers are doubles can send it back.
RequestSeed DrawSeed();

}  // namespace tessera
