// SPDX-License-Identifier: Apache-2.0
//
// The scheduler decides which tokens of which sequences the next step computes. It is a pure
// function over its own state: no clock, no I/O, no memory of the engine; whether a sequence may be
// admitted is a question it puts to the caller. The engine and the simulator run the same code.
//
//   Add --> Waiting --admit--> Prefill --last prompt token computed--> Decode
//              |                  |                                      |
//              +---- Remove ------+------------- Remove -----------------+--> (gone)
//
//   Step      plans one step; the plan stays open until EndStep
//   EndStep   the planned tokens are computed: sequences advance
//   Remove    finished, failed or cancelled; only while no plan is open, so that a cancel acts at
//             the end of a step
//
// A plan is made in this order: admission, first come first served, while fewer than max_running
// run and the caller admits (the first one that must wait stops it: nobody overtakes); one token
// for every decoding sequence; then prompt chunks in order of arrival until chunk_tokens is used
// up.
//
// P1  A step has at most chunk_tokens tokens, at most max_running sequences, and each of them once.
// P2  Every sequence in Decode when a step begins has exactly one token in it: prefill never delays
//     a decode. (chunk_tokens >= max_running makes this possible and leaves a waiting prompt at
//     least one token.)
// P3  While anything runs, a plan is not empty; the oldest prefill advances in every step.
// P4  Plans depend only on the calls made so far: same calls and answers, same plans. The order of
//     items inside a plan carries no meaning.
// P5  Step and EndStep allocate nothing once `max_running` sequences have been seen.
//
// Failure: none; misuse is a CHECK. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/strong_id.h"
#include "memory/store/state_store.h"

namespace tessera {

struct SchedulerLimits {
  uint32_t max_running = 16;    // sequences admitted at a time, at least 1
  uint32_t chunk_tokens = 256;  // tokens in a step, at least max_running
};

struct PlanItem {
  SequenceId id;
  uint32_t tokens = 0;         // to compute in this step, at least one
  bool completes_row = false;  // its last token's row predicts a token: the prompt ends, or decode
};

// Views of the state's own buffers: valid until the next Step.
struct Plan {
  std::span<const PlanItem> items;
  std::span<const SequenceId> refused;  // the caller said kNeverFits: already removed
  uint32_t tokens = 0;
  uint32_t admitted = 0;  // in this step
};

class SchedulerState {
 public:
  // `prompt_tokens` >= 1; ids are new and ascending (their order is the order of arrival).
  void Add(SequenceId id, uint32_t prompt_tokens);
  // False when there is no such sequence. CHECKs that no plan is open.
  bool Remove(SequenceId id);
  // CHECKs that a plan is open.
  void EndStep();

  uint32_t waiting() const { return static_cast<uint32_t>(waiting_.size()); }
  uint32_t running() const { return static_cast<uint32_t>(running_.size()); }
  bool empty() const { return waiting_.empty() && running_.empty(); }
  bool plan_open() const { return plan_open_; }

 private:
  friend Plan Step(SchedulerState& state, const SchedulerLimits& limits,
                   FunctionRef<Admission(SequenceId)> admit);
  struct Entry {
    SequenceId id;
    uint32_t prompt_left = 0;  // 0: decoding
    uint32_t planned = 0;      // tokens of the open plan
  };
  void AdmitWaiting(const SchedulerLimits& limits, FunctionRef<Admission(SequenceId)> admit);
  void PlanDecodes(const SchedulerLimits& limits);
  void PlanPrefills(const SchedulerLimits& limits);
  void PlanTokens(Entry& entry, uint32_t tokens);

  std::deque<Entry> waiting_;
  std::vector<Entry> running_;  // in order of arrival
  std::vector<PlanItem> items_;
  std::vector<SequenceId> refused_;
  SequenceId last_added_;
  uint32_t plan_tokens_ = 0;
  uint32_t plan_admitted_ = 0;
  bool plan_open_ = false;
};

// Opens a plan. `admit` is asked in order of arrival, for sequences that wait; kAdmitted means that
// the caller holds the memory for it from now on.
Plan Step(SchedulerState& state, const SchedulerLimits& limits,
          FunctionRef<Admission(SequenceId)> admit);

}  // namespace tessera
