// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/request_body.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOurs[] = {"model",
                                 "prompt",
                                 "messages",
                                 "max_tokens",
                                 "stream",
                                 "stream_options",
                                 "max_completion_tokens"};

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string IdArray(const std::vector<int32_t>& tokens) {
  std::string text = "[";
  for (const int32_t id : tokens) {
    fmt::format_to(std::back_inserter(text), "{}{}", text.size() > 1 ? "," : "", id);
  }
  return text + "]";
}

}  // namespace

std::string TokensAsWords(const std::vector<int32_t>& tokens) {
  std::string text;
  for (const int32_t id : tokens) {
    if (!text.empty()) text += ' ';
    uint32_t rest = static_cast<uint32_t>(id);
    do {
      text += static_cast<char>('a' + rest % 26);
      rest /= 26;
    } while (rest > 0);
  }
  return text;
}

Result<RequestBodies> RequestBodies::Create(const BodyOptions& options) {
  Json json = {{"model", options.model},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"temperature", options.temperature}};
  if (options.ignore_eos) json["ignore_eos"] = true;
  if (!options.extra.empty()) {
    const Json extra = Json::parse(options.extra, nullptr, /*allow_exceptions=*/false);
    if (!extra.is_object()) {
      return InvalidArgument(
          fmt::format("--extra-body: expected a JSON object, found '{}'", options.extra));
    }
    for (const char* name : kOurs) {
      if (extra.contains(name)) {
        return InvalidArgument(fmt::format("--extra-body: {} is for the load to set", name));
      }
    }
    json.update(extra);
  }
  std::string fixed = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  fixed.pop_back();
  return RequestBodies(std::move(fixed), options.chat, options.as_text);
}

std::string RequestBodies::Body(const LoadPrompt& prompt) const {
  const std::string text = !prompt.tokens.empty() && as_text_ ? Quoted(TokensAsWords(prompt.tokens))
                                                              : Quoted(prompt.text);
  if (!chat_) {
    return fmt::format(R"({},"max_tokens":{},"prompt":{}}})", fixed_, prompt.output_tokens,
                       !prompt.tokens.empty() && !as_text_ ? IdArray(prompt.tokens) : text);
  }
  return fmt::format(
      R"({},"max_completion_tokens":{},"messages":{}}})", fixed_, prompt.output_tokens,
      prompt.messages.empty() ? fmt::format(R"([{{"role":"user","content":{}}}])", text)
                              : prompt.messages);
}

}  // namespace tessera
