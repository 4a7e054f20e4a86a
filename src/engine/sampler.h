// SPDX-License-Identifier: Apache-2.0
//
// Sampler turns one row of logits into a token and log-probabilities (numerics R14).
//
// The order of tokens is total: logit descending, id ascending; NaN counts as the smallest value,
// infinities as the largest finite ones. With temperature 0 the first token is taken. Otherwise,
// in this order:
//
//   temperature  w_i = exp((x_i - x_max) / T)
//   top-k        keep the first k                                 (0: all)
//   min-p        keep those with w_i >= min_p · w_max             (0: all)
//   top-p        keep the shortest prefix, at least one, whose w sum to >= top_p of what is left
//   draw         u = CounterUniform(seed, position); walk the kept ones in ascending id until their
//                sum of w exceeds u · total
//
// Log-probabilities are log-softmax over the raw logits, before any of this and before penalties and
// biases (logit_adjuster.h).
//
// S1  The result depends on the logits, the options and the position only. Every sum is in double,
//     in ascending order of ids (top-p: in the total order); exp and log are ours (exp_log.h).
// S2  Nothing is allocated after construction, except that `top` of a PositionLogprobs grows to its
//     count once.
//
// Failure: a row without a single number (all NaN) yields no token: the caller ends the request.
// Threads: one row at a time per Sampler; each worker has its own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/strong_id.h"
#include "engine/engine.h"
#include "engine/request_limits.h"

namespace tessera {

class Sampler {
 public:
  explicit Sampler(uint32_t vocab_size);
  static uint64_t ScratchBytes(uint32_t vocab_size) {
    return uint64_t{vocab_size} * (sizeof(TokenId) + sizeof(double));
  }

  // `logits` has vocab_size elements.
  std::optional<TokenId> Sample(std::span<const float> logits, const SamplingOptions& options,
                                uint64_t position);
  // Fills `result` with `chosen`'s log-probability and the `count` most probable tokens.
  // A `chosen` of -1 stands for the most probable one.
  void Logprobs(std::span<const float> logits, TokenId chosen, uint32_t count,
                PositionLogprobs* result);

 private:
  // Puts the first `count` candidates of the total order first in candidates_, unsorted.
  void SelectFirst(std::span<const float> logits, uint32_t count);
  // Narrows candidates_ to the survivors of top-p.
  void KeepTopP(std::span<const float> logits, float top_p);

  std::vector<TokenId> candidates_;  // a prefix of the total order, in some order
  std::vector<double> weights_;      // by id
};

// First of the total order, or nothing when all are NaN.
std::optional<TokenId> GreedyToken(std::span<const float> logits);

// kInvalidArgument naming the field: temperature finite and >= 0, top_p in (0, 1], min_p in [0, 1],
// repetition_penalty in (0, 1000], the other penalties and biases from -1000 to 1000, at most
// kMaxLogitBiases of them.
Status CheckSamplingOptions(const SamplingOptions& options);

}  // namespace tessera
