// SPDX-License-Identifier: Apache-2.0
#include "template/chat_template.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "template/limits.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using Ends = std::vector<std::optional<size_t>>;

const std::string kGoldens = std::string(TESSERA_SOURCE_DIR) + "/tests/golden/template/";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// That of the vectors: Saturday, 4 July 2026, 13:05:09.
std::tm GoldenClock() {
  std::tm now = {};
  now.tm_year = 126;
  now.tm_mon = 6;
  now.tm_mday = 4;
  now.tm_hour = 13;
  now.tm_min = 5;
  now.tm_sec = 9;
  now.tm_wday = 6;
  now.tm_yday = 184;
  return now;
}

struct Request {
  Json messages = Json::array();
  Json tools;  // null: none
  Json documents;
  Json kwargs = Json::object();
  bool add_generation_prompt = true;
};

Result<ChatPrompt> Render(const std::string& source, const Request& request) {
  Result<ChatTemplate> chat = ChatTemplate::Compile(source, "<s>", "</s>");
  if (!chat.has_value()) {
    return chat.error();
  }
  return chat->Render({.messages = &request.messages,
                       .tools = request.tools.is_null() ? nullptr : &request.tools,
                       .documents = request.documents.is_null() ? nullptr : &request.documents,
                       .kwargs = &request.kwargs,
                       .add_generation_prompt = request.add_generation_prompt,
                       .now = GoldenClock()});
}

Request WithMessages(Json messages) {
  Request request;
  request.messages = std::move(messages);
  return request;
}

Request ReadRequest(const Json& chat) {
  Request request = WithMessages(chat["messages"]);
  request.tools = chat.value("tools", Json());
  request.documents = chat.value("documents", Json());
  request.kwargs = chat.value("kwargs", Json::object());
  request.add_generation_prompt = chat.value("add_generation_prompt", true);
  return request;
}

// Roles r0, r1, … and contents c0, c1, ….
Request Numbered(size_t count) {
  Json messages = Json::array();
  for (size_t i = 0; i < count; ++i) {
    messages.push_back({{"role", fmt::format("r{}", i)}, {"content", fmt::format("c{}", i)}});
  }
  return WithMessages(std::move(messages));
}

std::vector<std::string> Parts(const ChatPrompt& prompt) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (const std::optional<size_t>& end : prompt.message_ends) {
    parts.push_back(end.has_value() ? prompt.text.substr(begin, *end - begin) : "?");
    begin = end.value_or(begin);
  }
  return parts;
}

TEST(TemplateGoldens, ConstructsGiveTheTextPythonGives) {
  const Json cases = Json::parse(ReadFile(kGoldens + "constructs.json"));
  EXPECT_GE(cases.size(), 150u);
  for (const Json& vector : cases) {
    const Result<ChatPrompt> prompt = Render(vector["template"], Request());
    if (vector.contains("text")) {
      ASSERT_TRUE(prompt.has_value()) << vector["name"] << ": " << prompt.error().ToString();
      EXPECT_EQ(prompt->text, vector["text"].get<std::string>()) << vector["name"];
    } else {
      EXPECT_FALSE(prompt.has_value())
          << vector["name"] << " gives " << prompt->text << ", not " << vector["error"];
    }
  }
}

TEST(TemplateGoldens, ChatsGiveTheTextPythonGives) {
  const Json chats = Json::parse(ReadFile(kGoldens + "chats_input.json"));
  const Json cases = Json::parse(ReadFile(kGoldens + "chats.json"));
  EXPECT_GE(cases.size(), 100u);
  for (const Json& vector : cases) {
    const std::string source =
        ReadFile(kGoldens + "templates/" + vector["template"].get<std::string>());
    const Request request = ReadRequest(chats[vector["chat"].get<std::string>()]);
    const Result<ChatPrompt> prompt = Render(source, request);
    if (vector.contains("text")) {
      ASSERT_TRUE(prompt.has_value()) << vector["name"] << ": " << prompt.error().ToString();
      EXPECT_EQ(prompt->text, vector["text"].get<std::string>()) << vector["name"];
    } else {
      EXPECT_FALSE(prompt.has_value()) << vector["name"] << ": " << vector["error"];
    }
  }
}

// The twin: the conversation cut after message i, rendered by itself. Where nothing after i changes
// how messages up to i are written, its text is what stands before the boundary.
TEST(MessageEnds, AreWhereTheCutConversationEnds) {
  const Json chats = Json::parse(ReadFile(kGoldens + "chats_input.json"));
  size_t compared = 0;
  for (const char* name : {"harbour", "xml_parameters", "dates_documents", "macros"}) {
    const std::string source = ReadFile(kGoldens + "templates/" + name + ".jinja");
    for (const char* chat : {"system", "unicode", "no_prompt", "tools"}) {
      Request request = ReadRequest(chats[chat]);
      const Result<ChatPrompt> whole = Render(source, request);
      ASSERT_TRUE(whole.has_value()) << name << "/" << chat;
      ASSERT_EQ(whole->message_ends.size(), request.messages.size());
      for (size_t i = request.messages.size(); i-- > 0;) {
        request.messages.erase(request.messages.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                               request.messages.end());
        request.add_generation_prompt = false;
        const Result<ChatPrompt> cut = Render(source, request);
        ASSERT_TRUE(cut.has_value()) << name << "/" << chat;
        ASSERT_TRUE(whole->message_ends[i].has_value()) << name << "/" << chat << " " << i;
        EXPECT_EQ(whole->text.substr(0, *whole->message_ends[i]), cut->text)
            << name << "/" << chat << " " << i;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 40u);
}

TEST(MessageEnds, NeverDecreaseAndLieWithinTheText) {
  const Json chats = Json::parse(ReadFile(kGoldens + "chats_input.json"));
  const Json cases = Json::parse(ReadFile(kGoldens + "chats.json"));
  for (const Json& vector : cases) {
    const Result<ChatPrompt> prompt =
        Render(ReadFile(kGoldens + "templates/" + vector["template"].get<std::string>()),
               ReadRequest(chats[vector["chat"].get<std::string>()]));
    size_t before = 0;
    for (const std::optional<size_t>& end : prompt.has_value() ? prompt->message_ends : Ends()) {
      EXPECT_GE(end.value_or(before), before) << vector["name"];
      before = end.value_or(before);
    }
    EXPECT_LE(before, prompt.has_value() ? prompt->text.size() : before);
  }
}

TEST(MessageEnds, OfAMessageAheadOfTheLoopIsWhereTheNextBegins) {
  const auto prompt = Render(
      "<{{ messages[0].content }}>{% for m in messages[1:] %}[{{ m.content }}]{% endfor %}end",
      Numbered(3));
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(Parts(*prompt), (std::vector<std::string>{"<c0>", "[c1]", "[c2]"}));
}

TEST(MessageEnds, AreThoseOfTheLastLoopThatWroteThem) {
  const auto prompt = Render(
      "{% for m in messages %}{{ m.role }} {% endfor %}: "
      "{% for m in messages %}{{ m.content }} {% endfor %}"
      "{% for m in messages | reverse %}{% set x = m %}{% endfor %}",
      Numbered(2));
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(Parts(*prompt), (std::vector<std::string>{"r0 r1 : c0 ", "c1 "}));
}

TEST(MessageEnds, FollowSlicesFiltersAndBreaks) {
  const auto prompt = Render(
      "{% for m in messages | selectattr('content', 'ne', 'c1') if m.role != 'r3' %}"
      "{{ m.content }}{% if m.role == 'r4' %}{% break %}{% endif %};{% endfor %}",
      Numbered(6));
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->text, "c0;c2;c4");
  EXPECT_EQ(prompt->message_ends, (Ends{3, 3, 6, 6, 8, std::nullopt}));
}

TEST(MessageEnds, AreUnknownWhereMessagesAreOutOfOrderOrCounted) {
  auto prompt = Render("{% for m in messages | reverse %}{{ m.content }}{% endfor %}", Numbered(3));
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->message_ends, (Ends{std::nullopt, std::nullopt, 2}));
  prompt = Render("{% for i in range(messages | length) %}{{ messages[i].content }}{% endfor %}",
                  Numbered(2));
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->message_ends, (Ends{std::nullopt, std::nullopt}));
}

TEST(MessageEnds, AreUnknownWhereTheTextIsPlacedLater) {
  for (const char* source :
       {"{% set x %}{% for m in messages %}{{ m.content }}{% endfor %}{% endset %}ab{{ x }}",
        "ab{% filter upper %}{% for m in messages %}{{ m.content }}{% endfor %}{% endfilter %}",
        "{% macro f() %}{% for m in messages %}{{ m.content }}{% endfor %}{% endmacro %}ab{{ f() "
        "}}"}) {
    const auto prompt = Render(source, Numbered(2));
    ASSERT_TRUE(prompt.has_value());
    EXPECT_EQ(prompt->text.size(), 6u);
    EXPECT_EQ(prompt->message_ends, (Ends{std::nullopt, std::nullopt})) << source;
  }
}

TEST(ChatTemplate, HasNoToolsNorDocumentsWhereNoneAreGiven) {
  const auto prompt =
      Render("{{ tools is none }}{{ documents is none }}{{ tools is defined }}", Request());
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->text, "TrueTrueTrue");
}

TEST(ChatTemplate, LetsArgumentsReplaceAllButMessages) {
  Request request;
  request.kwargs = {{"bos_token", "B"}, {"tools", {1}}, {"enable_thinking", false}};
  const std::string source = "{{ bos_token }}{{ eos_token }}{{ tools }}{{ enable_thinking }}";
  const auto prompt = Render(source, request);
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->text, "B</s>[1]False");
  request.kwargs = {{"messages", Json::array()}};
  EXPECT_EQ(Render(source, request).error().message(),
            "chat_template_kwargs.messages: expected no such key, found one");
}

TEST(ChatTemplate, NamesWhatIsNotTheTypeItMustBe) {
  EXPECT_EQ(Render("", WithMessages("text")).error().message(),
            "messages: expected an array, found string");
  EXPECT_EQ(Render("", WithMessages({{{"role", "user"}}, 5})).error().message(),
            "messages[1]: expected an object, found number");
  Request request;
  request.tools = Json::object();
  EXPECT_EQ(Render("", request).error().message(), "tools: expected an array, found object");
  request = Request();
  request.kwargs = Json::array();
  EXPECT_EQ(Render("", request).error().message(),
            "chat_template_kwargs: expected an object, found array");
}

TEST(ChatTemplate, RefusesNumbersThatDoNotFit) {
  EXPECT_EQ(Render("", WithMessages({{{"n", 18446744073709551615ull}}})).error().message(),
            "chat template 1:1: the number 18446744073709551615 is more than 64 bits");
}

TEST(ChatTemplate, SaysWhichVariablesItReads) {
  const auto chat = ChatTemplate::Compile(
      "{% if enable_thinking %}{{ tools }}{% endif %}{% set other = 1 %}", "", "");
  ASSERT_TRUE(chat.has_value());
  EXPECT_TRUE(chat->Reads("enable_thinking"));
  EXPECT_TRUE(chat->Reads("tools"));
  EXPECT_FALSE(chat->Reads("other"));
  EXPECT_FALSE(chat->Reads("documents"));
}

TEST(ChatTemplate, KeepsTheOrderOfKeys) {
  Request request;
  request.tools = Json::parse(R"([{"z": 1, "a": {"y": 2, "b": 3}}])");
  EXPECT_EQ(Render("{{ tools[0] | tojson }}", request)->text, R"({"z": 1, "a": {"y": 2, "b": 3}})");
}

TEST(ChatTemplate, RefusesMessagesThatNestTooDeep) {
  Json deep = 1;
  for (int i = 0; i < jinja::kValueDepthMax; ++i) {
    deep = Json::array({std::move(deep)});
  }
  EXPECT_EQ(Render("x", WithMessages({{{"content", deep}}})).error().message(),
            "chat template 1:1: a value nests more than 64 deep");
}

// 2,000 messages take as many times the steps of 1,000: both are far within the bound.
TEST(ChatTemplate, RendersLongConversationsWithinItsBounds) {
  const std::string source = ReadFile(kGoldens + "templates/chatml_thinking.jinja");
  Request request;
  for (int i = 0; i < 2000; ++i) {
    request.messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"},
                                {"content", "<think>\nx\n</think>\n\n" + std::string(500, 'a')}});
  }
  const auto prompt = Render(source, request);
  ASSERT_TRUE(prompt.has_value()) << prompt.error().ToString();
  EXPECT_GT(prompt->text.size(), 1'000'000u);
  EXPECT_TRUE(std::all_of(prompt->message_ends.begin(), prompt->message_ends.end(),
                          [](const auto& end) { return end.has_value(); }));
}

}  // namespace
}  // namespace tessera
