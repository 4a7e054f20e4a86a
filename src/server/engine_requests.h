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

#include <cstdint>
#include <vector>

#include "compute/tokenizer/tokenizer.h"
#include "engine/engine.h"
#include "server/completion_request.h"
#include "server/openai_error.h"

namespace tessera {

struct ModelLimits {
  uint32_t vocab_size = 0;
  uint32_t context_length = 0;
  // The most bytes of text one token stands for: a longer prompt is refused without encoding it.
  size_t token_bytes_max = 1;

  static ModelLimits Of(const ModelShape& shape, const Tokenizer& tokenizer);
};

// One request per prompt.
ApiResult<std::vector<Request>> MakeEngineRequests(const CompletionRequest& request,
                                                   const Tokenizer& tokenizer,
                                                   const ModelLimits& limits, RequestSeed seed);

// A random seed below 2^53, so that clients whose numbers are doubles can send it back.
RequestSeed DrawSeed();

}  // namespace tessera
