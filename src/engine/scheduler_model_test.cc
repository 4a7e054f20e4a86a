// SPDX-License-Identifier: Apache-2.0
//
// The scheduler against a slow twin: the twin keeps one record per sequence that ever came and, for
// each step, works its plan out anew from them as the header words it, sorting instead of keeping
// order. Both ask a memory of their own with the same seed; plans, and every question asked of the
// memory, must be the same. Sequences of several priorities arrive, grow, are preempted and
// cancelled, with and without headroom.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "engine/scheduler.h"
#include "engine/scheduler_page_memory.h"

#ifndef TESSERA_MODEL_OPERATIONS
#define TESSERA_MODEL_OPERATIONS 120000
#endif

namespace tessera {
namespace {

using testing::PageMemory;

struct Record {
  enum State { kWaiting, kRunning, kPinned, kGone };
  uint64_t id = 0;
  int32_t priority = 0;
  State state = kWaiting;
  uint32_t left = 0;  // known tokens to compute
  bool row_due = false;
  bool urgent = false;
  uint32_t passes = 0;

  bool waits() const { return state == kWaiting || state == kPinned; }
  std::tuple<bool, int32_t, uint64_t> rank() const { return {!urgent, urgent ? 0 : priority, id}; }
  std::tuple<bool, int32_t> rank_class() const { return {!urgent, urgent ? 0 : priority}; }
};

using Item = std::tuple<uint64_t, uint32_t, bool>;

struct TwinPlan {
  std::vector<Item> items;  // by id
  std::vector<uint64_t> refused;
  uint32_t admitted = 0;
  uint32_t preempted = 0;
};

class Twin {
 public:
  explicit Twin(PageMemory* memory) : memory_(*memory) {}

  void Add(uint64_t id, uint32_t prompt, int32_t priority) {
    records_.push_back({.id = id, .priority = priority, .left = prompt});
  }
  bool Remove(uint64_t id) {
    for (Record& record : records_) {
      if (record.id != id || record.state == Record::kGone) continue;
      record.state = Record::kGone;
      return true;
    }
    return false;
  }

  TwinPlan Step(const SchedulerLimits& limits) {
    TwinPlan plan;
    GrowAll(&plan);
    if (plan.preempted == 0 || Count(Record::kRunning) == 0) AdmitAll(limits, &plan);
    uint32_t room = limits.chunk_tokens;
    for (Record* record : Ranked(Record::kRunning)) {
      if (record->left > 0) continue;
      plan.items.emplace_back(record->id, record->row_due ? 0 : 1, true);
      if (!record->row_due) --room;
    }
    for (Record* record : Ranked(Record::kRunning)) {
      if (record->left == 0 || room == 0) continue;
      const uint32_t cut = memory_.TokensToCut(SequenceId(record->id));
      uint32_t tokens = record->left;
      while (tokens > room || tokens > cut) --tokens;
      plan.items.emplace_back(record->id, tokens, tokens == record->left);
      room -= tokens;
    }
    std::sort(plan.items.begin(), plan.items.end());
    return plan;
  }

  void EndStep(const TwinPlan& plan) {
    for (const auto& [id, tokens, completes] : plan.items) {
      Record& record = At(id);
      record.left -= std::min(record.left, tokens);
      record.row_due = false;
    }
  }

  uint32_t Count(Record::State state) const {
    uint32_t count = 0;
    for (const Record& record : records_) count += record.state == state;
    return count;
  }
  uint32_t urgent() const {
    return static_cast<uint32_t>(
        std::count_if(records_.begin(), records_.end(), [](const Record& r) { return r.urgent; }));
  }

 private:
  Record& At(uint64_t id) {
    for (Record& record : records_) {
      if (record.id == id) return record;
    }
    ADD_FAILURE() << "no record of " << id;
    return records_.front();
  }

  template <typename... States>
  std::vector<Record*> Ranked(States... states) {
    std::vector<Record*> found;
    for (Record& record : records_) {
      if (((record.state == states) || ...)) found.push_back(&record);
    }
    std::sort(found.begin(), found.end(),
              [](const Record* a, const Record* b) { return a->rank() < b->rank(); });
    return found;
  }

  void Preempt(Record& record, Preemption way, TwinPlan* plan) {
    const uint32_t known = memory_.Preempt(SequenceId(record.id), way);
    record.state = way == Preemption::kPin ? Record::kPinned : Record::kWaiting;
    if (way != Preemption::kPin) record.left = known;
    ++plan->preempted;
  }

  void GrowAll(TwinPlan* plan) {
    for (Record* record : Ranked(Record::kRunning)) {
      if (record->state != Record::kRunning || record->left > 0) continue;
      while (record->state == Record::kRunning) {
        const uint32_t lacking = memory_.Grow(SequenceId(record->id));
        if (lacking == 0) break;
        MakeRoom(*record, lacking, plan);
      }
    }
  }

  void MakeRoom(Record& needer, uint32_t lacking, TwinPlan* plan) {
    std::vector<Record*> behind = Ranked(Record::kRunning, Record::kPinned);
    std::erase_if(behind, [&](const Record* r) { return r->rank() <= needer.rank(); });
    if (behind.empty()) {
      const bool alone = Count(Record::kRunning) + Count(Record::kPinned) == 1;
      return Preempt(needer, alone ? Preemption::kRecomputeAlone : Preemption::kPin, plan);
    }
    const Record& last = *behind.back();
    std::erase_if(behind, [&](const Record* r) { return r->rank_class() != last.rank_class(); });
    // The scheduler looks at those that run first, then at pinned ones: the questions' order.
    std::stable_sort(behind.begin(), behind.end(), [](const Record* a, const Record* b) {
      return a->state == Record::kRunning && b->state != Record::kRunning;
    });
    Record* best = nullptr;
    std::tuple<int, int64_t, int64_t> best_key;
    Preemption way = Preemption::kPin;
    for (Record* record : behind) {
      const PreemptCost cost = memory_.CostOf(SequenceId(record->id));
      const bool pin = record->state == Record::kRunning && cost.unused_pages >= lacking;
      std::tuple<int, int64_t, int64_t> key;
      const int64_t later = -static_cast<int64_t>(record->id);  // of a class: the later is better
      if (pin) {
        key = {0, 0, later};
      } else if (cost.all_pages >= lacking) {
        key = {0, cost.lost_tokens, later};
      } else {
        key = {1, -static_cast<int64_t>(cost.all_pages), later};
      }
      if (best != nullptr && best_key < key) continue;
      best = record;
      best_key = key;
      way = pin ? Preemption::kPin : Preemption::kRecompute;
    }
    Preempt(*best, way, plan);
  }

  void AdmitAll(const SchedulerLimits& limits, TwinPlan* plan) {
    uint32_t refusals = 0;
    std::vector<uint64_t> admitted;
    std::vector<uint64_t> joining;
    for (Record* record : Ranked(Record::kWaiting, Record::kPinned)) {
      if (Count(Record::kRunning) == limits.max_running) break;
      const AdmitAnswer answer = Ask(*record, plan);
      if (answer.outcome == AdmitAnswer::kMustWait) {
        if (record->urgent || ++refusals == limits.refusals_max) break;
      } else if (answer.outcome == AdmitAnswer::kWaitsForPrefix) {
        joining.push_back(record->id);
      } else if (answer.outcome == AdmitAnswer::kNeverFits) {
        record->state = Record::kGone;
        plan->refused.push_back(record->id);
      } else {
        if (record->state == Record::kWaiting) {
          record->left -= answer.cached_tokens;
          record->row_due = answer.from_row;
        }
        record->state = Record::kRunning;
        ++plan->admitted;
        admitted.push_back(record->id);
      }
    }
    for (Record& record : records_) {  // in order of arrival
      if (!record.waits() || std::count(joining.begin(), joining.end(), record.id) > 0) continue;
      for (uint64_t id : admitted) record.passes += id > record.id ? 1 : 0;
      if (!admitted.empty() && record.passes >= limits.passes_max) record.urgent = true;
      return;  // the oldest only
    }
  }

  AdmitAnswer Ask(Record& record, TwinPlan* plan) {
    while (true) {
      const bool alone = Count(Record::kRunning) == 0;
      const AdmitAnswer answer =
          memory_.Admit(SequenceId(record.id),
                        {.pinned = record.state == Record::kPinned, .waives_headroom = alone});
      if (!alone || answer.outcome != AdmitAnswer::kMustWait) return answer;
      Preempt(*Ranked(Record::kPinned).back(), Preemption::kRecompute, plan);
    }
  }

  PageMemory& memory_;
  std::vector<Record> records_;  // in order of arrival
};

struct Counts {
  uint64_t operations = 0;
  uint64_t items = 0;
  uint64_t admitted = 0;
  uint64_t preempted = 0;
  uint64_t alone = 0;
  uint64_t given_up = 0;
  uint64_t urgent = 0;
  uint64_t finished = 0;
};

class RandomLoad {
 public:
  explicit RandomLoad(uint64_t seed)
      : random_(seed),
        limits_(Limits(random_)),
        pages_(6 + static_cast<uint32_t>(random_.Below(40))),
        headroom_(random_.Below(2) == 0 ? 0 : static_cast<uint32_t>(random_.Below(pages_ / 2))),
        memory_(seed, pages_, headroom_),
        twins_memory_(seed, pages_, headroom_),
        twin_(&twins_memory_) {}

  void Operation(Counts* counts) {
    ++counts->operations;
    const uint64_t choice = random_.Below(16);
    if (choice < 4 && next_id_ < 60) {
      Add();
    } else if (choice == 4) {  // of the last ones; also one that is gone or never was
      Remove(next_id_ - std::min(next_id_ - 1, random_.Below(12)));
    } else {
      StepOnce(counts);
    }
  }
  void Finish(Counts* counts) {
    for (int i = 0; i < 5000 && !state_.empty(); ++i) StepOnce(counts);
    EXPECT_TRUE(state_.empty());
    EXPECT_TRUE(memory_.sequences().empty());
    counts->urgent += twin_.urgent();
  }

 private:
  static SchedulerLimits Limits(Random& random) {
    SchedulerLimits limits;
    limits.max_running = 1 + static_cast<uint32_t>(random.Below(8));
    limits.chunk_tokens = limits.max_running + static_cast<uint32_t>(random.Below(40));
    limits.passes_max = 1 + static_cast<uint32_t>(random.Below(10));
    limits.refusals_max = 1 + static_cast<uint32_t>(random.Below(4));
    return limits;
  }

  void Add() {
    const SequenceId id(next_id_++);
    const auto prompt = 1 + static_cast<uint32_t>(random_.Below(30));
    const auto outputs = 1 + static_cast<uint32_t>(random_.Below(random_.Below(2) == 0 ? 40 : 6));
    const auto priority = static_cast<int32_t>(random_.Below(3)) - 1;
    state_.Add(id, prompt, priority);
    twin_.Add(id.index(), prompt, priority);
    memory_.Add(id, prompt, outputs, priority);
    twins_memory_.Add(id, prompt, outputs, priority);
  }
  void Remove(uint64_t id) {
    const bool there = state_.Remove(SequenceId(id));
    ASSERT_EQ(there, twin_.Remove(id));
    if (!there) return;
    memory_.Remove(SequenceId(id));
    twins_memory_.Remove(SequenceId(id));
  }

  void StepOnce(Counts* counts) {
    memory_.NextStep();
    twins_memory_.NextStep();
    memory_.calls().clear();
    twins_memory_.calls().clear();
    const Plan plan = Step(state_, limits_, memory_);
    const TwinPlan expected = twin_.Step(limits_);
    std::vector<Item> items;
    for (const PlanItem& item : plan.items) {
      items.emplace_back(item.id.index(), item.tokens, item.completes_row);
    }
    std::sort(items.begin(), items.end());
    std::vector<uint64_t> refused;
    for (SequenceId id : plan.refused) refused.push_back(id.index());
    ASSERT_EQ(memory_.calls(), twins_memory_.calls());
    ASSERT_EQ(items, expected.items);
    ASSERT_EQ(refused, expected.refused);
    ASSERT_EQ(plan.admitted, expected.admitted);
    ASSERT_EQ(plan.preempted, expected.preempted);
    memory_.Check();
    CountCalls(plan, counts);
    std::vector<PlanItem> planned(plan.items.begin(), plan.items.end());
    state_.EndStep();
    twin_.EndStep(expected);
    ASSERT_EQ(state_.running(), twin_.Count(Record::kRunning));
    ASSERT_EQ(state_.pinned(), twin_.Count(Record::kPinned));
    ASSERT_EQ(state_.waiting(), twin_.Count(Record::kWaiting) + twin_.Count(Record::kPinned));
    for (uint64_t id : refused) {
      memory_.Remove(SequenceId(id));
      twins_memory_.Remove(SequenceId(id));
    }
    for (const PlanItem& item : planned) {
      const bool finished = memory_.Execute(item);
      ASSERT_EQ(finished, twins_memory_.Execute(item));
      if (!finished) continue;
      ++counts->finished;
      Remove(item.id.index());
    }
  }

  void CountCalls(const Plan& plan, Counts* counts) {
    counts->items += plan.items.size();
    counts->admitted += plan.admitted;
    counts->preempted += plan.preempted;
    for (const auto& [what, id, a, b] : memory_.calls()) {
      if (what != 'p') continue;
      counts->alone += a == static_cast<uint32_t>(Preemption::kRecomputeAlone) ? 1 : 0;
      counts->given_up += a == static_cast<uint32_t>(Preemption::kRecompute) ? 1 : 0;
    }
  }

  Random random_;
  const SchedulerLimits limits_;
  const uint32_t pages_;
  const uint32_t headroom_;
  PageMemory memory_;
  PageMemory twins_memory_;
  SchedulerState state_;
  Twin twin_;
  uint64_t next_id_ = 1;
};

TEST(SchedulerModel, PlansAndQuestionsAreThoseOfTheSlowTwin) {
  Counts counts;
  for (uint64_t seed = 1; counts.operations < TESSERA_MODEL_OPERATIONS; ++seed) {
    SCOPED_TRACE(seed);
    RandomLoad load(seed);
    for (int i = 0; i < 200; ++i) {
      load.Operation(&counts);
      if (HasFailure()) {
        std::printf("seed %llu, operation %d\n", static_cast<unsigned long long>(seed), i);
        return;
      }
    }
    load.Finish(&counts);
    if (HasFailure()) return;
  }
  // What the operations are for did happen.
  EXPECT_GT(counts.items, 100000u);
  EXPECT_GT(counts.finished, 5000u);
  EXPECT_GT(counts.admitted, counts.finished);
  EXPECT_GT(counts.preempted, 2000u);
  EXPECT_GT(counts.given_up, 500u);
  EXPECT_GT(counts.alone, 100u);
  EXPECT_GT(counts.urgent, 100u);
}

}  // namespace
}  // namespace tessera
