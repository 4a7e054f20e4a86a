// SPDX-License-Identifier: Apache-2.0
#include "server/server_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/bytes.h"

namespace tessera::testing {

RunningServer::RunningServer(Engine* engine, HttpServerOptions options, ApiOptions api_options)
    : api(engine, std::move(api_options)) {
  options.port = 0;
  Result<std::unique_ptr<HttpServer>> created = HttpServer::Create(options);
  EXPECT_TRUE(created.has_value()) << created.error().message();
  http = std::move(*created);
  const Status started = http->Start(&api);
  EXPECT_TRUE(started.ok()) << started.message();
}

RunningServer::~RunningServer() = default;

httplib::Client RunningServer::Client() const {
  httplib::Client client("127.0.0.1", http->port());
  client.set_read_timeout(30);
  client.set_tcp_nodelay(true);
  return client;
}

RunningServer::Reply RunningServer::Complete(const Json& body) const { return Post(body.dump()); }

RunningServer::Reply RunningServer::PostTo(const std::string& path, const Json& body) const {
  httplib::Client client = Client();
  const httplib::Result result = client.Post(path, body.dump(), "application/json");
  if (!result) return {};
  return {result->status, Json::parse(result->body, nullptr, /*allow_exceptions=*/false)};
}

RunningServer::Reply RunningServer::Post(const std::string& body,
                                         const httplib::Headers& headers) const {
  httplib::Client client = Client();
  const httplib::Result result = client.Post("/v1/completions", headers, body, "application/json");
  if (!result) return {};
  return {result->status, Json::parse(result->body, nullptr, /*allow_exceptions=*/false)};
}

namespace {

std::string TextOf(const Json& choice) {
  if (choice.contains("text")) return choice["text"];
  const Json& delta = choice["delta"];
  return delta.contains("content") && delta["content"].is_string() ? delta["content"] : Json("");
}

// Feeds whole events out of a byte stream.
struct EventReader {
  StreamedAnswer* answer;
  const std::function<bool(const Json&)>& keep_reading;
  std::string pending;

  bool Take(std::string_view bytes) {
    pending += bytes;
    for (size_t end = pending.find("\n\n"); end != std::string::npos; end = pending.find("\n\n")) {
      const std::string event = pending.substr(0, end);
      pending.erase(0, end + 2);
      if (!TakeEvent(event)) return false;
    }
    return true;
  }

  bool TakeEvent(const std::string& event) {
    EXPECT_FALSE(answer->done) << "after [DONE]: " << event;
    if (event.starts_with(":")) return true;
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    if (event == "data: [DONE]") {
      answer->done = true;
      return true;
    }
    const Json json = Json::parse(event.substr(6), nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << "not JSON (or not UTF-8): " << event;
    answer->chunks.push_back(json);
    if (json.contains("choices") && !json["choices"].empty()) {
      const Json& choice = json["choices"][0];
      if (choice["index"] == 0) answer->text += TextOf(choice);
      if (choice["finish_reason"].is_string()) {
        answer->finish_reason = choice["finish_reason"];
        answer->receipt = choice["receipt"];
      }
    }
    return !keep_reading || keep_reading(json);
  }
};

}  // namespace

StreamedAnswer Stream(const RunningServer& server, Json body,
                      const std::function<bool(const Json&)>& keep_reading,
                      const std::string& path) {
  StreamedAnswer answer;
  EventReader reader{&answer, keep_reading, ""};
  body["stream"] = true;
  httplib::Request request;
  request.method = "POST";
  request.path = path;
  request.set_header("Content-Type", "application/json");
  request.body = body.dump();
  request.response_handler = [&](const httplib::Response& response) {
    answer.status = response.status;
    answer.content_type = response.get_header_value("Content-Type");
    return true;
  };
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    return reader.Take({data, size});
  };
  httplib::Client client = server.Client();
  (void)client.send(request);
  return answer;
}

RawConnection::RawConnection(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
}

RawConnection::~RawConnection() {
  if (fd_ >= 0) ::close(fd_);
}

void RawConnection::Send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string RawConnection::ReadAll(std::chrono::milliseconds wait) const {
  std::string all;
  const auto end = std::chrono::steady_clock::now() + wait;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd fd = {fd_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&fd, 1, static_cast<int>(left.count())) <= 0) return all;
    char buffer[4096];
    const ssize_t got = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (got <= 0) return all;
    all.append(buffer, static_cast<size_t>(got));
  }
}

void RawConnection::Abort() {
  const linger hard = {1, 0};
  (void)::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  ::close(fd_);
  fd_ = -1;
}

std::string PostText(std::string_view body) {
  return "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool Idle(const Engine& engine) {
  const EngineStats stats = engine.Stats();
  return stats.running == 0 && stats.waiting == 0 && stats.store.sequences == 0 &&
         std::all_of(stats.store.pools.begin(), stats.store.pools.end(), [](const PoolStats& pool) {
           return pool.free_pages + pool.cached_attention_pages + pool.cached_state_pages ==
                  pool.total_pages;
         });
}

std::unique_ptr<Engine> ServerTest::engine_;

void ServerTest::SetUpTestSuite() {
  EngineOptions options;
  options.model_path = std::string(TESSERA_SOURCE_DIR) + "/models/harbour-2.8m-q8_0.gguf";
  options.budget_bytes = 64 * kMiB;
  options.threads = 2;
  Result<std::unique_ptr<Engine>> created = Engine::Create(options);
  ASSERT_TRUE(created.has_value()) << created.error().message();
  engine_ = std::move(*created);
}

void ServerTest::TearDownTestSuite() { engine_.reset(); }

// Whatever a test did, nothing of it stays.
void ServerTest::TearDown() {
  EXPECT_TRUE(Eventually([] { return Idle(*engine_); }));
  engine_->ClearCache();
}

}  // namespace tessera::testing
