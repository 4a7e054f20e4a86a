// SPDX-License-Identifier: Apache-2.0
//
// The transport: clients that leave, that are many, that are slow; routes, limits and shutdown.

#include "server/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/bytes.h"
#include "server/server_fixture.h"

namespace tessera::testing {
namespace {

class HttpServerTest : public ServerTest {};

// Greedily the model writes its log on and on: 8,000 tokens, seconds.
Json Long(int max_tokens = 8000) {
  return {{"prompt", "Log of day 12. Ada left the red kite in the barn."},
          {"max_tokens", max_tokens},
          {"temperature", 0}};
}

TEST_F(HttpServerTest, ReadOnlyRoutesAnswer) {
  const RunningServer server(engine_.get());
  httplib::Client client = server.Client();
  for (const char* path : {"/health", "/v1/health"}) {
    const auto health = client.Get(path);
    ASSERT_TRUE(health);
    EXPECT_EQ(health->status, 200);
    EXPECT_EQ(Json::parse(health->body), Json({{"status", "ok"}}));
  }
  const auto version = client.Get("/version");
  EXPECT_TRUE(Json::parse(version->body)["version"].is_string());
  const Json models = Json::parse(client.Get("/v1/models")->body);
  EXPECT_EQ(models["object"], "list");
  const Json& model = models["data"][0];
  EXPECT_EQ(model["object"], "model");
  EXPECT_EQ(model["owned_by"], "tessera");
  EXPECT_EQ(model["meta"]["n_vocab"], 514);
  EXPECT_EQ(model["meta"]["n_ctx_train"], 8192);
  EXPECT_GT(model["max_model_len"].get<int>(), 0);
  EXPECT_TRUE(model["created"].is_number_integer());
  httplib::Client again = server.Client();
  const auto one = again.Get("/v1/models/nope");
  EXPECT_EQ(one->status, 404);
  EXPECT_EQ(Json::parse(one->body)["error"]["code"], "model_not_found");
}

TEST_F(HttpServerTest, UntilTheModelIsLoadedEverythingIs503) {
  HttpServerOptions options;
  options.port = 0;
  Api api(engine_.get(), {});
  const auto server = std::move(*HttpServer::Create(options));
  ASSERT_TRUE(server->Listen().ok());
  httplib::Client client("127.0.0.1", server->port());
  const std::string body = R"({"prompt":"Q:","max_tokens":1})";
  for (const bool post : {false, true}) {
    const auto reply =
        post ? client.Post("/v1/completions", body, "application/json") : client.Get("/health");
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 503);
    EXPECT_EQ(reply->get_header_value("Retry-After"), "1");
    EXPECT_EQ(Json::parse(reply->body)["error"]["code"], "loading");
  }
  RawConnection asks_first(server->port());
  asks_first.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
      "Content-Length: 5\r\n\r\n");
  EXPECT_NE(asks_first.ReadAll(std::chrono::seconds(3)).find("HTTP/1.1 503"), std::string::npos);
  ASSERT_TRUE(server->Start(&api).ok());
  EXPECT_EQ(client.Get("/health")->status, 200);
  EXPECT_EQ(client.Post("/v1/completions", body, "application/json")->status, 200);
}

TEST_F(HttpServerTest, CacheShowsWhereTheBytesAre) {
  const RunningServer server(engine_.get());
  const auto cache = [&] { return Json::parse(server.Client().Get("/cache")->body); };
  const Json idle = cache();
  EXPECT_EQ(idle["budget_bytes"], 64 * kMiB);
  EXPECT_EQ(idle["sequences"], 0);
  EXPECT_EQ(idle["kinds"]["attention"]["bytes"], 0);
  uint64_t arena = 0;
  for (const Json& pool : idle["pools"]) {
    EXPECT_EQ(pool["pages"]["free"], pool["pages"]["total"]);
    arena += pool["bytes"].get<uint64_t>();
  }
  EXPECT_LE(arena, 64 * kMiB);
  Json busy;
  Stream(server, Long(), [&](const Json&) {
    busy = cache();
    return false;
  });
  EXPECT_EQ(busy["sequences"], 1);
  EXPECT_EQ(busy["running"], 1);
  EXPECT_GT(busy["kinds"]["attention"]["bytes"].get<int>(), 0);
  EXPECT_GT(busy["kinds"]["ssm"]["bytes"].get<int>(), 0);
  EXPECT_GT(busy["kinds"]["conv"]["bytes"].get<int>(), 0);
}

TEST_F(HttpServerTest, UnknownPathsAndMethodsAreOpenAiErrors) {
  const RunningServer server(engine_.get());
  httplib::Client client = server.Client();
  const auto missing = client.Get("/v1/responses");
  EXPECT_EQ(missing->status, 404);
  EXPECT_EQ(Json::parse(missing->body)["error"]["code"], "not_found");
  const auto get = client.Get("/v1/completions");
  EXPECT_EQ(get->status, 405);
  EXPECT_EQ(get->get_header_value("Allow"), "POST");
  EXPECT_EQ(Json::parse(get->body)["error"]["code"], "method_not_allowed");
  EXPECT_EQ(client.Delete("/v1/completions")->status, 405);
  EXPECT_EQ(client.Put("/health", "{}", "application/json")->status, 405);
  EXPECT_EQ(client.Get("/" + std::string(5000, 'a'))->status, 404);
  EXPECT_EQ(client.Get("/%0a")->status, 404);
  // Something that is not HTTP: nobody knows where it ends, so the connection does.
  RawConnection raw(server.http->port());
  raw.Send("BREW /coffee HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string reply = raw.ReadAll(std::chrono::seconds(2));
  EXPECT_NE(reply.find("HTTP/1.1 400"), std::string::npos) << reply;
  EXPECT_NE(reply.find("\"error\""), std::string::npos) << reply;
  // Methods the parser knows and nobody serves must not have their body read without a limit.
  RawConnection pri(server.http->port());
  pri.Send("PRI /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\nxxxx");
  EXPECT_NE(pri.ReadAll(std::chrono::seconds(3)).find("HTTP/1.1 405"), std::string::npos);
}

TEST_F(HttpServerTest, AConnectionCarriesManyRequests) {
  const RunningServer server(engine_.get());
  RawConnection raw(server.http->port());
  const std::string body = R"({"prompt":"Q:","max_tokens":1})";
  for (int i = 0; i < 20; ++i) raw.Send(PostText(body));  // pipelined
  raw.Send("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string all = raw.ReadAll(std::chrono::seconds(10));
  size_t replies = 0;
  for (size_t at = all.find("HTTP/1.1 200"); at != std::string::npos;
       at = all.find("HTTP/1.1 200", at + 1)) {
    ++replies;
  }
  EXPECT_EQ(replies, 21u);
}

TEST_F(HttpServerTest, ApiKeyIsAskedForEverywhereButHealth) {
  ApiOptions options;
  options.keys = *ApiKeys::Create({"sesame", "simsim"});
  const RunningServer server(engine_.get(), {}, options);
  httplib::Client client = server.Client();
  EXPECT_EQ(client.Get("/health")->status, 200);
  for (const char* path : {"/v1/models", "/cache", "/nope"}) {
    EXPECT_EQ(client.Get(path)->status, 401) << path;
  }
  const std::string body = R"({"prompt":"Q:","max_tokens":1})";
  EXPECT_EQ(server.Post(body).json["error"]["code"], "invalid_api_key");
  EXPECT_EQ(server.Post(body, {{"Authorization", "Bearer sesamE"}}).status, 401);
  EXPECT_EQ(server.Post(body, {{"Authorization", "Bearer sesame2"}}).status, 401);
  EXPECT_EQ(server.Post(body, {{"Authorization", "sesame"}}).status, 401);
  EXPECT_EQ(server.Post(body, {{"Authorization", "Bearer sesame"}}).status, 200);
  EXPECT_EQ(server.Post(body, {{"Authorization", "Bearer simsim"}}).status, 200);
}

TEST_F(HttpServerTest, AClientThatLeavesAStreamFreesEverything) {
  const RunningServer server(engine_.get());
  const uint64_t cancelled = engine_->Stats().requests_cancelled;
  int seen = 0;
  const StreamedAnswer answer = Stream(server, Long(), [&seen](const Json&) { return ++seen < 5; });
  EXPECT_EQ(seen, 5);
  EXPECT_FALSE(answer.done);
  EXPECT_TRUE(Eventually([&] { return engine_->Stats().requests_cancelled == cancelled + 1; }));
}

TEST_F(HttpServerTest, AClientThatLeavesWithoutStreamingFreesEverything) {
  const RunningServer server(engine_.get());
  const uint64_t cancelled = engine_->Stats().requests_cancelled;
  for (bool reset : {false, true}) {
    RawConnection raw(server.http->port());
    raw.Send(PostText(Long().dump()));
    EXPECT_TRUE(Eventually([] { return engine_->Stats().running == 1; }));
    if (reset) raw.Abort();  // else the destructor says goodbye
  }
  EXPECT_TRUE(Eventually([] { return Idle(*engine_); }));
  EXPECT_TRUE(Eventually([&] { return engine_->Stats().requests_cancelled == cancelled + 2; }));
}

TEST_F(HttpServerTest, AClientThatLeavesBytesBehindFreesEverything) {
  const RunningServer server(engine_.get());
  const uint64_t cancelled = engine_->Stats().requests_cancelled;
  for (bool stream : {false, true}) {
    SCOPED_TRACE(stream);
    Json body = Long();
    body["stream"] = stream;
    RawConnection raw(server.http->port());
    raw.Send(PostText(body.dump()) + "\n");  // some clients end a body with a line
    EXPECT_TRUE(Eventually([] { return engine_->Stats().running == 1; }));
  }
  // 8,000 tokens take longer than this.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(engine_->Stats().requests_cancelled, cancelled + 2);
}

TEST_F(HttpServerTest, AClientThatLeavesWhileWaitingOrPrefillingFreesEverything) {
  const RunningServer server(engine_.get());
  // More than max_running, with prompts that take many steps to read.
  std::vector<std::unique_ptr<RawConnection>> clients;
  Json body = Long(100);
  body["prompt"] = std::vector<int>(4000, 32);
  for (int i = 0; i < 24; ++i) {
    body["stream"] = i % 2 == 0;
    clients.push_back(std::make_unique<RawConnection>(server.http->port()));
    clients.back()->Send(PostText(body.dump()));
  }
  EXPECT_TRUE(Eventually([] {
    const EngineStats stats = engine_->Stats();
    return stats.running > 0 && stats.waiting > 0 && stats.running + stats.waiting == 24;
  }));
  clients.clear();
  EXPECT_TRUE(Eventually([] { return Idle(*engine_); }));
}

TEST_F(HttpServerTest, ABurstOfConnectionsIsTakenWithoutRetransmissions) {
  const RunningServer server(engine_.get());
  // A connection that the backlog has no room for is tried again after a second.
  std::vector<std::thread> clients;
  std::atomic<int> slow{0};
  std::vector<std::unique_ptr<RawConnection>> open(200);
  for (size_t i = 0; i < open.size(); ++i) {
    clients.emplace_back([&, i] {
      const auto begin = std::chrono::steady_clock::now();
      open[i] = std::make_unique<RawConnection>(server.http->port());
      if (std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(900)) ++slow;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(slow, 0);
}

TEST_F(HttpServerTest, ManyStreamsAtOnceAllArrive) {
  const RunningServer server(engine_.get());
  Json body = {{"prompt", kPrompt}, {"max_tokens", 16}, {"temperature", 0}};
  const StreamedAnswer alone = Stream(server, body);
  ASSERT_TRUE(alone.done);
  std::atomic<int> same{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 128; ++i) {
    clients.emplace_back([&] {
      const StreamedAnswer answer = Stream(server, body);
      if (answer.done && answer.text == alone.text && answer.receipt == alone.receipt) ++same;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(same, 128);
}

TEST_F(HttpServerTest, BodiesAreLimitedHoweverTheyAreSent) {
  HttpServerOptions options;
  options.body_bytes_max = 100'000;
  const RunningServer server(engine_.get(), options);
  const std::string fits = R"({"prompt":"Q:","max_tokens":1})" + std::string(90'000, ' ');
  const std::string large = fits + std::string(100'000, ' ');
  EXPECT_EQ(server.Post(fits).status, 200);
  EXPECT_EQ(server.Post(large).status, 413);
  EXPECT_EQ(server.Post(large).json["error"]["code"], "payload_too_large");
  // Chunked: no length is announced.
  for (const bool too_large : {false, true}) {
    const std::string& body = too_large ? large : fits;
    httplib::Client client = server.Client();
    const auto reply = client.Post(
        "/v1/completions", {},
        [&](size_t, httplib::DataSink& sink) {
          sink.write(body.data(), body.size());
          sink.done();
          return true;
        },
        "application/json");
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, too_large ? 413 : 200) << reply->body;
  }
  // Compressed: 190 kB of spaces are a few hundred bytes.
  for (const bool too_large : {false, true}) {
    httplib::Client client = server.Client();
    client.set_compress(true);
    const auto reply = client.Post("/v1/completions", too_large ? large : fits, "application/json");
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, too_large ? 413 : 200) << reply->body;
  }
  // Announced, but asked first.
  RawConnection raw(server.http->port());
  raw.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
      "Content-Length: 5000000000\r\n\r\n");
  EXPECT_NE(raw.ReadAll(std::chrono::seconds(3)).find("HTTP/1.1 413"), std::string::npos);
}

TEST_F(HttpServerTest, FormsAreRefused) {
  const RunningServer server(engine_.get());
  const auto reply =
      server.Client().Post("/v1/completions", httplib::MultipartFormDataItems{{"a", "b", "", ""}});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 415);
}

TEST_F(HttpServerTest, APostWithoutLengthHasNoBody) {
  const RunningServer server(engine_.get());
  RawConnection raw(server.http->port());
  raw.Send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string reply = raw.ReadAll(std::chrono::seconds(2));
  EXPECT_NE(reply.find("invalid_json"), std::string::npos) << reply;
}

TEST_F(HttpServerTest, SlowHeadersLoseTheConnection) {
  HttpServerOptions options;
  options.head_timeout = std::chrono::milliseconds(300);
  options.idle_timeout = std::chrono::milliseconds(300);
  const RunningServer server(engine_.get(), options);
  const auto begin = std::chrono::steady_clock::now();
  RawConnection idle(server.http->port());
  RawConnection slow(server.http->port());
  // A byte each 50 ms: no single wait is long.
  for (int i = 0; i < 20; ++i) {
    slow.Send("G");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(slow.ReadAll(std::chrono::seconds(5)), "");
  EXPECT_EQ(idle.ReadAll(std::chrono::seconds(5)), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST_F(HttpServerTest, EndlessHeadersLoseTheConnection) {
  const RunningServer server(engine_.get());
  RawConnection raw(server.http->port());
  raw.Send("GET /health HTTP/1.1\r\n" + std::string("X-A: 1\r\n"));
  for (int i = 0; i < 2000; ++i) raw.Send("X-Header-Number: " + std::string(80, 'x') + "\r\n");
  const std::string reply = raw.ReadAll(std::chrono::seconds(3));
  EXPECT_EQ(reply.find("HTTP/1.1 200"), std::string::npos) << reply.substr(0, 200);
}

TEST_F(HttpServerTest, SlowBodiesLoseTheConnectionAndSteadyOnesDoNot) {
  HttpServerOptions options;
  options.body_timeout = std::chrono::milliseconds(300);
  const RunningServer server(engine_.get(), options);
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ";
  const auto begin = std::chrono::steady_clock::now();
  RawConnection slow(server.http->port());
  slow.Send(head + "1000\r\n\r\n{");
  for (int i = 0; i < 12; ++i) {
    slow.Send(" ");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_NE(slow.ReadAll(std::chrono::seconds(5)).find("HTTP/1.1 408"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  // 600 ms, at ten times the rate that is asked for.
  RawConnection steady(server.http->port());
  const std::string piece(32 * 1024, ' ');
  const std::string json = R"({"prompt":"Q:","max_tokens":1})";
  steady.Send(head + std::to_string(12 * piece.size() + json.size()) +
              "\r\nConnection: close\r\n\r\n");
  for (int i = 0; i < 12; ++i) {
    steady.Send(piece);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  steady.Send(json);
  const std::string reply = steady.ReadAll(std::chrono::seconds(5));
  EXPECT_NE(reply.find("HTTP/1.1 200"), std::string::npos) << reply;
}

TEST_F(HttpServerTest, SomeWorkersAreLeftForHealthWhateverGenerates) {
  HttpServerOptions options;
  options.workers = 3;  // two of them complete
  const RunningServer server(engine_.get(), options);
  Json body = Long();
  std::vector<std::unique_ptr<RawConnection>> clients;
  for (bool stream : {false, true}) {
    body["stream"] = stream;
    clients.push_back(std::make_unique<RawConnection>(server.http->port()));
    clients.back()->Send(PostText(body.dump()));
  }
  ASSERT_TRUE(Eventually([] { return engine_->Stats().running == 2; }));
  httplib::Client client = server.Client();
  const auto refused = client.Post("/v1/completions", body.dump(), "application/json");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(refused->get_header_value("Retry-After"), "1");
  EXPECT_EQ(Json::parse(refused->body)["error"]["code"], "server_overloaded");
  EXPECT_EQ(client.Get("/health")->status, 200);
  // Those that leave make room.
  clients.clear();
  EXPECT_TRUE(Eventually([&] {
    return server.Complete({{"prompt", "Q:"}, {"max_tokens", 1}}).status == 200;
  }));
}

TEST_F(HttpServerTest, BytesOfAllBodiesTogetherAreLimited) {
  HttpServerOptions options;
  options.bodies_bytes_max = 100'000;
  const RunningServer server(engine_.get(), options);
  const std::string body = R"({"prompt":"Q:","max_tokens":1})" + std::string(60'000, ' ');
  // Whichever body is read first gets its bytes: where the whole one was, the half is refused, and
  // the next attempt brings another.
  std::unique_ptr<RawConnection> half;
  EXPECT_TRUE(Eventually([&] {
    half = std::make_unique<RawConnection>(server.http->port());
    half->Send(PostText(body).substr(0, 60'000));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return server.Post(body).status == 503;
  }));
  half.reset();
  EXPECT_TRUE(Eventually([&] { return server.Post(body).status == 200; }));
}

TEST_F(HttpServerTest, ABodyWhoseEndIsUnclearIsRefusedAndEndsTheConnection) {
  const RunningServer server(engine_.get());
  const char* const cases[] = {
      "Content-Length: 5\r\nContent-Length: 5",
      "Content-Length: 0\r\nContent-Length: 0",
      "Content-Length: +5",
      "Content-Length: -5",
      "Content-Length: 5, 5",
      "Content-Length: 0x5",
      "Content-Length: 5\r\nTransfer-Encoding: chunked",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
      "Transfer-Encoding: gzip, chunked",
      "Expect: 100-continue\r\nContent-Length: +5",
  };
  for (const char* framing : cases) {
    SCOPED_TRACE(framing);
    RawConnection raw(server.http->port());
    raw.Send("POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + std::string(framing) +
             "\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string reply = raw.ReadAll(std::chrono::seconds(3));
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 400")) << reply;
    EXPECT_NE(reply.find("\"invalid_request\""), std::string::npos) << reply;
    EXPECT_EQ(reply.find("HTTP/1.1 200"), std::string::npos) << reply;
  }
}

TEST_F(HttpServerTest, ATakenPortOrAnUnknownHostIsAnIoError) {
  const RunningServer server(engine_.get());
  HttpServerOptions options;
  options.port = server.http->port();
  const auto taken = HttpServer::Create(options);
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code(), StatusCode::kIo);
  EXPECT_NE(taken.error().message().find("in use"), std::string::npos) << taken.error().message();
  options.port = 0;
  options.host = "no such host";
  const auto unknown = HttpServer::Create(options);
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code(), StatusCode::kIo);
  options.host = "127.0.0.1";
  options.port = 70'000;
  EXPECT_EQ(HttpServer::Create(options).error().code(), StatusCode::kInvalidArgument);
}

TEST_F(HttpServerTest, PortZeroFindsAFreeOneAndTheUrlSaysIt) {
  const RunningServer server(engine_.get());
  EXPECT_GT(server.http->port(), 0);
  EXPECT_EQ(server.http->url(), "http://127.0.0.1:" + std::to_string(server.http->port()));
}

TEST_F(HttpServerTest, StoppingLetsRunningStreamsEnd) {
  RunningServer server(engine_.get());
  RawConnection idle(server.http->port());
  bool stopped = false;
  const StreamedAnswer answer = Stream(server, Long(60), [&](const Json&) {
    if (stopped) return true;
    stopped = true;
    server.http->BeginStop();
    // New clients are refused, not left in the backlog.
    EXPECT_TRUE(Eventually([&] {
      httplib::Client late = server.Client();
      late.set_read_timeout(1);
      return late.Get("/health").error() == httplib::Error::Connection;
    }));
    return true;
  });
  EXPECT_TRUE(answer.done);
  EXPECT_NE(answer.finish_reason, "");
  EXPECT_TRUE(server.http->WaitStopped(std::chrono::seconds(2)));
  EXPECT_EQ(idle.ReadAll(std::chrono::seconds(1)), "");
}

TEST_F(HttpServerTest, CancelAllEndsStreamsWithAnErrorEvent) {
  RunningServer server(engine_.get());
  bool cancelled = false;
  const StreamedAnswer answer = Stream(server, Long(), [&](const Json&) {
    if (!cancelled) server.http->BeginStop();
    if (!cancelled) server.api.CancelAll();
    cancelled = true;
    return true;
  });
  ASSERT_FALSE(answer.chunks.empty());
  const Json last = answer.chunks.back();
  ASSERT_TRUE(last.contains("error")) << last;
  EXPECT_EQ(last["error"]["code"], "shutting_down");
  EXPECT_TRUE(answer.done);
  EXPECT_TRUE(server.http->WaitStopped(std::chrono::seconds(2)));
}

TEST_F(HttpServerTest, DropConnectionsCutsOffAClientThatDoesNotRead) {
  RunningServer server(engine_.get());
  RawConnection half(server.http->port());
  half.Send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server.http->BeginStop();
  EXPECT_FALSE(server.http->WaitStopped(std::chrono::milliseconds(200)));
  server.http->DropConnections();
  EXPECT_TRUE(server.http->WaitStopped(std::chrono::seconds(2)));
}

TEST_F(HttpServerTest, DropConnectionsCutsOffThoseStillInLine) {
  HttpServerOptions options;
  options.workers = 1;
  RunningServer server(engine_.get(), options);
  RawConnection served(server.http->port());
  RawConnection in_line(server.http->port());
  for (RawConnection* half : {&served, &in_line}) {
    half->Send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  server.http->BeginStop();
  EXPECT_FALSE(server.http->WaitStopped(std::chrono::milliseconds(200)));
  server.http->DropConnections();
  EXPECT_TRUE(server.http->WaitStopped(std::chrono::seconds(3)));
}

TEST_F(HttpServerTest, WhatCanNeverFitTheBudgetIsRefusedWithTheBytes) {
  EngineOptions options = engine_->options();
  options.budget_bytes = 2 * kMiB;
  Result<std::unique_ptr<Engine>> small = Engine::Create(options);
  ASSERT_TRUE(small.has_value()) << small.error().message();
  {
    const RunningServer server(small->get());
    const uint64_t longest = server.api.model().max_model_len;
    ASSERT_LT(longest, 8192u);
    const auto reply = server.Complete({{"prompt", "Q:"}, {"max_tokens", longest + 100}});
    EXPECT_EQ(reply.status, 400) << reply.json;
    EXPECT_EQ(reply.json["error"]["code"], "budget_exceeded");
    EXPECT_NE(reply.json["error"]["message"].get<std::string>().find_first_of("0123456789"),
              std::string::npos);
    // As long as max_model_len says is possible (the prompt has 3 tokens: "Q", ":" and no BOS
    // leave room), it runs.
    const auto fits = server.Complete({{"prompt", std::vector<int>(4, 32)}, {"max_tokens", 4}});
    EXPECT_EQ(fits.status, 200) << fits.json;
  }
}

}  // namespace
}  // namespace tessera::testing
