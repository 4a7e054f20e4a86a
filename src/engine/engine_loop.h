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
// L2  Scheduler and sequences are the loop thread's own; what others may read of them is copied
//     under stats_mutex_, so Stats never waits for a step.
// L3  Every sequence that was submitted gets exactly one final event, also when stopping.
// L4  State is published after the step that wrote it has ended, and before the waiting requests
//     are asked again; that of a sequence that is to be recomputed before its memory goes.
// L5  A producer that is preempted is in flight no more: who waited for it is asked like any other.
//
// Failure: a request that fails ends alone with kError. Threads: public methods from any thread,
// Stop not from a sink.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/thread_annotations.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/inflight_prefills.h"
#include "engine/request_board.h"
#include "engine/request_meter.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace tessera {

struct LoopOptions {
  SchedulerLimits limits;
  double headroom = 0;
  bool reuse = true;
  bool keeps_rows = true;  // so that a whole prompt can be reused
  uint32_t checkpoint_grid = 1;
  IsolateKind isolate = IsolateKind::kOff;
  FinishedObserver on_finished;
};

class EngineLoop final : private SchedulerMemory {
 public:
  // The store and the executor must outlive the loop, which alone uses them from Start on.
  EngineLoop(StateStore* store, Executor* executor, const LoopOptions& options);
  ~EngineLoop();

  // kIo when the system starts no more threads.
  Status Start();
  // Joins the thread; does nothing the second time.
  void Stop();

  // The next number of a request: also of one that is not taken.
  RequestId TakeId();
  // kUnavailable once stopping.
  Result<RequestId> Submit(std::unique_ptr<Sequence> sequence);
  void Cancel(RequestId id);
  EngineStats Stats() const;
  RequestMetrics Requests() const { return meter_.Read(); }
  RequestList RecentRequests() const { return board_.Read(); }

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
  // Called by Step.
  AdmitAnswer Admit(SequenceId id, const AdmitTerms& terms) override;
  uint32_t Grow(SequenceId id) override;
  PreemptCost CostOf(SequenceId id) override;
  uint32_t Preempt(SequenceId id, Preemption way) override;
  uint32_t TokensToCut(SequenceId id) override;
  // Whether the sequence waits for a running prefill, the one it knows or the best there is now.
  bool WaitsForPrefix(Sequence& sequence);
  SequenceRequest StateRequestOf(const Sequence& sequence) const;
  AdmitAnswer ResumePinned(Sequence& sequence, double headroom);
  std::optional<Join> FindJoin(const Sequence& sequence) const;
  // From now on others may wait for what of its prompt it is about to compute.
  void OfferPrefill(const Sequence& sequence);
  void Publish(Sequence& sequence, std::span<const float> row, bool last);
  // After its step: counts, publishes what is due and ends it when it has finished.
  void CloseItem(size_t index, uint64_t now_ns);
  void CountItem(const ExecutorItem& item);
  // Whether others find what the sequence leaves.
  bool Publishes(const Sequence& sequence) const;
  // Ends a sequence that the scheduler may or may not still know.
  void Retire(Sequence& sequence);
  void EmitAndForget(Sequence* sequence);
  // After a step in which the sequence sampled a token.
  void CountToken(const Sequence& sequence, uint64_t last_token_ns);
  void CopyStats();

  Sequence& At(SequenceId id) { return *sequences_.find(id.index())->second; }

  StateStore* const store_;
  Executor* const executor_;
  const LoopOptions options_;
  std::thread thread_;

  Mutex inbox_mutex_;
  CondVar inbox_changed_;
  std::vector<std::unique_ptr<Sequence>> inbox_ GUARDED_BY(inbox_mutex_);
  std::vector<RequestId> cancels_ GUARDED_BY(inbox_mutex_);
  bool stopping_ GUARDED_BY(inbox_mutex_) = false;
  uint64_t next_id_ GUARDED_BY(inbox_mutex_) = 1;

  mutable Mutex stats_mutex_;
  EngineStats seen_stats_ GUARDED_BY(stats_mutex_);

  // The loop thread's own.
  SchedulerState scheduler_;
  InflightPrefills prefills_;
  EngineStats stats_;
  RequestMeter meter_;  // others read it
  RequestBoard board_;  // and it
  SequenceMap sequences_;
  std::vector<std::unique_ptr<Sequence>> taken_;
  std::vector<RequestId> taken_cancels_;
  std::vector<ExecutorItem> items_;
  std::vector<Sequence*> refused_;
  bool idle_ = true;
};

}  // namespace tessera
