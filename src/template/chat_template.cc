// SPDX-License-Identifier: Apache-2.0
#include "template/chat_template.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "template/message_ends.h"
#include "template/template.h"
#include "template/value.h"
#include "template/workspace.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using jinja::Value;
using jinja::Workspace;

// `depth` is how deep `json` lies; the workspace bounds values as they are made, but from the
// inside out, and so too late for this recursion.
Value FromJson(Workspace& space, const Json& json, int depth) {
  if (depth > jinja::kValueDepthMax) {
    space.Fail(fmt::format("a value nests more than {} deep", jinja::kValueDepthMax));
  }
  space.ChargeSteps(1);
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        space.Fail(fmt::format("the number {} is more than 64 bits", json.get<uint64_t>()));
      }
      return Value::Int(json.get<int64_t>());
    case Json::value_t::number_float:
      return Value::Float(json.get<double>());
    case Json::value_t::string:
      return space.MakeString(std::string_view(json.get_ref<const std::string&>()));
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) {
        items.push_back(FromJson(space, item, depth + 1));
      }
      return space.MakeList(std::move(items));
    }
    case Json::value_t::object: {
      jinja::DictBody dict;
      for (const auto& member : json.items()) {
        const Value key = space.MakeString(std::string_view(member.key()));
        dict.Set(key.string(), FromJson(space, member.value(), depth + 1));
      }
      return space.MakeDict(std::move(dict));
    }
    default:
      return Value::None();
  }
}

Status CheckType(const Json* json, Json::value_t type, std::string_view name) {
  if (json == nullptr || json->type() == type) {
    return Status::Ok();
  }
  return InvalidArgument(
      fmt::format("{}: expected an {}, found {}", name, Json(type).type_name(), json->type_name()));
}

Status CheckInput(const ChatInput& input) {
  if (input.messages == nullptr) {
    return InvalidArgument("messages: expected an array, found none");
  }
  TESSERA_RETURN_IF_ERROR(CheckType(input.messages, Json::value_t::array, "messages"));
  for (size_t i = 0; i < input.messages->size(); ++i) {
    TESSERA_RETURN_IF_ERROR(
        CheckType(&(*input.messages)[i], Json::value_t::object, fmt::format("messages[{}]", i)));
  }
  TESSERA_RETURN_IF_ERROR(CheckType(input.tools, Json::value_t::array, "tools"));
  TESSERA_RETURN_IF_ERROR(CheckType(input.documents, Json::value_t::array, "documents"));
  TESSERA_RETURN_IF_ERROR(CheckType(input.kwargs, Json::value_t::object, "chat_template_kwargs"));
  if (input.kwargs != nullptr && input.kwargs->contains("messages")) {
    return InvalidArgument("chat_template_kwargs.messages: expected no such key, found one");
  }
  return Status::Ok();
}

Value OrNone(Workspace& space, const Json* json) {
  return json == nullptr ? Value::None() : FromJson(space, *json, 1);
}

Status WithName(const Status& error) { return {error.code(), "chat template " + error.message()}; }

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const jinja::Template> program, std::string_view bos,
                           std::string_view eos)
    : program_(std::move(program)), bos_(bos), eos_(eos) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::Compile(std::string_view source, std::string_view bos,
                                           std::string_view eos) {
  Result<jinja::Template> program = jinja::Template::Compile(source);
  if (!program.has_value()) {
    return WithName(program.error());
  }
  return ChatTemplate(std::make_unique<const jinja::Template>(*std::move(program)), bos, eos);
}

Result<ChatPrompt> ChatTemplate::Render(const ChatInput& input, const jinja::Limits& limits) const {
  TESSERA_RETURN_IF_ERROR(CheckInput(input));
  jinja::MessageEnds ends;
  Value messages;  // known to `ends` by address
  const auto make_variables = [&](Workspace& space) {
    messages = FromJson(space, *input.messages, 1);
    ends.Watch(messages.items());
    jinja::Variables variables = {
        {"messages", messages},
        {"tools", OrNone(space, input.tools)},
        {"documents", OrNone(space, input.documents)},
        {"add_generation_prompt", Value::Bool(input.add_generation_prompt)},
        {"bos_token", space.MakeString(std::string_view(bos_))},
        {"eos_token", space.MakeString(std::string_view(eos_))},
    };
    if (input.kwargs != nullptr) {
      for (const auto& member : input.kwargs->items()) {
        variables.emplace_back(member.key(), FromJson(space, member.value(), 1));
      }
    }
    return variables;
  };
  Result<std::string> text = program_->Render(input.now, limits, make_variables, &ends);
  if (!text.has_value()) {
    return WithName(text.error());
  }
  return ChatPrompt{.text = *std::move(text), .message_ends = ends.Ends()};
}

bool ChatTemplate::Reads(std::string_view name) const { return program_->Reads(name); }

}  // namespace tessera
