// SPDX-License-Identifier: Apache-2.0
//
// What batch invariance costs: the bf16 kernel of the table, which adds up in one order whatever
// the batch, in turns with each product of GemmVariants, which need not. The cost at some number of
// rows is the kernel's time over that of the fastest variant; below 1 the kernel is the fastest.
//
// One thread: what threads do with panels is the same for all. Threads: one caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/bench_case.h"
#include "bench/bench_memory.h"
#include "compute/kernels/kernel_table.h"

namespace tessera {

struct InvarianceCase {
  uint32_t rows = 0;
  const char* from = "";
  std::string variant;
  PairedCase pair;  // base: the variant; candidate: the kernel. So the ratio is the cost
};

// Empty when the variants do not run on the kernels' instruction set. The crew has one thread.
std::vector<InvarianceCase> MakeInvarianceCases(const KernelTable& kernels, Crew& crew,
                                                const BenchMemory& memory);

}  // namespace tessera
