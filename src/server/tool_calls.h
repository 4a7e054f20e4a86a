// SPDX-License-Identifier: Apache-2.0
//
// ToolCallReader finds calls of tools in generated text as it comes, and what of it is content.
//
//   <tool_call>{"name": "f", "arguments": {…}}</tool_call>
//
// is what Qwen, Granite 4 and the Hermes models write; other ways are not read (kUnknown).
//
// T1  Content and the texts of calls are all of the text, but white space before, between and after
//     calls.
// T2  What looks like a call and is not JSON with a name and an object of arguments is content, as
//     it was written: nothing a model says is lost.
// T3  Text that may still become a tag is held back, and so is white space that may precede one.
//
// Threads: one stream, one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class ToolCallStyle : uint8_t { kUnknown, kTaggedJson };

// How models with this chat template write calls, as far as it shows.
ToolCallStyle ToolCallStyleOf(std::string_view template_source);

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
  ToolText Append(std::string_view text);
  // What is held, at the end of the text: an open call too, if it is whole but for its end tag.
  ToolText Finish();
  bool has_calls() const { return call_count_ > 0; }

 private:
  void ReadContent(bool last, ToolText* out);
  bool ReadCall(bool last, ToolText* out);

  std::string held_;
  bool in_call_ = false;
  size_t call_count_ = 0;
};

}  // namespace tessera
