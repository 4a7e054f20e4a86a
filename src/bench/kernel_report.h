// SPDX-License-Identifier: Apache-2.0
//
// How a KernelBenchReport is shown: tables for people, JSON for programs.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "bench/kernel_bench.h"

namespace tessera {

std::string KernelBenchText(const KernelBenchReport& report);
std::string KernelBenchJson(const KernelBenchReport& report);

// The invariance cases of one number of rows: the fastest variant decides the cost.
struct InvarianceCost {
  uint32_t rows = 0;
  const char* from = "";
  std::string fastest;
  double kernel_seconds = 0;
  double variant_seconds = 0;
  double ratio = 0;  // kernel / variant, median of the turns
  double spread = 0;
};
std::vector<InvarianceCost> InvarianceCosts(const KernelBenchReport& report);

}  // namespace tessera
