// SPDX-License-Identifier: Apache-2.0
#include "server/chat_prompt.h"

#include <fmt/format.h>

#include <ctime>
#include <utility>

namespace tessera {
namespace {

std::string TextOf(std::optional<TokenId> token, const Tokenizer& tokenizer) {
  return token ? tokenizer.TokenBytes(*token, /*special=*/true) : "";
}

std::tm LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  ::localtime_r(&now, &local);
  return local;
}

}  // namespace

ChatPrompter::ChatPrompter(std::string_view source, const Tokenizer* tokenizer,
                           const ModelLimits& limits)
    : tokenizer_(tokenizer), limits_(limits), bos_text_(TextOf(tokenizer->bos(), *tokenizer)) {
  if (source.empty()) return;
  Result<ChatTemplate> compiled =
      ChatTemplate::Compile(source, bos_text_, TextOf(tokenizer->eos(), *tokenizer));
  if (!compiled) {
    error_ = compiled.error().message();
    return;
  }
  template_.emplace(std::move(*compiled));
  knows_developer_ = source.find("developer") != std::string_view::npos;
  tool_form_ = ToolCallFormOf(source);
  reasoning_ = ReasoningMarksOf(source);
}

std::optional<ApiError> ChatPrompter::Check(const ChatRequest& request) const {
  if (!error_.empty()) {
    return ServerError(500, "chat_template_error", "the model file's " + error_);
  }
  if (!template_) {
    return InvalidField("messages", "no_chat_template",
                        "messages: the model file has no chat template: this model takes prompts, "
                        "at /v1/completions");
  }
  if (request.tools.is_null()) return std::nullopt;
  if (!template_->Reads("tools")) {
    return InvalidField("tools", "unsupported_parameter",
                        "tools: the model's chat template does not take tools");
  }
  if (tool_form_ != nullptr) return std::nullopt;
  return InvalidField("tools", "unsupported_parameter",
                      "tools: this server does not read calls of tools as the model's chat "
                      "template teaches them (docs/http.md says which it reads)");
}

ApiResult<RenderedChat> ChatPrompter::Render(const ChatRequest& request) const {
  if (std::optional<ApiError> error = Check(request)) return std::move(*error);
  nlohmann::ordered_json renamed;
  ChatInput input;
  input.messages = &request.messages;
  if (!knows_developer_) {
    renamed = request.messages;
    for (nlohmann::ordered_json& message : renamed) {
      if (message["role"] == "developer") message["role"] = "system";
    }
    input.messages = &renamed;
  }
  if (!request.tools.is_null()) input.tools = &request.tools;
  input.kwargs = &request.kwargs;
  input.add_generation_prompt = request.add_generation_prompt;
  input.now = LocalTime();
  Result<ChatPrompt> chat = template_->Render(input);
  if (!chat) return InvalidField("messages", "chat_template_refused", chat.error().message());

  const size_t tokens_min = chat->text.size() / limits_.token_bytes_max;
  if (tokens_min > limits_.context_length) {
    return PromptTooLong(limits_, "messages",
                         fmt::format("the messages have at least {}", tokens_min));
  }
  RenderedChat rendered;
  const bool has_bos = !bos_text_.empty() && chat->text.starts_with(bos_text_);
  rendered.prompt.ids =
      tokenizer_->Encode(chat->text, {.add_special = !has_bos, .parse_special = true});
  if (!has_bos) {
    rendered.prompt.added_before = tokenizer_->added_before().has_value() ? 1 : 0;
    // A text end after the generation prompt would end the answer before it begins.
    if (tokenizer_->added_after().has_value()) rendered.prompt.ids.pop_back();
  }
  if (rendered.prompt.ids.empty()) {
    return InvalidField("messages", "chat_template_refused",
                        "chat template: the messages make an empty prompt");
  }
  rendered.message_ends = TokenEnds(chat->message_ends, rendered.prompt);
  rendered.isolate_after = request.isolates_after_system
                               ? SystemEnd(request, *chat, rendered.prompt)
                               : request.isolate_after;
  rendered.reading = ReadingOf(request, chat->text);
  rendered.text = std::move(chat->text);
  return rendered;
}

uint32_t ChatPrompter::SystemEnd(const ChatRequest& request, const ChatPrompt& chat,
                                 const PromptTokens& prompt) const {
  size_t leading = 0;
  for (const nlohmann::ordered_json& message : request.messages) {
    if (message["role"] != "system" && message["role"] != "developer") break;
    ++leading;
  }
  if (leading == 0) return 0;
  const std::vector<uint32_t> end = TokenEnds({&chat.message_ends[leading - 1], 1}, prompt);
  return end.empty() ? 0 : end[0];
}

AnswerReading ChatPrompter::ReadingOf(const ChatRequest& request, std::string_view prompt) const {
  AnswerReading reading;
  const auto show = [&](std::string_view mark) {
    if (mark.empty()) return;
    const std::vector<TokenId> ids =
        tokenizer_->Encode(mark, {.add_special = false, .parse_special = true});
    const bool hidden = ids.size() == 1 && tokenizer_->TokenBytes(ids[0]).empty();
    if (hidden) reading.shown_special.push_back(ids[0]);
  };
  if (!request.tools.is_null()) {
    reading.calls = tool_form_;
    show(tool_form_->open);
    show(tool_form_->close);
  }
  if (reasoning_ != nullptr) {
    reading.reasoning = reasoning_;
    reading.begins_in_reasoning = EndsInReasoning(*reasoning_, prompt);
    show(reasoning_->open);
    show(reasoning_->close);
  }
  return reading;
}

std::vector<uint32_t> ChatPrompter::TokenEnds(std::span<const std::optional<size_t>> byte_ends,
                                              const PromptTokens& prompt) const {
  std::vector<uint32_t> ends;
  size_t bytes = 0;
  uint32_t token = prompt.added_before;
  for (const std::optional<size_t>& end : byte_ends) {
    if (!end) continue;
    while (token < prompt.ids.size()) {
      const size_t size = tokenizer_->TokenBytes(prompt.ids[token], /*special=*/true).size();
      if (bytes + size > *end) break;
      bytes += size;
      ++token;
    }
    if (token > 0 && (ends.empty() || ends.back() < token)) ends.push_back(token);
  }
  return ends;
}

}  // namespace tessera
