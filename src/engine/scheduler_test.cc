// SPDX-License-Identifier: Apache-2.0
//
// The scheduler, claim by claim: small cases with a memory that answers as it is told, and random
// loads in a memory of pages after whose every step each claim is looked at from outside.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "base/random.h"
#include "engine/scheduler_page_memory.h"

namespace tessera {
namespace {

constexpr uint32_t kNoCut = std::numeric_limits<uint32_t>::max();

using testing::PageMemory;

// A memory that answers as it is told, and has room for every decode.
template <typename AdmitFn, typename CutFn>
class ToldMemory final : public SchedulerMemory {
 public:
  ToldMemory(const AdmitFn& admit, const CutFn& cut) : admit_(admit), cut_(cut) {}
  AdmitAnswer Admit(SequenceId id, const AdmitTerms&) override { return admit_(id); }
  uint32_t Grow(SequenceId) override { return 0; }
  PreemptCost CostOf(SequenceId) override { return {}; }
  uint32_t Preempt(SequenceId, Preemption) override { return 1; }
  uint32_t TokensToCut(SequenceId id) override { return cut_(id); }

 private:
  const AdmitFn& admit_;
  const CutFn& cut_;
};

template <typename AdmitFn, typename CutFn>
Plan StepWith(SchedulerState& state, const SchedulerLimits& limits, const AdmitFn& admit,
              const CutFn& cut) {
  ToldMemory memory(admit, cut);
  return Step(state, limits, memory);
}

const auto kAdmitAll = [](SequenceId) { return AdmitAnswer{.outcome = AdmitAnswer::kAdmitted}; };
const auto kNoCuts = [](SequenceId) { return kNoCut; };

// ---- Random loads, seen from outside.

struct Load {
  uint64_t seed = 1;
  SchedulerLimits limits;
  uint32_t pages = 20;
  uint32_t headroom = 0;
};

class Watched {
 public:
  explicit Watched(const Load& load)
      : random_(load.seed), limits_(load.limits), memory_(load.seed, load.pages, load.headroom) {}

  void Arrive() {
    const SequenceId id(next_id_++);
    const auto prompt = 1 + static_cast<uint32_t>(random_.Below(40));
    const auto outputs = 1 + static_cast<uint32_t>(random_.Below(20));
    const auto priority = static_cast<int32_t>(random_.Below(4)) - 2;
    waits_[id].older = static_cast<uint32_t>(memory_.sequences().size());
    memory_.Add(id, prompt, outputs, priority);
    state_.Add(id, prompt, priority);
  }
  void CancelOne() {
    if (memory_.sequences().empty()) return;
    auto it = memory_.sequences().begin();
    std::advance(it, static_cast<long>(random_.Below(memory_.sequences().size())));
    Remove(it->first);
  }

  void RunStep() {
    std::map<SequenceId, PageMemory::Sequence> before = memory_.sequences();
    memory_.NextStep();
    memory_.calls().clear();
    const Plan plan = Step(state_, limits_, memory_);
    memory_.Check();
    CheckCalls(before);
    CheckPlan(plan, before);
    CheckPasses(before);
    const std::vector<SequenceId> refused(plan.refused.begin(), plan.refused.end());
    std::vector<PlanItem> items(plan.items.begin(), plan.items.end());
    // Executed in a random order: what is computed for each must come out the same.
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random_.Below(i)]);
    state_.EndStep();
    for (SequenceId id : refused) {
      memory_.Remove(id);
      waits_.erase(id);
    }
    for (const PlanItem& item : items) {
      if (!memory_.Execute(item)) continue;
      Remove(item.id);
      ++finished_;
    }
  }

  bool idle() const { return state_.empty(); }
  size_t known() const { return memory_.sequences().size(); }
  uint32_t finished() const { return finished_; }
  uint32_t most_passes() const { return most_passes_; }
  uint32_t preempted() const { return preempted_; }

 private:
  struct Wait {
    uint32_t older = 0;
    uint32_t passed = 0;
  };
  using Sequences = std::map<SequenceId, PageMemory::Sequence>;

  void Remove(SequenceId id) {
    EXPECT_TRUE(state_.Remove(id));
    memory_.Remove(id);
    waits_.erase(id);
  }

  // P8, and that growth comes before admission and a preemption stops it.
  void CheckCalls(const Sequences& before) {
    bool growing = true;
    bool preempted = false;
    std::vector<SequenceId> holders;
    for (const auto& [id, s] : before) {
      if (s.running || s.pinned) holders.push_back(id);
    }
    for (const auto& [what, index, a, b] : memory_.calls()) {
      const SequenceId id(index);
      if (what == 'g') {
        EXPECT_TRUE(growing) << "growth after admission";
      } else if (what == 'a') {
        EXPECT_TRUE(!preempted || !growing || state_.running() <= limits_.max_running);
        growing = false;
        if (a == AdmitAnswer::kAdmitted) holders.push_back(id);
      } else {
        ++preempted_;
        preempted = true;
        if (a == static_cast<uint32_t>(Preemption::kPin)) continue;
        std::erase(holders, id);
        if (a == static_cast<uint32_t>(Preemption::kRecomputeAlone)) {
          EXPECT_TRUE(holders.empty());
        }
      }
    }
  }

  void CheckPlan(const Plan& plan, const Sequences& before) {
    const Sequences& now = memory_.sequences();
    uint32_t tokens = 0;
    std::map<SequenceId, uint32_t> planned;
    for (const PlanItem& item : plan.items) {
      EXPECT_TRUE(planned.emplace(item.id, item.tokens).second) << "planned twice";
      const PageMemory::Sequence& sequence = now.at(item.id);
      EXPECT_TRUE(sequence.running);
      EXPECT_EQ(item.tokens == 0, sequence.row_due);
      if (sequence.prefilling()) {
        EXPECT_LE(item.tokens, memory_.TokensToCut(item.id)) << "past a cut";
        EXPECT_LE(item.tokens, sequence.prefill_left) << "past what is known";
      }
      EXPECT_EQ(item.completes_row, item.tokens >= sequence.prefill_left);
      tokens += item.tokens;
    }
    EXPECT_EQ(tokens, plan.tokens);
    EXPECT_LE(tokens, limits_.chunk_tokens);
    EXPECT_LE(plan.items.size(), limits_.max_running);
    for (const auto& [id, sequence] : before) {
      if (!sequence.decoding() || !now.at(id).running) continue;
      if (sequence.admissions < now.at(id).admissions) continue;  // recomputed, and back
      EXPECT_EQ(planned[id], 1u) << "a decode was skipped";
    }
    for (const auto& [id, sequence] : now) {
      EXPECT_TRUE(!sequence.row_due || planned.contains(id)) << "a row was delayed";
    }
    EXPECT_TRUE(!plan.items.empty() || state_.empty() || !plan.refused.empty());
    EXPECT_TRUE(state_.empty() || state_.running() > 0);
  }

  // P7.
  void CheckPasses(const Sequences& before) {
    std::vector<SequenceId> admitted;
    std::vector<SequenceId> joining;
    for (const auto& [what, index, a, b] : memory_.calls()) {
      if (what != 'a') continue;
      if (a == AdmitAnswer::kAdmitted) admitted.push_back(SequenceId(index));
      if (a == AdmitAnswer::kWaitsForPrefix) joining.push_back(SequenceId(index));
    }
    for (auto& [id, wait] : waits_) {
      if (memory_.sequences().at(id).running) continue;
      if (std::find(joining.begin(), joining.end(), id) != joining.end()) continue;
      if (before.at(id).running) continue;  // preempted in this step
      for (SequenceId other : admitted) wait.passed += other > id ? 1 : 0;
      most_passes_ = std::max(most_passes_, wait.passed);
      EXPECT_LE(wait.passed, (wait.older + 1) * (limits_.passes_max + limits_.max_running))
          << id.index();
    }
  }

  Random random_;
  SchedulerLimits limits_;
  PageMemory memory_;
  SchedulerState state_;
  std::map<SequenceId, Wait> waits_;
  uint64_t next_id_ = 1;
  uint32_t finished_ = 0;
  uint32_t most_passes_ = 0;
  uint32_t preempted_ = 0;
};

Load RandomLoad(uint64_t seed) {
  Random random(seed);
  Load load{.seed = seed, .limits = {}};
  load.limits.max_running = 1 + static_cast<uint32_t>(random.Below(8));
  load.limits.chunk_tokens = load.limits.max_running + static_cast<uint32_t>(random.Below(40));
  load.limits.passes_max = 1 + static_cast<uint32_t>(random.Below(12));
  load.limits.refusals_max = 1 + static_cast<uint32_t>(random.Below(8));
  load.pages = 8 + static_cast<uint32_t>(random.Below(40));
  load.headroom = random.Below(2) == 0 ? 0 : static_cast<uint32_t>(random.Below(load.pages / 2));
  return load;
}

TEST(Scheduler, EveryClaimHoldsUnderRandomArrivalsAndCancels) {
  uint32_t preempted = 0;
  uint32_t finished = 0;
  uint32_t most_passes = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Watched load(RandomLoad(seed));
    Random random(seed + 1000);
    for (int i = 0; i < 200; ++i) {
      if (random.Below(3) == 0) load.Arrive();
      if (random.Below(12) == 0) load.CancelOne();
      load.RunStep();
      if (HasFailure()) return;
    }
    for (int i = 0; i < 20000 && !load.idle(); ++i) load.RunStep();
    EXPECT_TRUE(load.idle());
    EXPECT_EQ(load.known(), 0u);
    if (HasFailure()) return;
    preempted += load.preempted();
    finished += load.finished();
    most_passes = std::max(most_passes, load.most_passes());
  }
  EXPECT_GT(preempted, 1000u);
  EXPECT_GT(finished, 5000u);
  EXPECT_GT(most_passes, 20u);
}

// One of the lowest priority, needing most of the memory, in a stream of small urgent ones that never
// ends.
TEST(Scheduler, ALargeRequestOfTheLowestPriorityIsServedInAStreamOfSmallOnesThatNeverEnds) {
  for (uint32_t headroom : {0u, 4u}) {
    SchedulerLimits limits = {.max_running = 4, .chunk_tokens = 16, .passes_max = 10};
    PageMemory memory(3, 16, headroom);
    SchedulerState state;
    state.Add(SequenceId(1), 1, -9);
    memory.Add(SequenceId(1), 1, 4, -9);
    state.Add(SequenceId(2), 30, 9);
    memory.Add(SequenceId(2), 30, 20, 9);  // 49 tokens: 13 pages and 2 of 16
    uint64_t next = 3;
    uint32_t younger = 0;
    bool admitted = false;
    int steps = 0;
    for (; memory.sequences().contains(SequenceId(2)) && steps < 3000; ++steps) {
      while (state.waiting() < 6) {
        state.Add(SequenceId(next), 6, -9);
        memory.Add(SequenceId(next++), 6, 5, -9);
      }
      memory.NextStep();
      memory.calls().clear();
      const Plan plan = Step(state, limits, memory);
      for (const auto& [what, id, a, b] : memory.calls()) {
        if (what != 'a' || a != AdmitAnswer::kAdmitted) continue;
        admitted = admitted || id == 2;
        younger += !admitted && id > 2 ? 1 : 0;
      }
      const std::vector<PlanItem> items(plan.items.begin(), plan.items.end());
      state.EndStep();
      for (const PlanItem& item : items) {
        if (!memory.Execute(item)) continue;
        state.Remove(item.id);
        memory.Remove(item.id);
      }
      memory.Check();
    }
    EXPECT_LT(steps, 3000) << "it starved";
    EXPECT_LE(younger, 2u * (limits.passes_max + limits.max_running));
    EXPECT_GE(younger, limits.passes_max) << "small ones go past until the bound";
  }
}

TEST(Scheduler, OneThatDoesNotFitLetsSmallerOnesPastUntilItIsUrgent) {
  SchedulerState state;
  const SchedulerLimits limits = {.max_running = 2, .chunk_tokens = 8, .passes_max = 3};
  for (uint64_t id = 1; id <= 9; ++id) state.Add(SequenceId(id), 1);
  bool fits = false;
  const auto admit = [&](SequenceId id) {
    return AdmitAnswer{.outcome = id == SequenceId(2) && !fits ? AdmitAnswer::kMustWait
                                                               : AdmitAnswer::kAdmitted};
  };
  std::vector<uint64_t> order;
  const auto step = [&] {
    const Plan plan = StepWith(state, limits, admit, kNoCuts);
    const std::vector<PlanItem> items(plan.items.begin(), plan.items.end());
    state.EndStep();
    for (const PlanItem& item : items) {
      if (item.id == SequenceId(1)) continue;  // stays
      order.push_back(item.id.index());
      state.Remove(item.id);
    }
  };
  for (int i = 0; i < 6; ++i) step();
  EXPECT_EQ(order, std::vector<uint64_t>({3, 4, 5})) << "three go past, then nobody";
  fits = true;
  for (int i = 0; i < 2; ++i) step();
  EXPECT_EQ(order, std::vector<uint64_t>({3, 4, 5, 2, 6}));
}

TEST(Scheduler, LowerPrioritiesAreAdmittedFirstAndEqualOnesInOrderOfArrival) {
  SchedulerState state;
  const int32_t priorities[] = {0, 5, -5, 0, -5, 2147483647, -2147483647 - 1};
  for (uint64_t id = 1; id <= 7; ++id) state.Add(SequenceId(id), 1, priorities[id - 1]);
  std::vector<uint64_t> order;
  const auto admit = [&](SequenceId id) {
    order.push_back(id.index());
    return AdmitAnswer{.outcome = AdmitAnswer::kAdmitted};
  };
  StepWith(state, {}, admit, kNoCuts);
  EXPECT_EQ(order, std::vector<uint64_t>({7, 3, 5, 1, 4, 2, 6}));
}

// ---- Preemption.

// Each sequence has the pages it is given here; growth lacks what it is told to, until enough of
// them were preempted.
class VictimMemory final : public SchedulerMemory {
 public:
  explicit VictimMemory(std::map<uint64_t, PreemptCost> costs) : costs_(std::move(costs)) {}
  // From now on this one lacks so many pages.
  void Lack(uint64_t id, uint32_t pages) {
    needer_ = id;
    lacking_ = pages;
  }
  AdmitAnswer Admit(SequenceId id, const AdmitTerms& terms) override {
    if (refuses) return {};
    asked.push_back(id.index());
    pinned_asked += terms.pinned ? 1 : 0;
    return {.outcome = AdmitAnswer::kAdmitted};
  }
  uint32_t Grow(SequenceId id) override { return id.index() == needer_ ? lacking_ : 0; }
  PreemptCost CostOf(SequenceId id) override { return costs_.at(id.index()); }
  uint32_t Preempt(SequenceId id, Preemption way) override {
    preempted.emplace_back(id.index(), way);
    const PreemptCost& cost = costs_.at(id.index());
    const uint32_t freed = way == Preemption::kPin ? cost.unused_pages : cost.all_pages;
    lacking_ -= std::min(lacking_, freed);
    if (way == Preemption::kPin) costs_.at(id.index()).all_pages -= cost.unused_pages;
    if (way == Preemption::kPin) costs_.at(id.index()).unused_pages = 0;
    return way == Preemption::kPin ? 0 : 1;
  }
  uint32_t TokensToCut(SequenceId) override { return kNoCut; }

  using Preempted = std::vector<std::pair<uint64_t, Preemption>>;
  Preempted preempted;
  std::vector<uint64_t> asked;
  uint32_t pinned_asked = 0;
  bool refuses = false;

 private:
  std::map<uint64_t, PreemptCost> costs_;
  uint64_t needer_ = 0;
  uint32_t lacking_ = 0;
};

// All of them decode.
SchedulerState Decoding(VictimMemory& memory, const std::vector<int32_t>& priorities) {
  SchedulerState state;
  for (size_t i = 0; i < priorities.size(); ++i) state.Add(SequenceId(i + 1), 1, priorities[i]);
  Step(state, {}, memory);
  state.EndStep();
  return state;
}

TEST(Scheduler, TheVictimIsOfTheLastClassAndTheOneThatLosesLeastOfThoseWithEnough) {
  VictimMemory memory({{1, {0, 9, 0}},
                       {2, {0, 9, 5}},  // a better class: not looked at
                       {3, {1, 9, 200}},
                       {4, {0, 2, 1}},  // too small
                       {5, {1, 9, 100}},
                       {6, {1, 9, 100}}});  // as good as 5, and behind it
  SchedulerState state = Decoding(memory, {0, 1, 2, 2, 2, 2});
  memory.Lack(1, 3);
  memory.refuses = true;
  const Plan plan = Step(state, {}, memory);
  EXPECT_EQ(memory.preempted, VictimMemory::Preempted({{6, Preemption::kRecompute}}));
  EXPECT_EQ(plan.items.size(), 5u);
}

TEST(Scheduler, AVictimWhosePromiseIsEnoughIsPinnedBeforeAnybodyLosesWork) {
  VictimMemory memory({{1, {0, 9, 0}}, {2, {3, 9, 500}}, {3, {0, 9, 1}}});
  SchedulerState state = Decoding(memory, {0, 0, 0});
  memory.Lack(1, 3);
  Step(state, {}, memory);
  EXPECT_EQ(memory.preempted, VictimMemory::Preempted({{2, Preemption::kPin}}));
  EXPECT_EQ(state.pinned(), 1u);
  EXPECT_EQ(state.waiting(), 1u);
  state.EndStep();
  Step(state, {}, memory);
  EXPECT_EQ(memory.pinned_asked, 1u) << "it is asked as one that is pinned, in the next step";
  EXPECT_EQ(state.pinned(), 0u);
}

TEST(Scheduler, WhenNoneHasEnoughThoseThatFreeMostGoUntilThereIs) {
  VictimMemory memory({{1, {0, 9, 0}}, {2, {0, 4, 9}}, {3, {0, 6, 9}}, {4, {0, 2, 9}}});
  SchedulerState state = Decoding(memory, {0, 0, 0, 0});
  memory.Lack(1, 8);
  memory.refuses = true;
  Step(state, {}, memory);
  // After 3 two lack, which 2 and 4 have; they lose the same, and 4 is behind.
  EXPECT_EQ(memory.preempted,
            VictimMemory::Preempted({{3, Preemption::kRecompute}, {4, Preemption::kRecompute}}));
}

TEST(Scheduler, TheLastIsPinnedItselfAndGivenUpWhenAnotherNeedsIt) {
  VictimMemory memory({{1, {0, 9, 0}}, {2, {0, 9, 70}}});
  SchedulerState state = Decoding(memory, {0, 0});
  memory.Lack(2, 1);
  memory.refuses = true;
  Step(state, {}, memory);
  EXPECT_EQ(memory.preempted, VictimMemory::Preempted({{2, Preemption::kPin}}));
  state.EndStep();
  memory.Lack(1, 1);
  Step(state, {}, memory);
  EXPECT_EQ(memory.preempted.back(), std::pair(uint64_t{2}, Preemption::kRecompute));
  EXPECT_EQ(state.pinned(), 0u);
  EXPECT_EQ(state.running(), 1u);
}

TEST(Scheduler, NobodyIsPreemptedForOneBehindIt) {
  VictimMemory memory({{1, {5, 9, 0}}, {2, {5, 9, 0}}, {3, {0, 9, 0}}});
  SchedulerState state = Decoding(memory, {0, -1, 1});
  memory.Lack(3, 1);
  memory.refuses = true;
  Step(state, {}, memory);
  EXPECT_EQ(memory.preempted, VictimMemory::Preempted({{3, Preemption::kPin}}));
}

TEST(Scheduler, OneThatIsAloneIsRecomputedAndAdmittedInTheSameStep) {
  VictimMemory memory({{1, {0, 9, 0}}});
  SchedulerState state = Decoding(memory, {0});
  memory.Lack(1, 1);
  const Plan plan = Step(state, {}, memory);
  EXPECT_EQ(memory.preempted, VictimMemory::Preempted({{1, Preemption::kRecomputeAlone}}));
  ASSERT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(plan.admitted, 1u);
}

TEST(Scheduler, APreemptionStopsAdmissionInItsStep) {
  VictimMemory memory({{1, {0, 9, 0}}, {2, {0, 9, 70}}});
  SchedulerState state = Decoding(memory, {0, 0});
  state.Add(SequenceId(3), 1);
  memory.asked.clear();
  memory.Lack(1, 1);
  Step(state, {}, memory);
  EXPECT_TRUE(memory.asked.empty());
  state.EndStep();
  Step(state, {}, memory);
  EXPECT_EQ(memory.asked, std::vector<uint64_t>({2, 3}));
}

// Cancelled wherever it is: the counts come out.
TEST(Scheduler, APinnedOneMayBeRemoved) {
  VictimMemory memory({{1, {0, 9, 0}}, {2, {3, 9, 0}}});
  SchedulerState state = Decoding(memory, {0, 0});
  memory.Lack(1, 3);
  Step(state, {}, memory);
  state.EndStep();
  EXPECT_EQ(state.pinned(), 1u);
  EXPECT_TRUE(state.Remove(SequenceId(2)));
  EXPECT_EQ(state.pinned(), 0u);
  EXPECT_EQ(state.waiting(), 0u);
}

// ---- Plans.

TEST(Scheduler, SameCallsGiveSamePlans) {
  const auto trace = [] {
    SchedulerState state;
    std::vector<std::tuple<uint64_t, uint32_t, bool>> plans;
    Random random(7);
    for (uint64_t id = 1; id <= 20; ++id) {
      state.Add(SequenceId(id), 1 + static_cast<uint32_t>(random.Below(30)));
      const Plan plan = StepWith(state, {.max_running = 5, .chunk_tokens = 11}, kAdmitAll, kNoCuts);
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
  StepWith(state, limits, kAdmitAll, kNoCuts);
  state.EndStep();
  state.Add(SequenceId(2), 100);
  for (int step = 0; step < 33; ++step) {
    const Plan plan = StepWith(state, limits, kAdmitAll, kNoCuts);
    ASSERT_EQ(plan.items.size(), 2u);
    EXPECT_EQ(plan.items[0].id, SequenceId(1));
    EXPECT_EQ(plan.items[0].tokens, 1u);
    EXPECT_EQ(plan.items[1].tokens, 3u);
    EXPECT_FALSE(plan.items[1].completes_row);
    state.EndStep();
  }
  EXPECT_TRUE(StepWith(state, limits, kAdmitAll, kNoCuts).items[1].completes_row);
}

TEST(Scheduler, ARefusedSequenceDoesNotHoldTheQueue) {
  SchedulerState state;
  state.Add(SequenceId(1), 5);
  state.Add(SequenceId(2), 5);
  const auto admit = [](SequenceId id) {
    return AdmitAnswer{.outcome =
                           id == SequenceId(1) ? AdmitAnswer::kNeverFits : AdmitAnswer::kAdmitted};
  };
  const Plan plan = StepWith(state, {}, admit, kNoCuts);
  ASSERT_EQ(plan.refused.size(), 1u);
  EXPECT_EQ(plan.refused[0], SequenceId(1));
  ASSERT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(plan.items[0].id, SequenceId(2));
}

TEST(Scheduler, ACachedPromptIsComputedFromItsFirstUnknownToken) {
  SchedulerState state;
  state.Add(SequenceId(1), 100);
  const auto admit = [](SequenceId) {
    return AdmitAnswer{.outcome = AdmitAnswer::kAdmitted, .cached_tokens = 97};
  };
  const Plan plan = StepWith(state, {}, admit, kNoCuts);
  ASSERT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(plan.items[0].tokens, 3u);
  EXPECT_TRUE(plan.items[0].completes_row);
}

// Also when the step has not a token left: 4 decodes fill it.
TEST(Scheduler, AKeptRowCostsNoTokenAndIsPlannedInTheStepThatAdmitsIt) {
  SchedulerState state;
  const SchedulerLimits limits = {.max_running = 5, .chunk_tokens = 5};
  for (uint64_t id = 1; id <= 5; ++id) state.Add(SequenceId(id), id == 5 ? 50 : 1);
  for (int step = 0; step < 2; ++step) {  // four decode, the fifth is a prefill
    StepWith(state, limits, kAdmitAll, kNoCuts);
    state.EndStep();
  }
  state.Remove(SequenceId(1));
  state.Add(SequenceId(6), 20);
  const auto from_row = [](SequenceId) {
    return AdmitAnswer{.outcome = AdmitAnswer::kAdmitted, .cached_tokens = 20, .from_row = true};
  };
  const Plan plan = StepWith(state, limits, from_row, kNoCuts);
  std::map<SequenceId, PlanItem> items;
  for (const PlanItem& item : plan.items) items[item.id] = item;
  ASSERT_EQ(items.size(), 5u);
  EXPECT_EQ(plan.tokens, 5u);
  EXPECT_EQ(items[SequenceId(6)].tokens, 0u);
  EXPECT_TRUE(items[SequenceId(6)].completes_row);
  EXPECT_EQ(items[SequenceId(5)].tokens, 2u);  // what the three decodes leave
  state.EndStep();
  // From then on it decodes.
  const Plan next = StepWith(state, limits, from_row, kNoCuts);
  for (const PlanItem& item : next.items) {
    if (item.id == SequenceId(6)) {
      EXPECT_EQ(item.tokens, 1u);
    }
  }
  EXPECT_EQ(next.tokens, 5u);
}

TEST(Scheduler, AnItemStopsAtTheNextCut) {
  SchedulerState state;
  const SchedulerLimits limits = {.max_running = 2, .chunk_tokens = 64};
  state.Add(SequenceId(1), 50);
  state.Add(SequenceId(2), 60);
  uint32_t computed = 0;
  // Due at 20 and 21; after that nowhere.
  const auto to_cut = [&](SequenceId id) {
    if (id == SequenceId(2)) return kNoCut;
    return computed < 20 ? 20 - computed : computed < 21 ? 1 : kNoCut;
  };
  for (uint32_t expected : {20u, 1u, 29u}) {
    const Plan plan = StepWith(state, limits, kAdmitAll, to_cut);
    ASSERT_GE(plan.items.size(), 1u);
    for (const PlanItem& item : plan.items) {
      if (item.id == SequenceId(1)) {
        EXPECT_EQ(item.tokens, expected);
      }
      if (item.id == SequenceId(1)) {
        EXPECT_EQ(item.completes_row, expected == 29);
      }
    }
    if (computed == 0) {
      EXPECT_EQ(plan.tokens, 64u) << "the room it leaves goes to the next";
    }
    computed += expected;
    state.EndStep();
  }
}

TEST(Scheduler, OneThatWaitsForAPrefixLetsOthersPastAndKeepsItsPlace) {
  SchedulerState state;
  const SchedulerLimits limits = {.max_running = 4, .chunk_tokens = 8};
  for (uint64_t id = 1; id <= 5; ++id) state.Add(SequenceId(id), 40);
  std::vector<uint64_t> asked;
  std::vector<uint64_t> waits = {2, 4};
  const auto admit = [&](SequenceId id) {
    asked.push_back(id.index());
    const bool wait = std::find(waits.begin(), waits.end(), id.index()) != waits.end();
    return AdmitAnswer{.outcome = wait ? AdmitAnswer::kWaitsForPrefix : AdmitAnswer::kAdmitted};
  };
  EXPECT_EQ(StepWith(state, limits, admit, kNoCuts).admitted, 3u);  // 1, 3, 5
  state.EndStep();
  EXPECT_EQ(asked, std::vector<uint64_t>({1, 2, 3, 4, 5}));
  EXPECT_EQ(state.waiting(), 2u);
  // The producer goes; 6 came later. Only one place is free: it is the oldest one's.
  state.Add(SequenceId(6), 40);
  waits.clear();
  asked.clear();
  EXPECT_EQ(StepWith(state, limits, admit, kNoCuts).admitted, 1u);
  state.EndStep();
  EXPECT_EQ(asked, std::vector<uint64_t>({2}));
  state.Remove(SequenceId(1));
  // It arrived before 3 and 5, so its prefill goes first now.
  const Plan plan = StepWith(state, limits, admit, kNoCuts);
  EXPECT_EQ(asked, std::vector<uint64_t>({2, 4}));
  ASSERT_FALSE(plan.items.empty());
  EXPECT_EQ(plan.items[0].id, SequenceId(2));
  EXPECT_EQ(plan.items[0].tokens, 8u);
}

TEST(SchedulerDeathTest, WaitingForAPrefixThatNobodyComputesIsABug) {
  SchedulerState state;
  state.Add(SequenceId(1), 5);
  const auto admit = [](SequenceId) {
    return AdmitAnswer{.outcome = AdmitAnswer::kWaitsForPrefix};
  };
  EXPECT_DEATH(StepWith(state, {}, admit, kNoCuts), "kWaitsForPrefix");
}

TEST(SchedulerDeathTest, AWholePromptCachedWithoutItsRowIsABug) {
  SchedulerState state;
  state.Add(SequenceId(1), 5);
  const auto admit = [](SequenceId) {
    return AdmitAnswer{.outcome = AdmitAnswer::kAdmitted, .cached_tokens = 5};
  };
  EXPECT_DEATH(StepWith(state, {}, admit, kNoCuts), "from_row");
}

TEST(SchedulerDeathTest, RemovingInsideAStepIsABug) {
  SchedulerState state;
  state.Add(SequenceId(1), 5);
  StepWith(state, {}, kAdmitAll, kNoCuts);
  EXPECT_DEATH(state.Remove(SequenceId(1)), "plan_open");
}

}  // namespace
}  // namespace tessera
