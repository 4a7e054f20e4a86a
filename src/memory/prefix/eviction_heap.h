// SPDX-License-Identifier: Apache-2.0
//
// EvictionHeap orders what may be evicted, least worth keeping first: a binary heap over ids
// 0..n-1 with each id's place in it, so that an id can be moved or taken out. Equal keys come in
// the order of their ids: the order depends on the calls alone.
//
// Keys compare by rank, then by value. Nothing is allocated after construction.
// Threads: none of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tessera {

struct EvictionKey {
  enum Rank : uint8_t {
    kWorthless,  // nothing can be reused through it
    kSpare,      // placed because memory was plentiful
    kOrdinary,
    kRetained,
  };
  Rank rank = kOrdinary;
  double value = 0;

  friend bool operator<(const EvictionKey& a, const EvictionKey& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.value < b.value;
  }
};

class EvictionHeap {
 public:
  explicit EvictionHeap(uint32_t ids) : place_(ids, kAbsent) { heap_.reserve(ids); }

  bool empty() const { return heap_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(heap_.size()); }
  bool Contains(uint32_t id) const { return place_[id] != kAbsent; }
  uint32_t top() const { return heap_.front().id; }
  const EvictionKey& top_key() const { return heap_.front().key; }

  // Puts the id in, or moves it to its new key.
  void Set(uint32_t id, const EvictionKey& key) {
    if (place_[id] == kAbsent) {
      place_[id] = size();
      heap_.push_back({key, id});
      return SiftUp(place_[id]);
    }
    heap_[place_[id]].key = key;
    SiftUp(place_[id]);
    SiftDown(place_[id]);
  }
  // Takes it out; nothing when it is not in.
  void Erase(uint32_t id) {
    const uint32_t at = place_[id];
    if (at == kAbsent) return;
    place_[id] = kAbsent;
    const Item last = heap_.back();
    heap_.pop_back();
    if (at == heap_.size()) return;
    heap_[at] = last;
    place_[last.id] = at;
    SiftUp(at);
    SiftDown(place_[last.id]);
  }

 private:
  static constexpr uint32_t kAbsent = ~uint32_t{0};
  struct Item {
    EvictionKey key;
    uint32_t id = 0;
    friend bool operator<(const Item& a, const Item& b) {
      if (a.key < b.key) return true;
      return !(b.key < a.key) && a.id < b.id;
    }
  };

  void SiftUp(uint32_t at) {
    const Item item = heap_[at];
    while (at > 0 && item < heap_[(at - 1) / 2]) {
      Put(at, heap_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    Put(at, item);
  }
  void SiftDown(uint32_t at) {
    const Item item = heap_[at];
    while (true) {
      uint32_t child = 2 * at + 1;
      if (child >= size()) break;
      if (child + 1 < size() && heap_[child + 1] < heap_[child]) ++child;
      if (!(heap_[child] < item)) break;
      Put(at, heap_[child]);
      at = child;
    }
    Put(at, item);
  }
  void Put(uint32_t at, const Item& item) {
    heap_[at] = item;
    place_[item.id] = at;
  }

  std::vector<Item> heap_;
  std::vector<uint32_t> place_;
};

}  // namespace tessera
