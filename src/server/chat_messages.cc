// SPDX-License-Identifier: Apache-2.0
#include "server/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "server/chat_request.h"
#include "server/json_body.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};
constexpr std::string_view kRoleNames = "one of system, developer, user, assistant, tool";

ApiError WrongPlace(const std::string& place, std::string_view expected, const Json& actual) {
  return InvalidField(place, "invalid_type",
                      fmt::format("{}: expected {}, got {}", place, expected,
                                  DescribeJson(nlohmann::json(actual))));
}

FieldError ExpectString(const std::string& place, const Json& value) {
  if (value.is_string()) return std::nullopt;
  return WrongPlace(place, "a string", value);
}

// A member that must be there, of an object.
const Json* Find(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

FieldError ReadPart(const std::string& place, const Json& part, std::string* text) {
  if (!part.is_object()) return WrongPlace(place, "an object", part);
  const Json* type = Find(part, "type");
  if (type == nullptr || *type != "text") {
    return WrongPlace(place + ".type", "\"text\": the model reads nothing else",
                      type == nullptr ? Json() : *type);
  }
  const Json* content = Find(part, "text");
  if (content == nullptr || !content->is_string()) {
    return WrongPlace(place + ".text", "a string", content == nullptr ? Json() : *content);
  }
  if (!text->empty()) *text += '\n';
  *text += content->get_ref<const std::string&>();
  return std::nullopt;
}

FieldError ReadContent(const std::string& place, const Json& value, Json* out) {
  if (value.is_string()) {
    *out = value;
    return std::nullopt;
  }
  if (!value.is_array() || value.empty()) {
    return WrongPlace(place, "a string or an array of text parts", value);
  }
  std::string text;
  for (size_t i = 0; i < value.size(); ++i) {
    if (FieldError error = ReadPart(fmt::format("{}[{}]", place, i), value[i], &text)) return error;
  }
  *out = std::move(text);
  return std::nullopt;
}

FieldError ReadArguments(const std::string& place, const Json& value, Json* out) {
  *out = value;
  if (value.is_string()) {
    *out = Json::parse(value.get_ref<const std::string&>(), nullptr, /*allow_exceptions=*/false);
  }
  if (out->is_object()) return std::nullopt;
  return WrongPlace(place, "an object, or one written as a string of JSON", value);
}

FieldError ReadToolCall(const std::string& place, const Json& value, Json* out) {
  if (!value.is_object()) return WrongPlace(place, "an object", value);
  const Json* function = Find(value, "function");
  if (function == nullptr || !function->is_object()) {
    return WrongPlace(place + ".function", "an object", function == nullptr ? Json() : *function);
  }
  const Json* name = Find(*function, "name");
  if (name == nullptr || !name->is_string()) {
    return WrongPlace(place + ".function.name", "a string", name == nullptr ? Json() : *name);
  }
  *out = value;
  const Json* arguments = Find(*function, "arguments");
  Json parsed = Json::object();
  if (arguments != nullptr) {
    if (FieldError error = ReadArguments(place + ".function.arguments", *arguments, &parsed)) {
      return error;
    }
  }
  (*out)["function"]["arguments"] = std::move(parsed);
  return std::nullopt;
}

FieldError ReadToolCalls(const std::string& place, const Json& value, Json* out) {
  if (!value.is_array() || value.empty() || value.size() > kToolsMax) {
    return WrongPlace(place, fmt::format("an array of 1 to {} calls", kToolsMax), value);
  }
  *out = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    if (FieldError error =
            ReadToolCall(fmt::format("{}[{}]", place, i), value[i], &out->emplace_back())) {
      return error;
    }
  }
  return std::nullopt;
}

FieldError ReadMember(const std::string& place, const std::string& name, const Json& value,
                      Json* message) {
  if (name == "role") {
    const bool known = value.is_string() && std::find(kRoles.begin(), kRoles.end(),
                                                      value.get<std::string>()) != kRoles.end();
    if (!known) return WrongPlace(place, kRoleNames, value);
    (*message)[name] = value;
    return std::nullopt;
  }
  if (name == "content") return ReadContent(place, value, &(*message)[name]);
  if (name == "tool_calls") return ReadToolCalls(place, value, &(*message)[name]);
  if (name == "name" || name == "tool_call_id" || name == "reasoning_content") {
    if (FieldError error = ExpectString(place, value)) return error;
    (*message)[name] = value;
    return std::nullopt;
  }
  if (name == "refusal" || name == "annotations") return std::nullopt;
  return UnknownField(place.substr(0, place.rfind('.') + 1) + ShownName(name),
                      "role, content, name, tool_calls, tool_call_id, reasoning_content");
}

FieldError ReadMessage(const std::string& place, const Json& value, Json* message) {
  if (!value.is_object()) return WrongPlace(place, "an object", value);
  *message = Json::object();
  for (const auto& [name, member] : value.items()) {
    if (member.is_null()) continue;
    if (FieldError error = ReadMember(fmt::format("{}.{}", place, name), name, member, message)) {
      return error;
    }
  }
  if (!message->contains("role")) return WrongPlace(place + ".role", kRoleNames, Json());
  if (message->contains("content")) return std::nullopt;
  if (!message->contains("tool_calls") || (*message)["role"] != "assistant") {
    return WrongPlace(place + ".content", "a string or an array of text parts", Json());
  }
  (*message)["content"] = nullptr;
  return std::nullopt;
}

FieldError ReadTool(const std::string& place, const Json& value) {
  if (!value.is_object()) return WrongPlace(place, "an object", value);
  const Json* type = Find(value, "type");
  if (type == nullptr || *type != "function") {
    return WrongPlace(place + ".type", "\"function\"", type == nullptr ? Json() : *type);
  }
  const Json* function = Find(value, "function");
  if (function == nullptr || !function->is_object()) {
    return WrongPlace(place + ".function", "an object", function == nullptr ? Json() : *function);
  }
  const Json* name = Find(*function, "name");
  if (name != nullptr && name->is_string()) return std::nullopt;
  return WrongPlace(place + ".function.name", "a string", name == nullptr ? Json() : *name);
}

}  // namespace

FieldError ReadMessages(const Json& value, Json* out) {
  const std::string expected = fmt::format("an array of 1 to {} messages", kMessagesMax);
  if (!value.is_array() || value.empty() || value.size() > kMessagesMax) {
    return In("messages", WrongPlace("messages", expected, value));
  }
  *out = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    if (FieldError error =
            ReadMessage(fmt::format("messages[{}]", i), value[i], &out->emplace_back())) {
      return error;
    }
  }
  return std::nullopt;
}

FieldError ReadTools(const Json& value, Json* out) {
  if (!value.is_array() || value.size() > kToolsMax) {
    return WrongPlace("tools", fmt::format("an array of at most {} tools", kToolsMax), value);
  }
  for (size_t i = 0; i < value.size(); ++i) {
    if (FieldError error = ReadTool(fmt::format("tools[{}]", i), value[i])) return error;
  }
  *out = value.empty() ? Json() : value;
  return std::nullopt;
}

}  // namespace tessera
