// SPDX-License-Identifier: Apache-2.0
//
// The scheduler against seeded random workloads: a store of a fixed number of pages answers
// admissions, and after each step every claim of the header is looked at from outside.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "base/random.h"

namespace tessera {
namespace {

constexpr uint32_t kNoCut = std::numeric_limits<uint32_t>::max();

struct FakeSequence {
  uint32_t prompt = 0;
  uint32_t outputs = 0;  // tokens it wants to decode
  uint32_t pages = 0;
  uint32_t cut_every = kNoCut;  // positions at which it must stop
  uint32_t cached = 0;          // of the prompt
  uint32_t computed = 0;        // cached ones included
  uint32_t decoded = 0;
  SequenceId producer;  // whose prefill it waits for, until that has computed `until`
  uint32_t until = 0;
  bool running = false;
  bool row_due = false;
  bool decoding() const { return running && computed >= prompt && !row_due; }
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
    if (random_.Below(2) == 0) sequence.cut_every = 1 + static_cast<uint32_t>(random_.Below(9));
    // One in four prompts is cached to its end.
    sequence.cached = random_.Below(4) == 0 ? sequence.prompt
                                            : static_cast<uint32_t>(random_.Below(sequence.prompt));
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
    for (const auto& [id, sequence] : sequences_) {
      if (sequence.decoding()) must_decode.push_back(id);
    }
    asked_ = 0;
    asking_over_ = false;
    const auto admit = [this](SequenceId id) { return Admit(id); };
    const auto to_cut = [this](SequenceId id) { return TokensToCut(sequences_.at(id)); };
    const Plan plan = Step(state_, limits_, admit, to_cut);
    CheckPlan(plan, must_decode);
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
  uint32_t overtaken() const { return overtaken_; }
  uint32_t rows() const { return rows_; }
  const SchedulerState& state() const { return state_; }
  size_t known() const { return sequences_.size(); }

 private:
  AdmitAnswer Admit(SequenceId id) {
    FakeSequence& sequence = sequences_.at(id);
    EXPECT_FALSE(sequence.running);
    EXPECT_FALSE(asking_over_) << "asked after one that must wait for memory";
    // Every older one that waits was asked in this step, and waits for a prefix.
    uint32_t older = 0;
    for (const auto& [other, s] : sequences_) {
      if (other == id) break;
      if (!s.running && s.pages <= total_pages_) ++older;
    }
    EXPECT_EQ(older, asked_) << "an older sequence was not asked";
    if (sequence.pages > total_pages_) return {.outcome = AdmitAnswer::kNeverFits};
    if (WaitsForPrefix(id, sequence)) {
      ++asked_;
      return {.outcome = AdmitAnswer::kWaitsForPrefix};
    }
    if (sequence.pages > free_pages_) {
      asking_over_ = true;
      return {.outcome = AdmitAnswer::kMustWait};
    }
    if (older > 0) ++overtaken_;
    free_pages_ -= sequence.pages;
    sequence.running = true;
    sequence.computed = sequence.cached;
    sequence.row_due = sequence.cached == sequence.prompt;
    if (sequence.row_due) ++rows_;
    return {.outcome = AdmitAnswer::kAdmitted,
            .cached_tokens = sequence.cached,
            .from_row = sequence.row_due};
  }

  bool WaitsForPrefix(SequenceId id, FakeSequence& sequence) {
    if (sequence.producer.valid()) {
      const auto producer = sequences_.find(sequence.producer);
      if (producer != sequences_.end() && producer->second.computed < sequence.until) return true;
      sequence.producer = SequenceId();
    }
    if (random_.Below(3) != 0) return false;
    for (const auto& [other, s] : sequences_) {
      if (other == id) return false;
      if (!s.running || s.computed >= s.prompt) continue;
      sequence.producer = other;
      sequence.until = s.computed + 1 + static_cast<uint32_t>(random_.Below(s.prompt - s.computed));
      return true;
    }
    return false;
  }

  static uint32_t TokensToCut(const FakeSequence& sequence) {
    if (sequence.cut_every == kNoCut) return kNoCut;
    return sequence.cut_every - sequence.computed % sequence.cut_every;
  }

  void CheckPlan(const Plan& plan, const std::vector<SequenceId>& must_decode) {
    uint32_t tokens = 0;
    std::map<SequenceId, uint32_t> planned;
    for (const PlanItem& item : plan.items) {
      EXPECT_TRUE(planned.emplace(item.id, item.tokens).second) << "planned twice";
      const FakeSequence& sequence = sequences_.at(item.id);
      EXPECT_TRUE(sequence.running);
      EXPECT_EQ(item.tokens == 0, sequence.row_due);
      if (sequence.computed < sequence.prompt) {
        EXPECT_LE(item.tokens, TokensToCut(sequence)) << "past a cut";
        EXPECT_LE(sequence.computed + item.tokens, sequence.prompt) << "past the prompt";
      }
      EXPECT_EQ(item.completes_row, sequence.computed + item.tokens >= sequence.prompt);
      tokens += item.tokens;
    }
    EXPECT_EQ(tokens, plan.tokens);
    EXPECT_LE(tokens, limits_.chunk_tokens);
    EXPECT_LE(plan.items.size(), limits_.max_running);
    for (SequenceId id : must_decode) EXPECT_EQ(planned[id], 1u) << "a decode was skipped";
    bool oldest = true;  // of the prefills
    for (const auto& [id, sequence] : sequences_) {
      if (!sequence.running) continue;
      if (sequence.row_due) {
        EXPECT_TRUE(planned.contains(id)) << "a row was delayed";
      }
      if (sequence.computed >= sequence.prompt) continue;
      if (oldest) {
        EXPECT_TRUE(planned.contains(id)) << "the oldest prefill stands still";
      }
      oldest = false;
    }
    if (state_.running() > 0) {
      EXPECT_FALSE(plan.items.empty());
    }
  }

  void Execute(const PlanItem& item) {
    FakeSequence& sequence = sequences_.at(item.id);
    sequence.computed += item.tokens;
    sequence.row_due = false;
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
  uint32_t asked_ = 0;  // in this step, and still waiting for a prefix
  bool asking_over_ = false;
  uint32_t finished_ = 0;
  uint32_t overtaken_ = 0;
  uint32_t rows_ = 0;
  uint32_t steps_ = 0;
};

const auto kAdmitAll = [](SequenceId) { return AdmitAnswer{.outcome = AdmitAnswer::kAdmitted}; };
const auto kNoCuts = [](SequenceId) { return kNoCut; };

TEST(Scheduler, EveryClaimHoldsUnderRandomArrivalsAndCancels) {
  uint32_t overtaken = 0;
  uint32_t rows = 0;
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
    overtaken += workload.overtaken();
    rows += workload.rows();
  }
  EXPECT_GT(overtaken, 100u);
  EXPECT_GT(rows, 100u);
}

TEST(Scheduler, SameCallsGiveSamePlans) {
  const auto trace = [] {
    SchedulerState state;
    std::vector<std::tuple<uint64_t, uint32_t, bool>> plans;
    Random random(7);
    for (uint64_t id = 1; id <= 20; ++id) {
      state.Add(SequenceId(id), 1 + static_cast<uint32_t>(random.Below(30)));
      const Plan plan = Step(state, {.max_running = 5, .chunk_tokens = 11}, kAdmitAll, kNoCuts);
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
  Step(state, limits, kAdmitAll, kNoCuts);
  state.EndStep();
  state.Add(SequenceId(2), 100);
  for (int step = 0; step < 33; ++step) {
    const Plan plan = Step(state, limits, kAdmitAll, kNoCuts);
    ASSERT_EQ(plan.items.size(), 2u);
    EXPECT_EQ(plan.items[0].id, SequenceId(1));
    EXPECT_EQ(plan.items[0].tokens, 1u);
    EXPECT_EQ(plan.items[1].tokens, 3u);
    EXPECT_FALSE(plan.items[1].completes_row);
    state.EndStep();
  }
  EXPECT_TRUE(Step(state, limits, kAdmitAll, kNoCuts).items[1].completes_row);
}

TEST(Scheduler, NobodyOvertakesTheFirstThatMustWait) {
  SchedulerState state;
  for (uint64_t id = 1; id <= 3; ++id) state.Add(SequenceId(id), 1);
  uint32_t asked = 0;
  const auto admit = [&](SequenceId id) {
    ++asked;
    return AdmitAnswer{.outcome =
                           id == SequenceId(2) ? AdmitAnswer::kMustWait : AdmitAnswer::kAdmitted};
  };
  const Plan plan = Step(state, {}, admit, kNoCuts);
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
    return AdmitAnswer{.outcome =
                           id == SequenceId(1) ? AdmitAnswer::kNeverFits : AdmitAnswer::kAdmitted};
  };
  const Plan plan = Step(state, {}, admit, kNoCuts);
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
  const Plan plan = Step(state, {}, admit, kNoCuts);
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
    Step(state, limits, kAdmitAll, kNoCuts);
    state.EndStep();
  }
  state.Remove(SequenceId(1));
  state.Add(SequenceId(6), 20);
  const auto from_row = [](SequenceId) {
    return AdmitAnswer{.outcome = AdmitAnswer::kAdmitted, .cached_tokens = 20, .from_row = true};
  };
  const Plan plan = Step(state, limits, from_row, kNoCuts);
  std::map<SequenceId, PlanItem> items;
  for (const PlanItem& item : plan.items) items[item.id] = item;
  ASSERT_EQ(items.size(), 5u);
  EXPECT_EQ(plan.tokens, 5u);
  EXPECT_EQ(items[SequenceId(6)].tokens, 0u);
  EXPECT_TRUE(items[SequenceId(6)].completes_row);
  EXPECT_EQ(items[SequenceId(5)].tokens, 2u);  // what the three decodes leave
  state.EndStep();
  // From then on it decodes.
  const Plan next = Step(state, limits, from_row, kNoCuts);
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
    const Plan plan = Step(state, limits, kAdmitAll, to_cut);
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
  EXPECT_EQ(Step(state, limits, admit, kNoCuts).admitted, 3u);  // 1, 3, 5
  state.EndStep();
  EXPECT_EQ(asked, std::vector<uint64_t>({1, 2, 3, 4, 5}));
  EXPECT_EQ(state.waiting(), 2u);
  // The producer goes; 6 came later. Only one place is free: it is the oldest one's.
  state.Add(SequenceId(6), 40);
  waits.clear();
  asked.clear();
  EXPECT_EQ(Step(state, limits, admit, kNoCuts).admitted, 1u);
  state.EndStep();
  EXPECT_EQ(asked, std::vector<uint64_t>({2}));
  state.Remove(SequenceId(1));
  // It arrived before 3 and 5, so its prefill goes first now.
  const Plan plan = Step(state, limits, admit, kNoCuts);
  EXPECT_EQ(asked, std::vector<uint64_t>({2, 4}));
  ASSERT_FALSE(plan.items.empty());
  EXPECT_EQ(plan.items[0].id, SequenceId(2));
  EXPECT_EQ(plan.items[0].tokens, 8u);
}

TEST(Scheduler, OneThatMustWaitForMemoryStillStopsTheQueueBehindOneThatWaitsForAPrefix) {
  SchedulerState state;
  for (uint64_t id = 1; id <= 4; ++id) state.Add(SequenceId(id), 10);
  const auto admit = [](SequenceId id) {
    return AdmitAnswer{.outcome = id == SequenceId(2)   ? AdmitAnswer::kWaitsForPrefix
                                  : id == SequenceId(3) ? AdmitAnswer::kMustWait
                                                        : AdmitAnswer::kAdmitted};
  };
  EXPECT_EQ(Step(state, {}, admit, kNoCuts).admitted, 1u);
  EXPECT_EQ(state.waiting(), 3u);
}

TEST(SchedulerDeathTest, WaitingForAPrefixThatNobodyComputesIsABug) {
  SchedulerState state;
  state.Add(SequenceId(1), 5);
  const auto admit = [](SequenceId) {
    return AdmitAnswer{.outcome = AdmitAnswer::kWaitsForPrefix};
  };
  EXPECT_DEATH(Step(state, {}, admit, kNoCuts), "running_.empty");
}

TEST(SchedulerDeathTest, AWholePromptCachedWithoutItsRowIsABug) {
  SchedulerState state;
  state.Add(SequenceId(1), 5);
  const auto admit = [](SequenceId) {
    return AdmitAnswer{.outcome = AdmitAnswer::kAdmitted, .cached_tokens = 5};
  };
  EXPECT_DEATH(Step(state, {}, admit, kNoCuts), "from_row");
}

TEST(SchedulerDeathTest, RemovingInsideAStepIsABug) {
  SchedulerState state;
  state.Add(SequenceId(1), 5);
  Step(state, {}, kAdmitAll, kNoCuts);
  EXPECT_DEATH(state.Remove(SequenceId(1)), "plan_open");
}

}  // namespace
}  // namespace tessera
