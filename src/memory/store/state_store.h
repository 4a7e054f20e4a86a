// SPDX-License-Identifier: Apache-2.0
//
// StateStore is the state memory of an engine: one pre-faulted arena of exactly the budget's pages,
// the pools an Organisation cuts it into, the state of the sequences that live in it, and what they
// left behind for others to start from. It is the only memory header other modules include.
//
// A sequence:
//
//   (none) --Admit--> Admitted --BeginStep--> InStep --EndStep--> Admitted --(dropped)--> (none)
//                        ^  |                          ^  |
//                        +--+ Publish, Grow            |  Pause
//                                                    Resume |
//                                                      |  v
//                                                     Paused --(dropped)--> (none)
//
//   Admit      finds the longest prefix of the prompt whose state is there, takes hold of it, and
//              reserves, over all kinds and before anything is computed, the pages of the rest of
//              `reserve_tokens` of attention, the copy of a shared block among them, and of the live
//              image (two when the sequence may fork); cached state that nobody holds gives way.
//              After a grant no allocation up to reserved_tokens() can fail. The sequence begins at
//              position() = match().reused
//   Grow       reserves for more tokens, in the same way
//   Pause      gives back what is reserved and not used; what is computed stays, and is nobody
//              else's. Resume reserves as much again
//   BeginStep  takes pages for the tokens the step will write and hands out their addresses. Where
//              the image or the last block is shared it hands out fresh members to write and leaves
//              the others as they are: a checkpoint is the old image, nothing is copied
//   CopyShared the one copy there is: groups of a shared block that the step appends to
//   EndStep    the step's writes are complete: position advances
//   Publish    between steps: what was computed becomes findable, at this position
//   dropping   (in a step or out of one) returns every page and what is left of the reservation
//
// S1  For each pool, after every call: free + reserved + held + cached + draining = total.
// S2  A page is written by at most one sequence; what is published is never written again.
// S3  BeginStep, CopyShared, EndStep and Publish never fail and never allocate from the heap.
// S4  Freed pages, and all of them before their first use, are filled with 0xFF (a NaN in bf16 and
//     fp32) when poisoning is on.
// S5  A refused admission holds nothing and, unless something else was freed for it in vain, has
//     changed nothing. What an admission reuses is held before anything is evicted for it.
// S6  Publishing is optional work: it takes only free memory or what is worth less, and skips and
//     counts when there is none.
// S7  A sequence that shares nothing with others computes what it would in an empty store.
//
// Failure: Create gives kNoMemory (with the bytes needed) or kInvalidArgument. Admission outcomes
// are an enum with the number that decided. Threads: StateStore from any thread, a SequenceState
// from one at a time; both take the ledger's lock. The bytes a StateView points at belong to the
// running step; CopyShared takes no lock and may run beside other sequences'.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"
#include "memory/geometry/organisation.h"
#include "memory/geometry/state_view.h"
#include "memory/prefix/isolation.h"
#include "memory/prefix/match.h"
#include "memory/prefix/policy.h"
#include "memory/store/page_map.h"

namespace tessera {

// How what was computed is kept and found again.
struct ReuseOptions {
  bool enabled = true;           // false: nothing is published and nothing found
  uint64_t contract_id = 0;      // states of another one are never found
  uint32_t row_width = 0;        // values of a final-norm row, the model's width; 0 keeps no rows
  uint32_t checkpoint_grid = 1;  // checkpoints only at multiples of it, at least 1
  PlacementSpec placement;
  EvictionPolicy eviction = EvictionPolicy::kValue;
  RetentionSpec retention;
};

// A kind of state beyond attention, ssm and conv that exists at one position: so many bytes a
// plane, in pages of the state pool of its own in every image.
struct ExtraKind {
  std::string name;
  uint64_t bytes = 0;
};

struct StoreOptions {
  StateShape shape;
  OrganisationSpec organisation;
  uint64_t budget_bytes = 0;
  ReuseOptions reuse;
  std::vector<ExtraKind> extra_kinds;  // only for shapes with recurrent layers
  bool dry = false;                    // no bytes behind the addresses: for replay and simulation
  bool poison = false;                 // tests: fill freed pages with 0xFF
  uint64_t shuffle_seed = 0;           // tests: non-zero hands out pages in a random order
};

// What a sequence of some length takes, per pool of the organisation, in pages.
struct StateNeed {
  std::vector<uint32_t> pages;  // whole pages, by pool; a slot counts in `slots`
  uint32_t slots = 0;
  uint64_t bytes = 0;  // all planes; slots by their own bytes
};

struct SequenceRequest {
  uint64_t max_tokens = 0;  // positions: the prompt and what is generated
  // Of these, those whose memory is reserved at once, at least the prompt's; Grow asks for the rest.
  // 0: all.
  uint64_t reserve_tokens = 0;
  // This share of every pool, rounded down to pages, must stay free or cached after the admission.
  double headroom = 0;
  bool may_fork = false;  // steps may leave the image they read as it was
  // Reuse. Without a prompt nothing is looked up and nothing can be published.
  std::span<const TokenId> prompt = {};
  std::string_view salt = {};  // only requests of the same salt share; "" is one too
  // With a salt: the first so many tokens, rounded down to a multiple of 16, are shared with all
  // requests that have none or declare as many; a boundary is placed where they end.
  uint32_t isolate_after = 0;
  std::span<const uint32_t> checkpoint_at = {};  // boundaries the client names, in prompt tokens
  std::span<const uint32_t> message_ends = {};   // likewise where its messages end; the default's
  bool lookup = true;                            // false: compute everything (reason `disabled`)
  bool from_row = true;                          // the caller can start from a kept row alone
  uint64_t tag = 0;                              // names its pages in the page map
  // Boundaries are planned within so many tokens of the prompt: what follows in it was generated.
  // 0: all.
  uint32_t plan_tokens = 0;
  bool resumed = false;  // was admitted before: neither a look-up nor a wish of one more request
};

// What taking a sequence's memory back would free, in pages of the pool that Grow takes from.
struct HeldPages {
  uint32_t unused = 0;  // reserved: what Pause gives back
  uint32_t all = 0;     // what dropping it does, but for pages that it shares
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
  uint32_t cached_attention_pages = 0;
  uint32_t cached_state_pages = 0;
  uint32_t draining_pages = 0;
  uint32_t slab_pages = 0;
  uint32_t used_slots = 0;
  uint32_t total_slots = 0;  // in the slab pages
};

// What can be found, and what happened to it since the start.
struct ReuseStats {
  uint32_t blocks = 0;
  uint32_t checkpoints = 0;
  uint32_t rows = 0;
  uint32_t row_capacity = 0;
  uint32_t nodes = 0;
  uint32_t node_capacity = 0;
  uint64_t lookups = 0;  // of admitted requests
  uint64_t hits = 0;     // that reused anything
  uint64_t prompt_tokens = 0;
  uint64_t attention_tokens = 0;  // sums of A_max, R_max and J_adopt
  uint64_t recurrent_tokens = 0;
  uint64_t reused_tokens = 0;
  uint64_t computed_tokens[kComputeReasons] = {};  // by ComputeReason
  uint64_t published_blocks = 0;
  uint64_t published_checkpoints = 0;
  uint64_t published_rows = 0;
  uint64_t skipped_checkpoints = 0;  // no room that was worth less
  uint64_t skipped_rows = 0;
  uint64_t evicted_blocks = 0;
  uint64_t evicted_checkpoints = 0;
  uint64_t evicted_rows = 0;
  uint64_t entries_invalidated = 0;
  uint64_t retained_checkpoints = 0;  // now
  uint64_t retention_drops = 0;
  // Of look-ups, by result and the reason of the first token that was computed.
  uint64_t outcomes[kLookupResults][kComputeReasons] = {};
  uint64_t reclaims = 0;           // victims taken because memory was needed
  uint64_t reclaimed_entries = 0;  // entries invalidated with them
  uint64_t copied_groups = 0;      // of shared blocks that were appended to
};

// Bytes of live state by kind, all planes: what is really written, without rounding; shared blocks
// count for the sequence that wrote them.
struct StoreStats {
  uint64_t budget_bytes = 0;
  uint64_t arena_bytes = 0;     // what the pools and kept rows take of it
  uint64_t row_bytes = 0;       // of which kept rows
  uint64_t metadata_bytes = 0;  // outside it: ledger and index
  std::vector<PoolStats> pools;
  ReuseStats reuse;
  uint64_t attention_bytes = 0;
  uint64_t ssm_bytes = 0;
  uint64_t conv_bytes = 0;
  uint32_t sequences = 0;
  double mean_run_bytes = 0;  // mean contiguous run of live images, one plane; 0 when none
};

// A checkpoint that a client wants kept before all others.
struct PinInfo {
  uint64_t id = 0;
  uint32_t tokens = 0;      // its position
  uint64_t bytes = 0;       // of the checkpoint, all planes
  uint64_t expires_at = 0;  // by the caller's clock; 0: never
  bool salted = false;
  bool lost = false;  // its memory was needed, and nothing else was left to take
};
struct PinTerms {
  uint64_t expires_at = 0;      // by the caller's clock; 0: never
  std::string_view owner = {};  // who may list and release it: any bytes, the caller's own
};
inline constexpr size_t kClientPinsMax = 1024;

struct PinResult {
  std::optional<PinInfo> pin;
  MatchReport report;  // of the prompt; nothing reused: there is no checkpoint to pin
  Status error;        // when that is not why
};

// A boundary somebody can start from.
struct BoundaryInfo {
  uint32_t id = 0;      // what the page map calls its checkpoint; later ones may have it again
  uint32_t tokens = 0;  // its position
  bool checkpoint = false;
  bool row = false;
  bool held = false;  // by a running sequence
  bool pinned = false;
  bool retained = false;
  bool spare = false;
  bool salted = false;
  uint32_t hits = 0;
  uint32_t lookups_since_use = 0;
  uint64_t bytes = 0;           // of its checkpoint, all planes
  std::vector<TokenId> prefix;  // its tokens, at most as many as were asked for; none when salted
};

// Objects of one kind, each in one of these.
struct HoldCounts {
  uint64_t live = 0;      // a running sequence's own, not (yet) to be found
  uint64_t held = 0;      // can be found, and a running sequence uses it
  uint64_t pinned = 0;    // can be found and must not go
  uint64_t retained = 0;  // can be found, nobody uses it, a policy would like to keep it
  uint64_t cached = 0;    // can be found, nobody uses it

  uint64_t findable() const { return held + pinned + retained + cached; }
  uint64_t total() const { return live + findable(); }
};

// Every object there is, and how much of what can be found can be started from: a block with a
// boundary at or below it, a checkpoint with all attention before it.
struct StoreCensus {
  HoldCounts blocks;  // of attention, a page each
  HoldCounts images;  // of SSM and conv, each the state at one position
  HoldCounts rows;
  uint64_t reusable_blocks = 0;
  uint64_t reusable_images = 0;
  uint32_t block_tokens = 0;
  uint64_t block_bytes = 0;  // of one, all planes
  uint64_t ssm_bytes = 0;    // of one image, all planes, without rounding; likewise conv
  uint64_t conv_bytes = 0;
  uint64_t row_bytes = 0;  // of one
};

class StateStore;

class SequenceState {
 public:
  static constexpr uint32_t kNoCut = std::numeric_limits<uint32_t>::max();
  static constexpr uint32_t kAddedCutsMax = 16;  // of one sequence

  SequenceState(SequenceState&& other) noexcept;
  SequenceState& operator=(SequenceState&& other) noexcept;
  ~SequenceState();

  uint64_t position() const;         // tokens whose state is complete
  uint64_t max_tokens() const;       // admitted for
  uint64_t reserved_tokens() const;  // of which have their memory; max_tokens() without attention
  // With no step open: reserves for positions [0, tokens), at most max_tokens(). 0 when it has them,
  // else the pages that lack; then nothing has been reserved.
  uint32_t Grow(uint64_t tokens);
  HeldPages held_pages() const;
  // With no step open. Ends what is retained for this sequence.
  void Pause();
  // Whether the memory is there, for [0, tokens) too; else nothing has changed but that cached state
  // may be gone.
  bool Resume(uint64_t tokens, double headroom);
  bool paused() const;
  const MatchReport& match() const;
  // When match().from_row: the fp32 final-norm row of the prompt's last token, [row_width], until
  // the first EndStep.
  std::span<const float> kept_row() const;

  // Tokens until the next boundary at which Publish is due, at least 1; kNoCut when none is left.
  uint32_t TokensToCut() const;
  // Makes `position` one too, as a named one. False, and nothing is changed, when it is passed, not
  // on the grid, the sequence publishes nothing, or it was given kAddedCutsMax already: each is a
  // checkpoint and an end of a chunk that the sequence did not ask for.
  bool AddCut(uint32_t position);

  // The state addresses for writing tokens [position, position + tokens). CHECKs that it stays
  // within max_tokens and that no step is open. `fork` needs an admission with `may_fork`.
  StateView BeginStep(uint32_t tokens, bool fork = false);
  // Groups that this step is the first to write: [first, last). The step zeroes them before use.
  uint32_t first_new_group() const;
  uint32_t last_new_group() const;
  // After BeginStep, before anything reads the view.
  void CopyShared();
  void EndStep();

  // With no step open: publishes the state at position() if that is a boundary, or (`last`) an end
  // of turn that may be one: after that the sequence only is dropped, so its image is handed over
  // for nothing. `history` is every token so far, at least position() of them; `row` the final-norm
  // row of token position() - 1, or empty.
  void Publish(std::span<const TokenId> history, std::span<const float> row, bool last);

  // Addresses of an extra kind's bytes in each plane and page of the open step's source (empty: no
  // state yet) or destination.
  std::vector<std::byte*> ExtraPages(size_t kind, bool source) const;

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
  // Tokens of a page of attention, the block that decodes grow by; without attention those of a group.
  uint32_t block_tokens() const;

  StateNeed NeedFor(uint64_t max_tokens, bool may_fork = false) const;
  // The least budget with which an otherwise empty store admits it; 2^64-1 when none could.
  uint64_t BudgetFor(uint64_t max_tokens, bool may_fork = false) const;
  // The same for so many sequences together, before there is a store: the bytes of the pools. Kept
  // rows come on top (memory/geometry/kept_rows.h).
  static Result<uint64_t> BudgetForSequences(const StateShape& shape,
                                             const OrganisationSpec& organisation,
                                             uint32_t sequences, uint64_t max_tokens,
                                             bool may_fork = false);
  AdmitResult Admit(const SequenceRequest& request);
  AdmitResult Admit(uint64_t max_tokens, bool may_fork = false) {
    return Admit(SequenceRequest{.max_tokens = max_tokens, .may_fork = may_fork});
  }
  // What Admit would find. Changes nothing.
  MatchReport Lookup(const SequenceRequest& request) const;

  // While a step computes, memory that is freed waits for its end. A forked step is ended after it
  // is closed: its old image goes back to the sequence's reservation at once.
  void OpenStep();
  void CloseStep();

  // The boundaries that can be found, most recently used first, at most `limit`.
  std::vector<BoundaryInfo> Boundaries(size_t limit, size_t prefix_tokens) const;
  // Keeps the deepest checkpoint that this request could start from longer than all that are not
  // pinned, until it is released or expired. kInvalidArgument: the model has
  // no recurrent layers, strict retention, or too many pins.
  PinResult Pin(const SequenceRequest& request, const PinTerms& terms);
  bool Unpin(uint64_t id, std::string_view owner);  // false: the owner has no such pin
  void ExpirePins(uint64_t now);
  std::vector<PinInfo> Pins(std::string_view owner) const;
  // Forgets everything that nobody holds now, pinned or not, the rest when it is let go. Entries gone now.
  uint64_t Clear();

  StoreStats Stats() const;
  // Looks at every entry under the lock: for whoever asks every few seconds.
  StoreCensus Census() const;
  // Of every pool and of the kept rows. Looks at every page under the lock: as Census.
  std::vector<PoolPageMap> PageMap() const;
  // Level 1 O(1), 2 O(pages), 3 everything. Returns what is wrong, or ok.
  Status Validate(int level) const;

  struct Impl;

 private:
  explicit StateStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
