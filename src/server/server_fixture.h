// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the server share: the bundled model behind a real socket, and a client that can
// do what a library's cannot: stop reading, go away, send half a request.
//
// Threads: one engine for all tests; each test may start servers of its own.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/api.h"
#include "server/http_server.h"

namespace tessera::testing {

inline constexpr char kPrompt[] =
    "Log of day 12. Ada left the red kite in the barn. The code of the mill is 4821. Rosa counted "
    "31 drums.\nQ: Where is the red kite?\nA:";

using Json = nlohmann::json;

// A server on a free port of 127.0.0.1. The engine outlives it.
struct RunningServer {
  // Every page is of the moment at which it is asked for, unless the options say otherwise.
  explicit RunningServer(Engine* engine, HttpServerOptions options = {},
                         ApiOptions api_options = OfTheMoment());
  static ApiOptions OfTheMoment() {
    ApiOptions options;
    options.reading_rest = 0;
    return options;
  }
  ~RunningServer();

  httplib::Client Client() const;
  // POST /v1/completions; status 0 when there was no reply.
  struct Reply {
    int status = 0;
    Json json;
  };
  Reply Complete(const Json& body) const;
  Reply PostTo(const std::string& path, const Json& body) const;
  Reply Post(const std::string& body, const httplib::Headers& headers = {}) const;

  Api api;
  std::unique_ptr<HttpServer> http;
};

// A streamed answer, taken apart.
struct StreamedAnswer {
  int status = 0;
  std::string content_type;
  std::vector<Json> chunks;  // all `data:` events but [DONE]
  bool done = false;         // [DONE] came, and last
  std::string text;          // of choice 0
  std::string receipt;
  std::string finish_reason;
};
// Reads events until `keep_reading` says no, which closes the connection.
StreamedAnswer Stream(const RunningServer& server, Json body,
                      const std::function<bool(const Json&)>& keep_reading = nullptr,
                      const std::string& path = "/v1/completions");

// A bare TCP connection.
class RawConnection {
 public:
  explicit RawConnection(int port);
  ~RawConnection();
  void Send(std::string_view bytes) const;
  // Everything until the server closes or `wait` has passed.
  std::string ReadAll(std::chrono::milliseconds wait) const;
  // Resets the connection instead of ending it.
  void Abort();

 private:
  int fd_ = -1;
};

std::string PostText(std::string_view body);

// Polls until it holds, at most 10 s.
bool Eventually(const std::function<bool()>& condition);

// Nothing runs, nothing waits, every page is free or the cache's alone.
bool Idle(const Engine& engine);

class ServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void TearDown() override;

  static std::unique_ptr<Engine> engine_;
};

}  // namespace tessera::testing
