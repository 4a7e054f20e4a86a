// SPDX-License-Identifier: Apache-2.0
//
// A prompt as clients write it: text or token ids, one or several.
//
// Failure: ApiError with the field as `param`. Threads: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/field_reader.h"

namespace tessera {

inline constexpr size_t kPromptsMax = 64;

using PromptInput = std::variant<std::string, std::vector<TokenId>>;

inline constexpr std::string_view kPromptTypes =
    "a string, an array of token ids, or an array of either";

// A prompt that cannot fit the context is refused before it is copied.
FieldError ReadPrompts(const nlohmann::json& value, const ModelLimits& limits,
                       std::vector<PromptInput>* out);
// One of them; `field` names it in messages.
FieldError ReadOnePrompt(const std::string& field, const nlohmann::json& value,
                         const ModelLimits& limits, PromptInput* out);

// Refuses, before it is parsed, a body of more values than `prompts` contexts of ids and some
// thousand fields can have: a parsed value takes 16 bytes, its text may be 2.
FieldError CheckValueCount(std::string_view field, std::string_view body, size_t prompts,
                           const ModelLimits& limits);

struct PromptTokens {
  std::vector<TokenId> ids;
  // Put there by the tokenizer, not by the client.
  uint32_t added_before = 0;
  uint32_t added_after = 0;

  std::span<const TokenId> own() const {
    return std::span(ids).subspan(added_before, ids.size() - added_before - added_after);
  }
};
// Special tokens written in a text (<|im_start|>) are special tokens, as in other servers; BOS is
// put before a text when the file asks for it, never before ids. Refuses a prompt of no tokens.
ApiResult<PromptTokens> TokensOf(const PromptInput& prompt, const Tokenizer& tokenizer);

}  // namespace tessera
