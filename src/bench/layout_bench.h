// SPDX-License-Identifier: Apache-2.0
//
// What it costs that state lies in pages: a scan of one token over fp32 images of Falcon-H1-7B's
// layer (3 MiB), and attention of one row to 4,096 tokens, in turns with the same kernel over
// contiguous state. Both go through as many images or sequences as do not fit the caches.
//
//   order    fresh    pages in the order of their addresses, one image after another
//            random   runs of so many consecutive pages, the runs anywhere in the memory
//            near     single pages in random order inside one block of 2 MiB
//
// Threads: one caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/bench_case.h"
#include "bench/bench_memory.h"
#include "compute/kernels/kernel_table.h"

namespace tessera {

struct LayoutCase {
  std::string kernel;  // "scan", "attention"
  std::string order;
  uint64_t page_bytes = 0;
  uint64_t run_pages = 0;
  PairedCase pair;  // base: contiguous
};

std::vector<LayoutCase> MakeLayoutCases(const KernelTable& kernels, Crew& crew,
                                        const BenchMemory& memory);

}  // namespace tessera
