// SPDX-License-Identifier: Apache-2.0
#include "server/tokenize.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "server/answer_json.h"
#include "server/chat_request.h"
#include "server/completion_response.h"
#include "server/field_reader.h"
#include "server/prompt_input.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

struct TokenizeRequest {
  std::string model;
  std::optional<std::string> content;  // llama-server's
  std::optional<std::string> prompt;   // vLLM's
  bool add_special = false;
  bool parse_special = true;
  bool add_special_tokens = true;
  bool with_pieces = false;
  bool return_token_strs = false;
};

FieldError ReadText(std::string_view field, const Json& value, const ModelLimits& limits,
                    std::optional<std::string>* out) {
  if (!value.is_string()) return WrongType(field, "a string", value);
  const std::string& text = value.get_ref<const std::string&>();
  const size_t tokens_min = text.size() / limits.token_bytes_max;
  if (tokens_min > limits.context_length) {
    return PromptTooLong(limits, field, fmt::format("{} has at least {}", field, tokens_min));
  }
  *out = text;
  return std::nullopt;
}

constexpr Field<TokenizeRequest> kTokenizeFields[] = {
    {"model", [](const Json& value, const ModelLimits&,
                 TokenizeRequest& request) { return ReadString("model", value, &request.model); }},
    {"content",
     [](const Json& value, const ModelLimits& limits, TokenizeRequest& request) {
       return ReadText("content", value, limits, &request.content);
     }},
    {"prompt",
     [](const Json& value, const ModelLimits& limits, TokenizeRequest& request) {
       return ReadText("prompt", value, limits, &request.prompt);
     }},
    {"add_special",
     [](const Json& value, const ModelLimits&, TokenizeRequest& request) {
       return ReadBool("add_special", value, &request.add_special);
     }},
    {"parse_special",
     [](const Json& value, const ModelLimits&, TokenizeRequest& request) {
       return ReadBool("parse_special", value, &request.parse_special);
     }},
    {"add_special_tokens",
     [](const Json& value, const ModelLimits&, TokenizeRequest& request) {
       return ReadBool("add_special_tokens", value, &request.add_special_tokens);
     }},
    {"with_pieces",
     [](const Json& value, const ModelLimits&, TokenizeRequest& request) {
       return ReadBool("with_pieces", value, &request.with_pieces);
     }},
    {"return_token_strs",
     [](const Json& value, const ModelLimits&, TokenizeRequest& request) {
       return ReadBool("return_token_strs", value, &request.return_token_strs);
     }},
};

HttpReply PiecesReply(const std::vector<TokenId>& ids, const Tokenizer& tokenizer) {
  OrderedJson tokens = OrderedJson::array();
  for (TokenId id : ids) {
    const std::string bytes = tokenizer.TokenBytes(id, /*special=*/true);
    OrderedJson piece = bytes;
    if (ValidUtf8Prefix(bytes) != bytes.size()) {
      piece = OrderedJson::array();
      for (char c : bytes) piece.push_back(static_cast<unsigned char>(c));
    }
    tokens.push_back({{"id", id}, {"piece", std::move(piece)}});
  }
  return HttpReply::Json(DumpJson({{"tokens", std::move(tokens)}}));
}

HttpReply CountReply(const AnswerContext& context, const std::vector<TokenId>& ids,
                     bool with_strings) {
  OrderedJson json = {
      {"count", ids.size()}, {"max_model_len", context.max_model_len}, {"tokens", ids}};
  if (with_strings) {
    json["token_strs"] = OrderedJson::array();
    for (TokenId id : ids) {
      json["token_strs"].push_back(
          TokenText(context.engine->tokenizer().TokenBytes(id, /*special=*/true)));
    }
  }
  return HttpReply::Json(DumpJson(json));
}

// The prompt of a chat, as vLLM's shape has it.
HttpReply TokenizeChat(const AnswerContext& context, const ChatPrompter& prompter, Json root,
                       const std::string& body) {
  bool with_strings = false;
  if (const auto wanted = root.find("return_token_strs"); wanted != root.end()) {
    const FieldError error =
        wanted->is_null() ? std::nullopt : ReadBool("return_token_strs", *wanted, &with_strings);
    if (error) return HttpReply::Error(*error);
    root.erase(wanted);
  }
  ApiResult<ChatRequest> request = ReadChatRequest(root, body, context.limits);
  if (const ApiError* error = std::get_if<ApiError>(&request)) return HttpReply::Error(*error);
  const ChatRequest& chat = std::get<ChatRequest>(request);
  if (const auto error = context.CheckModel(chat.model)) return HttpReply::Error(*error);
  const ApiResult<RenderedChat> rendered = prompter.Render(chat);
  if (const ApiError* error = std::get_if<ApiError>(&rendered)) return HttpReply::Error(*error);
  return CountReply(context, std::get<RenderedChat>(rendered).prompt.ids, with_strings);
}

struct DetokenizeRequest {
  std::string model;
  std::optional<std::vector<TokenId>> tokens;
};

constexpr Field<DetokenizeRequest> kDetokenizeFields[] = {
    {"model",
     [](const Json& value, const ModelLimits&, DetokenizeRequest& request) {
       return ReadString("model", value, &request.model);
     }},
    {"tokens",
     [](const Json& value, const ModelLimits& limits, DetokenizeRequest& request) -> FieldError {
       if (!value.is_array()) return WrongType("tokens", "an array of token ids", value);
       if (value.size() > limits.context_length) {
         return WrongValue("tokens", fmt::format("at most {} token ids", limits.context_length),
                           value);
       }
       return In("tokens",
                 ReadTokenIds("tokens", value, limits.vocab_size, &request.tokens.emplace()));
     }},
};

template <typename Request>
FieldError Read(const Json& root, const ModelLimits& limits, std::span<const Field<Request>> fields,
                Request* request) {
  return ReadFields(root, limits, fields, std::span<const Field<Request>>(), *request);
}

// `field` is the one that makes a body long.
ApiResult<Json> ParseBounded(std::string_view field, const std::string& body,
                             const ModelLimits& limits) {
  if (FieldError error = CheckValueCount(field, body, 1, limits)) return std::move(*error);
  return ParseObject(body);
}

}  // namespace

HttpReply HandleTokenize(const AnswerContext& context, const ChatPrompter& prompter,
                         const HttpRequest& http) {
  ApiResult<Json> parsed = ParseBounded("content", http.body, context.limits);
  if (const ApiError* error = std::get_if<ApiError>(&parsed)) return HttpReply::Error(*error);
  Json& root = std::get<Json>(parsed);
  if (root.contains("messages")) {
    return TokenizeChat(context, prompter, std::move(root), http.body);
  }
  TokenizeRequest request;
  if (FieldError error = Read(root, context.limits,
                              std::span<const Field<TokenizeRequest>>(kTokenizeFields), &request)) {
    return HttpReply::Error(*error);
  }
  if (const auto error = context.CheckModel(request.model)) return HttpReply::Error(*error);
  if (request.content.has_value() == request.prompt.has_value()) {
    return HttpReply::Error(InvalidField("content", "missing_required_parameter",
                                         "content, prompt, messages: expected one of the three"));
  }
  EncodeOptions options;
  options.parse_special = request.parse_special;
  options.add_special = request.content ? request.add_special : request.add_special_tokens;
  const Tokenizer& tokenizer = context.engine->tokenizer();
  const std::vector<TokenId> ids =
      tokenizer.Encode(request.content ? *request.content : *request.prompt, options);
  if (request.prompt) return CountReply(context, ids, request.return_token_strs);
  if (request.with_pieces) return PiecesReply(ids, tokenizer);
  return HttpReply::Json(DumpJson({{"tokens", ids}}));
}

HttpReply HandleDetokenize(const AnswerContext& context, const HttpRequest& http) {
  ApiResult<Json> parsed = ParseBounded("tokens", http.body, context.limits);
  if (const ApiError* error = std::get_if<ApiError>(&parsed)) return HttpReply::Error(*error);
  DetokenizeRequest request;
  if (FieldError error =
          Read(std::get<Json>(parsed), context.limits,
               std::span<const Field<DetokenizeRequest>>(kDetokenizeFields), &request)) {
    return HttpReply::Error(*error);
  }
  if (const auto error = context.CheckModel(request.model)) return HttpReply::Error(*error);
  if (!request.tokens) {
    return HttpReply::Error(InvalidField("tokens", "missing_required_parameter",
                                         "tokens: required: an array of token ids"));
  }
  StreamingDetokenizer detokenizer(&context.engine->tokenizer(), /*special=*/true);
  std::string text;
  for (TokenId id : *request.tokens) text += detokenizer.Append(id);
  text += detokenizer.Finish();
  return HttpReply::Json(DumpJson({{"content", text}, {"prompt", text}}));
}

}  // namespace tessera
