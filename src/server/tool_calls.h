// SPDX-License-Identifier: Apache-2.0
//
// ToolCallReader finds calls of tools in generated text as it comes, and what of it is content.
//
//   <tool_call>{"name": "f", "arguments": {…}}</tool_call>     Qwen, Granite 4, Hermes
//   <|tool_call|>[{"name": "f", "arguments": {…}}, …]          Granite 3, to the end of the text
//   <TOOLCALL>[{"name": "f", "arguments": {…}}, …]</TOOLCALL>  Nemotron
//   <|tool_call_start|>[f(a=1), …]<|tool_call_end|>            LFM2 (server/python_calls.h)
//
// Which of them a model writes is known by what its chat template has. JSON is one call or a list
// of them, in each.
//
// T1  Content and the texts of calls are all of the text, but white space before, between and after
//     calls.
// T2  What looks like calls and is not, whole, names with an object of arguments each, is content,
//     as it was written: nothing a model says is lost.
// T3  Text that may still become a tag is held back, and so is white space that may precede one.
//
// Threads: one stream, one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class CallNotation : uint8_t { kJson, kPython };

// How calls are written.
struct ToolCallForm {
  std::string_view sign;  // what a template has that teaches it
  std::string_view open;
  std::string_view close;  // "": the end of the text
  CallNotation notation = CallNotation::kJson;
};

// How models with this chat template write calls, as far as it shows; null: in a way that is not
// read.
const ToolCallForm* ToolCallFormOf(std::string_view template_source);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text of an object
};

struct ToolText {
  std::string content;  // comes before the calls
  std::vector<ToolCall> calls;
};

class ToolCallReader {
 public:
  explicit ToolCallReader(const ToolCallForm& form) : form_(form) {}

  ToolText Append(std::string_view text);
  // What is held, at the end of the text: an open call too, if it is whole but for its end tag.
  ToolText Finish();
  bool has_calls() const { return call_count_ > 0; }

 private:
  void ReadContent(bool last, ToolText* out);
  bool ReadCall(bool last, ToolText* out);

  const ToolCallForm form_;
  std::string held_;
  bool in_call_ = false;
  size_t call_count_ = 0;
};

}  // namespace tessera
