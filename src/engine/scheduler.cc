// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace tessera {

bool SchedulerState::Before(const Entry& a, const Entry& b) {
  if (a.urgent != b.urgent) return a.urgent;
  if (!a.urgent && a.priority != b.priority) return a.priority < b.priority;
  return a.id < b.id;
}

void SchedulerState::Insert(std::vector<Entry>& entries, const Entry& entry) {
  entries.insert(std::upper_bound(entries.begin(), entries.end(), entry, Before), entry);
}

void SchedulerState::Add(SequenceId id, uint32_t prompt_tokens, int32_t priority) {
  TESSERA_CHECK(prompt_tokens >= 1);
  TESSERA_CHECK(!last_added_.valid() || id > last_added_);
  last_added_ = id;
  // Room for all that run, too: preempting one allocates nothing.
  const size_t all = waiting_.size() + running_.size() + 1;
  if (waiting_.capacity() < all) waiting_.reserve(2 * all);
  refused_.reserve(waiting_.capacity());
  Insert(waiting_, {.id = id, .prompt_left = prompt_tokens, .priority = priority});
}

bool SchedulerState::Remove(SequenceId id) {
  TESSERA_CHECK(!plan_open_);
  auto is_it = [id](const Entry& entry) { return entry.id == id; };
  if (auto it = std::find_if(running_.begin(), running_.end(), is_it); it != running_.end()) {
    running_.erase(it);
    return true;
  }
  if (auto it = std::find_if(waiting_.begin(), waiting_.end(), is_it); it != waiting_.end()) {
    pinned_ -= it->pinned ? 1 : 0;
    waiting_.erase(it);
    return true;
  }
  return false;
}

void SchedulerState::EndStep() {
  TESSERA_CHECK(plan_open_);
  for (Entry& entry : running_) {
    entry.prompt_left -= std::min(entry.prompt_left, entry.planned);
    entry.planned = 0;
    entry.from_row = false;
  }
  plan_open_ = false;
}

// ---- Growth and preemption.

void SchedulerState::GrowDecodes(SchedulerMemory& memory) {
  for (size_t index = 0; index < running_.size();) {
    if (running_[index].prompt_left > 0 || GrowOne(index, memory)) ++index;
  }
}

bool SchedulerState::GrowOne(size_t index, SchedulerMemory& memory) {
  while (true) {
    const uint32_t lacking = memory.Grow(running_[index].id);
    if (lacking == 0) return true;
    const Victim victim = ChooseVictim(index, lacking, memory);
    if (victim.entry == nullptr) {
      const bool others = running_.size() > 1 || pinned_ > 0;
      PreemptRunning(index, others ? Preemption::kPin : Preemption::kRecomputeAlone, memory);
      return false;
    }
    if (victim.runs) {
      PreemptRunning(static_cast<size_t>(victim.entry - running_.data()), victim.way, memory);
    } else {
      GiveUp(*victim.entry, memory);
    }
  }
}

SchedulerState::Victim SchedulerState::ChooseVictim(size_t needer, uint32_t lacking,
                                                    SchedulerMemory& memory) {
  const Entry* pinned = pinned_ > 0 ? LastPinned() : nullptr;
  if (pinned != nullptr && !Before(running_[needer], *pinned)) pinned = nullptr;
  const Entry* last = needer + 1 < running_.size() ? &running_.back() : pinned;
  if (last == nullptr) return {};
  if (pinned != nullptr && Before(*last, *pinned)) last = pinned;

  Victim best;
  // Smaller is better: enough pages, then work lost, else pages freed.
  std::tuple<bool, int64_t> best_cost;
  auto consider = [&](Entry& entry, bool runs) {
    if (!SameClass(entry, *last)) return;
    const PreemptCost cost = memory.CostOf(entry.id);
    TESSERA_CHECK(cost.all_pages >= cost.unused_pages);
    const bool pin = runs && cost.unused_pages >= lacking;
    const bool enough = pin || cost.all_pages >= lacking;
    const std::tuple<bool, int64_t> its(
        !enough, enough ? int64_t{pin ? 0 : cost.lost_tokens} : -int64_t{cost.all_pages});
    const bool later = best.entry == nullptr || Before(*best.entry, entry);
    if (best.entry != nullptr && (its > best_cost || (its == best_cost && !later))) return;
    best = {&entry, runs, pin ? Preemption::kPin : Preemption::kRecompute};
    best_cost = its;
  };
  for (size_t i = needer + 1; i < running_.size(); ++i) consider(running_[i], true);
  if (pinned == nullptr) return best;
  for (Entry& entry : waiting_) {
    if (entry.pinned && Before(running_[needer], entry)) consider(entry, false);
  }
  return best;
}

void SchedulerState::PreemptRunning(size_t index, Preemption way, SchedulerMemory& memory) {
  Entry entry = running_[index];
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  const uint32_t known = memory.Preempt(entry.id, way);
  if (way == Preemption::kPin) {
    entry.pinned = true;
    ++pinned_;
  } else {
    TESSERA_CHECK(known >= 1);
    entry.prompt_left = known;
  }
  ++plan_preempted_;
  Insert(waiting_, entry);
}

void SchedulerState::GiveUp(Entry& entry, SchedulerMemory& memory) {
  TESSERA_CHECK(entry.pinned);
  entry.prompt_left = memory.Preempt(entry.id, Preemption::kRecompute);
  TESSERA_CHECK(entry.prompt_left >= 1);
  entry.pinned = false;
  --pinned_;
  ++plan_preempted_;
}

SchedulerState::Entry* SchedulerState::LastPinned() {
  for (size_t i = waiting_.size(); i > 0; --i) {
    if (waiting_[i - 1].pinned) return &waiting_[i - 1];
  }
  return nullptr;
}

// ---- Admission.

void SchedulerState::AdmitWaiting(const SchedulerLimits& limits, SchedulerMemory& memory) {
  if (waiting_.empty() || running_.size() >= limits.max_running) return;
  AskWaiting(limits, memory);
  const auto gone = std::remove_if(waiting_.begin(), waiting_.end(),
                                   [](const Entry& entry) { return entry.leaves; });
  waiting_.erase(gone, waiting_.end());
  if (!admitted_.empty()) CountPasses(limits);
}

void SchedulerState::CountPasses(const SchedulerLimits& limits) {
  Entry* oldest = nullptr;
  for (Entry& entry : waiting_) {
    if (entry.joined_at == steps_) continue;
    if (oldest == nullptr || entry.id < oldest->id) oldest = &entry;
  }
  if (oldest == nullptr) return;
  for (SequenceId id : admitted_) oldest->passes += id > oldest->id ? 1 : 0;
  if (oldest->urgent || oldest->passes < limits.passes_max) return;
  Entry urgent = *oldest;
  urgent.urgent = true;
  waiting_.erase(waiting_.begin() + (oldest - waiting_.data()));
  Insert(waiting_, urgent);
}

void SchedulerState::AskWaiting(const SchedulerLimits& limits, SchedulerMemory& memory) {
  uint32_t refusals = 0;
  for (size_t i = 0; i < waiting_.size() && running_.size() < limits.max_running; ++i) {
    const AdmitAnswer answer = Ask(waiting_[i], memory);
    switch (answer.outcome) {
      case AdmitAnswer::kAdmitted:
        StartRunning(waiting_[i], answer);
        break;
      case AdmitAnswer::kMustWait:
        if (waiting_[i].urgent || ++refusals >= limits.refusals_max) return;
        break;
      case AdmitAnswer::kWaitsForPrefix:
        waiting_[i].joined_at = steps_;
        break;
      case AdmitAnswer::kNeverFits:
        waiting_[i].leaves = true;
        refused_.push_back(waiting_[i].id);
        break;
    }
  }
}

AdmitAnswer SchedulerState::Ask(Entry& entry, SchedulerMemory& memory) {
  while (true) {
    const bool alone = running_.empty();
    const AdmitAnswer answer =
        memory.Admit(entry.id, {.pinned = entry.pinned, .waives_headroom = alone});
    TESSERA_CHECK(!entry.pinned || answer.outcome == AdmitAnswer::kAdmitted ||
                  answer.outcome == AdmitAnswer::kMustWait);
    // Whose prefix it would be.
    TESSERA_CHECK(!alone || answer.outcome != AdmitAnswer::kWaitsForPrefix);
    if (!alone || answer.outcome != AdmitAnswer::kMustWait) return answer;
    // With nothing running and nothing pinned all memory is free: who must wait then waits for ever.
    TESSERA_CHECK(pinned_ > 0);
    GiveUp(*LastPinned(), memory);
  }
}

void SchedulerState::StartRunning(Entry& entry, const AdmitAnswer& answer) {
  entry.leaves = true;
  Entry started = entry;
  started.leaves = started.pinned = false;
  if (entry.pinned) {
    --pinned_;
  } else {
    TESSERA_CHECK(answer.cached_tokens <= entry.prompt_left);
    TESSERA_CHECK(answer.from_row == (answer.cached_tokens == entry.prompt_left));
    started.prompt_left -= answer.cached_tokens;
    started.from_row = answer.from_row;
  }
  entry.pinned = false;
  Insert(running_, started);
  admitted_.push_back(started.id);
}

// ---- The plan.

void SchedulerState::PlanTokens(Entry& entry, uint32_t tokens) {
  entry.planned = tokens;
  plan_tokens_ += tokens;
  items_.push_back(
      {.id = entry.id, .tokens = tokens, .completes_row = tokens >= entry.prompt_left});
}

void SchedulerState::PlanRowsAndDecodes(const SchedulerLimits& limits) {
  for (Entry& entry : running_) {
    if (entry.prompt_left == 0) PlanTokens(entry, entry.from_row ? 0 : 1);
  }
  TESSERA_CHECK(plan_tokens_ <= limits.chunk_tokens);
}

void SchedulerState::PlanPrefills(const SchedulerLimits& limits, SchedulerMemory& memory) {
  for (Entry& entry : running_) {
    const uint32_t room = limits.chunk_tokens - plan_tokens_;
    if (room == 0) return;
    if (entry.prompt_left == 0) continue;
    const uint32_t to_cut = memory.TokensToCut(entry.id);
    TESSERA_CHECK(to_cut >= 1);
    PlanTokens(entry, std::min({room, entry.prompt_left, to_cut}));
  }
}

Plan Step(SchedulerState& state, const SchedulerLimits& limits, SchedulerMemory& memory) {
  TESSERA_CHECK(!state.plan_open_);
  TESSERA_CHECK(limits.max_running >= 1 && limits.chunk_tokens >= limits.max_running);
  TESSERA_CHECK(limits.refusals_max >= 1);
  ++state.steps_;
  state.items_.clear();
  state.items_.reserve(limits.max_running);
  state.running_.reserve(limits.max_running);
  state.refused_.clear();
  state.plan_tokens_ = 0;
  state.admitted_.clear();
  state.admitted_.reserve(limits.max_running);
  state.plan_preempted_ = 0;
  state.GrowDecodes(memory);
  // What was taken from one is not handed to another that would be the next victim.
  if (state.plan_preempted_ == 0 || state.running_.empty()) state.AdmitWaiting(limits, memory);
  state.PlanRowsAndDecodes(limits);
  state.PlanPrefills(limits, memory);
  state.plan_open_ = true;
  return {.items = state.items_,
          .refused = state.refused_,
          .tokens = state.plan_tokens_,
          .admitted = static_cast<uint32_t>(state.admitted_.size()),
          .preempted = state.plan_preempted_};
}

}  // namespace tessera
