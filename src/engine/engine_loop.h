// SPDX-License-Identifier: Apache-2.0
//
// EngineLoop is the thread that forms one step after another: it takes what was submitted and
// cancelled since the last step, asks the scheduler for a plan, has the executor compute it, and
// hands each sequence's events to its sink.
//
//   Start --> Running --Stop--> Draining (what has not finished ends as cancelled) --> Stopped
//
// L1  Submissions and cancels act between steps only, in the order they came; a sink is called
//     between steps only, without a lock held.
// L2  Store and scheduler are touched under state_mutex_; a step's computation runs without it, so
//     Stats never waits for one.
// L3  Every sequence that was submitted gets exactly one final event, also when stopping.
//
// Failure: a request that fails ends alone with kError. Threads: public methods from any thread,
// Stop not from a sink.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/thread_annotations.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace tessera {

class EngineLoop {
 public:
  // The store and the executor must outlive the loop, which alone uses them from Start on.
  EngineLoop(StateStore* store, Executor* executor, const SchedulerLimits& limits);
  ~EngineLoop();

  // kIo when the system starts no more threads.
  Status Start();
  // Joins the thread; does nothing the second time.
  void Stop();

  // kUnavailable once stopping.
  Result<RequestId> Submit(std::unique_ptr<Sequence> sequence);
  void Cancel(RequestId id);
  EngineStats Stats() const;

 private:
  using SequenceMap = std::unordered_map<uint64_t, std::unique_ptr<Sequence>>;

  void Run();
  // Waits until there is something to do; false when stopping.
  bool TakeCommands();
  void AddSubmitted();
  void CancelAsked();
  void CancelRest();
  void RunStep();
  // Plans a step and takes its memory. Fills items_ and refused_.
  void PlanStep();
  void FailRefused();
  void CloseStep();
  // Called by Step, which PlanStep calls under state_mutex_; the analysis does not see through it.
  AdmitAnswer Admit(SequenceId id);
  // Ends a sequence that the scheduler may or may not still know.
  void Retire(Sequence& sequence) REQUIRES(state_mutex_);
  void EmitAndForget(Sequence* sequence);

  StateStore* const store_;
  Executor* const executor_;
  const SchedulerLimits limits_;
  std::thread thread_;

  Mutex inbox_mutex_;
  CondVar inbox_changed_;
  std::vector<std::unique_ptr<Sequence>> inbox_ GUARDED_BY(inbox_mutex_);
  std::vector<RequestId> cancels_ GUARDED_BY(inbox_mutex_);
  bool stopping_ GUARDED_BY(inbox_mutex_) = false;
  uint64_t next_id_ GUARDED_BY(inbox_mutex_) = 1;

  mutable Mutex state_mutex_;
  SchedulerState scheduler_ GUARDED_BY(state_mutex_);
  EngineStats stats_ GUARDED_BY(state_mutex_);

  // The loop thread's own.
  SequenceMap sequences_;
  std::vector<std::unique_ptr<Sequence>> taken_;
  std::vector<RequestId> taken_cancels_;
  std::vector<ExecutorItem> items_;
  std::vector<Sequence*> refused_;
  bool idle_ = true;
};

}  // namespace tessera
