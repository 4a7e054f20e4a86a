// SPDX-License-Identifier: Apache-2.0
//
// tessera serve: the HTTP server. The port is taken before the model is loaded, so that a taken one
// is known at once (exit code 5), as are too few threads; until the model is ready every request
// gets 503 "loading".
//
// SIGTERM or SIGINT ends it: no new connections, running answers go on for kGrace; then, or at a
// second signal, they end with an error, and the exit code is 0 all the same.
#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "cli/command_line.h"
#include "cli/common_options.h"
#include "cli/memory_report.h"
#include "cli/verbs.h"
#include "server/api.h"
#include "server/http_server.h"
#include "server/request_log.h"
#include "server/startup_summary.h"

namespace tessera::cli {
namespace {

// Below the 30 s after which container runtimes kill.
constexpr std::chrono::seconds kGrace{20};
// For cancelled answers to say so, and for their clients to read it.
constexpr std::chrono::seconds kLastWords{2};
constexpr std::chrono::milliseconds kPoll{100};

// Heaps that threads share. By default the C library makes up to 8 per CPU, each of which keeps
// the most it ever held: after tests/load/soak.py --seconds 110 the server had 66 MiB resident with 16
// of them and 46 with two, from 35 at its start, and more CPUs make more heaps. An answer allocates
// little, so few wait for each other: 2,241 answers with 16, 2,175 with two.
constexpr int kHeaps = 2;

struct ServeOptions {
  CommonOptions common;
  HttpServerOptions http;
  ApiOptions api;
  std::vector<std::string> keys;
  std::string key_file;
  RequestLogOptions log;  // no path: none
  std::string log_bytes = "64MiB";
  std::string metrics_alias;
};

// Signals as a descriptor: a handler may do little more than write to one. Made after the model is
// loaded, so that an interrupt before ends the process at once.
class StopSignals {
 public:
  StopSignals() : fd_(::eventfd(0, EFD_CLOEXEC)) {
    target = fd_;
    struct sigaction action = {};
    action.sa_handler = [](int) {
      const uint64_t one = 1;
      (void)!::write(target, &one, sizeof(one));
    };
    action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
  }

  void Wait() {
    uint64_t count = 0;
    while (::read(fd_, &count, sizeof(count)) < 0) {
    }
  }
  bool Another() {
    pollfd fd = {fd_, POLLIN, 0};
    return ::poll(&fd, 1, 0) > 0;
  }

 private:
  static inline int target = -1;
  const int fd_;  // open until the process ends: the handler stays
};

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

void StopServing(HttpServer& server, Api& api, StopSignals& signals) {
  using Clock = std::chrono::steady_clock;
  PrintNote(
      fmt::format("tessera: stopping; running answers have {} s (interrupt again to cut them)\n",
                  kGrace.count()));
  server.BeginStop();
  const Clock::time_point grace_end = Clock::now() + kGrace;
  while (!server.WaitStopped(kPoll)) {
    if (signals.Another() || Clock::now() >= grace_end) break;
  }
  api.CancelAll();
  if (!server.WaitStopped(kLastWords)) server.DropConnections();
}

Result<ApiKeys> ReadKeys(const ServeOptions& options) {
  std::vector<std::string> keys = options.keys;
  if (!options.key_file.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> more, ReadApiKeyFile(options.key_file));
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return ApiKeys::Create(keys);
}

// Null without --request-log.
Result<std::unique_ptr<RequestLog>> OpenLog(const ServeOptions& options) {
  if (options.log.path.empty()) return std::unique_ptr<RequestLog>();
  RequestLogOptions log = options.log;
  const Result<uint64_t> bytes = ParseBytes(options.log_bytes);
  if (!bytes) {
    return InvalidArgument(fmt::format("--request-log-bytes: {}", bytes.error().message()));
  }
  log.rotate_bytes = *bytes;
  return RequestLog::Open(std::move(log));
}

int Serve(const ServeOptions& options) {
  (void)::mallopt(M_ARENA_MAX, kHeaps);  // before there are threads
  // An empty variable means "absent" to the parser; for a key that would mean "no key needed".
  const char* key = std::getenv("TESSERA_API_KEY");
  if (key != nullptr && *key == '\0' && options.keys.empty()) {
    return ReportError(InvalidArgument("serve: TESSERA_API_KEY is set but empty"));
  }
  Result<ApiKeys> keys = ReadKeys(options);
  if (!keys) return ReportError(keys.error());
  ApiOptions api_options = options.api;
  api_options.keys = std::move(*keys);
  const bool open = api_options.keys.open();
  if (!options.metrics_alias.empty() && options.metrics_alias != "vllm") {
    return ReportError(
        InvalidArgument(fmt::format("--metrics-alias: '{}' is not vllm", options.metrics_alias)));
  }
  Result<EngineOptions> engine_options = ToEngineOptions(options.common);
  if (!engine_options) return ReportError(engine_options.error());
  Result<std::unique_ptr<HttpServer>> bound = HttpServer::Create(options.http);
  if (!bound) return ReportError(bound.error());
  std::unique_ptr<HttpServer> server = std::move(*bound);
  if (const Status listening = server->Listen(); !listening.ok()) return ReportError(listening);
  const Result<std::unique_ptr<RequestLog>> log = OpenLog(options);
  if (!log) return ReportError(log.error());
  std::string model;  // known when it is loaded, before there is a request
  if (*log != nullptr) {
    engine_options->on_finished = [&log, &model](const FinishedRequest& request) {
      (*log)->Append(RecordOf(request, model));
    };
  }
  Result<std::unique_ptr<Engine>> engine = Engine::Create(*engine_options);
  if (!engine) return ReportError(engine.error());
  model = (*engine)->shape().name;
  api_options.vllm_metrics = options.metrics_alias == "vllm";
  api_options.request_log = log->get();
  Api api(engine->get(), std::move(api_options));

  StopSignals signals;
  if (const Status started = server->Start(&api); !started.ok()) return ReportError(started);
  PrintNote(StartupSummary(**engine, server->url()));
  if (!api.chat_template_error().empty()) {
    PrintNote(fmt::format("tessera: warning: no chats: {}\n", api.chat_template_error()));
  }
  if (open && !IsLoopback(options.http.host)) {
    PrintNote(
        fmt::format("tessera: warning: {} is reachable from other machines without --api-key\n",
                    options.http.host));
  }
  signals.Wait();
  StopServing(*server, api, signals);
  server.reset();  // its workers use the api and the engine
  if (*log != nullptr && (*log)->Counts().dropped > 0) {
    PrintNote(fmt::format("tessera: {} records did not get into {}\n", (*log)->Counts().dropped,
                          options.log.path));
  }
  if (options.common.stats) PrintNote(DescribeStore((*engine)->Stats().store));
  return 0;
}

}  // namespace

Action AddServe(CLI::App& command) {
  auto options = std::make_shared<ServeOptions>();
  const auto add = [&](const char* name, auto& value, const char* text, const std::string& help) {
    command.add_option(name, value, help)->option_text(text)->group("Server");
  };
  add("--host", options->http.host, "H",
      fmt::format("Address to listen on (default {}: this machine only)", options->http.host));
  add("--port", options->http.port, "P",
      fmt::format("Port; 0: any free one, which is printed (default {})", options->http.port));
  command
      .add_option("--api-key", options->keys,
                  "Answer only requests with Authorization: Bearer K (all but /health); may be "
                  "given more than once")
      ->option_text("K")
      ->allow_extra_args(false)  // else it would take MODEL for a key
      ->group("Server");
  add("--api-key-file", options->key_file, "FILE",
      "The same for each line of FILE; # begins a comment");
  add("--request-log", options->log.path, "FILE",
      "Append a line of JSON for each request that has ended: what was reused and why not more, "
      "how long each part took, how it ended");
  add("--request-log-bytes", options->log_bytes, "BYTES",
      fmt::format("When FILE would grow beyond it, it becomes FILE.1; 0: never (default {})",
                  options->log_bytes));
  add("--metrics-alias", options->metrics_alias, "NAME",
      "vllm: /metrics has the figures that vLLM has too under its names as well");
  AddCommonOptions(command, &options->common);
  return [options] { return Serve(*options); };
}

}  // namespace tessera::cli
