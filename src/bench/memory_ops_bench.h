// SPDX-License-Identifier: Apache-2.0
//
// `bench memory`: what finding, sharing, publishing and taking back state costs, without a byte of
// state: the ledger and the prefix index of a PromptForest of so many blocks.
//
//   operations  Find, Adopt, Publish, Release per block, the checkpoint's per member page, Reclaim
//               per page and Evict (the policy chooses) per page that comes free; prompts in random
//               order (cold) or one again and again (warm); with several threads: whole requests,
//               Find to Release, of all threads together over the time it takes
//   reclaims    for each organisation: what reclaiming one page invalidates and takes, by the slots
//               used in the slab and by whose they are
//
// A sample is one request, leaf or page, timed by the wall clock: they are microseconds, so that
// most meet no interruption, and the median is what is reported. Whole requests are timed as Crew
// does: one thread by its CPU time, several by the wall clock.
//
// Failure: kInvalidArgument for a geometry that is not hybrid or unknown. Sizes that memory does
// not allow are left out and named. Threads: one call at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/samples.h"

namespace tessera {

struct MemoryBenchOptions {
  std::string geometry = "falcon-h1-7b";
  std::vector<uint64_t> entries = {1'000, 10'000, 100'000, 1'000'000, 10'000'000};
  std::vector<uint32_t> threads = {1, 2};
  uint32_t samples = 300;          // requests of each size and order
  uint32_t requests_per_step = 8;  // of a thread while it holds the lock once
  uint64_t memory_bytes = 0;       // for metadata; 0: three quarters of what there is
  std::function<void(const std::string& what)> progress;
};

struct OperationTime {
  uint64_t entries = 0;  // asked for
  uint64_t blocks = 0;   // there are
  uint32_t checkpoints = 0;
  std::string name;
  std::string unit;  // block, member, block or member (both are a page's record), page
  bool cold = true;
  Samples ns;  // per unit
};

struct RequestRate {  // of threads that all ask at once
  uint64_t entries = 0;
  uint32_t threads = 1;
  uint32_t requests_per_step = 1;
  double ns_per_block = 0;  // of all threads together: time / blocks found
  double requests_per_second = 0;
};

struct ReclaimTime {
  std::string organisation;
  std::string page;  // "attention", "state", "slab"
  uint64_t entries = 0;
  uint32_t slots_used = 0;  // in the slab; 0: the page is no slab
  uint32_t slots = 0;
  std::string owners;      // of a slab: "few" contexts side by side, or "many" mixed
  double invalidated = 0;  // entries, per reclaimed page
  double contexts = 0;     // whose they were
  double pages_freed = 0;
  Samples ns;  // per reclaimed page
};

struct MemoryBenchReport {
  struct LeftOut {
    uint64_t entries = 0;
    uint64_t needed_bytes = 0;
    uint64_t available_bytes = 0;
  };
  std::string geometry, cpu;
  uint32_t samples = 0;
  std::vector<OperationTime> operations;
  std::vector<RequestRate> rates;
  std::vector<ReclaimTime> reclaims;
  std::vector<LeftOut> left_out;
};

Result<MemoryBenchReport> RunMemoryBench(const MemoryBenchOptions& options);

std::string MemoryBenchText(const MemoryBenchReport& report);
std::string MemoryBenchJson(const MemoryBenchReport& report);

}  // namespace tessera
