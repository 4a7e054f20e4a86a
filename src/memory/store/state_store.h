// SPDX-License-Identifier: Apache-2.0
//
// StateStore is the state memory of an engine: one pre-faulted arena of exactly the budget's pages,
// the pools an Organisation cuts it into, and the state of the sequences that live in it. It is the
// only memory header other modules include.
//
// A sequence:
//
//   (none) --Admit--> Admitted --BeginStep--> InStep --EndStep--> Admitted --(dropped)--> (none)
//
//   Admit      reserves, over all kinds and before anything is computed, the pages of `max_tokens`
//              of attention and of the live image (two images when the sequence may fork); after a
//              grant no allocation of the sequence can fail
//   BeginStep  takes pages for the tokens the step will write and hands out their addresses; with
//              `fork` the image is written to fresh members and the old ones are left as they were
//   EndStep    the step's writes are complete: position advances, forked-from members are freed
//   dropping   (in a step or out of one) returns every page and what is left of the reservation
//
// S1  For each pool, after every call: free + reserved + held = total. Validate checks it.
// S2  A page is held by at most one sequence.
// S3  BeginStep never fails and never allocates from the heap after Admit.
// S4  Freed pages, and all of them before their first use, are filled with 0xFF (a NaN in bf16 and
//     fp32) when poisoning is on.
//
// Failure: Create gives kNoMemory (with the bytes needed) or kInvalidArgument. Admission outcomes
// are an enum with the number that decided. Threads: one at a time, except that the bytes a
// StateView points at belong to the running step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/geometry/organisation.h"
#include "memory/geometry/state_view.h"

namespace tessera {

struct StoreOptions {
  StateShape shape;
  OrganisationSpec organisation;
  uint64_t budget_bytes = 0;
  bool poison = false;        // tests: fill freed pages with 0xFF
  uint64_t shuffle_seed = 0;  // tests: non-zero hands out pages in a random order
};

// What a sequence of some length takes, per pool of the organisation, in pages.
struct StateNeed {
  std::vector<uint32_t> pages;  // whole pages, by pool; a slot counts in `slots`
  uint32_t slots = 0;
  uint64_t bytes = 0;  // all planes; slots by their own bytes
};

enum class Admission : uint8_t { kAdmitted, kMustWait, kNeverFits };

struct PoolStats {
  std::string name;
  uint64_t unit_bytes = 0;  // all planes
  uint32_t total_pages = 0;
  uint32_t free_pages = 0;
  uint32_t reserved_pages = 0;
  uint32_t held_attention_pages = 0;
  uint32_t held_state_pages = 0;  // slab pages included
  uint32_t slab_pages = 0;
  uint32_t used_slots = 0;
  uint32_t total_slots = 0;  // in the slab pages
};

// Bytes of live state by kind, all planes: what is really written, without rounding.
struct StoreStats {
  uint64_t budget_bytes = 0;
  uint64_t arena_bytes = 0;  // what the pools take of it
  std::vector<PoolStats> pools;
  uint64_t attention_bytes = 0;
  uint64_t ssm_bytes = 0;
  uint64_t conv_bytes = 0;
  uint32_t sequences = 0;
  double mean_run_bytes = 0;  // mean contiguous run of images, one plane; 0 when none
};

class StateStore;

class SequenceState {
 public:
  SequenceState(SequenceState&& other) noexcept;
  SequenceState& operator=(SequenceState&& other) noexcept;
  ~SequenceState();

  uint64_t position() const;    // tokens whose state is complete
  uint64_t max_tokens() const;  // admitted for

  // The state addresses for writing tokens [position, position + tokens). CHECKs that it stays
  // within max_tokens and that no step is open. `fork` needs an admission with `may_fork`.
  StateView BeginStep(uint32_t tokens, bool fork = false);
  // Groups that this step is the first to write: [first, last). The step zeroes them before use.
  uint32_t first_new_group() const;
  uint32_t last_new_group() const;
  void EndStep();

 private:
  friend class StateStore;
  struct State;
  explicit SequenceState(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct AdmitResult {
  Admission outcome = Admission::kMustWait;
  std::optional<SequenceState> sequence;  // when kAdmitted
  std::string reason;                     // otherwise: pool, pages needed, pages there are
};

class StateStore {
 public:
  // Maps and pre-faults the arena. The store must outlive its sequences.
  static Result<std::unique_ptr<StateStore>> Create(const StoreOptions& options);
  ~StateStore();

  const StateShape& shape() const;
  const Organisation& organisation() const;

  StateNeed NeedFor(uint64_t max_tokens, bool may_fork = false) const;
  // The least budget with which an otherwise empty store admits it; 2^64-1 when none could.
  uint64_t BudgetFor(uint64_t max_tokens, bool may_fork = false) const;
  // The same for so many sequences together, before there is a store.
  static Result<uint64_t> BudgetForSequences(const StateShape& shape,
                                             const OrganisationSpec& organisation,
                                             uint32_t sequences, uint64_t max_tokens,
                                             bool may_fork = false);
  AdmitResult Admit(uint64_t max_tokens, bool may_fork = false);

  StoreStats Stats() const;
  // Level 1 O(1), 2 O(pages), 3 everything. Returns what is wrong, or ok.
  Status Validate(int level) const;

  struct Impl;

 private:
  explicit StateStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
