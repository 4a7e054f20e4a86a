// SPDX-License-Identifier: Apache-2.0
//
// SequenceHold is the state of one sequence: the pages it holds, what is left of its promise, and
// the address tables of the running step. SequenceState is its public handle; the state machine is
// drawn in state_store.h.
//
// H1  Attention pages held + promised = those of max_tokens; images held + promised = 1, or 2 when
//     it may fork. So BeginStep never fails.
// H2  Every table has its full size from admission on. So BeginStep and EndStep allocate nothing.
//
// Private to memory/store. Threads: as StateStore.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/store/state_memory.h"

namespace tessera::store {

class SequenceHold {
 public:
  SequenceHold(StateMemory* memory, const Terms& terms, Promise promise);
  ~SequenceHold();
  SequenceHold(const SequenceHold&) = delete;
  SequenceHold& operator=(const SequenceHold&) = delete;

  const Terms& terms() const { return terms_; }
  uint64_t position() const { return position_; }
  uint32_t first_new_group() const { return first_new_group_; }
  uint32_t last_new_group() const { return last_new_group_; }

  StateView BeginStep(uint32_t tokens, bool fork);
  void EndStep();

  const std::vector<PageId>& attention_pages() const { return attention_pages_; }
  const ImageHold& image(int i) const { return images_[i]; }
  const Promise& promise() const { return promise_; }
  // H1, H2 and the address tables against the pages.
  Status Validate() const;

 private:
  friend class StateMemory;  // for the list

  void TakeAttention(uint64_t end_token);
  void FillAttention(StateView* view) const;
  void TakeImages(bool fork);
  void FillImages(StateView* view) const;
  uint64_t GroupOffset(uint32_t group) const;

  StateMemory* memory_;
  Terms terms_;
  Promise promise_;
  uint64_t position_ = 0;
  uint32_t step_tokens_ = 0;  // 0: no step is open
  uint32_t first_new_group_ = 0;
  uint32_t last_new_group_ = 0;
  std::vector<PageId> attention_pages_;
  std::vector<uint64_t> group_offsets_;
  ImageHold images_[2];
  int source_ = -1;       // image the running step reads; -1: zeros
  int destination_ = -1;  // image that is current when no step is open; -1: none yet

  SequenceHold* next_ = nullptr;
  SequenceHold* previous_ = nullptr;
};

}  // namespace tessera::store
