// SPDX-License-Identifier: Apache-2.0
#include "bench/crew.h"

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "port/clock.h"

namespace tessera {
namespace {

double ThreadCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct alignas(64) MemberTimes {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  double cpu_seconds = 0;
};

// Spins until all have come. With fewer CPUs than members the others must get a turn.
void Meet(std::atomic<int>* arrived, int members) {
  arrived->fetch_add(1);
  for (int spins = 0; arrived->load(std::memory_order_relaxed) < members; ++spins) {
    if (spins < 4096) {
      _mm_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace

Stopwatch::Stopwatch() : wall_ns_(NowNs()), cpu_seconds_(ThreadCpuSeconds()) {}

Timing Stopwatch::Elapsed() const {
  Timing timing;
  timing.cpu_seconds = ThreadCpuSeconds() - cpu_seconds_;
  timing.wall_seconds = static_cast<double>(NowNs() - wall_ns_) * 1e-9;
  return timing;
}

Result<std::unique_ptr<Crew>> Crew::Create(int threads) {
  TESSERA_ASSIGN_OR_RETURN(auto pool, ThreadPool::Create(threads));
  return std::unique_ptr<Crew>(new Crew(std::move(pool)));
}

Timing Crew::Run(FunctionRef<void(int member)> work) {
  const int members = threads();
  std::vector<MemberTimes> times(static_cast<size_t>(members));
  std::atomic<int> arrived{0};
  // A task that waits for the others cannot be followed by another on the same thread, so every
  // thread gets one.
  pool_->ParallelFor(static_cast<uint32_t>(members), [&](uint32_t task, int) {
    MemberTimes& mine = times[task];
    Meet(&arrived, members);
    const double cpu = ThreadCpuSeconds();
    mine.begin_ns = NowNs();
    work(static_cast<int>(task));
    mine.end_ns = NowNs();
    mine.cpu_seconds = ThreadCpuSeconds() - cpu;
  });
  uint64_t begin_ns = times[0].begin_ns, end_ns = 0;
  Timing timing{.threads = members};
  for (const MemberTimes& member : times) {
    begin_ns = std::min(begin_ns, member.begin_ns);
    end_ns = std::max(end_ns, member.end_ns);
    timing.cpu_seconds = std::max(timing.cpu_seconds, member.cpu_seconds);
  }
  timing.wall_seconds = static_cast<double>(end_ns - begin_ns) * 1e-9;
  return timing;
}

}  // namespace tessera
