// SPDX-License-Identifier: Apache-2.0
#include "server/cache_pins.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "port/clock.h"
#include "server/answer_json.h"
#include "server/chat_request.h"
#include "server/field_reader.h"
#include "server/prompt_input.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

struct PinBody {
  std::string model;
  std::optional<PromptInput> prompt;
  std::string cache_salt;
  uint32_t isolate_after = 0;
  uint32_t ttl_s = 0;  // 0: until it is released
};

FieldError ReadTtl(const Json& value, uint32_t* out) {
  int64_t seconds = 0;
  FieldError error = ReadInteger("ttl_s", value, 1, kPinSecondsMax, &seconds);
  *out = static_cast<uint32_t>(seconds);
  return error;
}

constexpr Field<PinBody> kPinFields[] = {
    {"model", [](const Json& value, const ModelLimits&,
                 PinBody& body) { return ReadString("model", value, &body.model); }},
    {"prompt",
     [](const Json& value, const ModelLimits& limits, PinBody& body) {
       return ReadOnePrompt("prompt", value, limits, &body.prompt.emplace());
     }},
    {"cache_salt", [](const Json& value, const ModelLimits&,
                      PinBody& body) { return ReadCacheSalt(value, &body.cache_salt); }},
    {"isolate_after",
     [](const Json& value, const ModelLimits& limits, PinBody& body) {
       return ReadIsolateAfter(value, limits, &body.isolate_after);
     }},
    {"ttl_s", [](const Json& value, const ModelLimits&,
                 PinBody& body) { return ReadTtl(value, &body.ttl_s); }},
};

struct ReleaseBody {
  std::optional<uint64_t> pin;
};

constexpr Field<ReleaseBody> kReleaseFields[] = {
    {"pin",
     [](const Json& value, const ModelLimits&, ReleaseBody& body) -> FieldError {
       int64_t id = 0;
       FieldError error = ReadInteger("pin", value, 1, std::numeric_limits<int64_t>::max(), &id);
       body.pin = static_cast<uint64_t>(id);
       return error;
     }},
};

template <typename Body>
FieldError Read(const Json& root, const ModelLimits& limits, std::span<const Field<Body>> fields,
                Body* body) {
  return ReadFields(root, limits, fields, std::span<const Field<Body>>(), *body);
}

// The prefix that is meant, of a prompt or a chat.
ApiResult<PinRequest> ParsePromptPin(const AnswerContext& context, const Json& root) {
  PinBody body;
  if (FieldError error =
          Read(root, context.limits, std::span<const Field<PinBody>>(kPinFields), &body)) {
    return std::move(*error);
  }
  if (std::optional<ApiError> error = context.CheckModel(body.model)) return std::move(*error);
  if (!body.prompt) {
    return InvalidField("prompt", "missing_required_parameter",
                        "prompt, messages: expected one of the two");
  }
  ApiResult<PromptTokens> tokens = TokensOf(*body.prompt, context.engine->tokenizer());
  if (ApiError* error = std::get_if<ApiError>(&tokens)) return std::move(*error);
  PinRequest request;
  request.prompt = std::move(std::get<PromptTokens>(tokens).ids);
  request.cache_salt = std::move(body.cache_salt);
  request.isolate_after = body.isolate_after;
  request.ttl_s = body.ttl_s;
  return request;
}

ApiResult<PinRequest> ParseChatPin(const AnswerContext& context, const ChatPrompter& prompter,
                                   Json root, const std::string& text) {
  PinRequest request;
  if (const auto ttl = root.find("ttl_s"); ttl != root.end()) {
    FieldError error = ttl->is_null() ? std::nullopt : ReadTtl(*ttl, &request.ttl_s);
    if (error) return std::move(*error);
    root.erase(ttl);
  }
  ApiResult<ChatRequest> chat = ReadChatRequest(root, text, context.limits);
  if (ApiError* error = std::get_if<ApiError>(&chat)) return std::move(*error);
  ChatRequest& parsed = std::get<ChatRequest>(chat);
  if (std::optional<ApiError> error = context.CheckModel(parsed.model)) return std::move(*error);
  ApiResult<RenderedChat> rendered = prompter.Render(parsed);
  if (ApiError* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  request.isolate_after = std::get<RenderedChat>(rendered).isolate_after;
  request.prompt = std::move(std::get<RenderedChat>(rendered).prompt.ids);
  request.cache_salt = std::move(parsed.cache_salt);
  return request;
}

ApiError NotThere(std::string param, std::string code, std::string message) {
  ApiError error = InvalidField(std::move(param), std::move(code), std::move(message));
  error.http_status = 404;
  return error;
}

OrderedJson PinJson(const PinInfo& pin) {
  OrderedJson json = {{"pin", pin.id}, {"tokens", pin.tokens}, {"bytes", pin.bytes}};
  json["expires_in_s"] = nullptr;
  if (pin.expires_at > 0) {
    const uint64_t now = NowNs();
    json["expires_in_s"] = pin.expires_at > now ? (pin.expires_at - now) / 1'000'000'000 : 0;
  }
  return json;
}

}  // namespace

HttpReply HandlePin(const AnswerContext& context, const ChatPrompter& prompter,
                    const HttpRequest& http, const Caller& caller) {
  if (std::optional<ApiError> error = CheckValueCount("prompt", http.body, 1, context.limits)) {
    return HttpReply::Error(*error);
  }
  ApiResult<Json> parsed = ParseObject(http.body);
  if (const ApiError* error = std::get_if<ApiError>(&parsed)) return HttpReply::Error(*error);
  Json& root = std::get<Json>(parsed);
  const std::string field = root.contains("messages") ? "messages" : "prompt";
  ApiResult<PinRequest> made = field == "messages"
                                   ? ParseChatPin(context, prompter, std::move(root), http.body)
                                   : ParsePromptPin(context, root);
  if (const ApiError* error = std::get_if<ApiError>(&made)) return HttpReply::Error(*error);
  PinRequest& request = std::get<PinRequest>(made);
  request.isolation_key = caller.isolation_key;
  const PinResult result = context.engine->Pin(request);
  if (!result.error.ok()) return HttpReply::Error(FromEngineStatus(result.error));
  if (result.pin) return HttpReply::Json(DumpJson(PinJson(*result.pin)));
  return HttpReply::Error(NotThere(
      field, "not_cached",
      fmt::format("{}: no state of the prompt's {} tokens is kept; a request with it (max_tokens 0 "
                  "is enough) makes some",
                  field, request.prompt.size())));
}

HttpReply HandleRelease(const AnswerContext& context, const HttpRequest& http,
                        const Caller& caller) {
  ApiResult<Json> parsed = ParseObject(http.body);
  if (const ApiError* error = std::get_if<ApiError>(&parsed)) return HttpReply::Error(*error);
  ReleaseBody body;
  if (FieldError error = Read(std::get<Json>(parsed), context.limits,
                              std::span<const Field<ReleaseBody>>(kReleaseFields), &body)) {
    return HttpReply::Error(*error);
  }
  if (!body.pin) {
    return HttpReply::Error(InvalidField("pin", "missing_required_parameter",
                                         "pin: required: the number that pinning answered"));
  }
  if (context.engine->Unpin(*body.pin, caller.isolation_key)) {
    return HttpReply::Json(DumpJson({{"released", true}}));
  }
  return HttpReply::Error(NotThere(
      "pin", "pin_not_found", fmt::format("pin: there is no {}: released, or expired", *body.pin)));
}

HttpReply HandlePins(const AnswerContext& context, const Caller& caller) {
  OrderedJson pins = OrderedJson::array();
  for (const PinInfo& pin : context.engine->Pins(caller.isolation_key)) {
    OrderedJson json = PinJson(pin);
    json["salted"] = pin.salted;
    json["lost"] = pin.lost;
    pins.push_back(std::move(json));
  }
  return HttpReply::Json(DumpJson({{"pins", std::move(pins)}}));
}

}  // namespace tessera
