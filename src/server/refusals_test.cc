// SPDX-License-Identifier: Apache-2.0
//
// What the server refuses, over a socket, by status, type, code, param and message; the fields of
// bodies one by one are in completion_request_test and chat_request_test. And docs/http.md against
// the source: every code that can be sent is in its table.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "base/bytes.h"
#include "server/server_fixture.h"

namespace tessera::testing {
namespace {

constexpr char kDone[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";

struct Refused {
  const char* method;
  std::string path;
  std::string body;
  int status;
  const char* code;
  Json param;
  const char* message;  // part of it
};

std::string Messages(const std::string& content, const std::string& more = "") {
  return R"({"messages":[{"role":"user","content":")" + content + "\"}]" + more + "}";
}

std::string Ids(size_t count, const std::string& field = "prompt", const std::string& more = "") {
  return "{\"" + field + "\":" + Json(std::vector<int>(count, 1)).dump() + more + "}";
}

class RefusalsTest : public ServerTest {
 protected:
  static httplib::Result Ask(const RunningServer& server, const Refused& one) {
    httplib::Request request;
    request.method = one.method;
    request.path = one.path;
    request.body = one.body;
    if (!one.body.empty()) request.set_header("Content-Type", "application/json");
    httplib::Client client = server.Client();
    return client.send(request);
  }
  static void Expect(const RunningServer& server, const Refused& one) {
    SCOPED_TRACE(std::string(one.method) + " " + one.path.substr(0, 60) + " " +
                 one.body.substr(0, 80));
    const httplib::Result reply = Ask(server, one);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, one.status) << reply->body;
    EXPECT_EQ(reply->get_header_value("Content-Type"), "application/json");
    const Json json = Json::parse(reply->body, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.contains("error")) << reply->body;
    const Json& error = json["error"];
    EXPECT_EQ(error.size(), 4u) << error;
    EXPECT_EQ(error["type"], one.status < 500 ? "invalid_request_error" : "server_error");
    EXPECT_EQ(error["code"], one.code) << error;
    EXPECT_EQ(error["param"], one.param) << error;
    const std::string message = error["message"];
    EXPECT_NE(message.find(one.message), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    if (one.param.is_string() && one.status == 400) {
      EXPECT_TRUE(message.starts_with(one.param.get<std::string>())) << message;
    }
  }
};

TEST_F(RefusalsTest, EachHasItsStatusCodeParamAndMessage) {
  const RunningServer server(engine_.get());
  const std::string far = std::string(9000 * 30, 'x');
  const Refused cases[] = {
      // Longer than the context: as text, as ids, with the answer, in bodies of too many values.
      {"POST", kDone, "{\"prompt\":\"" + far + "\"}", 400, "context_length_exceeded", "prompt",
       "prompt: the model's context is 8192 tokens, the request needs more: prompt has at least"},
      {"POST", kDone, Ids(8193), 400, "context_length_exceeded", "prompt", "prompt has 8193"},
      {"POST", kDone, Ids(8000, "prompt", ",\"max_tokens\":193"), 400, "context_length_exceeded",
       "prompt", "8000 in the prompt and max_tokens 193"},
      {"POST", kDone, Ids(600'000), 413, "payload_too_large", nullptr,
       "the body: at most 1048576 bytes"},
      {"POST", kChat, Messages(far), 400, "context_length_exceeded", "messages",
       "messages: the model's context is 8192 tokens, the request needs more: the messages have at "
       "least"},
      {"POST", kChat, Messages("hi", ",\"max_tokens\":8192"), 400, "context_length_exceeded",
       "messages", "in the prompt and max_tokens 8192"},
      {"POST", "/tokenize", "{\"content\":\"" + far + "\"}", 400, "context_length_exceeded",
       "content", "content: the model's context is 8192 tokens"},
      {"POST", "/tokenize", "{\"prompt\":\"" + far + "\"}", 400, "context_length_exceeded",
       "prompt", "prompt: the model's context"},
      {"POST", "/detokenize", Ids(8193, "tokens"), 400, "invalid_value", "tokens",
       "tokens: expected at most 8192 token ids, got an array of 8193"},
      {"POST", "/detokenize", Ids(13'000, "tokens"), 400, "context_length_exceeded", "tokens",
       "the body has more"},
      {"POST", "/cache/pin", Ids(8193), 400, "context_length_exceeded", "prompt",
       "prompt has 8193"},
      // Positions beyond the prompt, which only its tokens tell.
      {"POST", kDone, R"({"prompt":[1,2,3],"checkpoint_at":4})", 400, "invalid_value",
       "checkpoint_at", "checkpoint_at: expected positions from 1 to 3"},
      {"POST", kChat, Messages("hi", ",\"checkpoint_at\":8000,\"max_tokens\":1"), 400,
       "invalid_value", "checkpoint_at", "the tokens of the prompt, got 8000"},
      // Pins.
      {"POST", "/cache/pin", R"({"prompt":"nobody sent this"})", 404, "not_cached", "prompt",
       "prompt: no state of the prompt's"},
      {"POST", "/cache/pin", Messages("nobody sent this"), 404, "not_cached", "messages",
       "messages: no state of the prompt's"},
      {"POST", "/cache/release", R"({"pin":12345})", 404, "pin_not_found", "pin",
       "pin: there is no 12345: released, or expired"},
      // Queries.
      {"GET", "/cache/entries?limit=0", "", 400, "invalid_value", "limit",
       "limit: expected an integer from 1 to 10000, got '0'"},
      {"GET", "/cache/entries?limit=10001", "", 400, "invalid_value", "limit", "got '10001'"},
      {"GET", "/cache/entries?limit=", "", 400, "invalid_value", "limit", "got ''"},
      {"GET", "/cache/entries?page=2", "", 400, "unknown_parameter", "page",
       "page: not a parameter of this path, which reads limit"},
      // Models, paths, methods.
      {"GET", "/v1/models/gpt-5", "", 404, "model_not_found", "model", "model: this server has \""},
      {"POST", kChat, Messages("hi", ",\"model\":\"gpt-5\""), 404, "model_not_found", "model",
       "not \"gpt-5\""},
      {"GET", "/v1/nope", "", 404, "not_found", nullptr, "no such path: /v1/nope"},
      {"GET", "/" + std::string(600, 'a'), "", 404, "not_found", nullptr,
       "no such path: 601 bytes long"},
      {"GET", kDone, "", 405, "method_not_allowed", nullptr,
       "/v1/completions: expected POST, got GET"},
      {"DELETE", "/health", "", 405, "method_not_allowed", nullptr,
       "/health: expected GET, got DELETE"},
      {"POST", "/cache", "{}", 405, "method_not_allowed", nullptr,
       "/cache: expected GET, DELETE, got POST"},
      // What a model cannot be kept to.
      {"POST", kChat, Messages("hi", ",\"response_format\":{\"type\":\"json_object\"}"), 400,
       "unsupported_parameter", "response_format", "expected type \"text\", got \"json_object\""},
      {"POST", kChat, Messages("hi", ",\"tool_choice\":\"required\""), 400, "unsupported_parameter",
       "tool_choice", "does not force calls"},
      {"POST", kChat, Messages("hi", ",\"parallel_tool_calls\":false"), 400,
       "unsupported_parameter", "parallel_tool_calls", "expected true"},
      // What the library refuses before a route.
      {"GET", "/" + std::string(9000, 'a'), "", 414, "invalid_request", nullptr, "HTTP 414"},
  };
  for (const Refused& one : cases) Expect(server, one);
}

TEST_F(RefusalsTest, ABodyInAnUnknownEncodingIsNotReadAsIfItHadNone) {
  const RunningServer server(engine_.get());
  const std::string body = R"({"prompt":"Q:","max_tokens":0})";
  EXPECT_EQ(server.Post(body, {{"Content-Encoding", "identity"}}).status, 200);
  for (const char* encoding : {"zstd", "snappy", "gzip, gzip"}) {
    const auto reply = server.Post(body, {{"Content-Encoding", encoding}});
    EXPECT_EQ(reply.status, 415) << encoding;
    EXPECT_EQ(reply.json["error"]["code"], "unsupported_media_type");
  }
}

TEST_F(RefusalsTest, WhoAsksForARangeGetsTheWhole) {
  const RunningServer server(engine_.get());
  const auto get = [&](const char* range) {
    return server.Client().Get("/health", {{"Range", range}});
  };
  EXPECT_EQ(get("bytes=0-3")->status, 200);
  EXPECT_EQ(get("bytes=0-3")->body, R"({"status":"ok"})");
  EXPECT_EQ(get("bytes=0-1,3-4")->body, R"({"status":"ok"})");
  EXPECT_EQ(get("bytes=x")->status, 416);
  EXPECT_EQ(Json::parse(get("bytes=x")->body)["error"]["code"], "invalid_request");
}

TEST_F(RefusalsTest, WhatNeverRunsIsCountedByReason) {
  const RunningServer server(engine_.get());
  const auto refused = [&](const char* reason) {
    const std::string page = server.Client().Get("/metrics")->body;
    const std::string name = "tessera_requests_refused_total{reason=\"" + std::string(reason);
    const size_t at = page.find(name);
    EXPECT_NE(at, page.npos) << reason;
    return std::stod(page.substr(page.find(' ', at)));
  };
  const double context = refused("context");
  const double invalid = refused("invalid");
  EXPECT_EQ(server.Complete({{"prompt", "Q:"}, {"max_tokens", 8192}}).status, 400);
  EXPECT_EQ(server.PostTo(kChat, Json::parse(Messages("hi", ",\"max_tokens\":8192"))).status, 400);
  EXPECT_EQ(server.Complete({{"prompt", {1, 2}}, {"checkpoint_at", 3}}).status, 400);
  EXPECT_EQ(refused("context"), context + 2);
  EXPECT_EQ(refused("invalid"), invalid + 1);
  EXPECT_EQ(refused("budget"), 0);
  EXPECT_EQ(refused("shutting_down"), 0);
}

// ---- The document.

std::string TextOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::set<std::string> Matches(const std::string& text, const char* pattern) {
  std::set<std::string> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    found.insert((*it)[1]);
  }
  return found;
}

TEST(Refusals, TheDocumentHasEveryCodeThatIsSentAndNoOther) {
  const std::filesystem::path root(TESSERA_SOURCE_DIR);
  std::set<std::string> sent;
  for (const auto& file : std::filesystem::directory_iterator(root / "src/server")) {
    const std::string name = file.path().filename();
    if (!name.ends_with(".cc") || name.ends_with("_test.cc")) continue;
    sent.merge(
        Matches(TextOf(file),
                R"re((?:InvalidField|ServerError|Refusal|NotThere)\(\s*[^,;{]*,\s*"(\w+)")re"));
  }
  // Said to nobody: the client has gone.
  EXPECT_EQ(sent.erase("client_closed_request"), 1u);
  EXPECT_TRUE(sent.contains("context_length_exceeded") && sent.contains("loading")) << sent.size();
  const std::string document = TextOf(root / "docs/http.md");
  const size_t begin = document.find("\n## Errors");
  const size_t end = document.find("\n## ", begin + 1);
  ASSERT_NE(begin, document.npos);
  std::set<std::string> documented;
  std::istringstream lines(document.substr(begin, end - begin));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("| `")) documented.merge(Matches(line, R"re(^\| `(\w+)`)re"));
  }
  EXPECT_EQ(documented, sent);
}

}  // namespace
}  // namespace tessera::testing
