// SPDX-License-Identifier: Apache-2.0
//
// ChatRequest is the body of POST /v1/chat/completions, checked: the fields of
// generation_request.h, a conversation as the model's template reads it, and how to answer.
//
// messages   1 to kMessagesMax objects. role: system, developer, user, assistant or tool. content: a
//            string, or text parts, which are joined by line ends; null only of an assistant with
//            tool_calls. Besides: name, tool_calls, tool_call_id, reasoning_content, and refusal and
//            annotations, which answers carry and templates do not read
// tools      functions, for the template; tool_choice "auto" or "none" (then the template sees none)
// kwargs     chat_template_kwargs, and reasoning_effort
// isolate_after  also "system": after the system messages that it begins with, which the server
//            counts when it has the prompt (RenderedChat)
//
// The arguments of a message's tool calls become an object, as templates expect. What keys there
// are and their order reach the template as they came: they are in the prompt.
//
// Not here: constraints on what is generated (response_format but text, tool_choice of a function),
// media, audio, functions of the older API. They are refused by name.
//
// Failure: ApiError with the field as `param`, expected and actual in the message.
// Threads: pure functions of their arguments.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "server/generation_request.h"

namespace tessera {

inline constexpr size_t kMessagesMax = 4096;
inline constexpr size_t kToolsMax = 128;  // OpenAI's limit

struct ChatRequest : GenerationRequest {
  nlohmann::ordered_json messages;  // an array, not empty
  nlohmann::ordered_json tools;     // an array, or null: none
  nlohmann::ordered_json kwargs = nlohmann::ordered_json::object();
  bool add_generation_prompt = true;
  bool isolates_after_system = false;
  bool logprobs = false;
  int top_logprobs = 0;
};

ApiResult<ChatRequest> ParseChatRequest(std::string_view body, const ModelLimits& limits);

// The same in two parts, for routes with fields of their own: parse, take those out of the object,
// and read the rest. `body` is the text the object is of: it tells the order of keys.
ApiResult<nlohmann::json> ParseChatBody(std::string_view body);
ApiResult<ChatRequest> ReadChatRequest(const nlohmann::json& root, std::string_view body,
                                       const ModelLimits& limits);

}  // namespace tessera
