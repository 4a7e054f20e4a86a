// SPDX-License-Identifier: Apache-2.0
//
// Chats and what tells of their prompts, over a real socket, on the bundled model.
#include <gtest/gtest.h>

#include <set>

#include "server/chat_prompt.h"
#include "server/server_fixture.h"

namespace tessera::testing {
namespace {

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kLog[] =
    "Log of day 12. Ada left the red kite in the barn. The code of the mill is 4821. Rosa counted "
    "31 drums.";

// The model's template makes kPrompt of it.
Json Greedy(int max_tokens = 12) {
  return {{"messages",
           {{{"role", "system"}, {"content", kLog}},
            {{"role", "user"}, {"content", "Where is the red kite?"}}}},
          {"max_tokens", max_tokens},
          {"temperature", 0}};
}

class ChatTest : public ServerTest {};

TEST_F(ChatTest, AChatIsTheCompletionOfItsTemplatesPrompt) {
  const RunningServer server(engine_.get());
  const auto text = server.Complete(
      {{"prompt", kPrompt}, {"max_tokens", 12}, {"temperature", 0}, {"stop", "\n"}});
  Json body = Greedy();
  body["stop"] = "\n";
  const auto reply = server.PostTo(kChat, body);
  ASSERT_EQ(reply.status, 200) << reply.json;
  EXPECT_EQ(reply.json["object"], "chat.completion");
  EXPECT_TRUE(reply.json["id"].get<std::string>().starts_with("chatcmpl-"));
  const Json& choice = reply.json["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], text.json["choices"][0]["text"]);
  EXPECT_TRUE(choice["message"]["refusal"].is_null());
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["receipt"], text.json["choices"][0]["receipt"]);
  EXPECT_EQ(reply.json["usage"]["prompt_tokens"], text.json["usage"]["prompt_tokens"]);
  // The completion's state is the chat's.
  EXPECT_EQ(reply.json["usage"]["prompt_tokens_details"]["cached_tokens"],
            text.json["usage"]["prompt_tokens"]);
}

TEST_F(ChatTest, AStreamBeginsWithTheRoleAndSaysTheSame) {
  const RunningServer server(engine_.get());
  Json body = Greedy(20);
  body["n"] = 2;
  const auto whole = server.PostTo(kChat, body);
  body["stream_options"] = {{"include_usage", true}};
  std::set<int> begun;
  std::string text[2];
  const StreamedAnswer stream = Stream(
      server, body,
      [&](const Json& chunk) {
        EXPECT_EQ(chunk["object"], "chat.completion.chunk");
        if (chunk["choices"].empty()) return true;
        const Json& choice = chunk["choices"][0];
        const int index = choice["index"];
        EXPECT_EQ(choice["delta"].contains("role"), begun.insert(index).second);
        text[index] += choice["delta"].value("content", "");
        return true;
      },
      kChat);
  EXPECT_TRUE(stream.done);
  EXPECT_EQ(begun.size(), 2u);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(text[i], whole.json["choices"][i]["message"]["content"]);
  EXPECT_EQ(stream.receipt, whole.json["choices"][0]["receipt"]);
  EXPECT_EQ(stream.chunks.back()["usage"]["completion_tokens"],
            whole.json["usage"]["completion_tokens"]);
  EXPECT_TRUE(stream.chunks[0]["usage"].is_null());
}

TEST_F(ChatTest, WithoutMaxTokensTheAnswerGoesToItsEnd) {
  const RunningServer server(engine_.get());
  Json body = Greedy();
  body.erase("max_tokens");
  const auto reply = server.PostTo(kChat, body);
  ASSERT_EQ(reply.status, 200) << reply.json;
  EXPECT_EQ(reply.json["choices"][0]["finish_reason"], "stop");
}

TEST_F(ChatTest, LogprobsAreTokensWithTheirBytes) {
  const RunningServer server(engine_.get());
  Json body = Greedy(6);
  body["logprobs"] = true;
  body["top_logprobs"] = 3;
  const auto reply = server.PostTo(kChat, body);
  ASSERT_EQ(reply.status, 200) << reply.json;
  const Json& choice = reply.json["choices"][0];
  ASSERT_EQ(choice["logprobs"]["content"].size(), 6u);
  EXPECT_TRUE(choice["logprobs"]["refusal"].is_null());
  std::string bytes;
  for (const Json& token : choice["logprobs"]["content"]) {
    for (const Json& byte : token["bytes"]) bytes += static_cast<char>(byte.get<int>());
    ASSERT_EQ(token["top_logprobs"].size(), 3u);
    // Greedy: the first alternative is the chosen one.
    EXPECT_EQ(token["top_logprobs"][0]["token"], token["token"]);
    EXPECT_EQ(token["top_logprobs"][0]["logprob"], token["logprob"]);
  }
  EXPECT_EQ(bytes, choice["message"]["content"]);
  body["top_logprobs"] = nullptr;
  const auto none = server.PostTo(kChat, body);
  EXPECT_TRUE(none.json["choices"][0]["logprobs"]["content"][0]["top_logprobs"].empty());
}

TEST_F(ChatTest, TheNextTurnReusesTheOneBefore) {
  const RunningServer server(engine_.get());
  Json body = Greedy(8);
  const auto first = server.PostTo(kChat, body);
  const int prompt = first.json["usage"]["prompt_tokens"];
  body["messages"].push_back(first.json["choices"][0]["message"]);
  body["messages"].push_back({{"role", "user"}, {"content", "Who counted drums?"}});
  const auto second = server.PostTo(kChat, body);
  ASSERT_EQ(second.status, 200) << second.json;
  EXPECT_GE(second.json["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>(), prompt - 2)
      << second.json;
}

TEST_F(ChatTest, ASecondQuestionReusesTheSystemMessage) {
  const RunningServer server(engine_.get());
  Json body = Greedy(4);
  ASSERT_EQ(server.PostTo(kChat, body).status, 200);
  body["messages"][1]["content"] = "Who counted drums?";
  const auto second = server.PostTo(kChat, body);
  // Without a checkpoint at the message's end the third would be the first to reuse it.
  const size_t system = engine_->tokenizer().Encode(std::string(kLog) + "\n").size();
  EXPECT_EQ(second.json["usage"]["prompt_tokens_details"]["cached_tokens"], system)
      << second.json["choices"][0]["reuse"];
}

// One system message before what is each tenant's own.
TEST_F(ChatTest, TenantsShareTheSystemMessageWhenTheySaySo) {
  const RunningServer server(engine_.get());
  const size_t system = engine_->tokenizer().Encode(std::string(kLog) + "\n").size();
  const auto cached = [&](const char* salt, const Json& isolate_after) {
    Json body = Greedy(4);
    body["cache_salt"] = salt;
    body["isolate_after"] = isolate_after;
    const auto reply = server.PostTo(kChat, body);
    EXPECT_EQ(reply.status, 200) << reply.json;
    return reply.json["usage"]["prompt_tokens_details"]["cached_tokens"].get<size_t>();
  };
  EXPECT_EQ(cached("a", "system"), 0u);
  EXPECT_EQ(cached("b", "system"), system / 16 * 16);
  EXPECT_EQ(cached("c", system), system / 16 * 16);
  EXPECT_EQ(cached("d", nullptr), 0u);
  // A conversation without a system message has nothing to share.
  Json body = Greedy(4);
  body["messages"].erase(0);
  body["cache_salt"] = "a";
  body["isolate_after"] = "system";
  EXPECT_EQ(server.PostTo(kChat, body).status, 200);
  body["cache_salt"] = "b";
  EXPECT_EQ(server.PostTo(kChat, body).json["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST_F(ChatTest, IsolateAfterIsANumberOfTokensOrTheSystemMessages) {
  const RunningServer server(engine_.get());
  for (const Json& bad : {Json("user"), Json(true), Json(-1), Json(1.5), Json(100000)}) {
    Json body = Greedy(4);
    body["isolate_after"] = bad;
    const auto reply = server.PostTo(kChat, body);
    EXPECT_EQ(reply.status, 400) << bad;
    EXPECT_EQ(reply.json["error"]["param"], "isolate_after") << bad;
  }
}

TEST_F(ChatTest, WhatTheTemplateMakesCanBeAskedFor) {
  const RunningServer server(engine_.get());
  const auto prompt = server.PostTo("/apply-template", Greedy());
  ASSERT_EQ(prompt.status, 200) << prompt.json;
  EXPECT_EQ(prompt.json["prompt"], kPrompt);
  const size_t tokens = engine_->tokenizer().Encode(kPrompt).size();
  const auto count = server.PostTo("/v1/chat/completions/input_tokens", Greedy());
  EXPECT_EQ(count.json["input_tokens"], tokens);
  EXPECT_EQ(count.json["object"], "response.input_tokens");
  // Both messages end where a checkpoint may be: the last one before "A:".
  ASSERT_EQ(prompt.json["message_ends"].size(), 2u);
  const size_t system = engine_->tokenizer().Encode(std::string(kLog) + "\n").size();
  EXPECT_EQ(prompt.json["message_ends"][0], system);
  EXPECT_LT(prompt.json["message_ends"][1].get<size_t>(), tokens);
}

TEST_F(ChatTest, TokenizeAnswersInBothShapes) {
  const RunningServer server(engine_.get());
  const std::string text = "Ada <|end|> 日";
  const auto ids = [&](bool special, bool parse) {
    return Json(
        engine_->tokenizer().Encode(text, {.add_special = special, .parse_special = parse}));
  };
  EXPECT_EQ(server.PostTo("/tokenize", {{"content", text}}).json,
            Json({{"tokens", ids(false, true)}}));
  EXPECT_EQ(
      server
          .PostTo("/tokenize", {{"content", text}, {"add_special", true}, {"parse_special", false}})
          .json["tokens"],
      ids(true, false));
  const auto pieces =
      server.PostTo("/tokenize", {{"content", text}, {"with_pieces", true}}).json["tokens"];
  std::string joined;
  for (const Json& piece : pieces) {
    if (piece["piece"].is_string()) {
      joined += piece["piece"].get<std::string>();
    } else {
      for (const Json& byte : piece["piece"]) joined += static_cast<char>(byte.get<int>());
    }
  }
  EXPECT_EQ(joined, text);
  const auto counted =
      server.PostTo("/tokenize", {{"prompt", text}, {"return_token_strs", true}}).json;
  EXPECT_EQ(counted["tokens"], ids(true, true));
  EXPECT_EQ(counted["count"], counted["tokens"].size());
  EXPECT_EQ(counted["token_strs"].size(), counted["tokens"].size());
  EXPECT_EQ(counted["max_model_len"], server.api.model().max_model_len);
  Json chat = {{"messages", Greedy()["messages"]}};
  EXPECT_EQ(server.PostTo("/tokenize", chat).json["tokens"],
            Json(engine_->tokenizer().Encode(kPrompt)));
  chat["return_token_strs"] = true;
  EXPECT_TRUE(server.PostTo("/tokenize", chat).json["token_strs"].is_array());
  const auto back = server.PostTo("/detokenize", {{"tokens", ids(false, true)}}).json;
  EXPECT_EQ(back["content"], text);
  EXPECT_EQ(back["prompt"], text);
  EXPECT_EQ(server.PostTo("/detokenize", {{"tokens", Json::array()}}).json["content"], "");
}

TEST_F(ChatTest, BadRequestsAreNamed) {
  const RunningServer server(engine_.get());
  struct Case {
    const char* path;
    Json body;
    int status;
    const char* code;
    Json param;
  };
  Json other = Greedy();
  other["model"] = "gpt-5";
  Json tools = Greedy();
  tools["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  Json long_chat = Greedy();
  long_chat["messages"][0]["content"] = std::string(9000 * 30, 'x');
  Json too_many = Greedy();
  too_many["max_tokens"] = 8192;
  const Case cases[] = {
      {kChat, Json::object(), 400, "missing_required_parameter", "messages"},
      {kChat, other, 404, "model_not_found", "model"},
      {kChat, tools, 400, "unsupported_parameter", "tools"},
      {kChat, long_chat, 400, "context_length_exceeded", "messages"},
      {kChat, too_many, 400, "context_length_exceeded", "messages"},
      {"/v1/chat/completions/input_tokens", tools, 400, "unsupported_parameter", "tools"},
      {"/apply-template", {{"messages", 5}}, 400, "invalid_type", "messages"},
      {"/tokenize", Json::object(), 400, "missing_required_parameter", "content"},
      {"/tokenize",
       {{"content", "a"}, {"prompt", "a"}},
       400,
       "missing_required_parameter",
       "content"},
      {"/tokenize", {{"content", 5}}, 400, "invalid_type", "content"},
      {"/tokenize", {{"content", "a"}, {"foo", 5}}, 400, "unknown_parameter", "foo"},
      {"/tokenize",
       {{"content", std::string(9000 * 30, 'x')}},
       400,
       "context_length_exceeded",
       "content"},
      {"/tokenize", {{"prompt", "a"}, {"model", "other"}}, 404, "model_not_found", "model"},
      {"/tokenize",
       {{"messages", Json::array()}, {"return_token_strs", 1}},
       400,
       "invalid_type",
       "return_token_strs"},
      {"/detokenize", Json::object(), 400, "missing_required_parameter", "tokens"},
      {"/detokenize", {{"tokens", {1, 514}}}, 400, "invalid_value", "tokens"},
      {"/detokenize", {{"tokens", "a"}}, 400, "invalid_type", "tokens"},
      {"/detokenize", {{"tokens", std::vector<int>(8193, 1)}}, 400, "invalid_value", "tokens"},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(std::string(bad.path) + " " + bad.body.dump().substr(0, 80));
    const auto reply = server.PostTo(bad.path, bad.body);
    ASSERT_EQ(reply.status, bad.status) << reply.json;
    EXPECT_EQ(reply.json["error"]["code"], bad.code) << reply.json;
    EXPECT_EQ(reply.json["error"]["param"], bad.param) << reply.json;
  }
}

// ---- Templates of other models, without a server.

ChatRequest Conversation(const char* messages, const char* more = "") {
  const std::string body = std::string(R"({"messages":)") + messages + more + "}";
  ApiResult<ChatRequest> request =
      ParseChatRequest(body, {.vocab_size = 514, .context_length = 8192, .token_bytes_max = 100});
  EXPECT_TRUE(std::holds_alternative<ChatRequest>(request)) << body;
  return std::get<ChatRequest>(request);
}

class ChatPrompterTest : public ServerTest {
 protected:
  static ChatPrompter Make(std::string_view source) {
    return {source, &engine_->tokenizer(), ModelLimits::Of(engine_->shape(), engine_->tokenizer())};
  }
  static ApiError Refusal(const ChatPrompter& prompter, const ChatRequest& request) {
    ApiResult<RenderedChat> rendered = prompter.Render(request);
    if (const ApiError* error = std::get_if<ApiError>(&rendered)) return *error;
    ADD_FAILURE() << std::get<RenderedChat>(rendered).text;
    return {};
  }
};

constexpr char kHi[] = R"([{"role":"user","content":"hi"}])";

TEST_F(ChatPrompterTest, WithoutATemplateAChatIsRefusedWithTheWayOut) {
  const ApiError error = Refusal(Make(""), Conversation(kHi));
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.code, "no_chat_template");
  EXPECT_NE(error.message.find("/v1/completions"), std::string::npos);
}

TEST_F(ChatPrompterTest, ATemplateThatDoesNotCompileIsTheServersError) {
  const ChatPrompter prompter = Make("{% for %}");
  EXPECT_FALSE(prompter.error().empty());
  const ApiError error = Refusal(prompter, Conversation(kHi));
  EXPECT_EQ(error.http_status, 500);
  EXPECT_EQ(error.code, "chat_template_error");
}

TEST_F(ChatPrompterTest, WhatATemplateRefusesIsTheClientsErrorWithItsText) {
  const ApiError error =
      Refusal(Make("{{ raise_exception('roles must alternate') }}"), Conversation(kHi));
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.code, "chat_template_refused");
  EXPECT_NE(error.message.find("roles must alternate"), std::string::npos) << error.message;
}

TEST_F(ChatPrompterTest, ADeveloperIsASystemToTemplatesThatDoNotKnowTheRole) {
  const ChatRequest request = Conversation(R"([{"role":"developer","content":"x"}])");
  const auto text = [&](const char* source) {
    return std::get<RenderedChat>(Make(source).Render(request)).text;
  };
  EXPECT_EQ(text("{% for m in messages %}{{ m.role }}{% endfor %}"), "system");
  EXPECT_EQ(text("{% for m in messages %}{{ m.role }}{% endfor %}{# developer #}"), "developer");
}

TEST_F(ChatPrompterTest, ToolsReachTemplatesWhoseCallsAreUnderstood) {
  const char* tools =
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2}}}])";
  const ChatRequest request = Conversation(kHi, tools);
  EXPECT_EQ(Refusal(Make("{{ messages[0].content }}"), request).param, "tools");
  EXPECT_EQ(Refusal(Make("{{ tools | tojson }}[TOOL_CALLS]"), request).param, "tools");
  const ApiResult<RenderedChat> rendered =
      Make("{{ tools | tojson }}<tool_call>{'arguments'}</tool_call>").Render(request);
  ASSERT_TRUE(std::holds_alternative<RenderedChat>(rendered));
  const std::string& text = std::get<RenderedChat>(rendered).text;
  EXPECT_NE(text.find(R"("parameters": {"z": 1, "a": 2})"), std::string::npos) << text;
}

TEST_F(ChatPrompterTest, TheTemplateTellsHowTheAnswerIsRead) {
  const auto reading = [](const char* source) {
    return std::get<RenderedChat>(Make(source).Render(Conversation(kHi))).reading;
  };
  const AnswerReading plain = reading("{{ messages[0].content }}");
  EXPECT_EQ(plain.reasoning, nullptr);
  EXPECT_EQ(plain.calls, nullptr);
  const AnswerReading open = reading("{{ messages[0].content.split('</think>')[-1] }}<think>\n");
  EXPECT_NE(open.reasoning, nullptr);
  EXPECT_TRUE(open.begins_in_reasoning);
  EXPECT_TRUE(open.shown_special.empty()) << "text like any other to this model";
  const AnswerReading closed = reading("hi<think>\n\n</think>\n\n");
  EXPECT_NE(closed.reasoning, nullptr);
  EXPECT_FALSE(closed.begins_in_reasoning);
}

TEST_F(ChatPrompterTest, AnEmptyPromptIsRefused) {
  EXPECT_EQ(Refusal(Make("{% if false %}x{% endif %}"), Conversation(kHi)).code,
            "chat_template_refused");
}

}  // namespace
}  // namespace tessera::testing
