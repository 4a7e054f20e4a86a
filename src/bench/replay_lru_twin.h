// SPDX-License-Identifier: Apache-2.0
//
// Plain LRU over blocks and checkpoints as objects of their own, by sets of ids alone: what the
// policies of the prefix index are compared with. Capacity and price are in tokens of KV. A request
// reuses the deepest checkpoint on the present prefix of its prompt (with attention alone: all of
// it), then touches its blocks and checkpoints, the deepest first; what was touched longest ago goes.
// Placements, and what counts as known, are those of replay_reference.h.
//
// Threads: none shared.
#pragma once

#include <cstdint>

#include "bench/replay_reference.h"

namespace tessera {

struct LruTwinOptions {
  ReferencePlacement placement = ReferencePlacement::kTail;
  uint32_t grid = 512;  // at least the trace's block
  uint64_t capacity_tokens = 0;
  uint64_t price_tokens = 0;
  uint32_t at_once = 0;  // as ReplayOrder
  uint64_t seed = 0;
};

ReferenceReuse ReplayLruTwin(const RequestTrace& trace, const LruTwinOptions& options);

}  // namespace tessera
