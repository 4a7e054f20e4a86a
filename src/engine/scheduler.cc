// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace tessera {

void SchedulerState::Add(SequenceId id, uint32_t prompt_tokens) {
  TESSERA_CHECK(prompt_tokens >= 1);
  TESSERA_CHECK(!last_added_.valid() || id > last_added_);
  last_added_ = id;
  waiting_.push_back({.id = id, .prompt_left = prompt_tokens});
}

bool SchedulerState::Remove(SequenceId id) {
  TESSERA_CHECK(!plan_open_);
  auto is_it = [id](const Entry& entry) { return entry.id == id; };
  if (auto it = std::find_if(running_.begin(), running_.end(), is_it); it != running_.end()) {
    running_.erase(it);
    return true;
  }
  if (auto it = std::find_if(waiting_.begin(), waiting_.end(), is_it); it != waiting_.end()) {
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
  }
  plan_open_ = false;
}

void SchedulerState::AdmitWaiting(const SchedulerLimits& limits,
                                  FunctionRef<Admission(SequenceId)> admit) {
  while (!waiting_.empty() && running_.size() < limits.max_running) {
    const Admission outcome = admit(waiting_.front().id);
    if (outcome == Admission::kMustWait) return;
    if (outcome == Admission::kAdmitted) {
      running_.push_back(waiting_.front());
      ++plan_admitted_;
    } else {
      refused_.push_back(waiting_.front().id);
    }
    waiting_.pop_front();
  }
}

void SchedulerState::PlanTokens(Entry& entry, uint32_t tokens) {
  entry.planned = tokens;
  plan_tokens_ += tokens;
  items_.push_back(
      {.id = entry.id, .tokens = tokens, .completes_row = tokens >= entry.prompt_left});
}

void SchedulerState::PlanDecodes(const SchedulerLimits& limits) {
  for (Entry& entry : running_) {
    if (entry.prompt_left == 0) PlanTokens(entry, 1);
  }
  TESSERA_CHECK(plan_tokens_ <= limits.chunk_tokens);
}

void SchedulerState::PlanPrefills(const SchedulerLimits& limits) {
  for (Entry& entry : running_) {
    const uint32_t room = limits.chunk_tokens - plan_tokens_;
    if (room == 0) return;
    if (entry.prompt_left > 0) PlanTokens(entry, std::min(room, entry.prompt_left));
  }
}

Plan Step(SchedulerState& state, const SchedulerLimits& limits,
          FunctionRef<Admission(SequenceId)> admit) {
  TESSERA_CHECK(!state.plan_open_);
  TESSERA_CHECK(limits.max_running >= 1 && limits.chunk_tokens >= limits.max_running);
  state.items_.clear();
  state.items_.reserve(limits.max_running);
  state.running_.reserve(limits.max_running);
  state.refused_.clear();
  state.plan_tokens_ = 0;
  state.plan_admitted_ = 0;
  state.AdmitWaiting(limits, admit);
  state.PlanDecodes(limits);
  state.PlanPrefills(limits);
  state.plan_open_ = true;
  return {.items = state.items_,
          .refused = state.refused_,
          .tokens = state.plan_tokens_,
          .admitted = state.plan_admitted_};
}

}  // namespace tessera
