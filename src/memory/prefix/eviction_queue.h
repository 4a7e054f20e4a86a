// SPDX-License-Identifier: Apache-2.0
//
// EvictionQueue holds what may be evicted, ids 0..n-1, each in the bucket of its class and there in
// the order of its last use: one pairing heap (Fredman et al. 1986) a bucket, all in the same
// arrays. The victim is the head of a bucket of the lowest rank there is whose score is least now;
// ties go to the lower bucket, in a bucket to the lower order, then the lower id.
//
// Q1  An id is in one heap or in none. Q2  Nothing is allocated after construction.
//
// Cost: a Set or an Erase some links; a victim the heads of the buckets of one rank. 24 B an id.
// Threads: none of its own.
#pragma once

#include <array>
#include <cstdint>

#include "memory/prefix/eviction.h"
#include "port/huge_pages.h"

namespace tessera {

class EvictionQueue {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr uint64_t kBytesPerId = 24;

  explicit EvictionQueue(uint32_t ids);

  bool Contains(uint32_t id) const { return items_[id].bucket != kAbsent; }
  // Puts the id in, or moves it.
  void Set(uint32_t id, const EvictionClass& place);
  // Fetches what Set or Erase of the id will read first.
  void Prefetch(uint32_t id) const { __builtin_prefetch(&items_[id], 1); }
  // And what they will read next.
  void PrefetchNeighbours(uint32_t id) const {
    const Item& item = items_[id];
    if (item.bucket == kAbsent) return;
    for (uint32_t other : {item.previous, item.next, item.child}) {
      if (other != kNone) __builtin_prefetch(&items_[other], 1);
    }
  }
  // Takes it out; nothing when it is not in.
  void Erase(uint32_t id);

  struct Victim {
    uint32_t id = kNone;  // kNone: the queue is empty
    EvictionRank rank = EvictionRank::kWorthless;
    uint32_t bucket = 0;
  };
  Victim Least(EvictionPolicy policy, uint32_t now) const;

 private:
  static constexpr uint32_t kAbsent = ~uint32_t{0};
  struct Item {
    uint64_t order = 0;
    uint32_t bucket = kAbsent;  // of all ranks
    uint32_t child = kNone;
    uint32_t next = kNone;      // sibling
    uint32_t previous = kNone;  // sibling, or the parent of a first child
  };
  static_assert(sizeof(Item) == kBytesPerId);

  static uint32_t BucketOf(const EvictionClass& place) {
    return static_cast<uint32_t>(place.rank) * kEvictionBuckets + place.bucket;
  }
  bool Before(uint32_t a, uint32_t b) const {
    return items_[a].order != items_[b].order ? items_[a].order < items_[b].order : a < b;
  }
  // One heap of two, either of which may be kNone.
  uint32_t Meld(uint32_t a, uint32_t b);
  // One heap of a list of siblings.
  uint32_t MeldSiblings(uint32_t first);
  void SetRoot(uint32_t bucket, uint32_t root);

  HugeVector<Item> items_;
  std::array<uint32_t, kEvictionRanks * kEvictionBuckets> roots_;
  std::array<uint64_t, kEvictionRanks> filled_ = {};  // a bit per bucket
};

}  // namespace tessera
