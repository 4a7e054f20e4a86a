// SPDX-License-Identifier: Apache-2.0
//
// What a message and a stream's deltas are made of, from events as the engine sends them.
#include "server/chat_format.h"

#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace tessera::testing {
namespace {

constexpr char kTemplate[] = "<think></think><tool_call>{'arguments'}</tool_call>";
constexpr const char* kPieces[] = {
    "<thi",           "nk>\nIn the", " barn.\n</th",
    "ink>\n\nLook: ", "there.",      "<tool_call>{\"name\":\"f\"}</tool",
    "_call>"};

class ChatFormatTest : public ServerTest {
 protected:
  static ChatFormat Make(const AnswerReading& reading) {
    ChatRequest request;
    return {AnswerHead{"chatcmpl-1", 1, "m"}, request, reading, &engine_->tokenizer()};
  }
  static AnswerReading Reading(bool with_tools) {
    AnswerReading reading;
    reading.reasoning = ReasoningMarksOf(kTemplate);
    if (with_tools) reading.calls = ToolCallFormOf(kTemplate);
    return reading;
  }
  static std::vector<ChoiceEvent> Events() {
    std::vector<ChoiceEvent> events;
    for (const char* piece : kPieces) events.emplace_back().text = piece;
    events.back().finish = FinishReason::kStop;
    return events;
  }
  static Json Body(const AnswerReading& reading) {
    ChoiceEvent whole;
    for (const ChoiceEvent& event : Events()) whole.text += event.text;
    whole.finish = FinishReason::kStop;
    return Json::parse(Make(reading).Body({whole}, {}, {}))["choices"][0];
  }
};

TEST_F(ChatFormatTest, WhatWasThoughtIsAMemberOfItsOwn) {
  const Json with_tools = Body(Reading(true));
  EXPECT_EQ(with_tools["message"]["reasoning_content"], "In the barn.");
  EXPECT_EQ(with_tools["message"]["content"], "Look: there.");
  EXPECT_EQ(with_tools["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(with_tools["finish_reason"], "tool_calls");
  const Json without = Body(Reading(false));
  EXPECT_EQ(without["message"]["reasoning_content"], "In the barn.");
  EXPECT_EQ(without["message"]["content"], "Look: there.<tool_call>{\"name\":\"f\"}</tool_call>");
  const Json plain = Body({});
  EXPECT_FALSE(plain["message"].contains("reasoning_content")) << "the template has no marks";
  EXPECT_TRUE(plain["message"]["content"].get<std::string>().starts_with("<think>\nIn the"));
}

TEST_F(ChatFormatTest, TheDeltasOfAStreamAddUpToTheMessage) {
  const Json message = Body(Reading(true))["message"];
  ChatFormat format = Make(Reading(true));
  std::string reasoning, content;
  Json calls = Json::array();
  bool content_begun = false;
  for (ChoiceEvent& event : Events()) {
    const StreamEnding ending;
    const bool last = event.finish != FinishReason::kNone;
    for (const std::string& chunk : format.Chunks(std::move(event), last ? &ending : nullptr)) {
      const Json delta = Json::parse(chunk)["choices"][0]["delta"];
      if (delta.contains("reasoning_content")) {
        EXPECT_FALSE(content_begun) << "reasoning comes first";
        reasoning += delta["reasoning_content"];
      }
      const std::string more = delta.value("content", "");
      content += more;
      content_begun = content_begun || !more.empty();
      for (const Json& call : delta.value("tool_calls", Json::array())) calls.push_back(call);
    }
  }
  EXPECT_EQ(reasoning, message["reasoning_content"]);
  EXPECT_EQ(content, message["content"]);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0]["id"], message["tool_calls"][0]["id"]);
}

TEST_F(ChatFormatTest, AnAnswerMayBeginInReasoningThatThePromptOpened) {
  AnswerReading reading = Reading(false);
  reading.begins_in_reasoning = true;
  ChoiceEvent event;
  event.text = "a</think>b";
  event.finish = FinishReason::kStop;
  const Json message = Json::parse(Make(reading).Body({event}, {}, {}))["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "a");
  EXPECT_EQ(message["content"], "b");
}

}  // namespace
}  // namespace tessera::testing
