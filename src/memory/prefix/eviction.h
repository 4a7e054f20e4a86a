// SPDX-License-Identifier: Apache-2.0
//
// What an evictable piece of state is worth keeping, by the chosen policy: a pure function of facts
// about it. Less goes first.
//
//   worthless  attention state in a model with recurrent layers below which no checkpoint is left:
//              nothing can be reused through it
//   spare      a checkpoint placed because memory was plentiful
//   retained   wanted by several requests, as --retention says
//
// Within a rank
//   value  credit + hits'·(tokens saved ÷ pages that would really come free): GreedyDual-Size with
//          frequency (Cherkasova 1998). `credit` is the value clock at the last use, the clock the
//          value of what was evicted last: what is not used again falls behind what comes in.
//   lru    the look-up clock at the last use. Worthless state has no rank of its own: plain LRU
//          does not know it.
//   flop   last use + alpha · operations saved per byte, each on its own scale, as Marconi
//          (arXiv 2411.19379) weighs them.
//
// Threads: pure functions of their arguments.
#pragma once

#include <cstdint>

#include "memory/prefix/eviction_heap.h"
#include "memory/prefix/policy.h"

namespace tessera {

struct EvictionFacts {
  uint32_t last_use = 0;      // the look-up clock
  uint32_t hits = 0;          // requests that started from it
  uint32_t position = 0;      // tokens up to it
  uint32_t saved_tokens = 0;  // down from the nearest checkpoint before it that would be left
  uint32_t pages = 0;         // that would come free
  double credit = 0;          // the value clock at the last use
  bool worthless = false;
  bool spare = false;
  bool retained = false;
};

EvictionKey EvictionKeyOf(EvictionPolicy policy, const EvictionFacts& facts);

}  // namespace tessera
