// SPDX-License-Identifier: Apache-2.0
//
// The scheduler decides which tokens of which sequences the next step computes. It is a pure
// function over its own state: no clock, no I/O, no memory of the engine; whether a sequence may be
// admitted, what of its prompt is known already and where a checkpoint is due are questions it puts
// to the caller. The engine and the simulator run the same code.
//
//   Add --> Waiting --admit--+--> Prefill --last prompt token computed--+--> Decode
//              |             |      |                                   |      |
//              |             +--> FromRow --its row planned and done----+      |
//              |                    |                                          |
//              +---- Remove --------+----------------- Remove -----------------+--> (gone)
//
//   Step      plans one step; the plan stays open until EndStep
//   EndStep   the planned tokens are computed: sequences advance
//   Remove    finished, failed or cancelled; only while no plan is open, so that a cancel acts at
//             the end of a step
//
// A plan is made in this order: admission, in order of arrival, while fewer than max_running run;
// the rows of FromRow; one token for every decoding sequence; then prompt chunks in order of
// arrival until chunk_tokens is used up.
//
// P1  A step has at most chunk_tokens tokens, at most max_running sequences, and each of them once.
//     Every item has tokens, except the first one of a sequence admitted `from_row`.
// P2  Every sequence in Decode when a step begins has exactly one token in it, and one admitted
//     from_row has its row in the step that admits it: neither prefill nor a join delays them.
//     (chunk_tokens >= max_running makes this possible and leaves a waiting prompt at least one
//     token; a row costs no token.)
// P3  While anything runs, a plan is not empty; of the prefills, the one that arrived first
//     advances in every step.
// P4  Plans depend only on the calls made so far: same calls and answers, same plans. The order of
//     items inside a plan carries no meaning.
// P5  Step and EndStep allocate nothing once `max_running` sequences have been seen.
// P6  An item never goes past the caller's next cut: what is due there sees the state of exactly
//     that position.
// P7  Nobody overtakes one that must wait for memory. One that waits for another's prefix keeps its
//     place and lets others past; it is asked again in every step that has a place, before all that
//     arrived after it; when its producer goes it is one of the queue like any other.
//     (inflight_prefills.h, J3, says why such waits end.)
//
// Failure: none; misuse is a CHECK. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/strong_id.h"

namespace tessera {

struct SchedulerLimits {
  uint32_t max_running = 16;    // sequences admitted at a time, at least 1
  uint32_t chunk_tokens = 256;  // tokens in a step, at least max_running
};

struct AdmitAnswer {
  enum Outcome : uint8_t {
    kAdmitted,
    kMustWait,        // for memory: nobody overtakes it
    kWaitsForPrefix,  // a running prefill is about to compute what it needs; others may pass
    kNeverFits,       // removed
  };
  Outcome outcome = kMustWait;
  // When admitted:
  uint32_t cached_tokens = 0;  // of the prompt, from its start: not computed again
  bool from_row = false;       // the whole prompt is cached, and its last row kept
};

struct PlanItem {
  SequenceId id;
  uint32_t tokens = 0;         // to compute in this step; 0: the kept row alone
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
                   FunctionRef<AdmitAnswer(SequenceId)> admit,
                   FunctionRef<uint32_t(SequenceId)> tokens_to_cut);
  struct Entry {
    SequenceId id;
    uint32_t prompt_left = 0;  // 0: decoding, or from_row
    uint32_t planned = 0;      // tokens of the open plan
    bool from_row = false;     // its row is still due
  };
  void AdmitWaiting(const SchedulerLimits& limits, FunctionRef<AdmitAnswer(SequenceId)> admit);
  void StartRunning(Entry entry, const AdmitAnswer& answer);
  void PlanRowsAndDecodes(const SchedulerLimits& limits);
  void PlanPrefills(const SchedulerLimits& limits, FunctionRef<uint32_t(SequenceId)> tokens_to_cut);
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
// the caller holds the memory for it from now on, kWaitsForPrefix that another one runs.
// `tokens_to_cut` is asked for sequences in Prefill: the most tokens that the next item of it may
// have, at least one.
Plan Step(SchedulerState& state, const SchedulerLimits& limits,
          FunctionRef<AdmitAnswer(SequenceId)> admit,
          FunctionRef<uint32_t(SequenceId)> tokens_to_cut);

}  // namespace tessera
