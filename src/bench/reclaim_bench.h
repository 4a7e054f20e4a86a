// SPDX-License-Identifier: Apache-2.0
//
// The reclaim part of `bench memory`: one page after another is taken back from forests of every
// organisation.
//
// Failure and threads: as RunMemoryBench.
#pragma once

#include "base/status.h"
#include "bench/memory_ops_bench.h"
#include "memory/geometry/state_shape.h"

namespace tessera {

// `most`: groups of 16 tokens that memory allows.
Status RunReclaimBench(const MemoryBenchOptions& options, const StateShape& shape, uint64_t most,
                       MemoryBenchReport* report);

}  // namespace tessera
