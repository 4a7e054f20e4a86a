// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "port/clock.h"
#include "port/float_environment.h"

namespace tessera {

EngineLoop::EngineLoop(StateStore* store, Executor* executor, const SchedulerLimits& limits)
    : store_(store), executor_(executor), limits_(limits) {
  items_.reserve(limits.max_running);
}

EngineLoop::~EngineLoop() { Stop(); }

Status EngineLoop::Start() {
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return IoError(fmt::format("cannot start the engine's thread: {}", error.code().message()));
  }
  return Status::Ok();
}

void EngineLoop::Stop() {
  {
    MutexLock lock(inbox_mutex_);
    stopping_ = true;
  }
  inbox_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<RequestId> EngineLoop::Submit(std::unique_ptr<Sequence> sequence) {
  RequestId id;
  {
    MutexLock lock(inbox_mutex_);
    if (stopping_) return Status(StatusCode::kUnavailable, "the engine is shutting down");
    id = RequestId(next_id_++);
    sequence->set_id(id);
    inbox_.push_back(std::move(sequence));
  }
  inbox_changed_.notify_all();
  return id;
}

void EngineLoop::Cancel(RequestId id) {
  if (!id.valid()) return;
  {
    MutexLock lock(inbox_mutex_);
    if (stopping_) return;
    cancels_.push_back(id);
  }
  inbox_changed_.notify_all();
}

EngineStats EngineLoop::Stats() const {
  MutexLock lock(state_mutex_);
  EngineStats stats = stats_;
  stats.store = store_->Stats();
  stats.running = scheduler_.running();
  stats.waiting = scheduler_.waiting();
  return stats;
}

void EngineLoop::Run() {
  ScopedFloatEnvironment environment;
  while (TakeCommands()) {
    AddSubmitted();
    CancelAsked();
    RunStep();
  }
  AddSubmitted();
  CancelRest();
}

bool EngineLoop::TakeCommands() {
  MutexLock lock(inbox_mutex_);
  while (idle_ && inbox_.empty() && cancels_.empty() && !stopping_) {
    inbox_changed_.wait(inbox_mutex_);
  }
  // Swapped, so that both sides keep their capacity.
  taken_.swap(inbox_);
  taken_cancels_.swap(cancels_);
  return !stopping_;
}

void EngineLoop::AddSubmitted() {
  MutexLock lock(state_mutex_);
  for (std::unique_ptr<Sequence>& sequence : taken_) {
    const uint64_t key = sequence->id().index();
    scheduler_.Add(SequenceId(key), sequence->prompt_size());
    sequences_.emplace(key, std::move(sequence));
  }
  taken_.clear();
}

void EngineLoop::CancelAsked() {
  for (RequestId id : taken_cancels_) {
    auto found = sequences_.find(id.index());
    if (found == sequences_.end()) continue;  // finished already
    Sequence* sequence = found->second.get();
    sequence->Finish(FinishReason::kCancelled);
    {
      MutexLock lock(state_mutex_);
      Retire(*sequence);
    }
    EmitAndForget(sequence);
  }
  taken_cancels_.clear();
}

void EngineLoop::CancelRest() {
  while (!sequences_.empty()) {
    Sequence* sequence = sequences_.begin()->second.get();
    sequence->Finish(FinishReason::kCancelled);
    {
      MutexLock lock(state_mutex_);
      Retire(*sequence);
    }
    EmitAndForget(sequence);
  }
}

void EngineLoop::RunStep() {
  PlanStep();
  FailRefused();
  if (!items_.empty()) executor_->Compute();
  CloseStep();
}

AdmitAnswer EngineLoop::Admit(SequenceId id) {
  Sequence& sequence = *sequences_.at(id.index());
  AdmitResult result = store_->Admit(sequence.max_positions());
  switch (result.outcome) {
    case Admission::kAdmitted:
      sequence.Admit(std::move(*result.sequence));
      return {.outcome = AdmitAnswer::kAdmitted};
    case Admission::kMustWait:
      return {.outcome = AdmitAnswer::kMustWait};
    case Admission::kNeverFits:
      break;
  }
  sequence.Finish(FinishReason::kError, NoMemory(std::move(result.reason)));
  refused_.push_back(&sequence);
  return {.outcome = AdmitAnswer::kNeverFits};
}

void EngineLoop::PlanStep() {
  MutexLock lock(state_mutex_);
  const auto admit = [this](SequenceId id) { return Admit(id); };
  const auto tokens_to_cut = [](SequenceId) { return std::numeric_limits<uint32_t>::max(); };
  const Plan plan = Step(scheduler_, limits_, admit, tokens_to_cut);
  // With nothing running the whole store is free: who must wait then would wait for ever.
  TESSERA_CHECK(!plan.items.empty() || scheduler_.empty());
  const uint64_t now_ns = NowNs();
  items_.clear();
  for (const PlanItem& item : plan.items) {
    Sequence* sequence = sequences_.find(item.id.index())->second.get();
    sequence->BeginStep(now_ns);
    items_.push_back({sequence, item.tokens, item.completes_row});
  }
  executor_->Begin(items_);
}

void EngineLoop::FailRefused() {
  for (Sequence* sequence : refused_) EmitAndForget(sequence);
  refused_.clear();
}

void EngineLoop::CloseStep() {
  {
    MutexLock lock(state_mutex_);
    executor_->End();
    scheduler_.EndStep();
    const uint64_t now_ns = NowNs();
    if (!items_.empty()) ++stats_.steps;
    for (const ExecutorItem& item : items_) {
      Sequence& sequence = *item.sequence;
      const uint32_t prompt_left =
          sequence.prompt_size() - std::min(sequence.computed(), sequence.prompt_size());
      stats_.prompt_tokens += std::min(prompt_left, item.tokens);
      const uint32_t sampled_before = sequence.completion_tokens();
      sequence.EndStep(item.tokens, item.completes_row, now_ns);
      stats_.completion_tokens += sequence.completion_tokens() - sampled_before;
      if (sequence.finished()) Retire(sequence);
    }
    idle_ = scheduler_.empty();
  }
  for (const ExecutorItem& item : items_) EmitAndForget(item.sequence);
  items_.clear();
}

void EngineLoop::Retire(Sequence& sequence) {
  scheduler_.Remove(SequenceId(sequence.id().index()));
  sequence.ReleaseState();
  if (sequence.cancelled()) {
    ++stats_.requests_cancelled;
  } else {
    ++stats_.requests_finished;
  }
}

void EngineLoop::EmitAndForget(Sequence* sequence) {
  sequence->Emit();
  if (sequence->finished()) sequences_.erase(sequence->id().index());
}

}  // namespace tessera
