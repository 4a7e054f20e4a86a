// SPDX-License-Identifier: Apache-2.0
#include "server/prompt_input.h"

#include <fmt/format.h>

#include <utility>

#include "server/json_body.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// What a body may have beside the ids of its prompts: fields, stop strings, biases, a few unknown
// ones that deserve their own message.
constexpr size_t kOtherValuesMax = 4096;

}  // namespace

FieldError ReadOnePrompt(const std::string& field, const Json& value, const ModelLimits& limits,
                         PromptInput* out) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    const size_t tokens_min = text.size() / limits.token_bytes_max;
    if (tokens_min > limits.context_length) {
      return PromptTooLong(limits, "prompt", fmt::format("{} has at least {}", field, tokens_min));
    }
    *out = text;
    return std::nullopt;
  }
  if (!value.is_array() || value.empty()) {
    return In("prompt", WrongType(field, "a string or an array of at least one token id", value));
  }
  if (value.size() > limits.context_length) {
    return PromptTooLong(limits, "prompt", fmt::format("{} has {}", field, value.size()));
  }
  std::vector<TokenId> ids;
  if (FieldError error = ReadTokenIds(field, value, limits.vocab_size, &ids)) {
    return In("prompt", std::move(error));
  }
  *out = std::move(ids);
  return std::nullopt;
}

FieldError ReadPrompts(const Json& value, const ModelLimits& limits,
                       std::vector<PromptInput>* out) {
  if (value.is_array() && value.empty()) {
    return WrongValue("prompt", "at least one prompt or token id", value);
  }
  if (value.is_string() || (value.is_array() && value[0].is_number())) {
    return ReadOnePrompt("prompt", value, limits, &out->emplace_back());
  }
  if (!value.is_array()) return WrongType("prompt", kPromptTypes, value);
  if (value.size() > kPromptsMax) {
    return WrongValue("prompt", fmt::format("at most {} prompts", kPromptsMax), value);
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string field = fmt::format("prompt[{}]", i);
    if (FieldError error = ReadOnePrompt(field, value[i], limits, &out->emplace_back())) {
      return error;
    }
  }
  return std::nullopt;
}

FieldError CheckValueCount(std::string_view field, std::string_view body, size_t prompts,
                           const ModelLimits& limits) {
  const size_t values_max = prompts * (size_t{limits.context_length} + 1) + kOtherValuesMax;
  if (!HasMoreValuesThan(values_max, body)) return std::nullopt;
  return PromptTooLong(limits, field, fmt::format("the body has more than {} values", values_max));
}

ApiResult<PromptTokens> TokensOf(const PromptInput& prompt, const Tokenizer& tokenizer) {
  PromptTokens tokens;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
    tokens.ids = *ids;
  } else {
    const auto& text = std::get<std::string>(prompt);
    tokens.ids = tokenizer.Encode(text, {.add_special = true, .parse_special = true});
    tokens.added_before = tokenizer.added_before().has_value() ? 1 : 0;
    tokens.added_after = tokenizer.added_after().has_value() ? 1 : 0;
  }
  if (!tokens.ids.empty()) return tokens;
  return InvalidField("prompt", "invalid_value",
                      "prompt: expected at least one token, got none: the text is empty and the "
                      "model has no token to begin with");
}

}  // namespace tessera
