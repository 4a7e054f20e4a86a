// SPDX-License-Identifier: Apache-2.0
//
// The cases of `bench kernels`: every kernel of the table on operands of Falcon-H1-7B's sizes (the
// product also on panels that stay in L2), each with its floor. A case's name begins with the
// name of the table's member.
//
//   gemm               each weight type, 1 to 96 rows, weights from memory and from L2; members
//                      share the panels of the matrix in memory, and have one each in L2
//   attention_split    decode of one row at 1k, 16k and 64k tokens, from memory, the members
//                      sharing the splits; 16 rows of a prompt against one split in L2
//   scan               1, 4, 16 and 256 tokens of one layer, fp32 and bf16 state, from memory: a
//                      call takes the next of as many images as do not fit the caches
//   the others         some rows of a step, from L2, each member its own
//
// Threads: a case is called by the members of the crew it was made for.
#pragma once

#include <string_view>
#include <vector>

#include "bench/bench_case.h"
#include "bench/bench_memory.h"
#include "compute/kernels/kernel_table.h"

namespace tessera {

struct KernelBenchContext {
  const KernelTable& kernels;
  Crew& crew;
  const BenchMemory& memory;
};

void AddGemmCases(const KernelBenchContext& context, std::vector<BenchCase>* cases);
void AddAttentionCases(const KernelBenchContext& context, std::vector<BenchCase>* cases);
void AddRecurrentCases(const KernelBenchContext& context, std::vector<BenchCase>* cases);
void AddRowCases(const KernelBenchContext& context, std::vector<BenchCase>* cases);

}  // namespace tessera
