// SPDX-License-Identifier: Apache-2.0
//
// IndexSet is a set of indices 0..n-1 as bits, with a summary above them: bit i of level k+1 says
// that word i of level k is not zero. 10^6 indices are four levels, so the lowest or highest member
// is found in four word reads, and long empty stretches cost nothing.
//
//   level 0  bit per index     15,625 words at 10^6
//   level 1  bit per word         245 words
//   level 2                         4 words
//   level 3                         1 word
//
// I1  A summary bit is set exactly when its word is not zero.  I2  count() is the number of
// members.
//
// No allocation after construction. Inserting a member or erasing a non-member is a bug and aborts.
// Threads: none of its own; const calls may run together.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

class IndexSet {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Run {
    uint32_t begin = kNone;
    uint32_t length = 0;
  };

  explicit IndexSet(uint32_t size);

  uint32_t size() const { return size_; }
  uint32_t count() const { return count_; }
  bool Contains(uint32_t index) const;
  void Insert(uint32_t index);
  void Erase(uint32_t index);
  void InsertAll();

  // The lowest member >= from, or kNone.
  uint32_t FindFirst(uint32_t from = 0) const;
  // The highest member < end, or kNone.
  uint32_t FindLast(uint32_t end) const;
  // Members in [begin, end).
  uint32_t CountIn(uint32_t begin, uint32_t end) const;
  // The highest run of consecutive members below `end` that has at least `least`, cut to its upper
  // `most`; length 0 when there is none. 1 <= least <= most.
  Run FindRunDown(uint32_t end, uint32_t least, uint32_t most) const;

  // I1 and I2, in O(n).
  bool IsConsistent() const;

 private:
  uint64_t MaskedWord(uint32_t word, uint32_t end) const;
  Run ExtendDown(uint32_t run_end, uint32_t length, uint32_t most) const;

  uint32_t size_;
  uint32_t count_ = 0;
  std::vector<std::vector<uint64_t>> levels_;
};

}  // namespace tessera
