// SPDX-License-Identifier: Apache-2.0
//
// CompletionRequest is the body of POST /v1/completions, checked, so that what follows needs no
// second look at it: the fields of generation_request.h and
//
//   prompt     a string, ids, or an array of up to kPromptsMax of either; n choices of each
//   logprobs   0 to kLogprobsMax
//   echo       the prompt is put before the text of every choice, and its log-probabilities too
//   best_of    what n is: candidates that are thrown away would cost and change nothing here
//   suffix     refused: the model is not asked to fill in
//
// null means absent. Any other field is refused by name.
//
// Failure: ApiError with the field as `param`, expected and actual in the message.
// Threads: pure functions of their arguments.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "server/generation_request.h"
#include "server/prompt_input.h"

namespace tessera {

struct CompletionRequest : GenerationRequest {
  std::vector<PromptInput> prompts;
  int logprobs = -1;
  bool echo = false;
  std::optional<uint32_t> best_of;
};

inline constexpr uint32_t kCompletionTokensDefault = 16;  // OpenAI's max_tokens

// A prompt that cannot fit the context is refused before it is copied, numbers that are more than
// all prompts of a request can have before they are parsed.
ApiResult<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                    const ModelLimits& limits);

}  // namespace tessera
