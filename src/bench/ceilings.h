// SPDX-License-Identifier: Apache-2.0
//
// Ceilings measures what the machine gives a crew at best: every variant of every loop of
// CeilingLoops, a sample a round, between the rounds of what it is a ceiling for. A rate is the
// best variant's median: a ceiling that a lucky sample set would be nobody's.
//
// Failure: none. Threads: one caller.
#pragma once

#include <string>
#include <vector>

#include "bench/bench_case.h"
#include "bench/bench_memory.h"
#include "bench/ceiling_loops.h"

namespace tessera {

class Ceilings {
 public:
  // The crew and the memory must outlive it.
  Ceilings(const CeilingLoops& loops, Crew& crew, const BenchMemory& memory);

  void Round();
  MachineRates Rates() const;

  // Each with its rate: bytes or operations a second at the median.
  struct Line {
    std::string what;     // "read", "update", "copy", "read.L2", "fma", "bf16", "int8"
    std::string variant;  // "" when there is one only
    bool best = false;    // of its kind
    BenchCase bench;
    double amount = 0;  // bytes or operations of one call

    bool is_bytes() const;
    double rate() const { return amount / bench.seconds.Median(); }
  };
  const std::vector<Line>& lines() const { return lines_; }
  int threads() const { return crew_.threads(); }

 private:
  void AddLine(std::string what, std::string variant, double amount, std::function<void(int)> call);
  void AddMemory(const CeilingLoops& loops, const BenchMemory& memory);
  void AddProducts(const CeilingLoops& loops);
  void MarkBest();
  double BestRate(const std::string& what) const;

  Crew& crew_;
  std::vector<Line> lines_;
};

}  // namespace tessera
