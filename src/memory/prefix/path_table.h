// SPDX-License-Identifier: Apache-2.0
//
// PathTable finds the nodes of a PrefixTree by path hash, and remembers paths whose node has gone.
// One cache line has both, because whoever takes a node out changes both: at 10^6 nodes every line
// is one from memory.
//
//   bin, 64 B   6 tags (lower half of the hash) | their 6 nodes | 4 fingerprints (upper half)
//
// A node lies in the bin its hash names or, when that is full, in one after it; a fingerprint in a
// place that the hash names, until another takes it.
//
// H1  Every bin from the one that a node's hash names to the one it lies in is full, so a look-up
//     ends at the first that is not. Erase moves nodes back; no tombstones gather.
// H2  Three nodes a bin at most, over all; 21 to 43 B a node. An Erase in a full bin reads a second
//     line, which nobody fetched ahead. At 10^6 nodes that is 4.5 % of them with 1.9 nodes a bin and
//     38 % with 3.8; then taking out the 32 nodes of a block took 2.7 us instead of 1.4.
//
// Hashes are not compared in full: whoever looks up says which node it means.
// Failure: none. Nothing is allocated after construction. Threads: none of its own.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "port/huge_pages.h"

namespace tessera {

class PathTable {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  explicit PathTable(uint32_t nodes) : bins_(std::bit_ceil((size_t{nodes} + 2) / 3)) {}

  // Fetches what the calls below will read.
  void Prefetch(uint64_t hash) const { __builtin_prefetch(&bins_[Home(hash)]); }

  // The first node under the tag of this hash of which `is_meant` is true, or kNone.
  template <typename IsMeant>
  uint32_t Find(uint64_t hash, IsMeant&& is_meant) const {
    for (uint32_t at = Home(hash);; at = After(at)) {
      const Bin& bin = bins_[at];
      for (uint32_t places = Equal(bin.tags, Tag(hash)); places != 0; places &= places - 1) {
        const uint32_t node = bin.nodes[static_cast<size_t>(std::countr_zero(places))];
        if (node != kNone && is_meant(node)) return node;
      }
      if (!bin.full()) return kNone;
    }
  }
  void Insert(uint64_t hash, uint32_t node);
  void Erase(uint64_t hash, uint32_t node);  // it is there

  void Remember(uint64_t hash) { bins_[Home(hash)].gone[Place(hash)] = Fingerprint(hash); }
  // Whether a node of this hash has gone, as far as is remembered.
  bool Remembers(uint64_t hash) const {
    return bins_[Home(hash)].gone[Place(hash)] == Fingerprint(hash) && Fingerprint(hash) != 0;
  }

  uint32_t CountNodes() const;  // in O(n)
  uint64_t bytes() const { return bins_.size() * sizeof(Bin); }

 private:
  using Places = std::array<uint32_t, 6>;
  struct alignas(64) Bin {
    Places tags = {};
    Places nodes = {kNone, kNone, kNone, kNone, kNone, kNone};
    std::array<uint32_t, 4> gone = {};  // 0: none

    bool full() const { return Equal(nodes, kNone) == 0; }
  };
  static_assert(sizeof(Bin) == 64);

  // A bit for each place that has the value; without a branch, as any may have it.
  static uint32_t Equal(const Places& places, uint32_t value) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < places.size(); ++i) bits |= uint32_t{places[i] == value} << i;
    return bits;
  }
  static uint32_t Tag(uint64_t hash) { return static_cast<uint32_t>(hash); }
  static uint32_t Fingerprint(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  static size_t Place(uint64_t hash) { return hash >> 62; }
  uint32_t mask() const { return static_cast<uint32_t>(bins_.size() - 1); }
  uint32_t Home(uint64_t hash) const { return Tag(hash) & mask(); }
  uint32_t After(uint32_t bin) const { return (bin + 1) & mask(); }

  HugeVector<Bin> bins_;  // a power of two
};

}  // namespace tessera
