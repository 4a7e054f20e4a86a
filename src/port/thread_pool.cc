// SPDX-License-Identifier: Apache-2.0
#include "port/thread_pool.h"

#include <fmt/format.h>
#include <immintrin.h>

#include <system_error>

#include "base/check.h"
#include "port/float_environment.h"

namespace tessera {
namespace {

// A pause is ~40-65 cycles on current CPUs: 2,000 of them are about 30-50 us.
constexpr int kSpinsBeforeSleep = 2000;
// The caller spins for the last tasks, then gives way: with more threads than free cores the task
// it waits for may be on a thread that is not running.
constexpr int kSpinsBeforeYield = 4000;

uint32_t JobOf(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 32); }
uint32_t NextOf(uint64_t ticket) { return static_cast<uint32_t>(ticket); }
uint64_t OpenTicket(uint32_t job, uint32_t task) { return uint64_t{job} << 32 | task; }
// No count is larger than this task's number.
uint64_t ClosedTicket(uint32_t job) { return OpenTicket(job, 0xFFFFFFFFu); }

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::Create(int thread_count) {
  if (thread_count < 1 || thread_count > kThreadsMax) {
    return InvalidArgument(
        fmt::format("threads: expected 1 to {}, found {}", kThreadsMax, thread_count));
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool(thread_count, nullptr));
  TESSERA_RETURN_IF_ERROR(pool->StartWorkers());
  return pool;
}

ThreadPool::ThreadPool(int thread_count) : ThreadPool(thread_count, nullptr) {
  TESSERA_CHECK(thread_count >= 1);
  TESSERA_CHECK(StartWorkers().ok());
}

Status ThreadPool::StartWorkers() {
  threads_.reserve(static_cast<size_t>(thread_count_ - 1));
  for (int worker = 1; worker < thread_count_; ++worker) {
    try {
      threads_.emplace_back([this, worker] { WorkerLoop(worker); });
    } catch (const std::system_error& error) {
      return IoError(fmt::format("cannot start thread {} of {}: {}", worker + 1, thread_count_,
                                 error.code().message()));
    }
  }
  return Status::Ok();
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_seq_cst);
  wake_.fetch_add(1, std::memory_order_seq_cst);
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

uint32_t ThreadPool::JobNow(std::memory_order order) const {
  return JobOf(tickets_[0].value.load(order));
}

void ThreadPool::RunTasks(uint32_t job, int worker) {
  for (int i = 0; i < thread_count_; ++i) {
    const int run = (worker + i) % thread_count_;
    std::atomic<uint64_t>& next = tickets_[static_cast<size_t>(run)].value;
    uint64_t ticket = next.load(std::memory_order_acquire);
    while (JobOf(ticket) == job &&
           NextOf(ticket) < RunBegin(count_.load(std::memory_order_acquire), run + 1)) {
      // A success means this job still runs: it cannot end before the claimed task does, so fn_ is
      // the job's own. And count_ was this job's: whoever saw a later one sees (acquire) that the
      // ticket was closed before it was written, and fails here.
      if (!next.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        continue;
      }
      (*fn_)(NextOf(ticket), worker);
      finished_.fetch_add(1, std::memory_order_release);
      ticket = next.load(std::memory_order_acquire);
    }
  }
}

void ThreadPool::ParallelFor(uint32_t count, Task fn) {
  if (count == 0) return;
  if (thread_count_ == 1 || count == 1) {
    for (uint32_t task = 0; task < count; ++task) fn(task, 0);
    return;
  }
  TESSERA_CHECK(!busy_.exchange(true, std::memory_order_acquire));
  // The last job's tickets are used up only together with the last job's count: a worker that read
  // one late would claim a task of this job with it. So all are closed before anything changes.
  const uint32_t closed = JobNow(std::memory_order_relaxed) + 1;
  for (Ticket& ticket : tickets_) {
    ticket.value.store(ClosedTicket(closed), std::memory_order_relaxed);
  }
  fn_ = &fn;
  finished_.store(0, std::memory_order_relaxed);
  count_.store(count, std::memory_order_release);
  const uint32_t job = closed + 1;
  for (int run = thread_count_ - 1; run >= 0; --run) {
    tickets_[static_cast<size_t>(run)].value.store(
        OpenTicket(job, RunBegin(count, run)),
        run == 0 ? std::memory_order_seq_cst : std::memory_order_release);
  }
  // seq_cst on both sides: either a worker about to sleep sees the new ticket, or we see it
  // counted.
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    wake_.fetch_add(1, std::memory_order_seq_cst);
    wake_.notify_all();
  }
  RunTasks(job, 0);
  for (int spins = 0; finished_.load(std::memory_order_acquire) != count; ++spins) {
    if (spins < kSpinsBeforeYield) {
      _mm_pause();
    } else {
      std::this_thread::yield();
    }
  }
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::WorkerLoop(int worker) {
  ScopedFloatEnvironment environment;
  uint32_t seen_job = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    int spins = 0;
    uint32_t job = JobNow(std::memory_order_acquire);
    while (job == seen_job && spins++ < kSpinsBeforeSleep) {
      _mm_pause();
      job = JobNow(std::memory_order_acquire);
    }
    if (job == seen_job) {
      uint32_t wake = wake_.load(std::memory_order_seq_cst);
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      if (JobNow(std::memory_order_seq_cst) == seen_job &&
          !stopping_.load(std::memory_order_seq_cst)) {
        wake_.wait(wake, std::memory_order_seq_cst);
      }
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
      continue;
    }
    seen_job = job;
    RunTasks(job, worker);
  }
}

}  // namespace tessera
