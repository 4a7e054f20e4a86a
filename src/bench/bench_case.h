// SPDX-License-Identifier: Apache-2.0
//
// A BenchCase is one line of the benchmark: a call that the members of a crew make together, what
// it cannot do without, and how long it took. Measure adds a sample: so many calls, one after
// another, that they last about a millisecond; how many is found out at the first one, which also
// warms up and is not kept unless it is long.
//
// A PairedCase is measured against another in turns, so that what the host does meanwhile hits
// both; its ratio is the median of the turns' ratios. Both are warmed up before the first turn, and
// who begins changes with every turn.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "bench/crew.h"
#include "bench/floor.h"
#include "bench/samples.h"

namespace tessera {

struct BenchCase {
  std::string name;  // dotted; the first part is a kernel of the table, "layout" or "invariance"
  const char* from = "";  // "memory" or "L2": where its bytes are
  Crew* crew = nullptr;
  Floor floor;  // of one call of all members
  std::function<void(int member)> call;

  uint32_t calls = 0;  // per sample; 0: not known yet
  Samples seconds;     // of one call, by the clock that Timing::seconds() says
  Samples wall_seconds;
  Samples cpu_seconds;

  int threads() const { return crew->threads(); }
};

// Returns the seconds of one call.
double Measure(BenchCase* bench);

struct PairedCase {
  BenchCase base;
  BenchCase candidate;
  Samples base_seconds;
  Samples ratios;  // candidate / base, turn by turn
};
void Measure(PairedCase* pair);

}  // namespace tessera
