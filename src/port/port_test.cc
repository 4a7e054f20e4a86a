// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/bytes.h"
#include "port/arena.h"
#include "port/cpu.h"
#include "port/float_environment.h"
#include "port/huge_pages.h"
#include "port/mapped_file.h"
#include "port/process_memory.h"
#include "port/thread_pool.h"

namespace tessera {
namespace {

TEST(Arena, IsAlignedZeroAndResidentAtStart) {
  constexpr uint64_t kBytes = 24 * kMiB;
  uint64_t before = ResidentBytes();
  Arena arena = Arena::Map(kBytes).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % Arena::kAlignmentBytes, 0u);
  EXPECT_EQ(arena.size_bytes(), kBytes);
  EXPECT_GE(ResidentBytes() + kMiB, before + kBytes);  // 1 MiB for the process's other changes
  EXPECT_EQ(std::to_integer<int>(arena.data()[kBytes - 1]), 0);
}

TEST(Arena, TooLargeIsNoMemoryWithTheSize) {
  auto arena = Arena::Map(uint64_t{1} << 60);
  ASSERT_FALSE(arena.has_value());
  EXPECT_EQ(arena.error().code(), StatusCode::kNoMemory);
  EXPECT_NE(arena.error().message().find("1152921504606846976"), std::string::npos);
}

TEST(HugeVector, LargeOnesAreAlignedAndTakeNoMoreThanTheyHold) {
  const uint64_t before = ResidentBytes();
  const HugeVector<uint64_t> large((24 * kMiB + 4096) / sizeof(uint64_t), 7);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.data()) % Arena::kAlignmentBytes, 0u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // shadow is resident too
  EXPECT_LE(ResidentBytes(), before + 25 * kMiB);  // 1 MiB for the process's other changes
#else
  static_cast<void>(before);
#endif
  EXPECT_EQ(large.back(), 7u);
  HugeVector<uint64_t> grown;
  for (uint64_t i = 0; i < 1'000'000; ++i) grown.push_back(i);
  for (uint64_t i = 0; i < grown.size(); ++i) ASSERT_EQ(grown[i], i);
}

TEST(FloatEnvironment, IsSetInsideAndRestoredAfter) {
  uint32_t hostile = 0x1F80 | 0x6000;  // round toward zero, denormals kept
  uint32_t before = _mm_getcsr();
  _mm_setcsr(hostile);
  {
    ScopedFloatEnvironment environment;
    EXPECT_EQ(_mm_getcsr() & 0xFFC0u, 0x9FC0u);
    volatile float tiny = 1e-38f;
    volatile float flushed = tiny * 0.1f;
    EXPECT_EQ(flushed, 0.0f);
  }
  EXPECT_EQ(_mm_getcsr() & 0xFFC0u, hostile & 0xFFC0u);
  _mm_setcsr(before);
}

TEST(MappedFile, ReadsAndRefuses) {
  char path[] = "/tmp/tessera_mapped_XXXXXX";
  int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(MappedFile::Open(path).error().code(), StatusCode::kBadFile);  // empty
  ASSERT_EQ(write(fd, "abc", 3), 3);
  close(fd);
  {
    MappedFile file = MappedFile::Open(path).value();
    ASSERT_EQ(file.bytes().size(), 3u);
    file.ReleasePages();
    EXPECT_EQ(std::to_integer<char>(file.bytes()[2]), 'c');
  }
  std::remove(path);
  EXPECT_EQ(MappedFile::Open(path).error().code(), StatusCode::kIo);
  EXPECT_EQ(MappedFile::Open("/").error().code(), StatusCode::kBadFile);
}

TEST(ThreadPool, RunsEachTaskOnceForManyJobsAndThreadCounts) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (uint32_t job = 0; job < 400; ++job) {
      uint32_t count = job % 37;
      std::vector<int> runs(count, 0);  // plain ints: TSan sees a task that runs twice
      pool.ParallelFor(count, [&](uint32_t task, int worker) {
        ASSERT_LT(worker, threads);
        ++runs[task];
      });
      EXPECT_EQ(std::accumulate(runs.begin(), runs.end(), 0), static_cast<int>(count));
      if (job % 100 == 99) usleep(2000);  // long enough for the workers to fall asleep
    }
  }
}

// A worker that read the ticket of a job that has ended, and the count of the next, larger one,
// must not claim with the two: that task would run twice, the caller return early. Jobs of two
// tasks before jobs of many make the moment, more threads than cores keep workers in it.
TEST(ThreadPool, AWorkerWhoseRunIsDoneHelpsWithTheOthers) {
  ThreadPool pool(2);
  std::atomic<int> done{0};
  // The first task of the second run ends last: the rest of its run is done by the other worker.
  pool.ParallelFor(10, [&](uint32_t task, int) {
    if (task == 5) {
      while (done.load() < 9) std::this_thread::yield();
    }
    ++done;
  });
  EXPECT_EQ(done.load(), 10);
}

TEST(ThreadPool, ALateWorkerCannotClaimFromTheNextJobWithTheOldTicket) {
  ThreadPool pool(6);
  std::vector<std::atomic<uint32_t>> runs(8);
  for (uint32_t job = 1; job <= 500'000; ++job) {
    const uint32_t count = job % 2 == 0 ? 8 : 2;
    pool.ParallelFor(
        count, [&](uint32_t task, int) { runs[task].fetch_add(1, std::memory_order_relaxed); });
    for (uint32_t task = 0; task < count; ++task) {
      ASSERT_EQ(runs[task].exchange(0, std::memory_order_relaxed), 1u) << "job " << job;
    }
  }
}

TEST(ThreadPool, WorkersComputeInTheContractsFloatEnvironment) {
  ThreadPool pool(3);
  std::atomic<int> wrong{0};
  ScopedFloatEnvironment environment;
  pool.ParallelFor(64, [&](uint32_t, int) {
    if ((_mm_getcsr() & 0xFFC0u) != 0x9FC0u) ++wrong;
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(ThreadPool, ACountOutOfBoundsIsAnError) {
  EXPECT_EQ(ThreadPool::Create(0).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ThreadPool::Create(1025).error().message(), "threads: expected 1 to 1024, found 1025");
  EXPECT_EQ((*ThreadPool::Create(3))->thread_count(), 3);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// With room for the stacks (8 MiB each) of some threads only. For a child process.
[[noreturn]] void StartThreadsInLittleAddressSpace() {
  const rlimit limit{512 * kMiB, 512 * kMiB};
  if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(3);
  const auto pool = ThreadPool::Create(1000);
  if (pool.has_value() || pool.error().code() != StatusCode::kIo) _exit(2);
  std::fputs(pool.error().message().c_str(), stderr);
  _exit(0);
}

TEST(ThreadPool, AThreadThatTheSystemRefusesIsAnIoError) {
  EXPECT_EXIT(StartThreadsInLittleAddressSpace(), ::testing::ExitedWithCode(0),
              "cannot start thread .* of 1000: ");
}
#endif

TEST(Process, SaysSomethingPlausible) {
  EXPECT_GT(ResidentBytes(), 100 * kKiB);
  EXPECT_GE(PeakResidentBytes() + kMiB, ResidentBytes());
  EXPECT_GT(AvailableMemoryBytes(), kMiB);
  EXPECT_GE(UsableCpuCount(), 1);
}

}  // namespace
}  // namespace tessera
