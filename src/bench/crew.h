// SPDX-License-Identifier: Apache-2.0
//
// Crew times a piece of work that every one of its threads does at once: they meet at a barrier,
// start together, and the time is from the first start to the last end.
//
// One thread is timed by its CPU clock: what other processes take from it is not its own doing, and
// on a shared machine that is most of the noise. Several threads are timed by the wall clock,
// because how long one waits for another is part of the answer. Both are kept.
//
// Why not Google Benchmark: it times one function after another, while here ceilings, kernels and
// pairs must alternate in one run so that a slow minute of the host hits all of them; and it is a
// test dependency, while this is a verb of the product.
//
// Failure: Create says kIo when the system starts no more threads. Threads: one caller.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/function_ref.h"
#include "base/status.h"
#include "port/thread_pool.h"

namespace tessera {

struct Timing {
  double wall_seconds = 0;
  double cpu_seconds = 0;  // of the thread that took most
  int threads = 1;

  double seconds() const { return threads == 1 ? cpu_seconds : wall_seconds; }
};

// Measures the calling thread from its construction on.
class Stopwatch {
 public:
  Stopwatch();
  Timing Elapsed() const;

 private:
  uint64_t wall_ns_;
  double cpu_seconds_;
};

class Crew {
 public:
  static Result<std::unique_ptr<Crew>> Create(int threads);

  int threads() const { return pool_->thread_count(); }
  ThreadPool& pool() { return *pool_; }

  // work(member) once for each member in [0, threads()), all at the same time.
  Timing Run(FunctionRef<void(int member)> work);

 private:
  explicit Crew(std::unique_ptr<ThreadPool> pool) : pool_(std::move(pool)) {}

  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace tessera
