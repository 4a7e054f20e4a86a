// SPDX-License-Identifier: Apache-2.0
#include "server/completion_request.h"

#include <fmt/format.h>

#include <utility>

namespace tessera {
namespace {

using Json = nlohmann::json;

FieldError ReadPromptField(const Json& value, const ModelLimits& limits,
                           CompletionRequest& request) {
  return ReadPrompts(value, limits, &request.prompts);
}

FieldError ReadLogprobs(const Json& value, const ModelLimits&, CompletionRequest& request) {
  int64_t number = 0;
  FieldError error = ReadInteger("logprobs", value, 0, kLogprobsMax, &number);
  request.logprobs = static_cast<int>(number);
  return error;
}

FieldError ReadEcho(const Json& value, const ModelLimits&, CompletionRequest& request) {
  return ReadBool("echo", value, &request.echo);
}

FieldError ReadBestOf(const Json& value, const ModelLimits&, CompletionRequest& request) {
  int64_t number = 0;
  FieldError error = ReadInteger("best_of", value, 1, kChoicesMax, &number);
  request.best_of = static_cast<uint32_t>(number);
  return error;
}

FieldError RefuseSuffix(const Json&, const ModelLimits&, CompletionRequest&) {
  return InvalidField("suffix", "unsupported_parameter",
                      "suffix: this server does not insert text; write the model's own "
                      "fill-in-the-middle tokens into the prompt");
}

constexpr Field<CompletionRequest> kFields[] = {
    {"prompt", ReadPromptField}, {"logprobs", ReadLogprobs}, {"echo", ReadEcho},
    {"best_of", ReadBestOf},     {"suffix", RefuseSuffix},
};

FieldError CheckTogether(const CompletionRequest& request) {
  if (request.prompts.empty()) {
    return InvalidField("prompt", "missing_required_parameter",
                        fmt::format("prompt: required: {}", kPromptTypes));
  }
  if (request.best_of && *request.best_of != request.choices) {
    return InvalidField("best_of", "unsupported_parameter",
                        fmt::format("best_of: this server answers with all it generates: expected "
                                    "what n is, {}, got {}",
                                    request.choices, *request.best_of));
  }
  const size_t choices = request.prompts.size() * request.choices;
  if (choices > kChoicesMax) {
    return InvalidField("n", "invalid_value",
                        fmt::format("n: expected at most {} choices in all, got {} prompts of {}",
                                    kChoicesMax, request.prompts.size(), request.choices));
  }
  return std::nullopt;
}

}  // namespace

ApiResult<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                    const ModelLimits& limits) {
  if (FieldError error = CheckValueCount("prompt", body, kPromptsMax, limits))
    return std::move(*error);
  ApiResult<Json> parsed = ParseObject(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const Json& root = std::get<Json>(parsed);
  CompletionRequest request;
  FieldError error = ReadFields(root, limits, std::span<const Field<CompletionRequest>>(kFields),
                                GenerationFields(), request);
  if (!error) error = CheckTogether(request);
  if (!error && !request.max_tokens && !request.max_completion_tokens) {
    request.max_tokens = kCompletionTokensDefault;
  }
  if (!error) error = CheckGeneration(root, &request);
  if (error) return std::move(*error);
  return request;
}

}  // namespace tessera
