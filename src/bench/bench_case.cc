// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_case.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr double kSampleSeconds = 1e-3;
// A first call that lasts as long as this is a sample: warming up is a small part of it.
constexpr double kLongSeconds = 20e-3;

Timing Time(const BenchCase& bench, uint32_t calls) {
  Timing timing = bench.crew->Run([&](int member) {
    for (uint32_t i = 0; i < calls; ++i) bench.call(member);
  });
  timing.wall_seconds /= calls;
  timing.cpu_seconds /= calls;
  return timing;
}

double Keep(const Timing& timing, BenchCase* bench) {
  bench->seconds.Add(timing.seconds());
  bench->wall_seconds.Add(timing.wall_seconds);
  bench->cpu_seconds.Add(timing.cpu_seconds);
  return timing.seconds();
}

// The first call counts page faults and cold code; the second says how long one takes.
uint32_t CallsOfSample(const BenchCase& bench, const Timing& first) {
  if (first.seconds() >= kLongSeconds) return 1;
  const double once = std::max(Time(bench, 1).seconds(), 1e-8);
  return static_cast<uint32_t>(std::clamp(kSampleSeconds / once, 1.0, 1e5));
}

// The same number of calls on both sides, and neither cold in the first turn.
void WarmUp(PairedCase* pair) {
  pair->base.calls = CallsOfSample(pair->base, Time(pair->base, 1));
  pair->candidate.calls = pair->base.calls;
  Time(pair->candidate, 1);
}

}  // namespace

double Measure(BenchCase* bench) {
  if (bench->calls == 0) {
    const Timing first = Time(*bench, 1);
    bench->calls = CallsOfSample(*bench, first);
    if (first.seconds() >= kLongSeconds) return Keep(first, bench);
  }
  return Keep(Time(*bench, bench->calls), bench);
}

void Measure(PairedCase* pair) {
  if (pair->base.calls == 0) WarmUp(pair);
  // Who goes second finds what the first left in the caches.
  const bool base_first = pair->ratios.size() % 2 == 0;
  double base = base_first ? Measure(&pair->base) : 0;
  const double candidate = Measure(&pair->candidate);
  if (!base_first) base = Measure(&pair->base);
  pair->base_seconds.Add(base);
  pair->ratios.Add(candidate / base);
}

}  // namespace tessera
