// SPDX-License-Identifier: Apache-2.0
//
// Counter-based random numbers: value = Mix(key, counter). The same (key, counter) gives the same
// value on every machine and in any order of calls, which is what lets a sampled token depend on
// (request seed, absolute position) alone. The mixer is SplitMix64's finaliser (Steele, Lea and
// Flood, "Fast splittable pseudorandom number generators", 2014) applied to key and counter in
// turn.
#pragma once

#include <cstdint>

namespace tessera {

constexpr uint64_t SplitMix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr uint64_t CounterRandom(uint64_t key, uint64_t counter) {
  return SplitMix64(SplitMix64(key) ^ counter);
}

// In [0, 1), 53 bits.
constexpr double CounterUniform(uint64_t key, uint64_t counter) {
  return static_cast<double>(CounterRandom(key, counter) >> 11) * 0x1p-53;
}

// A stream for tests, random weights and workloads.
class Random {
 public:
  explicit Random(uint64_t seed) : key_(seed) {}
  uint64_t Next() { return CounterRandom(key_, counter_++); }
  uint64_t Below(uint64_t bound) { return bound == 0 ? 0 : Next() % bound; }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // In [low, high).
  float Uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(Uniform());
  }

 private:
  uint64_t key_;
  uint64_t counter_ = 0;
};

}  // namespace tessera
