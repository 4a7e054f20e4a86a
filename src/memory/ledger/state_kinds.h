// SPDX-License-Identifier: Apache-2.0
//
// StateKinds is the registry of the kinds of state a model has and of what an entry of them is made
// of: its members, whole pages of some pool and at most one slot of a slab page. Whoever takes,
// publishes, adopts, compares or frees state walks these lists, so that a kind cannot be forgotten
// in one place.
//
//   attention        block        1 page of the attention pool
//   ssm and conv     checkpoint   the pages of an image, then its slot when it has one
//   kept row         row          1 unit of the row pool
//   (a model's own)  block or checkpoint, whatever it says
//
// Threads: constant after construction.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/geometry/organisation.h"
#include "memory/ledger/entry_id.h"

namespace tessera {

struct StateKind {
  std::string name;
  EntryType entry = EntryType::kCheckpoint;
  int pool = 0;
  uint32_t pages = 0;  // of one entry
  bool slot = false;   // and one slot of the slab pool; checkpoints only, one kind at most
};

class StateKinds {
 public:
  explicit StateKinds(std::vector<StateKind> kinds);
  // The kinds of an organisation; `row_pool` is the pool of kept rows, -1 without.
  static StateKinds Of(const Organisation& table, int row_pool);

  std::span<const StateKind> kinds() const { return kinds_; }
  // Pools of the member pages of an entry, one per page, in member order.
  std::span<const int> page_pools(EntryType type) const { return pools_[Index(type)]; }
  bool has_slot(EntryType type) const { return type == EntryType::kCheckpoint && slot_; }
  // Whether there are entries of this type at all.
  bool has(EntryType type) const { return !page_pools(type).empty() || has_slot(type); }
  // Member pages of an entry in one pool.
  uint32_t pages_in(EntryType type, int pool) const;

 private:
  static size_t Index(EntryType type) { return static_cast<size_t>(type); }
  std::vector<StateKind> kinds_;
  std::vector<int> pools_[kEntryTypes];
  bool slot_ = false;
};

}  // namespace tessera
