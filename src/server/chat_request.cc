// SPDX-License-Identifier: Apache-2.0
#include "server/chat_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/chat_messages.h"
#include "server/json_body.h"
#include "server/prompt_input.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// Read from the body whose keys are in order, after the walk of the fields.
FieldError Later(const Json&, const ModelLimits&, ChatRequest&) { return std::nullopt; }

FieldError ReadLogprobs(const Json& value, const ModelLimits&, ChatRequest& request) {
  return ReadBool("logprobs", value, &request.logprobs);
}

FieldError ReadTopLogprobs(const Json& value, const ModelLimits&, ChatRequest& request) {
  int64_t number = 0;
  FieldError error = ReadInteger("top_logprobs", value, 0, kLogprobsMax, &number);
  request.top_logprobs = static_cast<int>(number);
  return error;
}

FieldError ReadGenerationPrompt(const Json& value, const ModelLimits&, ChatRequest& request) {
  return ReadBool("add_generation_prompt", value, &request.add_generation_prompt);
}

FieldError ReadChatIsolateAfter(const Json& value, const ModelLimits& limits,
                                ChatRequest& request) {
  request.isolates_after_system = value == "system";
  if (request.isolates_after_system) return std::nullopt;
  if (value.is_number()) return ReadIsolateAfter(value, limits, &request.isolate_after);
  return WrongType("isolate_after", "a number of tokens or \"system\"", value);
}

FieldError ReadToolChoice(const Json& value, const ModelLimits&, ChatRequest&) {
  if (value == "auto" || value == "none") return std::nullopt;
  return InvalidField("tool_choice", "unsupported_parameter",
                      fmt::format("tool_choice: this server does not force calls: expected "
                                  "\"auto\" or \"none\", got {}",
                                  DescribeJson(value)));
}

FieldError ReadParallelCalls(const Json& value, const ModelLimits&, ChatRequest&) {
  bool parallel = true;
  if (FieldError error = ReadBool("parallel_tool_calls", value, &parallel)) return error;
  if (parallel) return std::nullopt;
  return InvalidField("parallel_tool_calls", "unsupported_parameter",
                      "parallel_tool_calls: this server does not keep a model from calling more "
                      "than one tool: expected true");
}

FieldError ReadResponseFormat(const Json& value, const ModelLimits&, ChatRequest&) {
  if (!value.is_object()) return WrongType("response_format", "an object", value);
  const auto type = value.find("type");
  if (type != value.end() && *type == "text") return std::nullopt;
  return InvalidField("response_format", "unsupported_parameter",
                      fmt::format("response_format: this server does not constrain what a model "
                                  "writes: expected type \"text\", got {}",
                                  type == value.end() ? "none" : DescribeJson(*type)));
}

FieldError ReadReasoningEffort(const Json& value, const ModelLimits&, ChatRequest& request) {
  std::string effort;
  FieldError error = ReadString("reasoning_effort", value, &effort);
  request.kwargs["reasoning_effort"] = std::move(effort);
  return error;
}

FieldError ReadStore(const Json& value, const ModelLimits&, ChatRequest&) {
  if (value == false) return std::nullopt;
  return WrongValue("store", "false: this server keeps no answers", value);
}

FieldError ReadServiceTier(const Json& value, const ModelLimits&, ChatRequest&) {
  if (value == "auto" || value == "default") return std::nullopt;
  return WrongValue("service_tier", "\"auto\" or \"default\"", value);
}

constexpr Field<ChatRequest> kFields[] = {
    {"messages", Later},
    {"tools", Later},
    {"tool_choice", ReadToolChoice},
    {"parallel_tool_calls", ReadParallelCalls},
    {"chat_template_kwargs", Later},
    {"add_generation_prompt", ReadGenerationPrompt},
    {"reasoning_effort", ReadReasoningEffort},
    {"isolate_after", ReadChatIsolateAfter},
    {"response_format", ReadResponseFormat},
    {"logprobs", ReadLogprobs},
    {"top_logprobs", ReadTopLogprobs},
    {"store", ReadStore},
    {"service_tier", ReadServiceTier},
};

// Of 4,096 messages with a dozen members each, and the schemas of tools.
constexpr size_t kValuesMax = 64 * 1024;

FieldError ReadKwargs(const nlohmann::ordered_json& value, ChatRequest* request) {
  if (!value.is_object()) {
    return WrongType("chat_template_kwargs", "an object", Json(value));
  }
  if (value.contains("messages")) {
    return InvalidField("chat_template_kwargs", "invalid_value",
                        "chat_template_kwargs: expected no member named messages");
  }
  for (const auto& [name, member] : value.items()) request->kwargs[name] = member;
  return std::nullopt;
}

FieldError CheckTogether(const ChatRequest& request) {
  if (request.top_logprobs == 0 || request.logprobs) return std::nullopt;
  return InvalidField("top_logprobs", "invalid_value",
                      "top_logprobs: only allowed when logprobs is true");
}

// The body again, with the order of its keys.
ApiResult<nlohmann::ordered_json> ParseOrdered(std::string_view body) {
  std::vector<size_t> members;
  bool too_many = false;
  const auto count = [&](int, nlohmann::ordered_json::parse_event_t event,
                         const nlohmann::ordered_json&) {
    using Event = nlohmann::ordered_json::parse_event_t;
    if (event == Event::object_start) members.push_back(0);
    if (event == Event::object_end) members.pop_back();
    if (event == Event::key && ++members.back() > kJsonMembersMax) too_many = true;
    // The library compares each key with all before it: beyond the limit none is added.
    return !(event == Event::key && too_many);
  };
  nlohmann::ordered_json root = nlohmann::ordered_json::parse(body, count, false);
  if (!too_many) return root;
  return InvalidField(
      "", "invalid_value",
      fmt::format("the body: expected at most {} members of an object", kJsonMembersMax));
}

FieldError ReadConversation(const nlohmann::ordered_json& root, ChatRequest* request) {
  const auto messages = root.find("messages");
  if (messages == root.end() || messages->is_null()) {
    return InvalidField("messages", "missing_required_parameter",
                        "messages: required: an array of messages");
  }
  if (FieldError error = ReadMessages(*messages, &request->messages)) return error;
  const auto tools = root.find("tools");
  const auto choice = root.find("tool_choice");
  if (tools != root.end() && !tools->is_null()) {
    if (FieldError error = ReadTools(*tools, &request->tools)) return error;
    if (choice != root.end() && *choice == "none") request->tools = nullptr;
  }
  const auto kwargs = root.find("chat_template_kwargs");
  if (kwargs == root.end() || kwargs->is_null()) return std::nullopt;
  return ReadKwargs(*kwargs, request);
}

}  // namespace

ApiResult<Json> ParseChatBody(std::string_view body) {
  if (!HasMoreValuesThan(kValuesMax, body)) return ParseObject(body);
  return InvalidField("", "invalid_value",
                      fmt::format("the body: expected at most {} values", kValuesMax));
}

ApiResult<ChatRequest> ReadChatRequest(const Json& root, std::string_view body,
                                       const ModelLimits& limits) {
  ChatRequest request;
  FieldError error = ReadFields(root, limits, std::span<const Field<ChatRequest>>(kFields),
                                GenerationFields(), request);
  if (error) return std::move(*error);
  ApiResult<nlohmann::ordered_json> ordered = ParseOrdered(body);
  if (ApiError* wrong = std::get_if<ApiError>(&ordered)) return std::move(*wrong);
  error = ReadConversation(std::get<nlohmann::ordered_json>(ordered), &request);
  if (!error) error = CheckTogether(request);
  if (!error) error = CheckGeneration(root, &request);
  if (error) return std::move(*error);
  return request;
}

ApiResult<ChatRequest> ParseChatRequest(std::string_view body, const ModelLimits& limits) {
  ApiResult<Json> parsed = ParseChatBody(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  return ReadChatRequest(std::get<Json>(parsed), body, limits);
}

}  // namespace tessera
