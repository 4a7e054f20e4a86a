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
bool Calibrate(BenchCase* bench) {
  const Timing first = Time(*bench, 1);
  if (first.seconds() >= kLongSeconds) {
    bench->calls = 1;
    Keep(first, bench);
    return true;
  }
  const double once = std::max(Time(*bench, 1).seconds(), 1e-8);
  bench->calls = static_cast<uint32_t>(std::clamp(kSampleSeconds / once, 1.0, 1e5));
  return false;
}

}  // namespace

double Measure(BenchCase* bench) {
  if (bench->calls == 0 && Calibrate(bench)) return bench->seconds.Median();
  return Keep(Time(*bench, bench->calls), bench);
}

void Measure(PairedCase* pair) {
  // The same number of calls on both sides.
  if (pair->base.calls == 0) Calibrate(&pair->base);
  pair->candidate.calls = pair->base.calls;
  const double base = Measure(&pair->base);
  const double candidate = Measure(&pair->candidate);
  pair->base_seconds.Add(base);
  pair->ratios.Add(candidate / base);
}

}  // namespace tessera
