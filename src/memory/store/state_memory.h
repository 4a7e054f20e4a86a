// SPDX-License-Identifier: Apache-2.0
//
// StateMemory is what is behind a StateStore: the arena, the ledger of its pools as the
// organisation's table cuts them, the index of what can be found, and the list of the sequences
// that hold parts of it. It takes and frees one image at a time, and makes room; SequenceHold says
// when.
//
// Private to memory/store. Threads: methods with a LedgerLock want it held.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memory/geometry/kept_rows.h"
#include "memory/ledger/ledger.h"
#include "memory/prefix/prefix_index.h"
#include "memory/store/arena_layout.h"
#include "memory/store/client_pins.h"
#include "memory/store/pool_memory.h"
#include "memory/store/retainer.h"
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
  bool held = false;              // the sequence has a ref on each member
  bool published = false;         // it is a checkpoint: never written again
};

// What is to be promised.
struct Ask {
  uint32_t attention_pages = 0;
  uint32_t images = 0;
};

// What one admission promised and has not used yet.
struct Promise {
  Reservation attention;
  Reservation state;
  SlotReservation slots;
};

class StateMemory : public FreedBytes {
 public:
  StateMemory(const StoreOptions& options, Organisation table, const KeptRows& rows,
              const ArenaLayout& layout, Arena arena);
  ~StateMemory() override;
  StateMemory(const StateMemory&) = delete;
  StateMemory& operator=(const StateMemory&) = delete;

  const StoreOptions& options() const { return options_; }
  const StateShape& shape() const { return options_.shape; }
  const Organisation& table() const { return table_; }
  Ledger& ledger() const { return *ledger_; }
  PrefixIndex* index() const { return index_.get(); }  // null: reuse is off
  Retainer& retainer() { return retainer_; }
  ClientPins& pins() { return pins_; }
  const ClientPins& pins() const { return pins_; }
  uint64_t checkpoint_bytes() const;  // all planes
  uint32_t page_tokens() const { return table_.groups_per_page * kGroupTokens; }
  bool keeps_rows() const { return row_pool_ >= 0; }
  int row_pool() const { return row_pool_; }

  // Null when the model has no such kind.
  const PoolMemory* attention() const { return MemoryOf(table_.attention_pool); }
  const PoolMemory* state() const { return MemoryOf(table_.state_pool); }

  const KeptRows& rows() const { return rows_; }
  uint32_t extra_image_pages() const { return extra_image_pages_; }
  uint32_t image_pages() const { return image_pages_; }
  // Where the pages of an extra kind begin in an image's, and how many there are.
  uint32_t FirstExtraPage(size_t kind) const;
  uint32_t ExtraPageCount(size_t kind) const;

  // Whether the terms can be promised now, were all that nobody holds evicted, and leave
  // ⌊headroom · total⌋ pages of each pool after that. When not, `reason` names the pool and the
  // numbers.
  Admission CanPromise(const Terms& terms, double headroom, std::string* reason) const;
  Ask AskOf(const Terms& terms) const;
  Promise EmptyPromise() const;  // of every pool
  // The same of what is asked for, by somebody who was admitted.
  bool HasRoom(const Ask& ask, double headroom) const;
  // Evicts what is in the way and adds to `promise`. False, with nothing added, when there is not
  // as much, or retention forbids it.
  bool AddPromise(LedgerLock& lock, const Ask& ask, Promise* promise);
  // The request goes ahead with this match.
  void CountAdmission(LedgerLock& lock, const Match& match);
  // One more image, or page of attention, for publishing: from what is free or may be displaced.
  bool ReserveImage(LedgerLock& lock, bool spare, Promise* promise);
  bool ReserveAttentionPage(LedgerLock& lock, bool spare, Promise* promise);
  void GiveBackImage(Promise* promise) const;
  void GiveBackAttentionPage(Promise* promise) const;
  // The tokens of KV that take as much memory as a checkpoint, rounded up to 16; 0 when the model
  // lacks either kind.
  uint32_t PriceTokens() const;
  bool IsPlentiful() const;
  // A kept row with this content, with one ref; invalid when there is no room.
  PageId TakeRow(LedgerLock& lock, std::span<const float> row);
  const float* RowAt(PageId row) const;

  void PrepareImage(ImageHold* image) const;  // sizes the tables
  void TakeImage(LedgerLock& lock, Promise* from, ImageHold* image);
  // Shows the members of a checkpoint, which somebody else holds.
  void ShowCheckpoint(EntryId checkpoint, ImageHold* image) const;
  void FreeImage(LedgerLock& lock, ImageHold* image);
  void FreeImageInto(LedgerLock& lock, Promise* to, ImageHold* image);

  void Register(SequenceHold* sequence);
  void Unregister(SequenceHold* sequence);
  bool has_sequences() const { return sequences_ != nullptr; }
  const SequenceHold* first_sequence() const { return sequences_; }

  ReuseStats& reuse_stats() { return reuse_stats_; }
  StoreStats Stats(LedgerLock& lock) const;
  StoreCensus Census(LedgerLock& lock, CensusPaper* paper) const;
  std::vector<BoundaryInfo> Boundaries(LedgerLock& lock, size_t limit, size_t prefix_tokens) const;
  Status Validate(LedgerLock& lock, int level) const;

  // FreedBytes.
  void PageFreed(int pool, PageId page) override;
  void SlotFreed(SlotId slot) override;

 private:
  const PoolMemory* MemoryOf(int pool) const {
    return pool < 0 ? nullptr : &memory_[static_cast<size_t>(pool)];
  }
  Ledger::Options LedgerOptions(uint32_t row_units) const;
  void MakeIndex(uint32_t row_units);
  // Free pages that are taken of a pool now: slots as the slab pages they lack.
  uint64_t PagesNow(const Ask& ask, size_t pool) const;
  uint64_t HeadroomPages(double headroom, size_t pool) const;
  uint64_t PagesToTake(size_t pool) const;  // free, or cached and nobody's
  void FillOffsets(ImageHold* image) const;
  uint64_t SlotOffset(SlotId slot) const;
  PoolStats StatsOfPool(LedgerLock& lock, size_t pool) const;
  void AddImageStats(const ImageHold& image, StoreStats* stats, uint64_t* runs) const;
  void AddReuseStats(StoreStats* stats) const;
  BoundaryInfo Describe(NodeId node, size_t prefix_tokens) const;
  Status ValidateOwners(LedgerLock& lock) const;

  StoreOptions options_;
  Organisation table_;
  KeptRows rows_;
  ArenaLayout layout_;
  Arena arena_;
  std::vector<PoolMemory> memory_;  // by pool; kept rows last
  int row_pool_ = -1;
  uint32_t extra_image_pages_ = 0;
  uint32_t image_pages_ = 0;
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<PrefixIndex> index_;
  Retainer retainer_;
  ClientPins pins_{nullptr};
  SequenceHold* sequences_ = nullptr;
  ReuseStats reuse_stats_;  // what the index does not count
};

}  // namespace tessera::store
