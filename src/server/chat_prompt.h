// SPDX-License-Identifier: Apache-2.0
//
// ChatPrompter makes the prompt of a chat with the model's own template, and tokens of it.
//
// Special tokens that the template writes are special tokens, and so is text of a message that
// spells one, as in other servers: who must keep users from that filters their text. BOS is put
// before the text when the file asks for it and the template has not written it.
//
// The end of each message, where the template tells it, is a position at which a checkpoint is
// worth its bytes: the last token boundary at or before it.
//
// A developer message reaches a template that does not know the role as a system message.
//
// Failure: without a template 400 no_chat_template; 500 chat_template_error when the file's does
// not compile; 400 chat_template_refused when it does not take this conversation.
// Threads: const after construction; any number.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/chat_request.h"
#include "server/model_limits.h"
#include "server/prompt_input.h"
#include "server/reasoning.h"
#include "server/tool_calls.h"
#include "template/chat_template.h"

namespace tessera {

// How the text of an answer is to be read.
struct AnswerReading {
  const ToolCallForm* calls = nullptr;        // null: the request has no tools
  const ReasoningMarks* reasoning = nullptr;  // null: the template marks none
  bool begins_in_reasoning = false;           // the prompt ends with the opening mark
  // Marks that are special tokens, which have no text unless they are asked for.
  std::vector<TokenId> shown_special;
};

struct RenderedChat {
  std::string text;
  PromptTokens prompt;
  std::vector<uint32_t> message_ends;  // in tokens, ascending, each once, none of them 0
  // The request's; of "system" 0 where the template does not tell the end.
  uint32_t isolate_after = 0;
  AnswerReading reading;
};

class ChatPrompter {
 public:
  ChatPrompter(std::string_view source, const Tokenizer* tokenizer, const ModelLimits& limits);

  ApiResult<RenderedChat> Render(const ChatRequest& request) const;
  // Empty when the template compiled or there is none.
  const std::string& error() const { return error_; }

 private:
  std::optional<ApiError> Check(const ChatRequest& request) const;
  std::vector<uint32_t> TokenEnds(std::span<const std::optional<size_t>> byte_ends,
                                  const PromptTokens& prompt) const;
  uint32_t SystemEnd(const ChatRequest& request, const ChatPrompt& chat,
                     const PromptTokens& prompt) const;
  AnswerReading ReadingOf(const ChatRequest& request, std::string_view prompt) const;

  const Tokenizer* const tokenizer_;
  const ModelLimits limits_;
  std::string bos_text_;
  std::optional<ChatTemplate> template_;
  std::string error_;
  bool knows_developer_ = false;
  const ToolCallForm* tool_form_ = nullptr;
  const ReasoningMarks* reasoning_ = nullptr;
};

}  // namespace tessera
