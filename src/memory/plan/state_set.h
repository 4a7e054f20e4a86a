// SPDX-License-Identifier: Apache-2.0
//
// A StateSet is reusable state that a load wants held together: x_A attention blocks and x_R
// checkpoints. How many copies of it a budget holds, B / M_X(S), is what organisations are compared
// by, each with its own rounding of the same bytes.
//
// Threads: pure functions of their arguments.
#pragma once

#include <cstdint>

#include "memory/geometry/organisation.h"

namespace tessera {

struct StateSet {
  uint64_t attention_blocks = 0;  // x_A
  uint64_t checkpoints = 0;       // x_R
  uint32_t block_tokens = 512;    // T
};

// Bytes, all planes, without any rounding.
uint64_t IdealBytes(const StateShape& shape, const StateSet& set);

// How many copies fit the pages of `table` at once; 2^64-1 for a set that takes nothing of it.
uint64_t CopiesOf(const Organisation& table, const StateSet& set);

// The share of D0's attention pool with which a budget holds most copies, and how many those are.
// For a model with both kinds of layers.
struct BestSplit {
  double split = 0;
  uint64_t copies = 0;
};
BestSplit BestSplitFor(const StateShape& shape, const StateSet& set, uint64_t budget_bytes);

// What S3 takes at most beyond any of S0, S1, S2, and D0 at its best split: a page per checkpoint
// and plane, and what the pages of the blocks round (0 when pages are groups; they are unless an
// SSM row does not divide a group, docs/decisions/0009).
uint64_t S3BoundBytes(const Organisation& s3, const StateSet& set);

}  // namespace tessera
