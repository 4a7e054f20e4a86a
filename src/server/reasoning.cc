// SPDX-License-Identifier: Apache-2.0
#include "server/reasoning.h"

#include <algorithm>
#include <utility>

#include "server/text_marks.h"

namespace tessera {
namespace {

constexpr ReasoningMarks kMarks[] = {
    {"<think>", "</think>"},  // Qwen, DeepSeek, Nemotron, Granite 3, Falcon, Kimi, MiniMax
    {"[THINK]", "[/THINK]"},  // Magistral
    {"<|START_THINKING|>", "<|END_THINKING|>"},  // Command A
    {"<seed:think>", "</seed:think>"},           // Seed-OSS
};

// Without the white space it begins with.
void TrimFront(std::string* text) {
  text->erase(0, std::min(text->find_first_not_of(kWhiteSpace), text->size()));
}

}  // namespace

const ReasoningMarks* ReasoningMarksOf(std::string_view source) {
  for (const ReasoningMarks& marks : kMarks) {
    const bool both =
        source.find(marks.open) != source.npos && source.find(marks.close) != source.npos;
    if (both) return &marks;
  }
  return nullptr;
}

bool EndsInReasoning(const ReasoningMarks& marks, std::string_view prompt) {
  return prompt.substr(0, EndOfWords(prompt)).ends_with(marks.open);
}

ReasoningReader::ReasoningReader(const ReasoningMarks* marks, bool begun)
    : marks_(marks),
      part_(marks == nullptr ? Part::kContent
            : begun          ? Part::kReasoning
                             : Part::kStart) {}

ReasonedText ReasoningReader::Append(std::string_view text) {
  held_ += text;
  return Read(/*last=*/false);
}

ReasonedText ReasoningReader::Finish() { return Read(/*last=*/true); }

ReasonedText ReasoningReader::Read(bool last) {
  ReasonedText out;
  if (part_ == Part::kStart && !ReadStart(last)) return out;
  if (part_ == Part::kReasoning && !ReadReasoning(last, &out)) return out;
  if (part_ == Part::kBeforeContent) {
    TrimFront(&held_);
    if (held_.empty()) return out;
    part_ = Part::kContent;
  }
  out.content = std::exchange(held_, {});
  return out;
}

bool ReasoningReader::ReadStart(bool last) {
  const size_t first = held_.find_first_not_of(kWhiteSpace);
  const std::string_view text =
      first == std::string::npos ? std::string_view() : std::string_view(held_).substr(first);
  if (text.starts_with(marks_->open)) {
    held_.erase(0, first + marks_->open.size());
    part_ = Part::kReasoning;
  } else if (last || !marks_->open.starts_with(text)) {
    part_ = Part::kContent;  // its white space too
  }
  return part_ != Part::kStart;
}

bool ReasoningReader::ReadReasoning(bool last, ReasonedText* out) {
  if (silent_) TrimFront(&held_);
  const size_t close = held_.find(marks_->close);
  const bool closed = close != std::string::npos;
  const std::string_view before = std::string_view(held_).substr(0, close);
  size_t size = closed || last ? EndOfWords(before) : HoldFrom(held_, marks_->close);
  out->reasoning = held_.substr(0, size);
  silent_ = silent_ && size == 0;
  if (closed) {
    size = close + marks_->close.size();
    part_ = Part::kBeforeContent;
  } else if (last) {
    size = held_.size();
  }
  held_.erase(0, size);
  return closed;
}

}  // namespace tessera
