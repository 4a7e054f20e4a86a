// SPDX-License-Identifier: Apache-2.0
//
// ChatTemplate turns a conversation into prompt text with the template that came with a model
// (`tokenizer.chat_template`), as Hugging Face's `apply_chat_template` does: Jinja with
// trim_blocks, lstrip_blocks and loop controls, undefined names that print as nothing, objects that
// cannot be changed.
//
// The template sees `messages`, `tools`, `documents` (null where there are none),
// `add_generation_prompt`, `bos_token`, `eos_token`, and every member of `kwargs`, which may
// replace any of these but `messages`. Values reach it as they are: who wants `content` parts as
// one string, or the `arguments` of tool calls as an object, makes them so first. Keys keep their
// order, so parse requests as nlohmann::ordered_json: the order of a tool's keys is in the prompt.
//
// Boundaries. message_ends[i] is where the text of message i ends: the bytes before it tell of
// messages 0..i alone, except what the template chose to derive from later ones (how many there
// are, whether a tool result follows). They are where another conversation that begins with the
// same messages most likely still has the same text.
//   B1  The interpreter notes how much is written when the body of a `for` ends that was run for
//       message i itself: from the list, a slice or a filter of it. The last loop that wrote
//       something for i counts.
//   B2  A message for which no loop wrote (a system message printed ahead of one over messages[1:],
//       a role that is skipped) ends where the next one begins, if a loop wrote that.
//   B3  nullopt: neither holds (the template counts with range, or writes in a macro, `set` or
//       `filter` block whose text is placed later), or a later message begins before that end.
//       Known ends never decrease with i and none is beyond the text.
//   B4  The last message ends before what add_generation_prompt adds.
//
// Bounds (template/limits.h): both sides are untrusted, the template by file, the messages by
// request. Size, nesting, steps, bytes made and bytes written are limited; to exceed one is an
// error. A rendering takes time in proportion to its steps, at most about a second.
//
// Failure: Compile gives kBadFile, Render kInvalidArgument, each "chat template 12:5: …" with line
// and column from 1, or "messages[3]: …" for an input of the wrong type. What the interpreter does
// not know (a statement, filter, test, method or function) is refused by Compile, wherever in the
// template it is. A raise_exception is Render's error with its text.
// Threads: immutable once compiled; Render may run on any number of threads at once.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "template/limits.h"

namespace tessera {

namespace jinja {
class Template;
}  // namespace jinja

struct ChatInput {
  const nlohmann::ordered_json* messages = nullptr;   // an array of objects; required
  const nlohmann::ordered_json* tools = nullptr;      // an array; null: none
  const nlohmann::ordered_json* documents = nullptr;  // an array; null: none
  const nlohmann::ordered_json* kwargs = nullptr;     // chat_template_kwargs, an object; null: none
  bool add_generation_prompt = true;
  std::tm now = {};  // what strftime_now formats: the caller's clock, its time zone
};

struct ChatPrompt {
  std::string text;  // UTF-8
  // One per message: bytes of `text` up to its end (B1 to B4).
  std::vector<std::optional<size_t>> message_ends;
};

class ChatTemplate {
 public:
  // `bos` and `eos` are the texts of the model's tokens, empty where it has none.
  static Result<ChatTemplate> Compile(std::string_view source, std::string_view bos,
                                      std::string_view eos);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  Result<ChatPrompt> Render(const ChatInput& input, const jinja::Limits& limits = {}) const;

  // The template reads the variable `name` somewhere: "tools", or a switch such as
  // "enable_thinking", so that a server can refuse what would change nothing.
  bool Reads(std::string_view name) const;

 private:
  ChatTemplate(std::unique_ptr<const jinja::Template> program, std::string_view bos,
               std::string_view eos);

  std::unique_ptr<const jinja::Template> program_;
  std::string bos_;
  std::string eos_;
};

}  // namespace tessera
