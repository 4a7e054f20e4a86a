// SPDX-License-Identifier: Apache-2.0
//
// GenerationRequest is what completions and chat completions have in common: how to sample, when to
// stop, how many choices, how to answer, what of the prompt to reuse. Checked: every field is known,
// of the right type and in range.
//
// prompt_cache_key is an affinity hint: it says which of many servers may know a prompt. Here every
// request is looked up in the one cache there is, so the key changes nothing and is not kept. It
// isolates nobody, there as here: that is what cache_salt does. user, safety_identifier and
// metadata are labels for the operator's records, which this server does not keep.
//
// Failure: ApiError with the field as `param`, expected and actual in the message.
// Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/request_limits.h"
#include "server/field_reader.h"
#include "server/model_limits.h"
#include "server/openai_error.h"

namespace tessera {

// The API's limits; the others are the engine's own (engine/request_limits.h).
inline constexpr uint32_t kChoicesMax = 128;  // OpenAI's limit of n; here of all choices together
inline constexpr size_t kStopsMax = 4;        // OpenAI's
inline constexpr int kLogprobsMax = 20;  // OpenAI's own limit is 5; local users look further down
static_assert(kStopsMax <= kMaxStops && kLogprobsMax <= kMaxLogprobs);

// Clients send int64; one who copies the seed of a response may send any uint64. Both print as they
// came.
struct RequestSeed {
  uint64_t bits = 0;
  bool negative = false;  // bits are those of an int64
};

struct GenerationRequest {
  std::string model;  // empty: whatever the server has
  std::optional<uint32_t> max_tokens;
  uint32_t min_tokens = 0;
  SamplingOptions sampling = {.temperature = 1};  // OpenAI's default; its seed comes from `seed`
  std::optional<RequestSeed> seed;
  uint32_t choices = 1;  // n: of each prompt
  std::vector<std::string> stop;
  std::vector<TokenId> stop_ids;
  bool ignore_eos = false;
  int32_t priority = 0;  // lower ones first
  bool stream = false;
  bool include_usage = false;
  bool return_progress = false;
  bool cache_prompt = true;  // false: nothing is looked up
  std::string cache_salt;
  uint32_t isolate_after = 0;
  std::vector<uint32_t> checkpoint_at;  // ascending, each from 1 to the context length

  // As the client wrote it; which of the two names, for messages.
  std::optional<uint32_t> max_completion_tokens;
};

std::span<const Field<GenerationRequest>> GenerationFields();

// Salts are secrets: no message has one. Also for other bodies that take one.
FieldError ReadCacheSalt(const nlohmann::json& value, std::string* out);
FieldError ReadIsolateAfter(const nlohmann::json& value, const ModelLimits& limits, uint32_t* out);

// What no field says alone; `root` is the body.
FieldError CheckGeneration(const nlohmann::json& root, GenerationRequest* request);

}  // namespace tessera
