// SPDX-License-Identifier: Apache-2.0
//
// The figures of one run, under the names and by the definitions of `vllm bench serve`:
//
//   ttft    from the start of a request to its first piece
//   tpot    (latency - ttft) / (output tokens - 1), of answers of two tokens or more
//   itl     between two pieces, of all answers together
//   e2el    from the start of a request to its last piece; its wait for --max-concurrency is
//           client_queue_time, and both are e2el_including_client_queue
//   goodput requests that meet every objective, a second; an answer of one token has a tpot of 0
//
// Latencies, tokens and throughput are those of completed requests. Percentiles interpolate
// linearly, std is the population's. Further: how requests ended, by name, and what of prompts was
// found in the server's cache, when it says so of every answer.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/serve/figures.h"
#include "bench/serve/load_client.h"

namespace tessera {

struct Objectives {  // in ms
  std::optional<double> ttft, tpot, e2el;
  bool any() const { return ttft || tpot || e2el; }
};

// "ttft:200", "tpot:50", "e2el:3000". kInvalidArgument naming --goodput.
Result<Objectives> ParseObjectives(const std::vector<std::string>& items);

struct LatencyMetric {
  std::string_view key;     // "ttft"
  std::string_view name;    // "TTFT"
  std::string_view header;  // "Time to First Token"
};
inline constexpr LatencyMetric kLatencyMetrics[] = {
    {"ttft", "TTFT", "Time to First Token"},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)"},
    {"itl", "ITL", "Inter-token Latency"},
    {"e2el", "E2EL", "End-to-end Latency"},
    {"client_queue_time", "Client Queue Time", "Client-side Queueing"},
    {"e2el_including_client_queue", "E2EL incl. Client Queue",
     "Queue-inclusive End-to-end Latency"},
};

struct FigureOptions {
  Objectives objectives;
  std::vector<std::string> metrics = {"ttft", "tpot", "itl", "e2el"};  // keys of kLatencyMetrics
  std::vector<double> percentiles = {99};
};

// 99 → "p99", 99.9 → "p99.9".
std::string PercentileName(double percentile);

Figures LoadFigures(const LoadRun& run, const FigureOptions& options);

}  // namespace tessera
