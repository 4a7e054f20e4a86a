// SPDX-License-Identifier: Apache-2.0
//
// What an evictable piece of state is worth keeping, by the chosen policy: pure functions of facts
// about it. Less goes first.
//
//   worthless  attention state in a model with recurrent layers below which no checkpoint is left:
//              nothing can be reused through it. Oldest first
//   spare      a checkpoint placed because memory was plentiful
//   retained   wanted by several requests, as --retention says
//
// Within a rank
//   value  weight / (age + 12), age in look-ups since it was placed or last started from:
//            weight = k · (1 + min(branches, 7)) · saved / pages that would come free
//                       · saved / (saved + 2.5 · price)
//          saved in tokens, price the tokens of KV that take as much memory as a checkpoint.
//          Branches are starts after which the request took a way of its own; a checkpoint that was
//          only ever continued is of no use but for a regenerated turn, so k = 0.3 then, else 1. The
//          last factor: what saves less than its price is soon placed again. The constants are flat
//          optima on three traces (docs/decisions/0010-eviction-by-weight-over-age.md).
//   lru    the last use
//   flop   last use / now + alpha · operations saved per byte, both up to 1, as Marconi (arXiv
//          2411.19379) weighs them
//
// The order of `value` and `flop` changes with time, so no heap holds it. Weights fall into buckets
// half an octave (value) or 1/63 (flop) wide; in a bucket the order is that of the last use, for
// ever, and only the heads of the buckets need comparing now.
//
// Threads: pure functions of their arguments.
#pragma once

#include <cstdint>

#include "memory/prefix/policy.h"

namespace tessera {

struct EvictionFacts {
  uint32_t last_use = 0;  // the look-up clock when it was placed or last started from
  uint32_t position = 0;  // tokens up to it
  uint32_t branches = 0;
  bool continued = false;     // started from, or followed, by one way only
  uint32_t saved_tokens = 0;  // down from the nearest checkpoint before it that would be left
  uint32_t price_tokens = 0;  // of a checkpoint; 0: the model has none
  uint32_t pages = 0;         // that would come free
  bool worthless = false;
  bool spare = false;
  bool retained = false;
};

enum class EvictionRank : uint8_t { kWorthless, kSpare, kOrdinary, kRetained };
inline constexpr uint32_t kEvictionRanks = 4;
inline constexpr uint32_t kEvictionBuckets = 64;  // of a rank

struct EvictionClass {
  EvictionRank rank = EvictionRank::kOrdinary;
  uint32_t bucket = 0;
  uint64_t order = 0;  // in the bucket: last use, then the deeper one first

  uint32_t last_use() const { return static_cast<uint32_t>(order >> 32); }
};

EvictionClass ClassifyForEviction(EvictionPolicy policy, const EvictionFacts& facts);
// Of the head of a bucket, comparable among those of a rank.
double EvictionScore(EvictionPolicy policy, uint32_t bucket, uint32_t last_use, uint32_t now);

}  // namespace tessera
