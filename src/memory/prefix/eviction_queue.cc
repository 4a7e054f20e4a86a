// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/eviction_queue.h"

#include <bit>
#include <utility>

namespace tessera {

EvictionQueue::EvictionQueue(uint32_t ids) : items_(ids) { roots_.fill(kNone); }

void EvictionQueue::SetRoot(uint32_t bucket, uint32_t root) {
  roots_[bucket] = root;
  uint64_t& mask = filled_[bucket / kEvictionBuckets];
  const uint64_t bit = uint64_t{1} << bucket % kEvictionBuckets;
  mask = root == kNone ? mask & ~bit : mask | bit;
  if (root != kNone) items_[root].previous = items_[root].next = kNone;
}

uint32_t EvictionQueue::Meld(uint32_t a, uint32_t b) {
  if (a == kNone) return b;
  if (b == kNone) return a;
  if (Before(b, a)) std::swap(a, b);
  Item& top = items_[a];
  Item& below = items_[b];
  below.next = top.child;
  if (top.child != kNone) items_[top.child].previous = b;
  below.previous = a;
  top.child = b;
  return a;
}

// The usual two passes: pairs from the left, then all from the right.
uint32_t EvictionQueue::MeldSiblings(uint32_t first) {
  uint32_t pairs = kNone;  // chained through `next`, last pair first
  while (first != kNone) {
    const uint32_t second = items_[first].next;
    const uint32_t rest = second == kNone ? kNone : items_[second].next;
    const uint32_t pair = Meld(first, second);
    items_[pair].next = pairs;
    pairs = pair;
    first = rest;
  }
  uint32_t root = kNone;
  while (pairs != kNone) {
    const uint32_t next = items_[pairs].next;
    root = Meld(root, pairs);
    pairs = next;
  }
  return root;
}

void EvictionQueue::Set(uint32_t id, const EvictionClass& place) {
  Item& item = items_[id];
  const uint32_t bucket = BucketOf(place);
  if (item.bucket == bucket && item.order == place.order) return;
  Erase(id);
  item = {.order = place.order, .bucket = bucket};
  SetRoot(bucket, Meld(roots_[bucket], id));
}

void EvictionQueue::Erase(uint32_t id) {
  Item& item = items_[id];
  if (item.bucket == kAbsent) return;
  const uint32_t below = MeldSiblings(item.child);
  if (roots_[item.bucket] == id) {
    SetRoot(item.bucket, below);
  } else {
    Item& previous = items_[item.previous];
    (previous.child == id ? previous.child : previous.next) = item.next;
    if (item.next != kNone) items_[item.next].previous = item.previous;
    SetRoot(item.bucket, Meld(roots_[item.bucket], below));
  }
  item = Item();
}

EvictionQueue::Victim EvictionQueue::Least(EvictionPolicy policy, uint32_t now) const {
  for (uint32_t rank = 0; rank < kEvictionRanks; ++rank) {
    Victim least;
    double score = 0;
    for (uint64_t mask = filled_[rank]; mask != 0; mask &= mask - 1) {
      const uint32_t bucket = static_cast<uint32_t>(std::countr_zero(mask));
      const uint32_t head = roots_[rank * kEvictionBuckets + bucket];
      const uint32_t last_use = static_cast<uint32_t>(items_[head].order >> 32);
      const double of_head = EvictionScore(policy, bucket, last_use, now);
      if (least.id != kNone && of_head >= score) continue;
      least = {head, static_cast<EvictionRank>(rank), bucket};
      score = of_head;
    }
    if (least.id != kNone) return least;
  }
  return {};
}

}  // namespace tessera
