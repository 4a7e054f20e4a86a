// SPDX-License-Identifier: Apache-2.0
#include "server/chat_request.h"

#include <gtest/gtest.h>

#include <string>

#include "server/json_body.h"

namespace tessera {
namespace {

constexpr ModelLimits kLimits = {.vocab_size = 514, .context_length = 100, .token_bytes_max = 4};

ChatRequest Parse(const std::string& body) {
  ApiResult<ChatRequest> result = ParseChatRequest(body, kLimits);
  if (const ApiError* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << body << ": " << error->message;
    return {};
  }
  return std::get<ChatRequest>(result);
}

ApiError Refusal(const std::string& body) {
  ApiResult<ChatRequest> result = ParseChatRequest(body, kLimits);
  if (const ApiError* error = std::get_if<ApiError>(&result)) return *error;
  ADD_FAILURE() << "accepted: " << body.substr(0, 200);
  return {};
}

// With `fields` beside one message.
std::string With(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}";
}

TEST(ChatRequest, DefaultsAreOpenAis) {
  const ChatRequest request = Parse(R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(request.messages.dump(), R"([{"role":"user","content":"hi"}])");
  EXPECT_TRUE(request.tools.is_null());
  EXPECT_EQ(request.kwargs.dump(), "{}");
  EXPECT_TRUE(request.add_generation_prompt);
  EXPECT_FALSE(request.logprobs);
  EXPECT_FALSE(request.max_tokens.has_value());
  EXPECT_EQ(request.sampling.temperature, 1.0f);
}

TEST(ChatRequest, FieldsAreReadAndThoseOfCompletionsToo) {
  const ChatRequest request = Parse(With(
      R"("chat_template_kwargs":{"b":1,"a":null},"reasoning_effort":"low","logprobs":true,
         "top_logprobs":4,"add_generation_prompt":false,"max_completion_tokens":7,"n":2,
         "temperature":0,"seed":3,"response_format":{"type":"text"},"tool_choice":"auto",
         "parallel_tool_calls":true,"store":false,"service_tier":"auto")"));
  EXPECT_EQ(request.kwargs.dump(), R"({"reasoning_effort":"low","b":1,"a":null})");
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.top_logprobs, 4);
  EXPECT_FALSE(request.add_generation_prompt);
  EXPECT_EQ(request.max_tokens, 7u);
  EXPECT_EQ(request.choices, 2u);
  EXPECT_EQ(request.sampling.temperature, 0.0f);
}

TEST(ChatRequest, MessagesReachTheTemplateAsItReadsThem) {
  const ChatRequest request = Parse(R"({"messages":[
      {"role":"developer","content":[{"type":"text","text":"be"},{"type":"text","text":"kind"}]},
      {"role":"assistant","content":null,"refusal":null,"annotations":[],"reasoning_content":"hm",
       "tool_calls":[{"id":"c1","type":"function",
                      "function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]},
      {"tool_call_id":"c1","role":"tool","content":"ok","name":"f"}]})");
  EXPECT_EQ(request.messages[0].dump(), R"({"role":"developer","content":"be\nkind"})");
  EXPECT_EQ(request.messages[1]["content"], nullptr);
  EXPECT_EQ(request.messages[1]["reasoning_content"], "hm");
  EXPECT_FALSE(request.messages[1].contains("refusal"));
  EXPECT_EQ(request.messages[1]["tool_calls"][0]["function"]["arguments"].dump(),
            R"({"z":1,"a":2})");
  EXPECT_EQ(request.messages[2].dump(),
            R"({"tool_call_id":"c1","role":"tool","content":"ok","name":"f"})");
}

TEST(ChatRequest, ToolsKeepTheOrderOfTheirKeysAndNoneHidesThem) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"z":{},"a":{}}}}])";
  EXPECT_EQ(Parse(With(tools)).tools[0]["function"]["parameters"].dump(), R"({"z":{},"a":{}})");
  EXPECT_TRUE(Parse(With(tools + R"(,"tool_choice":"none")")).tools.is_null());
  EXPECT_TRUE(Parse(With(R"("tools":[])")).tools.is_null());
}

struct BadField {
  std::string body;
  const char* param;
  const char* code;
  const char* in_message;
};

TEST(ChatRequest, WrongFieldsAreNamedWithExpectedAndActual) {
  const auto message = [](const std::string& text) { return R"({"messages":[)" + text + "]}"; };
  const auto call = [&](const std::string& text) {
    return message(R"({"role":"assistant","tool_calls":[)" + text + "]}");
  };
  const BadField cases[] = {
      {"{}", "messages", "missing_required_parameter", "required"},
      {R"({"messages":null})", "messages", "missing_required_parameter", "required"},
      {R"({"messages":"hi"})", "messages", "invalid_type", "an array of 1 to 4096"},
      {R"({"messages":[]})", "messages", "invalid_type", "array of 0"},
      {message("1"), "messages[0]", "invalid_type", "an object, got 1"},
      {message("{}"), "messages[0].role", "invalid_type", "one of system"},
      {message(R"({"role":"bot","content":""})"), "messages[0].role", "invalid_type", "\"bot\""},
      {message(R"({"role":"user"})"), "messages[0].content", "invalid_type", "got null"},
      {message(R"({"role":"user","content":null})"), "messages[0].content", "invalid_type", "null"},
      {message(R"({"role":"user","content":5})"), "messages[0].content", "invalid_type", "got 5"},
      {message(R"({"role":"user","content":[]})"), "messages[0].content", "invalid_type",
       "array of 0"},
      {message(R"({"role":"user","content":[{"type":"image_url","image_url":{}}]})"),
       "messages[0].content[0].type", "invalid_type", "\"image_url\""},
      {message(R"({"role":"user","content":[{"type":"text"}]})"), "messages[0].content[0].text",
       "invalid_type", "a string"},
      {message(R"({"role":"user","content":"x","foo":1})"), "messages[0].foo", "unknown_parameter",
       "reasoning_content"},
      {message(R"({"role":"user","content":"x"},{"role":"user","content":"x","name":1})"),
       "messages[1].name", "invalid_type", "a string, got 1"},
      {call("1"), "messages[0].tool_calls[0]", "invalid_type", "an object"},
      {call("{}"), "messages[0].tool_calls[0].function", "invalid_type", "an object"},
      {call(R"({"function":{"name":"f","arguments":"{"}})"),
       "messages[0].tool_calls[0].function.arguments", "invalid_type", "a string of JSON"},
      {With(R"("tools":{})"), "tools", "invalid_type", "at most 128"},
      {With(R"("tools":[{"type":"custom"}])"), "tools[0].type", "invalid_type", "\"custom\""},
      {With(R"("tools":[{"type":"function","function":{}}])"), "tools[0].function.name",
       "invalid_type", "a string"},
      {With(R"("tool_choice":"required")"), "tool_choice", "unsupported_parameter", "required"},
      {With(R"("tool_choice":{"type":"function"})"), "tool_choice", "unsupported_parameter",
       "an object"},
      {With(R"("parallel_tool_calls":false)"), "parallel_tool_calls", "unsupported_parameter",
       "true"},
      {With(R"("response_format":{"type":"json_object"})"), "response_format",
       "unsupported_parameter", "json_object"},
      {With(R"("response_format":{"type":"json_schema","json_schema":{}})"), "response_format",
       "unsupported_parameter", "json_schema"},
      {With(R"("response_format":"text")"), "response_format", "invalid_type", "an object"},
      {With(R"("top_logprobs":2)"), "top_logprobs", "invalid_value", "logprobs is true"},
      {With(R"("logprobs":3)"), "logprobs", "invalid_type", "true or false"},
      {With(R"("chat_template_kwargs":[])"), "chat_template_kwargs", "invalid_type", "an object"},
      {With(R"("chat_template_kwargs":{"messages":[]})"), "chat_template_kwargs", "invalid_value",
       "no member named messages"},
      {With(R"("store":true)"), "store", "invalid_value", "false"},
      {With(R"("prompt":"x")"), "prompt", "unknown_parameter", "messages"},
      {With(R"("functions":[])"), "functions", "unknown_parameter", "tools"},
      {With(R"("temperature":3)"), "temperature", "invalid_value", "0 to 2"},
      {"[]", "", "invalid_type", "an object"},
  };
  for (const BadField& bad : cases) {
    SCOPED_TRACE(bad.body);
    const ApiError error = Refusal(bad.body);
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.param, bad.param);
    EXPECT_EQ(error.code, bad.code);
    EXPECT_NE(error.message.find(bad.in_message), std::string::npos) << error.message;
    EXPECT_LT(error.message.size(), 900u);
  }
  // A field that a chat reads in its own way is listed once.
  const std::string known = Refusal(With(R"("functions":[])")).message;
  EXPECT_NE(known.find("isolate_after"), std::string::npos);
  EXPECT_EQ(known.find("isolate_after"), known.rfind("isolate_after"));
}

TEST(ChatRequest, HugeBodiesAreRefusedInTimeThatGrowsWithTheirSizeOnly) {
  // Members of one object: the parser that keeps order compares each key with all before it.
  std::string members = R"({"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{)";
  for (int i = 0; i < 60'000; ++i) members += '"' + std::to_string(i) + "\":1,";
  members += R"("end":1}})";
  EXPECT_NE(Refusal(members).message.find("2048 members"), std::string::npos);
  std::string values = R"({"messages":[)";
  for (int i = 0; i < 100'000; ++i) values += "1,";
  EXPECT_NE(Refusal(values + "1]}").message.find("at most 65536 values"), std::string::npos);
  std::string many = R"({"messages":[{"role":"user","content":"x"})";
  for (size_t i = 0; i < kMessagesMax; ++i) many += R"(,{"role":"user","content":"x"})";
  EXPECT_NE(Refusal(many + "]}").message.find("array of 4097"), std::string::npos);
  EXPECT_EQ(Refusal(With("\"chat_template_kwargs\":" + std::string(100'000, '['))).code,
            "invalid_json");
}

TEST(ChatRequest, EveryPrefixAndEveryFlippedByteGivesAnAnswer) {
  const std::string good =
      R"({"messages":[{"role":"assistant","content":[{"type":"text","text":"\u00e9"}],)"
      R"("tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}],"tools":[],"n":1})";
  (void)Parse(good);
  for (size_t length = 0; length < good.size(); ++length) {
    (void)ParseChatRequest(good.substr(0, length), kLimits);
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = good;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      ApiResult<ChatRequest> result = ParseChatRequest(damaged, kLimits);
      if (const ApiError* error = std::get_if<ApiError>(&result)) {
        EXPECT_EQ(error->http_status, 400);
        EXPECT_TRUE(nlohmann::json::accept(ErrorBody(*error)));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
