// SPDX-License-Identifier: Apache-2.0
//
// SequenceHold is the state of one sequence: what it adopted, the pages of its own, what is left of
// its promise, the address tables of the running step, and where it publishes next. SequenceState
// is its public handle; the state machine is drawn in state_store.h.
//
//   tokens   0 ......... shared_tokens ........ position ........ max_tokens
//   pages    of the lease (whole)    of its own        promised
//
// The last block is rewritten by nobody once its last, partial group is published: the step that
// appends to it takes a fresh page, CopyShared copies the groups of it that are written, and
// EndStep lets the old page go. Groups after the published ones of a page with many are not shared:
// the sequence goes on writing them in place. An adopted partial block is copied the same way.
//
// H1  Own attention pages held + promised = those of reserve_tokens beyond the shared ones, and one
//     more while a published block waits to be copied; images held + promised = 1, one more while a
//     published image waits to be read, and one more when it may fork. So BeginStep never fails. While
//     paused the promise is empty, and what it was is known.
// H2  Every table has its full size from admission on, so BeginStep and EndStep allocate nothing.
// H3  An image or group that is published is only ever a source.
//
// Private to memory/store. Threads: as StateStore.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/prefix/placement.h"
#include "memory/prefix/prefix_index.h"
#include "memory/store/state_memory.h"

namespace tessera::store {

class SequenceHold {
 public:
  SequenceHold(LedgerLock& lock, StateMemory* memory, const SequenceRequest& request,
               const Terms& terms, const Match& match, Lease lease, Promise promise);
  ~SequenceHold();
  SequenceHold(const SequenceHold&) = delete;
  SequenceHold& operator=(const SequenceHold&) = delete;

  StateMemory& memory() const { return *memory_; }
  const Terms& terms() const { return terms_; }
  uint64_t position() const { return position_; }
  uint64_t tag() const { return tag_; }
  const SequenceHold* next() const { return next_; }  // of those that run
  uint64_t shared_tokens() const { return terms_.shared_tokens; }
  const MatchReport& match() const { return match_; }
  uint32_t first_new_group() const { return first_new_group_; }
  uint32_t last_new_group() const { return last_new_group_; }
  std::span<const float> kept_row() const;

  uint32_t TokensToCut() const;
  bool AddCut(uint32_t position);

  uint32_t Grow(LedgerLock& lock, uint64_t tokens);
  HeldPages held_pages() const;
  void Pause(LedgerLock& lock);
  bool Resume(LedgerLock& lock, uint64_t tokens, double headroom);
  bool paused() const { return paused_; }

  StateView BeginStep(LedgerLock& lock, uint32_t tokens, bool fork);
  void CopyShared() const;
  void EndStep(LedgerLock& lock);
  void Publish(LedgerLock& lock, std::span<const TokenId> history, std::span<const float> row,
               bool last);
  std::vector<std::byte*> ExtraPages(size_t kind, bool source) const;

  const std::vector<PageId>& own_pages() const { return own_pages_; }
  PageId replaced_page() const { return replaced_page_; }
  const ImageHold& image(int i) const { return images_[i]; }
  const Promise& promise() const { return promise_; }
  // H1, H2 and the address tables against the pages.
  Status Validate() const;

 private:
  friend class StateMemory;  // for the list

  struct GroupCopy {
    uint64_t to = 0;
    uint64_t from = 0;
  };

  void PrepareTables(LedgerLock& lock);
  void PlanCuts(const SequenceRequest& request);
  uint32_t promised_images() const;
  // Pages of attention that reserving for `tokens` adds.
  uint32_t PagesToGrow(uint64_t tokens) const;
  void SetReserved(uint64_t tokens);
  void TakeAttention(LedgerLock& lock, uint64_t end_token);
  void ReplaceLastPage(LedgerLock& lock);
  void FillAttention(StateView* view) const;
  void TakeImages(LedgerLock& lock, bool fork);
  void FillImages(StateView* view) const;
  uint64_t GroupOffset(uint32_t group) const;
  uint32_t first_own_page() const {
    return static_cast<uint32_t>(terms_.shared_tokens / memory_->page_tokens());
  }
  PageId OwnPageOf(uint32_t group) const;
  const PlannedBoundary* DueBoundary() const;
  bool PublishGroups(LedgerLock& lock, std::span<const TokenId> history);
  // What a boundary lacks, so that the sequence gives its own.
  struct Lack {
    bool image = false;
    bool block = false;
    friend bool operator==(Lack, Lack) = default;
  };
  Lack LackAt(std::span<const TokenId> tail) const;
  bool ReserveToGoOn(LedgerLock& lock, Lack lack, bool spare);
  void GiveBack(Lack lack);
  void PublishBoundary(LedgerLock& lock, std::span<const TokenId> history,
                       std::span<const float> row, bool last, bool spare);
  void PublishImage(LedgerLock& lock, NodeId node, bool spare);
  void PublishRow(LedgerLock& lock, NodeId node, std::span<const float> row);

  StateMemory* memory_;
  uint64_t tag_;
  std::string salt_;
  Terms terms_;
  Promise promise_;
  MatchReport match_;
  Lease lease_;
  PublishPath path_;
  uint64_t position_ = 0;
  uint32_t step_tokens_ = 0;  // 0: no step is open
  bool paused_ = false;
  Ask given_back_;  // while paused
  uint32_t first_new_group_ = 0;
  uint32_t last_new_group_ = 0;

  std::vector<PageId> own_pages_;        // from first_own_page() on
  std::vector<uint64_t> group_offsets_;  // every group that is written or about to be
  std::vector<GroupCopy> copies_;        // of the running step
  bool last_page_published_ = false;     // with a partial group at position_
  PageId replaced_page_;                 // the step's copies come from it

  ImageHold images_[2];
  int source_ = -1;       // image the running step reads; -1: zeros
  int destination_ = -1;  // image that is current when no step is open; -1: none yet

  std::vector<PlannedBoundary> cuts_;  // ascending
  size_t next_cut_ = 0;
  uint32_t added_cuts_ = 0;
  ProducerRetentions retentions_;

  SequenceHold* next_ = nullptr;
  SequenceHold* previous_ = nullptr;
};

}  // namespace tessera::store
