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
    entry.from_row = false;
  }
  plan_open_ = false;
}

void SchedulerState::AdmitWaiting(const SchedulerLimits& limits,
                                  FunctionRef<AdmitAnswer(SequenceId)> admit) {
  auto kept = waiting_.begin();  // those who wait for a prefix move here, in their order
  auto next = waiting_.begin();
  for (; next != waiting_.end() && running_.size() < limits.max_running; ++next) {
    const AdmitAnswer answer = admit(next->id);
    if (answer.outcome == AdmitAnswer::kMustWait) break;
    if (answer.outcome == AdmitAnswer::kAdmitted) {
      StartRunning(*next, answer);
    } else if (answer.outcome == AdmitAnswer::kWaitsForPrefix) {
      TESSERA_CHECK(!running_.empty());  // whose prefix it would be
      *kept++ = *next;
    } else {
      refused_.push_back(next->id);
    }
  }
  waiting_.erase(kept, next);
}

void SchedulerState::StartRunning(Entry entry, const AdmitAnswer& answer) {
  TESSERA_CHECK(answer.cached_tokens <= entry.prompt_left);
  TESSERA_CHECK(answer.from_row == (answer.cached_tokens == entry.prompt_left));
  entry.prompt_left -= answer.cached_tokens;
  entry.from_row = answer.from_row;
  // One that waited for a prefix may have been overtaken: running_ stays in order of arrival.
  const auto later = [](const Entry& a, const Entry& b) { return a.id < b.id; };
  running_.insert(std::upper_bound(running_.begin(), running_.end(), entry, later), entry);
  ++plan_admitted_;
}

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

void SchedulerState::PlanPrefills(const SchedulerLimits& limits,
                                  FunctionRef<uint32_t(SequenceId)> tokens_to_cut) {
  for (Entry& entry : running_) {
    const uint32_t room = limits.chunk_tokens - plan_tokens_;
    if (room == 0) return;
    if (entry.prompt_left == 0) continue;
    const uint32_t to_cut = tokens_to_cut(entry.id);
    TESSERA_CHECK(to_cut >= 1);
    PlanTokens(entry, std::min({room, entry.prompt_left, to_cut}));
  }
}

Plan Step(SchedulerState& state, const SchedulerLimits& limits,
          FunctionRef<AdmitAnswer(SequenceId)> admit,
          FunctionRef<uint32_t(SequenceId)> tokens_to_cut) {
  TESSERA_CHECK(!state.plan_open_);
  TESSERA_CHECK(limits.max_running >= 1 && limits.chunk_tokens >= limits.max_running);
  state.items_.clear();
  state.items_.reserve(limits.max_running);
  state.running_.reserve(limits.max_running);
  state.refused_.clear();
  state.plan_tokens_ = 0;
  state.plan_admitted_ = 0;
  state.AdmitWaiting(limits, admit);
  state.PlanRowsAndDecodes(limits);
  state.PlanPrefills(limits, tokens_to_cut);
  state.plan_open_ = true;
  return {.items = state.items_,
          .refused = state.refused_,
          .tokens = state.plan_tokens_,
          .admitted = state.plan_admitted_};
}

}  // namespace tessera
