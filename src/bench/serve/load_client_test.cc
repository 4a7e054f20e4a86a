// SPDX-License-Identifier: Apache-2.0
//
// The client against a stand-in server that does what a script says and notes when it did: what
// the client measured must be that, and a server that misbehaves must hurt its own request only.
#include "bench/serve/load_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "bench/serve/serve_bench.h"
#include "port/clock.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

const std::string kHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string Chunk(const std::string& bytes) {
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}
std::string Piece(const std::string& text) {
  return Chunk("data: " + Json{{"choices", {{{"index", 0}, {"text", text}}}}}.dump() + "\n\n");
}
std::string Ending(uint64_t prompt_tokens, uint64_t output_tokens, uint64_t cached_tokens) {
  const Json usage = {{"prompt_tokens", prompt_tokens},
                      {"completion_tokens", output_tokens},
                      {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}}};
  const Json finish = {{"choices", {{{"index", 0}, {"text", ""}, {"finish_reason", "length"}}}}};
  return Chunk("data: " + finish.dump() + "\n\n" +
               "data: " + Json{{"choices", Json::array()}, {"usage", usage}}.dump() + "\n\n") +
         Chunk("data: [DONE]\n\n") + "0\r\n\r\n";
}

// One client's connection, as the script has it.
class Peer {
 public:
  Peer(int fd, Json json, std::string lines)
      : request(std::move(json)), head(std::move(lines)), fd_(fd) {}
  // When it was sent; 0 when the client is gone.
  uint64_t Send(const std::string& bytes) const {
    const uint64_t now = NowNs();
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 ? 0 : now;
  }
  void Reset() const {
    const linger hard = {1, 0};
    (void)::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  }
  bool ClientLeft(std::chrono::milliseconds wait) const {
    const timeval limit = {wait.count() / 1000, wait.count() % 1000 * 1000};
    (void)::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    char byte;
    const ssize_t count = ::recv(fd_, &byte, 1, 0);
    return count == 0 || (count < 0 && errno == ECONNRESET);
  }

  const Json request;
  const std::string head;

 private:
  int fd_;
};

class ScriptedServer {
 public:
  using Script = std::function<void(const Peer&)>;

  explicit ScriptedServer(Script script)
      : script_(std::move(script)), fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(fd_, 1024), 0);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~ScriptedServer() {
    ::shutdown(fd_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    ::close(fd_);
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }

 private:
  void Accept() {
    for (;;) {
      const int connection = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      threads_.emplace_back([this, connection] { Serve(connection); });
    }
  }
  void Serve(int connection) const {
    const int one = 1;
    (void)::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    std::string bytes;
    char buffer[4096];
    for (;;) {
      const size_t end = bytes.find("\r\n\r\n");
      const size_t length_at = bytes.find("Content-Length: ");
      if (end != std::string::npos &&
          bytes.size() >= end + 4 + std::stoul(bytes.substr(length_at + 16))) {
        script_(Peer(connection, Json::parse(bytes.substr(end + 4)), bytes.substr(0, end)));
        break;
      }
      const ssize_t count = ::recv(connection, buffer, sizeof(buffer), 0);
      if (count <= 0) break;  // the client's look whether somebody is there
      bytes.append(buffer, static_cast<size_t>(count));
    }
    ::close(connection);
  }

  const Script script_;
  const int fd_;
  int port_ = 0;
  std::thread acceptor_;
  std::vector<std::thread> threads_;
};

LoadRun Load(const ScriptedServer& server, const std::vector<PlannedRequest>& plan,
             LoadClientOptions options = {}) {
  options.target = *ParseHttpTarget(server.url());
  const Result<LoadRun> run = RunLoad(
      plan, [](size_t i) { return fmt::format(R"({{"i":{}}})", i); }, options);
  EXPECT_TRUE(run.has_value()) << run.error().message();
  return *run;
}

std::vector<PlannedRequest> AtOnce(size_t count) { return std::vector<PlannedRequest>(count); }

// The machine may be busy: a time is at least what the script waited, and late by this at most.
constexpr double kLateMs = 250;

TEST(LoadClient, MeasuresTheDelaysOfTheServer) {
  std::vector<uint64_t> sent;
  const ScriptedServer server([&](const Peer& peer) {
    peer.Send(kHead);
    std::this_thread::sleep_for(60ms);
    for (const char* text : {"a", "b", "c"}) {
      sent.push_back(peer.Send(Piece(text)));
      std::this_thread::sleep_for(25ms);
    }
    peer.Send(Ending(11, 3, 8));
  });
  const LoadRun run = Load(server, AtOnce(1));
  const LoadRecord& record = run.records[0];
  ASSERT_EQ(record.outcome, LoadOutcome::kCompleted) << record.error;
  EXPECT_EQ(record.text, "abc");
  EXPECT_EQ(record.prompt_tokens, 11u);
  EXPECT_EQ(record.cached_tokens, 8u);
  EXPECT_GE(NsToMs(record.first_ns), 60);
  EXPECT_LE(NsToMs(record.first_ns), 60 + kLateMs);
  ASSERT_EQ(record.gaps_ns.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(NsToMs(record.gaps_ns[i]), NsToMs(sent[i + 1] - sent[i]), kLateMs);
    EXPECT_GE(NsToMs(sent[i + 1] - sent[i]), 25);
  }
  EXPECT_GE(record.last_ns, record.first_ns + record.gaps_ns[0] + record.gaps_ns[1]);
  EXPECT_GE(run.duration_ns, record.last_ns);
}

TEST(LoadClient, EveryKindOfFailureIsOnlyItsOwnRequests) {
  const ScriptedServer server([](const Peer& peer) {
    const int i = peer.request["i"];
    if (i == 0) return;  // closes at once
    if (i == 1) {
      const std::string body = R"({"error":{"message":"loading"}})";
      peer.Send(
          fmt::format("HTTP/1.1 503 Busy\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
      return;
    }
    peer.Send(i == 2 ? std::string("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n") +
                           "data: {\"choices\n\n"
                     : kHead);
    if (i == 2) return;
    peer.Send(Piece("a"));
    if (i == 3) return;        // in the middle of the body
    if (i == 4) peer.Reset();  // and with a reset
    if (i == 4) return;
    if (i == 5) {
      peer.Send(Chunk("data: {\"error\":{\"message\":\"engine died\"}}\n\n"));
      return;
    }
    if (i == 6) {  // slower than the client's patience
      (void)peer.ClientLeft(5s);
      return;
    }
    peer.Send(Ending(1, 1, 0));
  });
  LoadClientOptions options;
  options.silence_ns = 400'000'000;
  const LoadRun run = Load(server, AtOnce(8), options);
  const LoadFailure expected[] = {LoadFailure::kDisconnected, LoadFailure::kStatus,
                                  LoadFailure::kMalformed,    LoadFailure::kDisconnected,
                                  LoadFailure::kDisconnected, LoadFailure::kServerError,
                                  LoadFailure::kTimeout,      LoadFailure::kNone};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(LoadFailureName(run.records[i].failure), LoadFailureName(expected[i]))
        << i << run.records[i].error;
  }
  EXPECT_EQ(run.records[1].error, "HTTP 503: loading");
  EXPECT_EQ(run.records[6].error, "no byte for 0.4 s");
  EXPECT_EQ(run.records[7].outcome, LoadOutcome::kCompleted);
}

TEST(LoadClient, NoMoreThanTheLimitRunAndTheOthersWait) {
  std::atomic<int> running = 0, most = 0;
  const ScriptedServer server([&](const Peer& peer) {
    const int now = ++running;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(30ms);
    --running;  // before the client can know
    peer.Send(kHead + Piece("a") + Ending(1, 1, 0));
  });
  LoadClientOptions options;
  options.max_concurrency = 3;
  const LoadRun run = Load(server, AtOnce(12), options);
  EXPECT_EQ(most, 3);
  EXPECT_EQ(run.records[0].arrival_ns, 0u);
  // Four rounds of 30 ms: the last three waited for three of them.
  for (size_t i = 9; i < 12; ++i) EXPECT_GE(NsToMs(run.records[i].start_ns), 90);
  for (const LoadRecord& record : run.records) {
    EXPECT_EQ(record.outcome, LoadOutcome::kCompleted) << record.error;
  }
}

TEST(LoadClient, OpenLoopRequestsComeAtTheirTimesThoughNoneHasEnded) {
  const ScriptedServer server([](const Peer& peer) {
    std::this_thread::sleep_for(600ms);
    peer.Send(kHead + Piece("a") + Ending(1, 1, 0));
  });
  const LoadRun run = Load(server, {{0.0, 1, 0}, {0.02, 1, 0}, {0.05, 1, 0}, {0.09, 1, 0}});
  const double due_ms[] = {0, 20, 50, 90};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(run.records[i].outcome, LoadOutcome::kCompleted);
    EXPECT_GE(NsToMs(run.records[i].start_ns), due_ms[i]);
    EXPECT_LT(run.records[i].start_ns, run.records[0].start_ns + run.records[0].first_ns);
  }
}

TEST(LoadClient, ACancelledRequestClosesItsConnectionAtItsToken) {
  std::atomic<bool> left = false;
  auto server = std::make_unique<ScriptedServer>([&](const Peer& peer) {
    peer.Send(kHead);
    for (int i = 0; i < 3; ++i) {
      peer.Send(Piece("a"));
      std::this_thread::sleep_for(20ms);
    }
    left = peer.ClientLeft(5s);
  });
  std::vector<PlannedRequest> plan = AtOnce(1);
  plan[0].cancel_after_pieces = 3;
  const LoadRun run = Load(*server, plan);
  EXPECT_EQ(run.records[0].outcome, LoadOutcome::kCancelled);
  EXPECT_EQ(run.records[0].pieces, 3u);
  EXPECT_EQ(run.records[0].failure, LoadFailure::kNone);
  server.reset();  // waits for its script
  EXPECT_TRUE(left);
}

TEST(LoadClient, AStopLeavesTheRestUnfinishedAndTellsNoLies) {
  const ScriptedServer server([](const Peer& peer) {
    if (peer.request["i"] == 0) {
      peer.Send(kHead + Piece("a") + Ending(1, 1, 0));
    } else {
      (void)peer.ClientLeft(5s);
    }
  });
  std::atomic<bool> first_ended = false;
  LoadClientOptions options;
  options.progress = [&](const LoadProgress& progress) { first_ended = progress.ended == 1; };
  options.stop = [&] { return first_ended.load(); };
  std::vector<PlannedRequest> plan = AtOnce(3);
  plan[2].arrival_s = 3600;
  const LoadRun run = Load(server, plan, options);
  EXPECT_TRUE(run.stopped);
  EXPECT_EQ(run.records[0].outcome, LoadOutcome::kCompleted);
  EXPECT_EQ(run.records[1].outcome, LoadOutcome::kUnfinished);
  EXPECT_TRUE(run.records[1].started);
  EXPECT_FALSE(run.records[2].started);
}

TEST(LoadClient, SpeaksToNobodyWithAnErrorThatNamesThem) {
  LoadClientOptions options;
  options.target = *ParseHttpTarget("http://127.0.0.1:1");
  const Result<LoadRun> run = RunLoad(
      AtOnce(1), [](size_t) { return std::string(); }, options);
  ASSERT_FALSE(run.has_value());
  EXPECT_EQ(run.error().code(), StatusCode::kIo);
  EXPECT_EQ(run.error().message(), "http://127.0.0.1:1: nobody answers: Connection refused");
}

TEST(LoadClient, TwoHundredAndFiftySixStreamsRunAtATime) {
  constexpr size_t kStreams = 256;
  std::atomic<size_t> arrived = 0;
  const ScriptedServer server([&](const Peer& peer) {
    ++arrived;
    while (arrived < kStreams) std::this_thread::sleep_for(1ms);  // all of them, or for ever
    peer.Send(kHead);
    for (int i = 0; i < 10; ++i) {
      peer.Send(Piece("a"));
      std::this_thread::sleep_for(20ms);
    }
    peer.Send(Ending(1, 10, 0));
  });
  const LoadRun run = Load(server, AtOnce(kStreams));
  for (const LoadRecord& record : run.records) {
    ASSERT_EQ(record.outcome, LoadOutcome::kCompleted) << record.error;
    EXPECT_EQ(record.pieces, 10u);
  }
}

// The whole of it, with a server that answers as its prompt is long.
class ServeBenchTest : public ::testing::Test {
 protected:
  ServeBenchTest() {
    options_.url = server_.url();
    options_.api_key = "key";
    options_.workload.prompt_count = 6;
    options_.workload.input_tokens = 20;
    options_.workload.output_tokens = 4;
    options_.ask = [this](const char* method, const std::string& path) -> Result<std::string> {
      asked_.push_back(fmt::format("{} {}", method, path));
      if (path == "/v1/models") {
        return std::string(R"({"data":[{"id":"toy","meta":{"n_vocab":77}},{"id":"other"}]})");
      }
      return IoError("no such path");
    };
  }

  void Answer(const Peer& peer) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      requests_.push_back(peer.request);
      heads_.push_back(peer.head);
    }
    peer.Send(kHead);
    const auto tokens = peer.request["max_tokens"].get<uint64_t>();
    for (uint64_t i = 0; i < tokens; ++i) {
      peer.Send(Piece("x"));
      std::this_thread::sleep_for(3ms);
    }
    // A client that is to leave has the time to.
    if (options_.cancel_fraction > 0 && peer.ClientLeft(200ms)) return;
    peer.Send(Ending(peer.request["prompt"].size(), tokens, 0));
  }

  std::mutex mutex_;
  std::vector<Json> requests_;
  std::vector<std::string> heads_;
  std::vector<std::string> asked_;
  ServeBenchOptions options_;
  const ScriptedServer server_{[this](const Peer& peer) { Answer(peer); }};
};

TEST_F(ServeBenchTest, RepeatsHavePromptsOfTheirOwnAndTheWarmUpToo) {
  options_.warmups = 2;
  options_.repeats = 3;
  const Result<ServeBenchReport> report = RunServeBench(options_);
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->options.model, "toy");
  EXPECT_EQ(report->options.vocabulary, 77u);
  ASSERT_EQ(report->repeats.size(), 3u);
  ASSERT_EQ(requests_.size(), 2u + 3 * 6);
  std::vector<Json> prompts;
  for (const Json& request : requests_) {
    EXPECT_EQ(request["model"], "toy");
    EXPECT_EQ(request["prompt"].size(), 20u);
    for (const int id : request["prompt"]) EXPECT_LT(id, 77);
    EXPECT_EQ(std::count(prompts.begin(), prompts.end(), request["prompt"]), 0);
    prompts.push_back(request["prompt"]);
  }
  for (const ServeRepeat& repeat : report->repeats) {
    EXPECT_EQ(repeat.figures.Find("completed"), 6);
    EXPECT_EQ(repeat.figures.Find("total_input_tokens"), 120);
    EXPECT_EQ(repeat.figures.Find("total_output_tokens"), 24);
    EXPECT_EQ(repeat.figures.Find("repeated_input_tokens"), 0);
    EXPECT_GE(*repeat.figures.Find("mean_tpot_ms"), 3);
    EXPECT_FALSE(repeat.figures.Find("cache_lookups").has_value());  // no Tessera
  }
  EXPECT_NE(heads_[0].find("Authorization: Bearer key"), std::string::npos);
  EXPECT_EQ(heads_[0].find("POST /v1/completions HTTP/1.1"), 0u);
}

TEST_F(ServeBenchTest, ACancelledFractionIsTheSameForASeed) {
  options_.workload.prompt_count = 12;
  options_.workload.output_tokens = 8;
  options_.cancel_fraction = 0.5;
  options_.repeats = 1;
  const auto outcomes = [&] {
    const Result<ServeBenchReport> report = RunServeBench(options_);
    EXPECT_TRUE(report.has_value());
    std::vector<LoadOutcome> list;
    for (const LoadRecord& record : report->repeats[0].run.records) {
      list.push_back(record.outcome);
    }
    return list;
  };
  const std::vector<LoadOutcome> first = outcomes();
  const auto cancelled = std::count(first.begin(), first.end(), LoadOutcome::kCancelled);
  EXPECT_GT(cancelled, 0);
  EXPECT_LT(cancelled, 12);
  EXPECT_EQ(outcomes(), first);
}

TEST_F(ServeBenchTest, AnUnknownModelIsAnErrorUnlessOneIsNamed) {
  options_.ask = [](const char*, const std::string&) -> Result<std::string> {
    return std::string("{}");
  };
  const Result<ServeBenchReport> report = RunServeBench(options_);
  ASSERT_FALSE(report.has_value());
  EXPECT_NE(report.error().message().find("--model"), std::string::npos);
  options_.model = "named";
  options_.repeats = 1;
  const Result<ServeBenchReport> named = RunServeBench(options_);
  ASSERT_TRUE(named.has_value()) << named.error().message();
  EXPECT_EQ(named->options.vocabulary, kVocabularyUnknown);
}

TEST_F(ServeBenchTest, ClearCacheAsksForItBeforeEachRepeatAndSaysWhenRefused) {
  options_.clear_cache = true;
  const Result<ServeBenchReport> refused = RunServeBench(options_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(asked_.back(), "DELETE /cache");
  EXPECT_TRUE(requests_.empty());
}

TEST_F(ServeBenchTest, AWarmUpOfWhichNothingComesIsAFailedCheck) {
  options_.endpoint = "/v2/completions";
  options_.warmups = 1;
  const ScriptedServer refusing(
      [](const Peer& peer) { peer.Send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"); });
  options_.url = refusing.url();
  const Result<ServeBenchReport> report = RunServeBench(options_);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), StatusCode::kFailed);
  EXPECT_EQ(report.error().message(), "no warm-up of 1 completed: HTTP 404");
}

}  // namespace
}  // namespace tessera
