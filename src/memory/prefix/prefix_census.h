// SPDX-License-Identifier: Apache-2.0
//
// A count of what the prefix index offers, by who holds it, and of how much of it somebody can
// start from: a block is of use while a complete boundary lies at or below it, a checkpoint while
// all attention before it is there. What lacks its partner is no capacity, however many bytes it takes.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

// Each entry in one of these, the first that holds.
struct EntryCounts {
  uint32_t pinned = 0;
  uint32_t held = 0;      // by a running sequence
  uint32_t retained = 0;  // nobody holds it, a policy would like to keep it
  uint32_t cached = 0;

  uint32_t total() const { return pinned + held + retained + cached; }
};

struct PrefixCensus {
  EntryCounts blocks;
  EntryCounts checkpoints;
  EntryCounts rows;
  uint32_t reusable_blocks = 0;
  uint32_t reusable_checkpoints = 0;
};

// What a census writes on, made before the lock is taken.
struct CensusPaper {
  std::vector<uint8_t> nodes;   // by node: nothing known, on a complete path to a boundary, broken
  std::vector<uint8_t> blocks;  // by block: seen as reusable
};

}  // namespace tessera
