// SPDX-License-Identifier: Apache-2.0
//
// When the requests of an open loop come: intervals of a gamma distribution with a mean of 1 / rate
// and the shape `burstiness`. 1 is a Poisson process, less comes in bursts, more is evener, and
// infinity is a metronome. As vLLM's load has it, the times are stretched so that the last one is
// count / rate exactly: a rate that is offered is one that was asked for, whatever the seed.
//
// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

// Seconds from the start, ascending. All 0 when `rate` is infinite. Rate and burstiness are
// positive.
std::vector<double> ArrivalTimes(size_t count, double rate, double burstiness, uint64_t seed);

}  // namespace tessera
