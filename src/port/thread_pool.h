// SPDX-License-Identifier: Apache-2.0
//
// ThreadPool runs one data-parallel job at a time over a fixed set of threads, the caller included.
//
//   Idle --ParallelFor publishes (job, count)--> Running --last task done--> Idle
//
// The tasks of a job are dealt to the workers in equal runs of consecutive tasks. A worker takes its
// own run in order (what it fetches ahead is its own next task), then helps with the others', so
// that none waits while a task is left. Each run has a ticket (job number, next task), claimed by
// compare-and-swap. Between jobs the tickets are closed under a number of its own (odd; jobs are
// even) before the next job is written, so a worker that wakes late touches nothing; the caller
// waits for finished tasks, never for workers. Workers spin about 50 us after a job (decode steps
// follow each other within that) and then sleep.
//
// P1  fn(task, worker) is called exactly once for each task in [0, count), with worker in
//     [0, thread_count()), and no two calls with the same worker overlap.
// P2  Everything written by the tasks is visible to the caller when ParallelFor returns.
// P3  No allocation. Which worker runs which task is not defined: tasks write disjoint outputs.
//
// Failure: Create says kInvalidArgument for a count outside [1, kThreadsMax], kIo when the system
// starts no more threads; those already started have ended by then.
// Workers hold a ScopedFloatEnvironment for life; the caller brings its own.
// Threads: one caller at a time (checked).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"

namespace tessera {

class ThreadPool {
 public:
  using Task = FunctionRef<void(uint32_t task, int worker)>;

  static constexpr int kThreadsMax = 1024;

  // thread_count includes the calling thread: 1 starts no thread.
  static Result<std::unique_ptr<ThreadPool>> Create(int thread_count);
  // The same where failure is a bug, in tests.
  explicit ThreadPool(int thread_count);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const { return thread_count_; }
  void ParallelFor(uint32_t count, Task fn);

 private:
  explicit ThreadPool(int thread_count, std::nullptr_t)
      : thread_count_(thread_count), tickets_(static_cast<size_t>(thread_count)) {}
  Status StartWorkers();
  void WorkerLoop(int worker);
  struct alignas(64) Ticket {
    std::atomic<uint64_t> value{0};  // job number << 32 | next task
  };

  uint32_t RunBegin(uint32_t count, int run) const {
    return static_cast<uint32_t>(uint64_t{count} * static_cast<uint32_t>(run) /
                                 static_cast<uint32_t>(thread_count_));
  }
  // The job that tickets are open for, or the number they are closed under.
  uint32_t JobNow(std::memory_order order) const;
  // Runs tasks of job `job`, those of the worker's run first, until none is left to claim.
  void RunTasks(uint32_t job, int worker);

  const int thread_count_;
  std::vector<Ticket> tickets_;  // by run; the first is opened last
  alignas(64) std::atomic<uint32_t> count_{0};
  const Task* fn_ = nullptr;  // written between jobs only
  alignas(64) std::atomic<uint32_t> finished_{0};
  alignas(64) std::atomic<uint32_t> wake_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> busy_{false};
  std::vector<std::thread> threads_;
};

}  // namespace tessera
