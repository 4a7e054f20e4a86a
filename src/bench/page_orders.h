// SPDX-License-Identifier: Apache-2.0
//
// Where the pages of equal objects lie in a piece of memory, for measurements: as a pool hands them
// out when it is fresh, and when it is old.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct PageOrderOptions {
  uint64_t memory_bytes = 0;
  uint64_t object_bytes = 0;  // at most memory_bytes
  uint64_t page_bytes = 0;    // divides object_bytes
  uint32_t objects = 0;       // all of them fit
};

// Offsets of the pages of each object, in their order.
using PageOffsets = std::vector<std::vector<uint64_t>>;

// Runs of `run_pages` consecutive pages; a run starts at a multiple of its length, at random.
PageOffsets ScatterRuns(const PageOrderOptions& options, uint64_t run_pages, uint64_t seed);
// One object after another, pages ascending.
PageOffsets LayInOrder(const PageOrderOptions& options);
// Pages in random order within each block of 2 MiB, the blocks in random order too.
PageOffsets ScatterInBlocks(const PageOrderOptions& options, uint64_t seed);

}  // namespace tessera
