// SPDX-License-Identifier: Apache-2.0
//
// Pinning over a real socket; what a pin does to memory is tested in memory/store.
#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace tessera::testing {
namespace {

class CachePinsTest : public ServerTest {
 protected:
  static Json Get(const RunningServer& server, const std::string& path) {
    return Json::parse(server.Client().Get(path)->body);
  }
};

TEST_F(CachePinsTest, APrefixIsPinnedListedAndReleased) {
  const RunningServer server(engine_.get());
  const Json missing = server.PostTo("/cache/pin", {{"prompt", kPrompt}}).json;
  EXPECT_EQ(missing["error"]["code"], "not_cached");
  ASSERT_EQ(server.Complete({{"prompt", kPrompt}, {"max_tokens", 0}}).status, 200);
  const std::string longer = std::string(kPrompt) + " in the barn.";
  const auto pinned = server.PostTo("/cache/pin", {{"prompt", longer}, {"ttl_s", 3600}});
  ASSERT_EQ(pinned.status, 200) << pinned.json;
  EXPECT_EQ(pinned.json["tokens"], engine_->tokenizer().Encode(kPrompt).size());
  EXPECT_GT(pinned.json["bytes"].get<int>(), 0);
  EXPECT_NEAR(pinned.json["expires_in_s"].get<int>(), 3600, 5);
  Json list = Get(server, "/cache/pins")["pins"];
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["pin"], pinned.json["pin"]);
  EXPECT_EQ(list[0]["lost"], false);
  EXPECT_EQ(list[0]["salted"], false);
  EXPECT_EQ(Get(server, "/cache/entries")["entries"][0]["pinned"], true);
  EXPECT_EQ(server.PostTo("/cache/release", {{"pin", pinned.json["pin"]}}).json,
            Json({{"released", true}}));
  EXPECT_TRUE(Get(server, "/cache/pins")["pins"].empty());
  EXPECT_EQ(server.PostTo("/cache/release", {{"pin", pinned.json["pin"]}}).status, 404);
}

TEST_F(CachePinsTest, AChatIsPinnedByItsMessages) {
  const RunningServer server(engine_.get());
  const Json messages = {{{"role", "user"}, {"content", "Where is the red kite?"}}};
  ASSERT_EQ(
      server.PostTo("/v1/chat/completions", {{"messages", messages}, {"max_tokens", 0}}).status,
      200);
  Json longer = messages;
  longer.push_back({{"role", "assistant"}, {"content", "In the barn."}});
  const auto pinned = server.PostTo("/cache/pin", {{"messages", longer}, {"ttl_s", nullptr}});
  ASSERT_EQ(pinned.status, 200) << pinned.json;
  EXPECT_GT(pinned.json["tokens"].get<int>(), 0);
  EXPECT_TRUE(pinned.json["expires_in_s"].is_null());
}

TEST_F(CachePinsTest, APinIsOfItsSaltAlone) {
  const RunningServer server(engine_.get());
  ASSERT_EQ(server.Complete({{"prompt", kPrompt}, {"max_tokens", 4}, {"cache_salt", "a"}}).status,
            200);
  const auto pin = [&](const char* salt) {
    return server
        .PostTo("/cache/pin", {{"prompt", std::string(kPrompt) + " x"}, {"cache_salt", salt}})
        .status;
  };
  EXPECT_EQ(pin(""), 404);
  EXPECT_EQ(pin("b"), 404);
  EXPECT_EQ(pin("a"), 200);
  EXPECT_EQ(Get(server, "/cache/pins")["pins"][0]["salted"], true);
}

TEST_F(CachePinsTest, APinOfAPublicBeginningIsEverybodys) {
  const RunningServer server(engine_.get());
  Json body = {{"prompt", kPrompt}, {"max_tokens", 4}, {"cache_salt", "a"}, {"isolate_after", 16}};
  ASSERT_EQ(server.Complete(body).status, 200);
  body["cache_salt"] = "b";
  body.erase("max_tokens");
  const auto pinned = server.PostTo("/cache/pin", body);
  ASSERT_EQ(pinned.status, 200) << pinned.json;
  EXPECT_EQ(pinned.json["tokens"], 16);
  EXPECT_EQ(Get(server, "/cache/pins")["pins"][0]["salted"], false);
  body["isolate_after"] = 0;
  EXPECT_EQ(server.PostTo("/cache/pin", body).status, 404);
}

TEST_F(CachePinsTest, UnderIsolateKeyAPinIsOfItsKeyAlone) {
  for (const IsolateKind isolate : {IsolateKind::kKey, IsolateKind::kOff}) {
    EngineOptions engine_options = engine_->options();
    engine_options.isolate = isolate;
    auto engine = Engine::Create(engine_options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message();
    ApiOptions options;
    options.keys = *ApiKeys::Create({"ada", "rosa"});
    const RunningServer server(engine->get(), {}, options);
    const auto ask = [&](const char* key, const char* path, const Json& body) {
      const auto reply = server.Client().Post(
          path, {{"Authorization", std::string("Bearer ") + key}}, body.dump(), "application/json");
      return RunningServer::Reply{reply->status, Json::parse(reply->body)};
    };
    const auto pins = [&](const char* key) {
      const auto reply =
          server.Client().Get("/cache/pins", {{"Authorization", std::string("Bearer ") + key}});
      return Json::parse(reply->body)["pins"].size();
    };
    const Json prompt = {{"prompt", kPrompt}, {"max_tokens", 4}};
    ASSERT_EQ(ask("ada", "/v1/completions", prompt).status, 200);
    const auto pinned = ask("ada", "/cache/pin", {{"prompt", std::string(kPrompt) + " x"}});
    ASSERT_EQ(pinned.status, 200) << pinned.json;
    const bool shared = isolate == IsolateKind::kOff;
    EXPECT_EQ(pins("ada"), 1u);
    EXPECT_EQ(pins("rosa"), shared ? 1u : 0u);
    const Json pin = {{"pin", pinned.json["pin"]}};
    EXPECT_EQ(ask("rosa", "/cache/release", pin).status, shared ? 200 : 404);
    EXPECT_EQ(pins("ada"), shared ? 0u : 1u);
    EXPECT_EQ(ask("ada", "/cache/release", pin).status, shared ? 404 : 200);
  }
}

TEST_F(CachePinsTest, BadRequestsAreNamed) {
  const RunningServer server(engine_.get());
  struct Case {
    const char* path;
    Json body;
    const char* code;
    Json param;
  };
  const Case cases[] = {
      {"/cache/pin", Json::object(), "missing_required_parameter", "prompt"},
      {"/cache/pin", {{"prompt", 5}}, "invalid_type", "prompt"},
      {"/cache/pin", {{"prompt", "x"}, {"ttl_s", 0}}, "invalid_value", "ttl_s"},
      {"/cache/pin", {{"prompt", "x"}, {"ttl_s", 1e9}}, "invalid_type", "ttl_s"},
      {"/cache/pin", {{"prompt", "x"}, {"isolate_after", -1}}, "invalid_value", "isolate_after"},
      {"/cache/pin", {{"prompt", "x"}, {"foo", 1}}, "unknown_parameter", "foo"},
      {"/cache/pin", {{"messages", Json::array()}}, "invalid_type", "messages"},
      {"/cache/pin", {{"messages", Json::array()}, {"ttl_s", "x"}}, "invalid_type", "ttl_s"},
      {"/cache/release", Json::object(), "missing_required_parameter", "pin"},
      {"/cache/release", {{"pin", -1}}, "invalid_value", "pin"},
      {"/cache/release", {{"pin", "x"}}, "invalid_type", "pin"},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.body.dump());
    const auto reply = server.PostTo(bad.path, bad.body);
    EXPECT_EQ(reply.status, 400) << reply.json;
    EXPECT_EQ(reply.json["error"]["code"], bad.code) << reply.json;
    EXPECT_EQ(reply.json["error"]["param"], bad.param) << reply.json;
  }
}

}  // namespace
}  // namespace tessera::testing
