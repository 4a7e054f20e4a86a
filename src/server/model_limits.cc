// SPDX-License-Identifier: Apache-2.0
#include "server/model_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace tessera {

ModelLimits ModelLimits::Of(const ModelShape& shape, const Tokenizer& tokenizer) {
  ModelLimits limits;
  limits.vocab_size = shape.vocab_size;
  limits.context_length = shape.context_length;
  for (uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    limits.token_bytes_max =
        std::max(limits.token_bytes_max,
                 tokenizer.TokenBytes(static_cast<TokenId>(id), /*special=*/true).size());
  }
  return limits;
}

size_t BodyBytesMax(const ModelLimits& limits) {
  constexpr uint64_t kEscapedByte = 6;
  constexpr uint64_t kFloor = uint64_t{1} << 20;
  constexpr uint64_t kCap = uint64_t{32} << 20;
  // No product of these overflows: 2^32 · 2^20 · 6.
  const uint64_t token_bytes = std::min<uint64_t>(limits.token_bytes_max, kFloor);
  return std::clamp(limits.context_length * token_bytes * kEscapedByte, kFloor, kCap);
}

ApiError PromptTooLong(const ModelLimits& limits, std::string_view field, std::string_view needs) {
  return InvalidField(
      std::string(field), "context_length_exceeded",
      fmt::format("{}: the model's context is {} tokens, the request needs more: {}", field,
                  limits.context_length, needs));
}

}  // namespace tessera
