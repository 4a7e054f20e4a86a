// SPDX-License-Identifier: Apache-2.0
//
// Histogram counts values by fixed upper bounds: what a Prometheus histogram wants.
//
// H1  Add allocates nothing and takes no lock: one thread adds, any may read meanwhile.
// H2  A value goes to the first bucket whose bound is not below it, or to the last, which has none;
//     counts never fall. A reader may see the newest value in the counts and not yet in the sum.
//
// Failure: none. Threads: Add from one, Counts from any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "base/check.h"

namespace tessera {

inline constexpr size_t kHistogramBoundsMax = 24;

struct HistogramCounts {
  std::span<const double> bounds;                           // ascending
  std::array<uint64_t, kHistogramBoundsMax + 1> buckets{};  // of each bound; then those above all
  double sum = 0;

  uint64_t total() const {
    uint64_t all = 0;
    for (const uint64_t bucket : buckets) all += bucket;
    return all;
  }
};

class Histogram {
 public:
  // `bounds` ascend and outlive it.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds) {
    TESSERA_CHECK(bounds.size() <= kHistogramBoundsMax);
  }

  void Add(double value) {
    size_t bucket = 0;
    while (bucket < bounds_.size() && value > bounds_[bucket]) ++bucket;
    // No other thread writes, so that a load and a store will do.
    std::atomic<uint64_t>& count = buckets_[bucket];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    sum_.store(sum_.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }

  HistogramCounts Counts() const {
    HistogramCounts counts;
    counts.bounds = bounds_;
    for (size_t i = 0; i <= bounds_.size(); ++i) {
      counts.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    }
    counts.sum = sum_.load(std::memory_order_relaxed);
    return counts;
  }

 private:
  const std::span<const double> bounds_;
  std::array<std::atomic<uint64_t>, kHistogramBoundsMax + 1> buckets_{};
  std::atomic<double> sum_{0};
};

}  // namespace tessera
