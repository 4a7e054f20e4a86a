// SPDX-License-Identifier: Apache-2.0
//
// RunResult gathers the events of one request and turns them into the object of `run --json`:
//
//   model, prompt_tokens: [ids], tokens: [ids], text, finish_reason,
//   logprobs         per generated token, when asked for
//   prompt_logprobs  per prompt position, when asked for
//   usage {prompt_tokens, cached_tokens, completion_tokens}, timings, receipt
//
// An entry of logprobs is a list of {id, token, logprob}: the chosen token first, then the K most
// probable, best first (the chosen one again if it is among them). Entry i of prompt_logprobs is
// the distribution after prompt token i: first the token that follows in the prompt (after the
// last: the one sampled, or with -n 0 the most probable), then the K most probable.
//
// Threads: values.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace tessera::cli {

struct RunResult {
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<PositionLogprobs> logprobs;
  std::vector<PositionLogprobs> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  Status error;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  uint64_t receipt = 0;
  RequestTimings timings;

  void Add(const RequestEvent& event);
};

// llama-server's names: prompt_n, prompt_ms, prompt_per_second, predicted_n …; speeds are 0 where
// there was nothing to measure. Of n generated tokens n - 1 lie between the first and the last.
struct Speeds {
  double prompt_per_second = 0;
  double predicted_per_second = 0;
};
Speeds SpeedsOf(const RunResult& result);

struct JsonRequest {
  std::vector<TokenId> prompt;
  bool logprobs = false;
  bool prompt_logprobs = false;
};
std::string ToJson(const RunResult& result, const JsonRequest& request, const Engine& engine);

}  // namespace tessera::cli
