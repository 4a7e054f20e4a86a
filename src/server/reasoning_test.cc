// SPDX-License-Identifier: Apache-2.0
#include "server/reasoning.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tessera {
namespace {

constexpr char kTemplate[] = "{{ '<think>' }}…{{ '</think>' }}";

struct Whole {
  std::string reasoning, content;
  bool operator==(const Whole&) const = default;
};

Whole Read(const std::string& text, bool begun = false, Random* random = nullptr,
           const char* source = kTemplate) {
  ReasoningReader reader(ReasoningMarksOf(source), begun);
  Whole all;
  const auto add = [&](const ReasonedText& more) {
    EXPECT_TRUE(more.reasoning.empty() || all.content.empty()) << "reasoning after content";
    all.reasoning += more.reasoning;
    all.content += more.content;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t size = random == nullptr ? text.size() : 1 + random->Below(6);
    add(reader.Append(std::string_view(text).substr(at, size)));
    at += size;
  }
  add(reader.Finish());
  return all;
}

TEST(Reasoning, IsPartedFromWhatIsSaid) {
  EXPECT_EQ(Read("<think>\nThe kite,\n\nthen.\n</think>\n\nIn the barn.\n"),
            (Whole{"The kite,\n\nthen.", "In the barn.\n"}));
  EXPECT_EQ(Read(" \n<think>a</think>b"), (Whole{"a", "b"}));
  EXPECT_EQ(Read("<think>\n\n</think>\n\nb"), (Whole{"", "b"}));
  EXPECT_EQ(Read("a</think>b", /*begun=*/true), (Whole{"a", "b"})) << "the template opened it";
  EXPECT_EQ(Read("[THINK]a[/THINK]b", false, nullptr, "[THINK] [/THINK]"), (Whole{"a", "b"}));
}

TEST(Reasoning, ThatDoesNotEndIsReasoning) {
  EXPECT_EQ(Read("<think>a </thi"), (Whole{"a </thi", ""}));
  EXPECT_EQ(Read("a \n", /*begun=*/true), (Whole{"a", ""}));
  EXPECT_EQ(Read("<think>a</think> \n"), (Whole{"a", ""}));
}

TEST(Reasoning, OtherTextIsContentAsItWasWritten) {
  for (const char* text :
       {"", " \n", "a", " a <think>b</think>", "<thin", "<thinks>", "</think>a"}) {
    EXPECT_EQ(Read(text), (Whole{"", text}));
  }
  EXPECT_EQ(Read("<think>a</think>b</think>c<think>"), (Whole{"a", "b</think>c<think>"}));
  EXPECT_EQ(Read("<think>a</think>b", false, nullptr, "{{ messages }}"),
            (Whole{"", "<think>a</think>b"}))
      << "the template marks none";
}

TEST(Reasoning, TheResultDoesNotDependOnHowTheTextWasCut) {
  Random random(7);
  for (const char* text : {"<think>\n a </think \n</think>\n\n b\n ", "  <think>a", " <thin b",
                           "<think><think></think></think>", "<think> \n </think> \n"}) {
    for (const bool begun : {false, true}) {
      for (int i = 0; i < 200; ++i) {
        ASSERT_EQ(Read(text, begun, &random), Read(text, begun)) << text;
      }
    }
  }
}

TEST(Reasoning, IsShownAsSoonAsItCannotBeAMark) {
  ReasoningReader reader(ReasoningMarksOf(kTemplate), false);
  EXPECT_EQ(reader.Append("<think>\nThe").reasoning, "The");
  EXPECT_EQ(reader.Append(" kite <").reasoning, " kite");
  EXPECT_EQ(reader.Append("b").reasoning, " <b");
  EXPECT_EQ(reader.Append("</think>\n\n").content, "");
  EXPECT_EQ(reader.Append("In").content, "In");
  EXPECT_EQ(reader.Append(" ").content, " ");
}

TEST(Reasoning, MarksAreThoseOfTheTemplate) {
  EXPECT_EQ(ReasoningMarksOf("{{ '</think>' }}"), nullptr) << "one of two";
  EXPECT_EQ(ReasoningMarksOf("<seed:think></seed:think>")->open, "<seed:think>");
  const ReasoningMarks& marks = *ReasoningMarksOf(kTemplate);
  EXPECT_TRUE(EndsInReasoning(marks, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(EndsInReasoning(marks, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(EndsInReasoning(marks, ""));
}

}  // namespace
}  // namespace tessera
