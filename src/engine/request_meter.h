// SPDX-License-Identifier: Apache-2.0
//
// RequestMeter counts what requests took and how they ended. The loop tells it of every step, token
// and end; whoever wants to know takes a copy, without stopping the loop.
//
// M1  Every request that was queued is in `finished` once, by its reason, before its final event.
// M2  Of a request, the first sampled token is in `first_token`, each later in `between_tokens`.
// M3  One that ended with kStop or kLength is once in each of queue, prefill, run, whole,
//     prompt_tokens and generated_tokens; in decode and per_token if it sampled two tokens or more.
//
// Failure: none. Threads: one counts, any number read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "engine/engine.h"
#include "engine/histogram.h"

namespace tessera {

class RequestMeter {
 public:
  RequestMeter();

  void CountStep(uint32_t tokens) { step_tokens_.Add(tokens); }
  // The step that ended a request's prompt, so many tokens of which were reused.
  void CountPrompt(uint32_t tokens, uint32_t cached) {
    Increase(&served_prompt_tokens_, tokens);
    Increase(&cached_prompt_tokens_, cached);
  }
  // A request's first token, so long after it was submitted.
  void CountFirstToken(uint64_t ns) { first_token_.Add(Seconds(ns)); }
  // Another one, so long after the last.
  void CountToken(uint64_t ns) { between_tokens_.Add(Seconds(ns)); }
  void CountFinished(const FinishedRequest& request);

  RequestMetrics Read() const;

 private:
  // Nobody else writes.
  static void Increase(std::atomic<uint64_t>* count, uint64_t by) {
    count->store(count->load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
  static double Seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

  std::array<std::atomic<uint64_t>, kFinishReasons> finished_{};
  Histogram first_token_;
  Histogram between_tokens_;
  Histogram per_token_;
  Histogram queue_;
  Histogram prefill_;
  Histogram decode_;
  Histogram run_;
  Histogram whole_;
  Histogram prompt_tokens_;
  Histogram generated_tokens_;
  Histogram step_tokens_;
  std::atomic<uint64_t> served_prompt_tokens_{0};
  std::atomic<uint64_t> cached_prompt_tokens_{0};
};

}  // namespace tessera
