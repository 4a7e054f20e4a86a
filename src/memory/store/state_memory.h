// SPDX-License-Identifier: Apache-2.0
//
// StateMemory is what is behind a StateStore: the arena, its pools as the organisation's table cuts
// them, the slabs of small images, and the list of the sequences that hold parts of them. It takes
// and frees one image at a time; SequenceHold says when.
//
// Private to memory/store. Threads: as StateStore.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memory/pool/slab_slots.h"
#include "memory/store/arena_layout.h"
#include "memory/store/pool_memory.h"
#include "memory/store/state_need.h"
#include "memory/store/state_store.h"
#include "port/arena.h"

namespace tessera::store {

class SequenceHold;

// The members of one image. The tables are sized at admission and never grow.
struct ImageHold {
  std::vector<PageId> pages;
  SlotId slot;
  std::vector<uint64_t> offsets;  // in a plane, one per member: pages, then the slot
  bool held = false;
};

// What one admission promised and has not used yet.
struct Promise {
  Reservation attention;
  Reservation state;
  SlotReservation slots;
};

class StateMemory {
 public:
  StateMemory(const StoreOptions& options, Organisation table, ArenaLayout layout, Arena arena);
  ~StateMemory();
  StateMemory(const StateMemory&) = delete;
  StateMemory& operator=(const StateMemory&) = delete;

  const StoreOptions& options() const { return options_; }
  const StateShape& shape() const { return options_.shape; }
  const Organisation& table() const { return table_; }

  // Null when the model has no such kind.
  PoolMemory* attention() const { return PoolOf(table_.attention_pool); }
  PoolMemory* state() const { return PoolOf(table_.state_pool); }
  SlabSlots* slabs() const { return slabs_.get(); }

  // Whether the terms can be promised now. When not, `reason` names the pool and the numbers.
  Admission CanPromise(const Terms& terms, std::string* reason) const;
  // After kAdmitted; CHECKs that it can.
  Promise MakePromise(const Terms& terms);

  void PrepareImage(ImageHold* image) const;  // sizes the tables
  void TakeImage(Promise* from, ImageHold* image);
  void FreeImage(ImageHold* image);
  void FreeImageInto(Promise* to, ImageHold* image);

  void Register(SequenceHold* sequence);
  void Unregister(SequenceHold* sequence);

  StoreStats Stats() const;
  Status Validate(int level) const;

 private:
  PoolMemory* PoolOf(int pool) const {
    return pool < 0 ? nullptr : pools_[static_cast<size_t>(pool)].get();
  }
  uint64_t SlotOffset(SlotId slot) const;
  PoolStats StatsOfPool(size_t pool) const;
  void AddImageStats(const ImageHold& image, StoreStats* stats, uint64_t* runs) const;
  Status ValidateOwners() const;

  StoreOptions options_;
  Organisation table_;
  ArenaLayout layout_;
  Arena arena_;
  std::vector<std::unique_ptr<PoolMemory>> pools_;
  std::unique_ptr<SlabSlots> slabs_;  // null when images have no slot
  SequenceHold* sequences_ = nullptr;
};

}  // namespace tessera::store
