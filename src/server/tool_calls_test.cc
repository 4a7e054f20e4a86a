// SPDX-License-Identifier: Apache-2.0
#include "server/tool_calls.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tessera {
namespace {

void Add(ToolText&& more, ToolText* all) {
  all->content += more.content;
  for (ToolCall& call : more.calls) all->calls.push_back(std::move(call));
}

constexpr char kTagged[] = "<tool_call>{'arguments'}";

ToolText Read(const std::string& text, Random* random = nullptr, const char* source = kTagged) {
  ToolCallReader reader(*ToolCallFormOf(source));
  ToolText all;
  size_t at = 0;
  while (at < text.size()) {
    const size_t size = random == nullptr ? text.size() : 1 + random->Below(9);
    Add(reader.Append(std::string_view(text).substr(at, size)), &all);
    at += size;
  }
  Add(reader.Finish(), &all);
  EXPECT_EQ(reader.has_calls(), !all.calls.empty());
  return all;
}

constexpr char kTwo[] =
    "Let me look.\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"b\": 1, \"a\": [2]}}\n"
    "</tool_call>\n<tool_call>{\"name\":\"stop\"}</tool_call>\n";

TEST(ToolCallReader, CallsAreTakenOutOfTheText) {
  const ToolText all = Read(kTwo);
  EXPECT_EQ(all.content, "Let me look.");
  ASSERT_EQ(all.calls.size(), 2u);
  EXPECT_EQ(all.calls[0].name, "find");
  EXPECT_EQ(all.calls[0].arguments, R"({"b":1,"a":[2]})");  // keys as they came
  EXPECT_EQ(all.calls[1].name, "stop");
  EXPECT_EQ(all.calls[1].arguments, "{}");
}

TEST(ToolCallReader, TheResultDoesNotDependOnHowTheTextWasCut) {
  Random random(4);
  const char* texts[] = {kTwo,
                         "no call <tool_cal",
                         "a <tool_call>x</tool_call> b  ",
                         " \n ",
                         "<tool_call>{\"name\":\"f\",\"arguments\":{}}",
                         "<<tool_call>1</tool_call>"};
  for (const char* text : texts) {
    const ToolText whole = Read(text);
    for (int i = 0; i < 200; ++i) {
      const ToolText cut = Read(text, &random);
      ASSERT_EQ(cut.content, whole.content) << text;
      ASSERT_EQ(cut.calls.size(), whole.calls.size()) << text;
    }
  }
}

TEST(ToolCallReader, TextWithoutCallsIsUnchanged) {
  for (const char* text : {"", "a", " a\n", "a <tool", "a < b\n\n", "</tool_call>"}) {
    EXPECT_EQ(Read(text).content, text);
  }
}

TEST(ToolCallReader, WhatIsNoCallIsContentAsItWasWritten) {
  const std::string deep = "<tool_call>" + std::string(100'000, '[') + "</tool_call>";
  const std::string texts[] = {"<tool_call>{\"name\": 5}</tool_call>",
                               "<tool_call>[]</tool_call>",
                               "<tool_call></tool_call>",
                               "<tool_call>{\"name\":\"f\",\"arguments\":\"x\"}</tool_call>",
                               "<tool_call>{\"name\":\"f\"",
                               deep};
  for (const std::string& text : texts) {
    const ToolText all = Read(text);
    EXPECT_EQ(all.content, text);
    EXPECT_TRUE(all.calls.empty());
  }
}

TEST(ToolCallReader, ACallThatOnlyLacksItsEndTagCounts) {
  EXPECT_EQ(Read("<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":1}}\n").calls.size(), 1u);
}

TEST(ToolCallReader, ContentIsShownAsSoonAsItCannotBeATag) {
  ToolCallReader reader(*ToolCallFormOf(kTagged));
  EXPECT_EQ(reader.Append("Hello <").content, "Hello");
  EXPECT_EQ(reader.Append("b>").content, " <b>");
  EXPECT_EQ(reader.Append(" ").content, "");
  EXPECT_EQ(reader.Append("x").content, " x");
}

TEST(ToolCallForm, EachFamilysCallsAreRead) {
  const struct {
    const char* source;
    const char* text;
  } cases[] = {
      {"reply with <|tool_call|> and a JSON list",
       "Look. <|tool_call|>[{\"name\":\"find\",\"arguments\":{\"b\":1}}, {\"name\":\"stop\"}]\n"},
      {"<TOOLCALL>[...]</TOOLCALL>",
       "Look.\n<TOOLCALL>[{\"name\": \"find\", \"arguments\": {\"b\": 1}}, "
       "{\"name\": \"stop\", \"arguments\": {}}]</TOOLCALL>"},
      {"<|tool_list_start|>", "Look.<|tool_call_start|>[find(b=1), stop()]<|tool_call_end|>"},
  };
  Random random(5);
  for (const auto& [source, text] : cases) {
    SCOPED_TRACE(source);
    for (int i = 0; i < 50; ++i) {
      const ToolText all = Read(text, i == 0 ? nullptr : &random, source);
      EXPECT_EQ(all.content, "Look.");
      ASSERT_EQ(all.calls.size(), 2u);
      EXPECT_EQ(all.calls[0].name, "find");
      EXPECT_EQ(all.calls[0].arguments, R"({"b":1})");
      EXPECT_EQ(all.calls[1].name, "stop");
      EXPECT_EQ(all.calls[1].arguments, "{}");
    }
  }
}

TEST(ToolCallForm, AListWithOneThatIsNoCallIsContent) {
  const char* json = "<TOOLCALL>[{\"name\":\"f\"}, 5]</TOOLCALL>";
  EXPECT_EQ(Read(json, nullptr, "<TOOLCALL>").content, json);
  const char* python = "<|tool_call_start|>f(<|tool_call_end|>";
  EXPECT_EQ(Read(python, nullptr, "<|tool_list_start|>").content, python);
}

TEST(ToolCallForm, IsKnownByWhatTheTemplateTeaches) {
  EXPECT_EQ(ToolCallFormOf("<tool_call>\n{\"name\": <n>, \"arguments\": <a>}\n</tool_call>")->open,
            "<tool_call>");
  EXPECT_EQ(ToolCallFormOf("<tool_call>\n<function=n> {{ arguments }}"), nullptr);
  EXPECT_EQ(ToolCallFormOf("{{ messages }}"), nullptr);
}

}  // namespace
}  // namespace tessera
