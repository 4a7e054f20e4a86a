// SPDX-License-Identifier: Apache-2.0
//
// E5: the loop does not touch the heap between the events of running requests. operator new is
// replaced in this test program and counts per thread; the sink, which runs on the loop's thread,
// reads the counter and does not allocate either.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "base/random.h"
#include "engine/engine_client.h"
#include "engine/engine_test_models.h"
#include "engine/scheduler.h"

// Both sides are replaced below; the compiler sees the bodies of only one of them.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {
thread_local uint64_t allocations = 0;

void* Allocate(size_t size, size_t alignment) {
  ++allocations;
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(size == 0 ? 1 : size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}
}  // namespace

void* operator new(size_t size) { return Allocate(size, 0); }
void* operator new[](size_t size) { return Allocate(size, 0); }
void* operator new(size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<size_t>(alignment));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return Allocate(size, 0); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return Allocate(size, 0); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tessera {
namespace {

constexpr uint32_t kTokens = 300;

// Per event: the loop thread's counter when it came.
struct Recorder {
  std::array<uint64_t, kTokens> seen = {};
  std::atomic<uint32_t> events{0};
  std::atomic<bool> finished{false};

  void operator()(const RequestEvent& event) {
    const uint32_t at = events.load();
    if (at < kTokens) seen[at] = allocations;
    events.store(at + 1);
    if (event.finish != FinishReason::kNone) {
      finished.store(true);
      finished.notify_all();
    }
  }
};

TEST(EngineAllocation, ADecodeStepTakesNothingFromTheHeap) {
  EngineOptions options;
  options.model_path = testing::ToyModelPath();
  options.threads = 2;
  options.max_running = 4;
  options.chunk_tokens = 64;
  auto engine = testing::MakeEngine(options);
  std::vector<Recorder> recorders(4);
  Random random(2);
  for (size_t i = 0; i < recorders.size(); ++i) {
    Request request;
    request.prompt.assign(20 + i, static_cast<TokenId>(65 + i));
    request.max_tokens = kTokens;
    request.ignore_eos = true;
    // One greedy, the others through every part of the sampler; one looks for a stop string.
    if (i > 0) request.sampling = {.temperature = 1.5f, .seed = random.Next()};
    if (i > 1) request.sampling.top_k = 50;
    if (i > 2) request.sampling.top_p = 0.9f;
    if (i == 3) request.stop = {"this text does not come"};
    Recorder* recorder = &recorders[i];
    ASSERT_TRUE(engine->Submit(request, [recorder](const RequestEvent& e) { (*recorder)(e); }));
  }
  for (Recorder& recorder : recorders) recorder.finished.wait(false);
  // Past the first steps, in which the others were still admitted; before the end, where finishing
  // sequences free theirs. Tokens of this vocabulary are under 16 bytes: a std::string holds them
  // in place.
  for (const Recorder& recorder : recorders) {
    ASSERT_EQ(recorder.events.load(), kTokens);
    EXPECT_EQ(recorder.seen[kTokens - 20] - recorder.seen[kTokens / 2], 0u);
  }
}

// P5: whoever is preempted, given up, resumed and admitted.
TEST(EngineAllocation, PlanningUnderPressureTakesNothingFromTheHeap) {
  constexpr uint32_t kSequences = 40;
  struct Memory final : SchedulerMemory {
    Random random{11};
    uint64_t preempted = 0;
    AdmitAnswer Admit(SequenceId, const AdmitTerms& terms) override {
      const bool admitted = terms.waives_headroom || random.Below(3) == 0;
      return {.outcome = admitted ? AdmitAnswer::kAdmitted : AdmitAnswer::kMustWait};
    }
    uint32_t Grow(SequenceId) override { return random.Below(6) == 0 ? 1 : 0; }
    PreemptCost CostOf(SequenceId) override {
      const auto unused = static_cast<uint32_t>(random.Below(3));
      return {unused, unused + 2, static_cast<uint32_t>(random.Below(50))};
    }
    uint32_t Preempt(SequenceId, Preemption way) override {
      ++preempted;
      return way == Preemption::kPin ? 0 : 3;
    }
    uint32_t TokensToCut(SequenceId) override { return 5; }
  } memory;
  SchedulerState state;
  const SchedulerLimits limits = {.max_running = 16, .chunk_tokens = 24, .passes_max = 5};
  for (uint64_t id = 1; id <= kSequences; ++id) {
    state.Add(SequenceId(id), 1 + static_cast<uint32_t>(id % 7), static_cast<int32_t>(id % 3));
  }
  Step(state, limits, memory);
  state.EndStep();
  const uint64_t before = allocations;
  for (int step = 0; step < 2000; ++step) {
    Step(state, limits, memory);
    state.EndStep();
  }
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_GT(memory.preempted, 1000u);
}

// The counter counts: a request for log-probabilities allocates their lists.
TEST(EngineAllocation, TheCounterSeesAllocationsOfTheLoopThread) {
  EngineOptions options;
  options.model_path = testing::ToyModelPath();
  options.max_running = 1;
  options.chunk_tokens = 16;
  auto engine = testing::MakeEngine(options);
  std::atomic<uint64_t> first{0};
  std::atomic<uint64_t> last{0};
  std::atomic<bool> finished{false};
  Request request;
  request.prompt = {65, 66};
  request.max_tokens = 10;
  request.ignore_eos = true;
  const auto sink = [&](const RequestEvent& event) {
    const std::vector<int> allocated(100);
    if (first.load() == 0) first.store(allocations);
    last.store(allocations);
    if (event.finish != FinishReason::kNone) {
      finished.store(true);
      finished.notify_all();
    }
  };
  ASSERT_TRUE(engine->Submit(request, sink));
  finished.wait(false);
  EXPECT_GE(last.load() - first.load(), 9u);
}

}  // namespace
}  // namespace tessera
