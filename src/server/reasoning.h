// SPDX-License-Identifier: Apache-2.0
//
// ReasoningReader parts what a model thinks from what it says, in generated text as it comes:
//
//   <think>it was in the barn</think>In the barn.
//
// is reasoning "it was in the barn" and content "In the barn.". Marks are those of the model's chat
// template; a template without any makes all text content.
//
//   kStart --opening mark--> kReasoning --closing mark--> kBeforeContent --text--> kContent
//      \--------------------- other text ------------------------------------------^
//
// It begins in kReasoning when the prompt has the opening mark, in kContent when there are no marks.
//
// N1  Reasoning comes first: a mark after other text is text. The template may have written the
//     opening mark itself, at the end of the prompt.
// N2  Reasoning and content are all of the text, but the marks and white space beside them.
// N3  Text that may still become a mark is held back, and so is white space that may precede one.
//
// Threads: one stream, one thread at a time.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

struct ReasoningMarks {
  std::string_view open;
  std::string_view close;
};

// Those that a template with this source writes or takes out of earlier answers; null: none.
const ReasoningMarks* ReasoningMarksOf(std::string_view template_source);
// Whether a prompt ends with the opening mark, so that the answer begins with reasoning.
bool EndsInReasoning(const ReasoningMarks& marks, std::string_view prompt);

struct ReasonedText {
  std::string reasoning;  // comes before the content
  std::string content;
};

class ReasoningReader {
 public:
  // `marks` may be null. `begun`: the prompt ended with the opening mark.
  ReasoningReader(const ReasoningMarks* marks, bool begun);

  ReasonedText Append(std::string_view text);
  // What is held, at the end of the text.
  ReasonedText Finish();

 private:
  enum class Part { kStart, kReasoning, kBeforeContent, kContent };

  // Each does what it can with what is held; false when that waits for more.
  bool ReadStart(bool last);
  bool ReadReasoning(bool last, ReasonedText* out);
  ReasonedText Read(bool last);

  const ReasoningMarks* const marks_;
  Part part_;
  bool silent_ = true;  // of the reasoning nothing but white space so far
  std::string held_;
};

}  // namespace tessera
