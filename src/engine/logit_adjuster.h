// SPDX-License-Identifier: Apache-2.0
//
// LogitAdjuster applies what a request asks to happen to logits before sampling, in this order, to
// token i with logit x_i, of which `seen` is how often it is in prompt and answer so far and `made`
// how often in the answer alone:
//
//   repetition   seen > 0: x_i / r when x_i > 0, else x_i · r
//   frequency    x_i - f · made
//   presence     made > 0: x_i - p
//   bias         x_i + b_i, the sum of a token's biases
//   forbidden    never sampled: NaN, which the sampler takes for no candidate
//
// A1  The result depends on logits, options and history only, each step rounded to fp32; a token
//     that no step names keeps its logit, bits and all.
// A2  Nothing is allocated after construction.
//
// Threads: one row at a time per adjuster.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/strong_id.h"
#include "engine/engine.h"

namespace tessera {

// What the request has so far.
struct SampleContext {
  std::span<const TokenId> prompt;
  std::span<const TokenId> answer;
  std::span<const TokenId> forbidden;  // ids outside the vocabulary are none
};

class LogitAdjuster {
 public:
  explicit LogitAdjuster(uint32_t vocab_size) : logits_(vocab_size), counts_(vocab_size) {}
  static uint64_t ScratchBytes(uint32_t vocab_size) {
    return uint64_t{vocab_size} * (sizeof(float) + sizeof(uint32_t));
  }

  // The row itself when there is nothing to change; otherwise a row that is good until the next
  // call.
  std::span<const float> Adjust(std::span<const float> logits, const SamplingOptions& options,
                                const SampleContext& context);

 private:
  void PenalizeRepeated(float penalty, const SampleContext& context);
  void PenalizeMade(const SamplingOptions& options, std::span<const TokenId> answer);

  std::vector<float> logits_;
  std::vector<uint32_t> counts_;  // by id; all 0 between calls
};

}  // namespace tessera
