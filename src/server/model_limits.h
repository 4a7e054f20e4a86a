// SPDX-License-Identifier: Apache-2.0
//
// ModelLimits is what a request is held against before anything large is made of it: how many
// tokens the model reads, how many it has, and how much text a token can stand for.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "compute/tokenizer/tokenizer.h"
#include "engine/engine.h"
#include "server/openai_error.h"

namespace tessera {

struct ModelLimits {
  uint32_t vocab_size = 0;
  uint32_t context_length = 0;
  // The most bytes of text one token stands for: a longer prompt is refused without encoding it.
  size_t token_bytes_max = 1;

  static ModelLimits Of(const ModelShape& shape, const Tokenizer& tokenizer);
};

// The text of a body that fills the context, every byte of it escaped as JSON's \u00XX; 1 to 32
// MiB.
size_t BodyBytesMax(const ModelLimits& limits);

// The 400 of a request whose `field` needs more than the context; `needs` says how many tokens it
// has where.
ApiError PromptTooLong(const ModelLimits& limits, std::string_view field, std::string_view needs);

}  // namespace tessera
