// SPDX-License-Identifier: Apache-2.0
#include "engine/request_meter.h"

namespace tessera {
namespace {

// Waits of a request: vLLM's bounds for the time to the first token, so that dashboards made for
// one read the other.
constexpr double kWaitBounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                  1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
// Between tokens: a small model makes several within a millisecond.
constexpr double kTokenBounds[] = {.0005, .001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                                   .4,    .5,   .75,   1,    2.5, 5,    7.5, 10,   20, 40,  80};
constexpr double kLengthBounds[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                    1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
constexpr double kStepBounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};

constexpr double kSecondsPerMs = 1e-3;

}  // namespace

RequestMeter::RequestMeter()
    : first_token_(kWaitBounds),
      between_tokens_(kTokenBounds),
      per_token_(kTokenBounds),
      queue_(kWaitBounds),
      prefill_(kWaitBounds),
      decode_(kWaitBounds),
      run_(kWaitBounds),
      whole_(kWaitBounds),
      prompt_tokens_(kLengthBounds),
      generated_tokens_(kLengthBounds),
      step_tokens_(kStepBounds) {}

void RequestMeter::CountFinished(const FinishedRequest& request) {
  Increase(&finished_[static_cast<size_t>(request.finish)], 1);
  if (request.finish != FinishReason::kStop && request.finish != FinishReason::kLength) return;
  const RequestTimings& timings = request.timings;
  queue_.Add(timings.queue_ms * kSecondsPerMs);
  prefill_.Add(timings.prompt_ms * kSecondsPerMs);
  run_.Add((timings.prompt_ms + timings.predicted_ms) * kSecondsPerMs);
  whole_.Add(timings.total_ms() * kSecondsPerMs);
  prompt_tokens_.Add(request.prompt_tokens);
  generated_tokens_.Add(request.completion_tokens);
  if (request.completion_tokens < 2) return;
  decode_.Add(timings.predicted_ms * kSecondsPerMs);
  per_token_.Add(timings.predicted_ms * kSecondsPerMs / (request.completion_tokens - 1));
}

RequestMetrics RequestMeter::Read() const {
  RequestMetrics metrics;
  for (size_t i = 0; i < finished_.size(); ++i) {
    metrics.finished[i] = finished_[i].load(std::memory_order_relaxed);
  }
  metrics.first_token_s = first_token_.Counts();
  metrics.between_tokens_s = between_tokens_.Counts();
  metrics.per_token_s = per_token_.Counts();
  metrics.queue_s = queue_.Counts();
  metrics.prefill_s = prefill_.Counts();
  metrics.decode_s = decode_.Counts();
  metrics.run_s = run_.Counts();
  metrics.whole_s = whole_.Counts();
  metrics.prompt_tokens = prompt_tokens_.Counts();
  metrics.generated_tokens = generated_tokens_.Counts();
  metrics.step_tokens = step_tokens_.Counts();
  metrics.served_prompt_tokens = served_prompt_tokens_.load(std::memory_order_relaxed);
  metrics.cached_prompt_tokens = cached_prompt_tokens_.load(std::memory_order_relaxed);
  return metrics;
}

}  // namespace tessera
