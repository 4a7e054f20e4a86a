// SPDX-License-Identifier: Apache-2.0
//
// CompletionRequest is the body of POST /v1/completions, checked: every field is known, of the
// right type and in range, so what follows needs no second look at it.
//
// Fields: model, prompt (string, ids, or an array of up to kPromptsMax of either: one choice each),
// max_tokens (16), temperature (1), top_p (1), top_k (0 or -1: off), min_p (0), seed (drawn when
// absent), stop (a string or up to 4), ignore_eos (false), logprobs (0 to kLogprobsMax), stream,
// stream_options {include_usage}, cache_prompt (true), cache_salt (""), checkpoint_at (a position
// or up to kCheckpointsMax), prompt_cache_key. null means absent. Any other field is refused by
// name: a field that is ignored silently is an answer to a question nobody asked.
//
// prompt_cache_key is an affinity hint: it says which of many servers may know a prompt. Here every
// request is looked up in the one cache there is, so the key changes nothing and is not kept. It
// isolates nobody, there as here: that is what cache_salt does.
//
// Failure: ApiError with the field as `param`, expected and actual in the message.
// Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/strong_id.h"
#include "engine/engine.h"
#include "server/model_limits.h"
#include "server/openai_error.h"

namespace tessera {

inline constexpr size_t kPromptsMax = 64;
inline constexpr size_t kStopsMax = 4;
inline constexpr size_t kStopBytesMax = 1024;  // the engine's own limit
inline constexpr int kLogprobsMax = 20;  // OpenAI's own limit is 5; local users look further down
inline constexpr size_t kSaltBytesMax = 256;
inline constexpr size_t kCheckpointsMax = 64;

using PromptInput = std::variant<std::string, std::vector<TokenId>>;

// Clients send int64; one who copies the seed of a response may send any uint64. Both print as they
// came.
struct RequestSeed {
  uint64_t bits = 0;
  bool negative = false;  // bits are those of an int64
};

struct CompletionRequest {
  std::string model;  // empty: whatever the server has
  std::vector<PromptInput> prompts;
  uint32_t max_tokens = 16;
  SamplingOptions sampling;  // its seed is set from `seed` when the engine's requests are made
  std::optional<RequestSeed> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  int logprobs = -1;
  bool stream = false;
  bool include_usage = false;
  bool cache_prompt = true;  // false: nothing is looked up
  std::string cache_salt;
  std::vector<uint32_t> checkpoint_at;  // ascending, each from 1 to the context length
};

// A prompt that cannot fit the context is refused before it is copied, numbers that are more than
// all prompts of a request can have before they are parsed.
ApiResult<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                    const ModelLimits& limits);

}  // namespace tessera
