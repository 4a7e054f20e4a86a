// SPDX-License-Identifier: Apache-2.0
//
// What an unlimited cache would reuse of a trace, by sets of ids alone: the slow, obvious twin of
// `bench replay`. Requests one after another in ReplayOrder(trace); only prompts are cached, and of
// a prompt only its full blocks are known to be equal to others. For a request of n tokens, m is
// the number of leading full blocks whose id an earlier request had, and L = min(m·block, n − 1).
//
//   attention@g    reuse ⌊L/g⌋·g
//   dense@g        the same: a checkpoint is kept at every multiple of g within the full blocks of
//                  every prompt, its end among them
//   tail@g         one checkpoint a prompt, at the last multiple of g that is at most n − 1 and
//                  within its full blocks; reuse the deepest one that is at most L
//   tail+branch@g  and one at ⌊L/g⌋·g, where the prompt left what was known; for later requests
//
// A checkpoint at p is at the id of the block that holds token p − 1.
//
// Threads: none shared.
#pragma once

#include <cstdint>

#include "trace/request_trace.h"

namespace tessera {

enum class ReferencePlacement { kAttention, kDense, kTail, kTailBranch };

struct ReferenceReuse {
  uint64_t input_tokens = 0;
  uint64_t reused_tokens = 0;
  uint64_t checkpoints = 0;  // that were ever made
  double rate() const {
    return input_tokens == 0
               ? 0
               : static_cast<double>(reused_tokens) / static_cast<double>(input_tokens);
  }
};

ReferenceReuse ReplayReference(const RequestTrace& trace, ReferencePlacement placement,
                               uint32_t grid);

}  // namespace tessera
