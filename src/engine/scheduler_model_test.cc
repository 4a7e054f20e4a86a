// SPDX-License-Identifier: Apache-2.0
//
// The scheduler against a slow twin: the twin keeps one record per sequence that ever came and, for
// each step, works its plan out anew from them as the header words it, sorting instead of keeping
// order. Same random calls and answers, compared item by item.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "engine/scheduler.h"

namespace tessera {
namespace {

struct Record {
  enum State { kWaiting, kRunning, kGone };
  uint64_t id = 0;
  State state = kWaiting;
  uint32_t prompt = 0;
  uint32_t known = 0;  // of the prompt: cached or computed
  bool row_due = false;
};

using Item = std::tuple<uint64_t, uint32_t, bool>;

struct TwinPlan {
  std::vector<Item> items;  // by id
  std::vector<uint64_t> refused;
  std::vector<uint64_t> asked;
};

class Twin {
 public:
  void Add(uint64_t id, uint32_t prompt) { records_.push_back({.id = id, .prompt = prompt}); }

  bool Remove(uint64_t id) {
    for (Record& record : records_) {
      if (record.id != id || record.state == Record::kGone) continue;
      record.state = Record::kGone;
      return true;
    }
    return false;
  }

  TwinPlan Step(const SchedulerLimits& limits, const std::map<uint64_t, AdmitAnswer>& answers,
                const std::map<uint64_t, uint32_t>& cuts) {
    TwinPlan plan;
    Admit(limits, answers, &plan);
    uint32_t room = limits.chunk_tokens;
    for (const Record& record : records_) {
      if (record.state != Record::kRunning || record.known < record.prompt) continue;
      plan.items.emplace_back(record.id, record.row_due ? 0 : 1, true);
      if (!record.row_due) --room;
    }
    for (const Record& record : records_) {
      const uint32_t left = record.prompt - record.known;
      if (record.state != Record::kRunning || left == 0 || room == 0) continue;
      uint32_t tokens = left;
      while (tokens > room || tokens > cuts.at(record.id)) --tokens;
      plan.items.emplace_back(record.id, tokens, tokens == left);
      room -= tokens;
    }
    std::sort(plan.items.begin(), plan.items.end());
    return plan;
  }

  void EndStep(const TwinPlan& plan) {
    for (const auto& [id, tokens, completes] : plan.items) {
      for (Record& record : records_) {
        if (record.id != id) continue;
        record.known = std::min(record.prompt, record.known + tokens);
        record.row_due = false;
      }
    }
  }

  uint32_t Count(Record::State state) const {
    uint32_t count = 0;
    for (const Record& record : records_) count += record.state == state;
    return count;
  }
  const std::vector<Record>& records() const { return records_; }

 private:
  void Admit(const SchedulerLimits& limits, const std::map<uint64_t, AdmitAnswer>& answers,
             TwinPlan* plan) {
    for (Record& record : records_) {
      if (record.state != Record::kWaiting) continue;
      if (Count(Record::kRunning) == limits.max_running) return;
      plan->asked.push_back(record.id);
      const AdmitAnswer& answer = answers.at(record.id);
      if (answer.outcome == AdmitAnswer::kMustWait) return;
      if (answer.outcome == AdmitAnswer::kNeverFits) {
        record.state = Record::kGone;
        plan->refused.push_back(record.id);
      } else if (answer.outcome == AdmitAnswer::kAdmitted) {
        record.state = Record::kRunning;
        record.known = answer.cached_tokens;
        record.row_due = answer.from_row;
      }
    }
  }

  std::vector<Record> records_;  // in order of arrival
};

// What the caller will say in this step, drawn for everybody before anybody is asked.
AdmitAnswer DrawAnswer(Random& random, const Record& record, bool anything_runs) {
  const uint64_t draw = random.Below(16);
  if (draw == 0) return {.outcome = AdmitAnswer::kNeverFits};
  if (draw < 4) return {.outcome = AdmitAnswer::kMustWait};
  if (draw < 8 && anything_runs) return {.outcome = AdmitAnswer::kWaitsForPrefix};
  AdmitAnswer answer = {.outcome = AdmitAnswer::kAdmitted};
  answer.cached_tokens =
      random.Below(2) == 0 ? 0 : static_cast<uint32_t>(random.Below(uint64_t{record.prompt} + 1));
  answer.from_row = answer.cached_tokens == record.prompt;
  return answer;
}

struct Counts {
  uint64_t items = 0;
  uint64_t asked = 0;
};

void RunOneStep(Random& random, const SchedulerLimits& limits, SchedulerState& state, Twin& twin,
                Counts* counts) {
  std::map<uint64_t, AdmitAnswer> answers;
  std::map<uint64_t, uint32_t> cuts;
  const bool anything_runs = twin.Count(Record::kRunning) > 0;
  for (const Record& record : twin.records()) {
    answers[record.id] = DrawAnswer(random, record, anything_runs);
    cuts[record.id] = random.Below(2) == 0 ? std::numeric_limits<uint32_t>::max()
                                           : 1 + static_cast<uint32_t>(random.Below(20));
  }
  std::vector<uint64_t> asked;
  const auto admit = [&](SequenceId id) {
    asked.push_back(id.index());
    return answers.at(id.index());
  };
  const auto to_cut = [&](SequenceId id) { return cuts.at(id.index()); };
  const Plan plan = Step(state, limits, admit, to_cut);
  const TwinPlan expected = twin.Step(limits, answers, cuts);

  std::vector<Item> items;
  for (const PlanItem& item : plan.items) {
    items.emplace_back(item.id.index(), item.tokens, item.completes_row);
  }
  std::sort(items.begin(), items.end());
  std::vector<uint64_t> refused;
  for (SequenceId id : plan.refused) refused.push_back(id.index());
  ASSERT_EQ(items, expected.items);
  ASSERT_EQ(refused, expected.refused);
  ASSERT_EQ(asked, expected.asked);
  state.EndStep();
  twin.EndStep(expected);
  ASSERT_EQ(state.running(), twin.Count(Record::kRunning));
  ASSERT_EQ(state.waiting(), twin.Count(Record::kWaiting));
  counts->items += items.size();
  counts->asked += asked.size();
}

TEST(SchedulerModel, PlansAreThoseOfTheSlowTwin) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    SchedulerLimits limits;
    limits.max_running = 1 + static_cast<uint32_t>(random.Below(8));
    limits.chunk_tokens = limits.max_running + static_cast<uint32_t>(random.Below(40));
    SchedulerState state;
    Twin twin;
    uint64_t next_id = 1;
    for (int i = 0; i < 80; ++i) {
      while (random.Below(3) == 0) {
        const auto prompt = 1 + static_cast<uint32_t>(random.Below(60));
        state.Add(SequenceId(next_id), prompt);
        twin.Add(next_id++, prompt);
      }
      if (random.Below(2) == 0) {  // of the last ones; also one that is gone or never was
        const uint64_t id = next_id - std::min(next_id - 1, random.Below(12));
        ASSERT_EQ(state.Remove(SequenceId(id)), twin.Remove(id));
      }
      RunOneStep(random, limits, state, twin, &counts);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(counts.items, 30000u);
  EXPECT_GT(counts.asked, 5000u);
}

}  // namespace
}  // namespace tessera
