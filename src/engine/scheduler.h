// SPDX-License-Identifier: Apache-2.0
//
// The scheduler decides which tokens of which sequences the next step computes, who gets memory and
// who gives it back. It is a pure function over its own state: no clock, no I/O, no memory of the
// engine; what of that it must know it asks its caller (SchedulerMemory). The engine and the
// simulator run the same code.
//
//                +------------------- recompute --------------------+
//                v                                                  |
//   Add --> Waiting --admit--+--> Prefill --last known token--> Decode <--+
//             |  ^           |       |  ^                        |  ^     |
//             |  |           +--> FromRow --its row is done------|--|-----+
//             |  |                   |  |                        |  |
//             |  |                  pin resume                  pin resume
//             |  |                   v  |                        v  |
//             |  +---- give up ----- Pinned ------------------- Pinned
//             |
//             +--never fits--> (gone)            Remove: from anywhere --> (gone)
//
//   Waiting   holds nothing. One that waits for a prefix that another computes is joining it
//   Prefill   tokens that are known (the prompt; after a recompute also what was sampled) are to be
//             computed
//   FromRow   all of them are cached and the last row kept: the row alone is due
//   Decode    one token a step
//   Pinned    its state stays, what it was promised beyond that is given back; it does not run
//
//   Step      plans one step; the plan stays open until EndStep
//   EndStep   the planned tokens are computed: sequences advance
//   Remove    finished, failed or cancelled; only while no plan is open, so that a cancel acts at
//             the end of a step
//
// The rank of a sequence: urgent ones first, by order of arrival; then by priority, lower ones first,
// and order of arrival. It is the order in which those that wait are asked, prefills get tokens, and
// memory is found for decodes.
//
// A step is planned in this order:
//   1 growth: every decode, by rank, gets the memory its token needs; where there is none, one
//     sequence after another is preempted until there is
//   2 admission of those that wait, by rank, while fewer than max_running run; not when 1 preempted
//     somebody and anything runs
//   3 the rows of FromRow; one token for every decode; then prompt chunks by rank until chunk_tokens
//     is used up
//
// The victim of a preemption is looked for among those behind the one that lacks memory, and of
// these in the class of the last (urgent, or of one priority): by bytes and time,
//   - of those with enough pages, the one that loses least work: nothing when what it was promised
//     and has not used is enough (pin), else what it would compute again (recompute). A pinned one is
//     a victim like any other, and given up
//   - when none has enough, the one that frees most
//   - of equals, the last in rank.
// When nobody is behind it is the victim itself: pinned until others give memory back, recomputed
// when there are no others.
//
// P1  A step has at most chunk_tokens tokens, at most max_running sequences, and each of them once.
//     Every item has tokens, except the first one of a sequence admitted `from_row`.
// P2  Every sequence in Decode when a step begins has exactly one token in it or is preempted by it,
//     and one admitted from_row has its row in the step that admits it: neither prefill nor a join
//     delays them. (chunk_tokens >= max_running makes this possible and leaves a waiting prompt at
//     least one token; a row costs no token.)
// P3  While there is any sequence, a plan is not empty, or refuses the last; of the prefills, the
//     first in rank advances in every step.
// P4  Plans depend only on the calls made so far: same calls and answers, same plans. The order of
//     items inside a plan carries no meaning.
// P5  Step and EndStep allocate nothing once `max_running` sequences have been seen.
// P6  An item never goes past the caller's next cut: what is due there sees the state of exactly
//     that position.
// P7  Nobody starves. One that must wait for a place or for memory lets others past, but not for
//     ever: when `passes_max` younger ones were admitted while it was the oldest that does, it is
//     urgent, for good: of those behind it nobody is admitted before it. So a sequence with k older
//     ones unfinished sees, in steps in which it does not wait for a prefix, at most
//     (k + 1) · (passes_max + max_running) younger ones admitted while it waits, whatever their
//     priority. (max_running: in the step in which the count is reached.)
// P8  The first in rank of those that run or are pinned is preempted only when nobody else holds
//     anything. With P7 every sequence ends, whatever arrives later.
// P9  One that waits for another's prefix keeps its place and lets others past; it is asked again in
//     every step that has a place; when its producer goes, or is preempted, it is one of the queue
//     like any other. (inflight_prefills.h, J3, says why such waits end.)
// P10 While nothing runs, the first in rank is admitted or refused: pinned ones are given up for it,
//     last in rank first.
//
// Failure: none; misuse is a CHECK. Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/strong_id.h"

namespace tessera {

struct SchedulerLimits {
  uint32_t max_running = 16;    // sequences admitted at a time, at least 1
  uint32_t chunk_tokens = 256;  // tokens in a step, at least max_running
  uint32_t passes_max = 16;     // P7
  // Sequences told to wait for memory in one step before no more are asked: each costs a look-up.
  uint32_t refusals_max = 8;
};

struct AdmitTerms {
  bool pinned = false;           // its state is there: what it gave back is asked for
  bool waives_headroom = false;  // nothing runs: all memory is for it
};

struct AdmitAnswer {
  enum Outcome : uint8_t {
    kAdmitted,
    kMustWait,        // for memory
    kWaitsForPrefix,  // a running prefill is about to compute what it needs; not for a pinned one
    kNeverFits,       // removed; not for a pinned one
  };
  Outcome outcome = kMustWait;
  // When admitted, and not pinned:
  uint32_t cached_tokens = 0;  // of those known, from the first: not computed again
  bool from_row = false;       // all of them are cached, and the last row kept
};

enum class Preemption : uint8_t {
  kPin,             // keeps its state, gives back what it was promised beyond that
  kRecompute,       // gives back everything; what it computed may still be found when it returns
  kRecomputeAlone,  // the same, and nobody else holds anything: what it left for others to find is
                    // in its own way, so from now on it leaves nothing
};

// What preempting a sequence would give and cost, in pages of the pool that decodes grow in.
struct PreemptCost {
  uint32_t unused_pages = 0;  // promised and not used: what a pin gives back
  uint32_t all_pages = 0;     // what recomputing gives back, at least unused_pages
  uint32_t lost_tokens = 0;   // that recomputing computes again
};

// The questions of Step. Answers hold from then on: kAdmitted and a granted growth mean that the
// caller has taken the memory.
class SchedulerMemory {
 public:
  virtual AdmitAnswer Admit(SequenceId id, const AdmitTerms& terms) = 0;
  // Memory for the next token of a decode. 0 when it has it, else the pages that lack.
  virtual uint32_t Grow(SequenceId id) = 0;
  virtual PreemptCost CostOf(SequenceId id) = 0;
  // For kPin 0; else the tokens of the sequence that are known, at least 1.
  virtual uint32_t Preempt(SequenceId id, Preemption way) = 0;
  // The most tokens that the next item of a prefill may have, at least one.
  virtual uint32_t TokensToCut(SequenceId id) = 0;

 protected:
  ~SchedulerMemory() = default;
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
  uint32_t admitted = 0;   // in this step, resumed ones among them
  uint32_t preempted = 0;  // likewise, pinned ones that were given up among them
};

class SchedulerState {
 public:
  // `prompt_tokens` >= 1; ids are new and ascending (their order is the order of arrival).
  void Add(SequenceId id, uint32_t prompt_tokens, int32_t priority = 0);
  // False when there is no such sequence. CHECKs that no plan is open.
  bool Remove(SequenceId id);
  // CHECKs that a plan is open.
  void EndStep();

  // Those that do not run: new, preempted, pinned.
  uint32_t waiting() const { return static_cast<uint32_t>(waiting_.size()); }
  uint32_t running() const { return static_cast<uint32_t>(running_.size()); }
  uint32_t pinned() const { return pinned_; }
  bool empty() const { return waiting_.empty() && running_.empty(); }
  bool plan_open() const { return plan_open_; }

 private:
  friend Plan Step(SchedulerState& state, const SchedulerLimits& limits, SchedulerMemory& memory);
  struct Entry {
    SequenceId id;
    uint32_t prompt_left = 0;  // known tokens to compute; 0: decoding, or from_row
    uint32_t planned = 0;      // tokens of the open plan
    int32_t priority = 0;
    uint32_t passes = 0;     // P7
    uint64_t joined_at = 0;  // the step in which it last waited for a prefix
    bool from_row = false;   // its row is still due
    bool pinned = false;
    bool urgent = false;
    bool leaves = false;  // waiting_ forgets it at the end of admission
  };
  struct Victim {
    Entry* entry = nullptr;  // null: there is none
    bool runs = false;
    Preemption way = Preemption::kRecompute;
  };
  static bool Before(const Entry& a, const Entry& b);
  static bool SameClass(const Entry& a, const Entry& b) {
    return a.urgent == b.urgent && (a.urgent || a.priority == b.priority);
  }
  static void Insert(std::vector<Entry>& entries, const Entry& entry);

  void GrowDecodes(SchedulerMemory& memory);
  // Whether running_[index] still runs afterwards.
  bool GrowOne(size_t index, SchedulerMemory& memory);
  Victim ChooseVictim(size_t needer, uint32_t lacking, SchedulerMemory& memory);
  void PreemptRunning(size_t index, Preemption way, SchedulerMemory& memory);
  void GiveUp(Entry& entry, SchedulerMemory& memory);
  Entry* LastPinned();

  void AdmitWaiting(const SchedulerLimits& limits, SchedulerMemory& memory);
  void AskWaiting(const SchedulerLimits& limits, SchedulerMemory& memory);
  AdmitAnswer Ask(Entry& entry, SchedulerMemory& memory);
  void StartRunning(Entry& entry, const AdmitAnswer& answer);
  // Counts those who were passed in this step.
  void CountPasses(const SchedulerLimits& limits);

  void PlanRowsAndDecodes(const SchedulerLimits& limits);
  void PlanPrefills(const SchedulerLimits& limits, SchedulerMemory& memory);
  void PlanTokens(Entry& entry, uint32_t tokens);

  std::vector<Entry> waiting_;  // by rank
  std::vector<Entry> running_;  // by rank
  std::vector<PlanItem> items_;
  std::vector<SequenceId> refused_;
  std::vector<SequenceId> admitted_;  // in this step
  SequenceId last_added_;
  uint64_t steps_ = 0;
  uint32_t pinned_ = 0;
  uint32_t plan_tokens_ = 0;
  uint32_t plan_preempted_ = 0;
  bool plan_open_ = false;
};

// Opens a plan.
Plan Step(SchedulerState& state, const SchedulerLimits& limits, SchedulerMemory& memory);

}  // namespace tessera
