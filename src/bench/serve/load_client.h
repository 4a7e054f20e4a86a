// SPDX-License-Identifier: Apache-2.0
//
// LoadClient sends a load and sees what comes back: one thread, one epoll, a connection for each
// request, any number at a time. A piece of an answer has the time at which the read that brought
// it returned.
//
// A request:
//
//   Due --(fewer than max_concurrency run)--> Connecting --> Sending --> Reading --> ended
//
// Requests begin in their order. One is cancelled by closing its connection once so many pieces of
// its answer came; one that gets no byte for `silence_ns` has failed.
//
// Failure: kIo when nobody answers at the target before the load begins, or the system gives no
// epoll; what happens to a request is in its record. Threads: Run is one thread's; `stop` and
// `progress` are called on it, some ten times a second.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/serve/http_target.h"
#include "bench/serve/load_record.h"

namespace tessera {

struct PlannedRequest {
  double arrival_s = 0;  // ascending
  uint64_t prompt_tokens = 0;
  uint32_t cancel_after_pieces = 0;  // 0: never
};

struct LoadProgress {
  size_t ended = 0;
  size_t total = 0;
  size_t running = 0;
  size_t failed = 0;
  uint64_t pieces = 0;
  double seconds = 0;
};

struct LoadClientOptions {
  HttpTarget target;
  std::string path = "/v1/completions";
  std::string api_key;
  uint32_t max_concurrency = 0;           // 0: no limit
  uint64_t silence_ns = 300'000'000'000;  // 300 s
  std::function<bool()> stop;
  std::function<void(const LoadProgress&)> progress;
};

struct LoadRun {
  std::vector<LoadRecord> records;  // by request
  uint64_t duration_ns = 0;         // to the end of the last request
  double busy_share = 0;            // of that time, how much this client's thread worked
  bool stopped = false;
};

// `body` makes the body of a request when it is sent.
Result<LoadRun> RunLoad(const std::vector<PlannedRequest>& requests,
                        const std::function<std::string(size_t)>& body,
                        const LoadClientOptions& options);

}  // namespace tessera
