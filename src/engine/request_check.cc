// SPDX-License-Identifier: Apache-2.0
#include "engine/request_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/utf8.h"
#include "engine/request_limits.h"
#include "engine/sampler.h"

namespace tessera {
namespace {

Status CheckPrompt(const Request& request, const ModelShape& shape) {
  if (request.prompt.empty()) {
    return InvalidArgument("the prompt has no tokens; at least one is needed");
  }
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const TokenId id = request.prompt[i];
    if (id < 0 || static_cast<uint32_t>(id) >= shape.vocab_size) {
      return InvalidArgument(fmt::format("prompt token {} is id {}, outside the vocabulary of {}",
                                         i, id, shape.vocab_size));
    }
  }
  const uint64_t total = request.prompt.size() + uint64_t{request.max_tokens};
  if (request.prompt.size() > shape.context_length) {
    return InvalidArgument(fmt::format("prompt of {} tokens exceeds the context length of {}",
                                       request.prompt.size(), shape.context_length));
  }
  if (total > shape.context_length) {
    return InvalidArgument(
        fmt::format("prompt of {} tokens + max_tokens {} = {} exceeds the context length of {}",
                    request.prompt.size(), request.max_tokens, total, shape.context_length));
  }
  return Status::Ok();
}

Status CheckStops(const Request& request) {
  if (request.stop.size() > kMaxStops) {
    return InvalidArgument(
        fmt::format("{} stop strings, at most {} are allowed", request.stop.size(), kMaxStops));
  }
  for (size_t i = 0; i < request.stop.size(); ++i) {
    const std::string& stop = request.stop[i];
    if (stop.empty()) return InvalidArgument(fmt::format("stop string {} is empty", i));
    if (stop.size() > kMaxStopBytes) {
      return InvalidArgument(fmt::format("stop string {} has {} bytes, at most {} are allowed", i,
                                         stop.size(), kMaxStopBytes));
    }
    if (ValidUtf8Prefix(stop) != stop.size()) {
      return InvalidArgument(fmt::format("stop string {} is not valid UTF-8", i));
    }
  }
  return Status::Ok();
}

Status CheckIds(const Request& request, const ModelShape& shape) {
  if (request.stop_ids.size() > kMaxStopIds) {
    return InvalidArgument(fmt::format("{} stop token ids, at most {} are allowed",
                                       request.stop_ids.size(), kMaxStopIds));
  }
  const auto check = [&](const char* field, TokenId id) -> Status {
    if (id >= 0 && static_cast<uint32_t>(id) < shape.vocab_size) return Status::Ok();
    return InvalidArgument(
        fmt::format("{} has id {}, outside the vocabulary of {}", field, id, shape.vocab_size));
  };
  for (TokenId id : request.stop_ids) TESSERA_RETURN_IF_ERROR(check("stop_ids", id));
  for (TokenId id : request.shown_special) TESSERA_RETURN_IF_ERROR(check("shown_special", id));
  for (const LogitBias& bias : request.sampling.logit_bias) {
    TESSERA_RETURN_IF_ERROR(check("logit_bias", bias.id));
  }
  return Status::Ok();
}

Status CheckLogprobCount(const char* field, int count) {
  if (count >= -1 && count <= kMaxLogprobs) return Status::Ok();
  return InvalidArgument(fmt::format("{} is {}, expected 0 to {}", field, count, kMaxLogprobs));
}

Status CheckPositions(const char* field, const std::vector<uint32_t>& positions,
                      size_t prompt_tokens) {
  for (uint32_t position : positions) {
    if (position >= 1 && position <= prompt_tokens) continue;
    return InvalidArgument(fmt::format("{} has {}, expected 1 to {}, the prompt's tokens", field,
                                       position, prompt_tokens));
  }
  return Status::Ok();
}

Status CheckReuse(const Request& request) {
  if (request.cache_salt.size() > kMaxSaltBytes) {
    return InvalidArgument(fmt::format("cache_salt has {} bytes, at most {} are allowed",
                                       request.cache_salt.size(), kMaxSaltBytes));
  }
  if (request.isolation_key.size() > kMaxSaltBytes) {
    return InvalidArgument(fmt::format("isolation_key has {} bytes, at most {} are allowed",
                                       request.isolation_key.size(), kMaxSaltBytes));
  }
  if (request.isolate_after > request.prompt.size()) {
    return InvalidArgument(fmt::format("isolate_after is {}, expected 0 to {}, the prompt's tokens",
                                       request.isolate_after, request.prompt.size()));
  }
  if (request.checkpoint_at.size() > kMaxCheckpoints) {
    return InvalidArgument(fmt::format("checkpoint_at has {} positions, at most {} are allowed",
                                       request.checkpoint_at.size(), kMaxCheckpoints));
  }
  TESSERA_RETURN_IF_ERROR(
      CheckPositions("checkpoint_at", request.checkpoint_at, request.prompt.size()));
  TESSERA_RETURN_IF_ERROR(
      CheckPositions("message_ends", request.message_ends, request.prompt.size()));
  const auto next = std::adjacent_find(request.message_ends.begin(), request.message_ends.end(),
                                       std::greater_equal<>());
  if (next == request.message_ends.end()) return Status::Ok();
  return InvalidArgument(
      fmt::format("message_ends has {} after {}, expected ascending positions", next[1], next[0]));
}

// Until min_tokens are there no token that ends the text is sampled: another one has to be left.
Status CheckMinTokens(const Request& request, const ModelShape& shape,
                      std::span<const TokenId> end_tokens) {
  if (request.min_tokens > request.max_tokens) {
    return InvalidArgument(fmt::format("min_tokens is {}, more than max_tokens, {}",
                                       request.min_tokens, request.max_tokens));
  }
  if (request.min_tokens == 0) return Status::Ok();
  std::set<TokenId> ends(request.stop_ids.begin(), request.stop_ids.end());
  if (!request.ignore_eos) ends.insert(end_tokens.begin(), end_tokens.end());
  if (ends.size() < shape.vocab_size) return Status::Ok();
  return InvalidArgument(
      fmt::format("min_tokens is {}, and each of the model's {} tokens would end the text: none "
                  "is left to be sampled before",
                  request.min_tokens, shape.vocab_size));
}

}  // namespace

Status CheckRequest(const Request& request, const ModelShape& shape,
                    std::span<const TokenId> end_tokens) {
  TESSERA_RETURN_IF_ERROR(CheckPrompt(request, shape));
  TESSERA_RETURN_IF_ERROR(CheckSamplingOptions(request.sampling));
  TESSERA_RETURN_IF_ERROR(CheckIds(request, shape));
  TESSERA_RETURN_IF_ERROR(CheckMinTokens(request, shape, end_tokens));
  TESSERA_RETURN_IF_ERROR(CheckStops(request));
  TESSERA_RETURN_IF_ERROR(CheckReuse(request));
  TESSERA_RETURN_IF_ERROR(CheckLogprobCount("logprobs", request.logprobs));
  return CheckLogprobCount("prompt_logprobs", request.prompt_logprobs);
}

}  // namespace tessera
