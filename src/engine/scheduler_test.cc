// SPDX-License-Identifier: Apache-2.0
//
// The scheduler against seeded random workloads: a store of a fixed number of pages answers
// admissions, and after each step every claim of the header is looked at from outside.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/random.h"

namespace tessera {
namespace {

struct FakeSequence {
  uint32_t prompt = 0;
  uint32_t outputs = 0;  // tokens it wants to decode
  uint32_t pages = 0;
  uint32_t computed = 0;
  uint32_t decoded = 0;
  bool running = false;
  bool decoding() const { return running && computed >= prompt; }
};

class Workload {
 public:
  Workload(uint64_t seed, SchedulerLimits limits, uint32_t total_pages)
      : random_(seed), limits_(limits), total_pages_(total_pages), free_pages_(total_pages) {}

  void Arrive() {
    const SequenceId id(next_id_++);
    FakeSequence sequence;
    sequence.prompt = 1 + static_cast<uint32_t>(random_.Below(40));
    sequence.outputs = 1 + static_cast<uint32_t>(random_.Below(12));
    // One in sixteen could never fit.
    sequence.pages = random_.Below(16) == 0
                         ? total_pages_ + 1
                         : 1 + static_cast<uint32_t>(random_.Below(total_pages_));
    sequences_[id] = sequence;
    state_.Add(id, sequence.prompt);
  }

  void CancelOne() {
    if (sequences_.empty()) return;
    auto it = sequences_.begin();
    std::advance(it, static_cast<long>(random_.Below(sequences_.size())));
    ASSERT_TRUE(state_.Remove(it->first));
    Free(it->second);
    sequences_.erase(it);
  }

  void RunStep() {
    std::vector<SequenceId> must_decode;
    SequenceId oldest_prefill;
    for (const auto& [id, sequence] : sequences_) {
      if (sequence.decoding()) must_decode.push_back(id);
      if (sequence.running && !sequence.decoding() && !oldest_prefill.valid()) oldest_prefill = id;
    }
    const auto admit = [this](SequenceId id) { return Admit(id); };
    const Plan plan = Step(state_, limits_, admit);
    CheckPlan(plan, must_decode, oldest_prefill);
    for (SequenceId id : plan.refused) {
      EXPECT_GT(sequences_.at(id).pages, total_pages_);
      sequences_.erase(id);
    }
    std::vector<PlanItem> items(plan.items.begin(), plan.items.end());
    // Executed in a random order: what is computed for each must come out the same.
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random_.Below(i)]);
    state_.EndStep();
    for (const PlanItem& item : items) Execute(item);
    ++steps_;
  }

  bool idle() const { return state_.empty(); }
  uint32_t finished() const { return finished_; }
  const SchedulerState& state() const { return state_; }
  size_t known() const { return sequences_.size(); }

 private:
  Admission Admit(SequenceId id) {
    FakeSequence& sequence = sequences_.at(id);
    EXPECT_FALSE(sequence.running);
    for (const auto& [other, s] : sequences_) {
      if (!s.running && s.pages <= total_pages_) {
        EXPECT_EQ(other, id) << "an older sequence waits";
        break;
      }
      if (other == id) break;
    }
    if (sequence.pages > total_pages_) return Admission::kNeverFits;
    if (sequence.pages > free_pages_) return Admission::kMustWait;
    free_pages_ -= sequence.pages;
    sequence.running = true;
    return Admission::kAdmitted;
  }

  void CheckPlan(const Plan& plan, const std::vector<SequenceId>& must_decode,
                 SequenceId oldest_prefill) {
    uint32_t tokens = 0;
    std::map<SequenceId, uint32_t> planned;
    for (const PlanItem& item : plan.items) {
      EXPECT_GE(item.tokens, 1u);
      EXPECT_TRUE(planned.emplace(item.id, item.tokens).second) << "planned twice";
      const FakeSequence& sequence = sequences_.at(item.id);
      EXPECT_TRUE(sequence.running);
      EXPECT_EQ(item.completes_row, sequence.computed + item.tokens >= sequence.prompt);
      tokens += item.tokens;
    }
    EXPECT_EQ(tokens, plan.tokens);
    EXPECT_LE(tokens, limits_.chunk_tokens);
    EXPECT_LE(plan.items.size(), limits_.max_running);
    for (SequenceId id : must_decode) EXPECT_EQ(planned[id], 1u) << "a decode was skipped";
    if (oldest_prefill.valid()) {
      EXPECT_GE(planned[oldest_prefill], 1u);
    }
    if (state_.running() > 0) {
      EXPECT_FALSE(plan.items.empty());
    }
  }

  void Execute(const PlanItem& item) {
    FakeSequence& sequence = sequences_.at(item.id);
    sequence.computed += item.tokens;
    if (!item.completes_row) return;
    if (++sequence.decoded < sequence.outputs) return;
    EXPECT_TRUE(state_.Remove(item.id));
    Free(sequence);
    sequences_.erase(item.id);
    ++finished_;
  }

  void Free(const FakeSequence& sequence) {
    if (sequence.running) free_pages_ += sequence.pages;
  }

  Random random_;
  SchedulerLimits limits_;
  uint32_t total_pages_;
  uint32_t free_pages_;
  SchedulerState state_;
  std::map<SequenceId, FakeSequence> sequences_;  // in order of arrival
  uint64_t next_id_ = 1;
  uint32_t finished_ = 0;
  uint32_t steps_ = 0;
};

const auto kAdmitAll = [](SequenceId) { return Admission::kAdmitted; };

TEST(Scheduler, EveryClaimHoldsUnderRandomArrivalsAndCancels) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    SchedulerLimits limits;
    limits.max_running = 1 + static_cast<uint32_t>(random.Below(8));
    limits.chunk_tokens = limits.max_running + static_cast<uint32_t>(random.Below(40));
    Workload workload(seed, limits, 1 + static_cast<uint32_t>(random.Below(12)));
    for (int i = 0; i < 200; ++i) {
      if (random.Below(4) == 0) workload.Arrive();
      if (random.Below(12) == 0) workload.CancelOne();
      workload.RunStep();
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
    // Every request finishes: at most 40 + 12 tokens each, one at a time at the worst.
    for (int i = 0; i < 20000 && !workload.idle(); ++i) workload.RunStep();
    EXPECT_TRUE(workload.idle());
    EXPECT_EQ(workload.known(), 0u);
    EXPECT_GT(workload.finished(), 0u);
  }
}

TEST(Scheduler, SameCallsGiveSamePlans) {
  const auto trace = [] {
    SchedulerState state;
    std::vector<std::tuple<uint64_t, uint32_t, bool>> plans;
    Random random(7);
    for (uint64_t id = 1; id <= 20; ++id) {
      state.Add(SequenceId(id), 1 + static_cast<uint32_t>(random.Below(30)));
      const Plan plan = Step(state, {.max_running = 5, .chunk_tokens = 11}, kAdmitAll);
      for (const PlanItem& item : plan.items) {
        plans.emplace_back(item.id.index(), item.tokens, item.completes_row);
      }
      state.EndStep();
      if (id % 3 == 0) state.Remove(SequenceId(id / 3));
    }
    return plans;
  };
  EXPECT_EQ(trace(), trace());
}

TEST(Scheduler, DecodesComeBeforeAPromptThatWouldFillTheStep) {
  SchedulerState state;
  const SchedulerLimits limits = {.max_running = 2, .chunk_tokens = 4};
  state.Add(SequenceId(1), 1);
  Step(state, limits, kAdmitAll);
  state.EndStep();
  state.Add(SequenceId(2), 100);
  for (int step = 0; step < 33; ++step) {
    const Plan plan = Step(state, limits, kAdmitAll);
    ASSERT_EQ(plan.items.size(), 2u);
    EXPECT_EQ(plan.items[0].id, SequenceId(1));
    EXPECT_EQ(plan.items[0].tokens, 1u);
    EXPECT_EQ(plan.items[1].tokens, 3u);
    EXPECT_FALSE(plan.items[1].completes_row);
    state.EndStep();
  }
  EXPECT_TRUE(Step(state, limits, kAdmitAll).items[1].completes_row);
}

TEST(Scheduler, NobodyOvertakesTheFirstThatMustWait) {
  SchedulerState state;
  for (uint64_t id = 1; id <= 3; ++id) state.Add(SequenceId(id), 1);
  uint32_t asked = 0;
  const auto admit = [&](SequenceId id) {
    ++asked;
    return id == SequenceId(2) ? Admission::kMustWait : Admission::kAdmitted;
  };
  const Plan plan = Step(state, {}, admit);
  EXPECT_EQ(asked, 2u);
  EXPECT_EQ(plan.admitted, 1u);
  EXPECT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(state.waiting(), 2u);
}

TEST(Scheduler, ARefusedSequenceDoesNotHoldTheQueue) {
  SchedulerState state;
  state.Add(SequenceId(1), 5);
  state.Add(SequenceId(2), 5);
  const auto admit = [](SequenceId id) {
    return id == SequenceId(1) ? Admission::kNeverFits : Admission::kAdmitted;
  };
  const Plan plan = Step(state, {}, admit);
  ASSERT_EQ(plan.refused.size(), 1u);
  EXPECT_EQ(plan.refused[0], SequenceId(1));
  ASSERT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(plan.items[0].id, SequenceId(2));
}

TEST(SchedulerDeathTest, RemovingInsideAStepIsABug) {
  SchedulerState state;
  state.Add(SequenceId(1), 5);
  Step(state, {}, kAdmitAll);
  EXPECT_DEATH(state.Remove(SequenceId(1)), "plan_open");
}

}  // namespace
}  // namespace tessera
