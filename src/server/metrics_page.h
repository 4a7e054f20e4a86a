// SPDX-License-Identifier: Apache-2.0
//
// The body of /metrics: what the server knows of itself, as Prometheus reads it. docs/metrics.md
// lists every name; none has a colon. With `vllm` the figures that vLLM has too follow under its
// names, so that dashboards and routers made for it work.
//
// M1  Every figure comes from one reading of each source: pages may be asked for by anybody, at any
//     time, in parallel. The census of the cache, which looks at every entry, is its caller's and
//     may be of a moment before.
// M2  Counters never fall while the server runs.
//
// Threads: pure functions of their arguments, but for ReadMetrics, which asks the engine.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "server/request_log.h"

namespace tessera {

// One reading.
struct MetricsReading {
  EngineStats engine;
  RequestMetrics requests;
  StoreCensus census;
  RequestLogCounts log;
};

// `log` may be null.
MetricsReading ReadMetrics(const Engine& engine, const StoreCensus& census, const RequestLog* log);

// What does not change while the server runs.
struct MetricsSubject {
  std::string model;
  std::string organisation;
  std::string state_type;
  std::string version;
  uint32_t block_tokens = 512;  // of an attention block in x_A and in the two terms of Δ01:
  int64_t paging_gain_per_block = 0;
  int64_t paging_loss_per_checkpoint = 0;
  bool has_both_kinds = false;  // else there is no Δ01

  static MetricsSubject Of(const Engine& engine);
};

std::string MetricsBody(const MetricsSubject& subject, const MetricsReading& reading, bool vllm);

}  // namespace tessera
