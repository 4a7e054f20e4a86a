// SPDX-License-Identifier: Apache-2.0
//
// `bench kernels`: every kernel of a table against what this machine can do at best, measured in
// the same run, and in turns: what pages cost the state, and what batch invariance costs the
// product.
//
// A round takes a sample of every ceiling, kernel and pair; rounds follow one another until the
// time is over, and at least one is whole. So a slow minute of the host hits all of them, and what
// is compared was measured within a round's time.
//
// Stopped, it reports the rounds that were whole; samples of the one under way count too.
//
// Failure: kInvalidArgument naming the flag; kNoMemory; kIo when threads cannot be had; kCancelled
// when stopped before a round was whole.
// Threads: one call at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/bench_case.h"
#include "bench/bench_memory.h"
#include "bench/ceilings.h"
#include "bench/invariance_bench.h"
#include "bench/layout_bench.h"

namespace tessera {

struct KernelBenchOptions {
  std::string isa;                 // empty: the best that works
  std::vector<int> threads = {1};  // crews to measure with
  // Kernels of the table, "layout", "invariance", or the beginning of a case's name
  // ("gemm.bf16", "layout.scan"); empty: all.
  std::vector<std::string> only;
  double seconds = 60;        // rounds begin before this has passed
  BenchMemoryOptions memory;  // tests make it small
  // Called after every round.
  std::function<void(uint32_t rounds, double seconds)> progress;
  // Asked before every case.
  std::function<bool()> stop;
};

struct KernelBenchReport {
  std::string cpu;
  std::string isa;
  uint32_t rounds = 0;
  double seconds = 0;
  bool stopped = false;
  uint64_t matrix_bytes = 0;
  std::vector<Ceilings> ceilings;  // one per crew
  std::vector<BenchCase> kernels;
  std::vector<LayoutCase> layouts;
  std::vector<InvarianceCase> invariance;
  // What the cases are made of; they must not outlive it.
  std::vector<std::unique_ptr<Crew>> crews;
  BenchMemory memory;

  MachineRates RatesFor(int threads) const;
};

Result<KernelBenchReport> RunKernelBench(const KernelBenchOptions& options);

}  // namespace tessera
