// SPDX-License-Identifier: Apache-2.0
//
// Ledger knows who holds every page and slot of the state memory, and the entries (blocks,
// checkpoints, kept rows) whose members they are. It decides nothing: an index says what can be
// found, a policy what goes; the ledger makes sure that nothing goes that is needed.
//
// A member page or slot:
//
//   free --Take--> held --Publish--> held, owned --last Unref--> cached --reclaim--> free
//                   |                                 ^   |
//                   +--last Unref--> free             +Ref+
//
// An entry, and the transaction that takes it back (Advance does one arrow):
//
//   Live --freeze--> Frozen --drain--> Idle --unlink--> Hidden --clear--> Bare --free--> (gone)
//
//   freeze  no new hold may begin; those there are go on          (undo: Unfreeze, back to Live)
//   drain   the last hold has ended                               (undo: Unfreeze, back to Live)
//   unlink  the index stops offering it                           (from here on only forward)
//   clear   the reverse index page -> entry forgets it
//   free    pages and slot return to their pool
//
// Four holds, four words: a ref says that a sequence shares a page, a use that somebody is reading
// an entry, a pin that it must not be lost, a retention that a policy would like to keep it. Refs,
// uses and pins keep an entry from being drained, a pin keeps it from being frozen at all; a
// retention protects nothing here: the policy asks for it. Only a retention may outlive its entry.
//
// G1  Per pool, after every call: free + reserved + held + cached + draining = total. Cached are
//     the pages of entries nobody holds; held those of sequences and of entries somebody does;
//     draining those that wait for a step to end. A slab is cached when all its used slots are of
//     entries nobody holds, else held, also when one only waits.
// G2  Every member of an entry that is not Bare has it as its owner, and no page or slot has two
//     owners: the reverse index is one word per page.
// G3  A page is returned to its pool only by the last Unref of a page without owner, or by `free`
//     of an entry that passed every step before it: never with a ref, never with an owner.
// G4  An entry that is not Live gets no new hold. A pinned entry never leaves Live.
// G5  While a step is open, what is freed drains: nobody else gets it until no step is open.
// G6  No call after construction allocates.
// G7  A reclaim that stops after any step leaves a ledger that validates; Resume ends it.
//
// Members are walked by the registry (StateKinds): a kind more is a row more there.
//
// Failure: none but misuse, which is a CHECK. Threads: every method wants the LedgerLock of this
// ledger, which the caller holds; the counters of pools are read under it too.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/thread_annotations.h"
#include "memory/ledger/entry_id.h"
#include "memory/ledger/state_kinds.h"
#include "memory/pool/page_pool.h"
#include "memory/pool/slab_slots.h"
#include "port/huge_pages.h"

namespace tessera {

class Ledger;
class LedgerLock;

enum class ReclaimState : uint8_t { kGone, kLive, kFrozen, kIdle, kHidden, kBare };

// What the ledger tells the index of entries. Calls come from inside ledger methods, under the
// lock.
class EntryIndex {
 public:
  virtual ~EntryIndex() = default;
  // The entry is no longer to be offered, or is again.
  virtual void SetOffered(LedgerLock& lock, EntryId entry, bool offered) = 0;
  // The entry is being reclaimed: forget it.
  virtual void Unlink(LedgerLock& lock, EntryId entry) = 0;
  // Nobody holds the entry any more, or nobody retains it: it may be evicted, or sooner.
  virtual void BecameIdle(LedgerLock& lock, EntryId entry) = 0;
};

// Told of bytes that nobody owns any more, before anybody else can take them.
class FreedBytes {
 public:
  virtual ~FreedBytes() = default;
  virtual void PageFreed(int pool, PageId page) = 0;
  virtual void SlotFreed(SlotId slot) = 0;
};

// A move-only hold on an entry; given back by Release. `Kind` is Use, Pin or Retention.
template <typename Kind>
class EntryHold {
 public:
  EntryHold() = default;
  EntryHold(EntryHold&& other) noexcept
      : entry_(std::exchange(other.entry_, EntryId())), generation_(other.generation_) {}
  EntryHold& operator=(EntryHold&& other) noexcept {
    TESSERA_CHECK(!entry_.valid());
    entry_ = std::exchange(other.entry_, EntryId());
    generation_ = other.generation_;
    return *this;
  }
  ~EntryHold() { TESSERA_CHECK(!entry_.valid()); }  // it needs the lock to end: Release it

  EntryId entry() const { return entry_; }
  bool held() const { return entry_.valid(); }

 private:
  friend class Ledger;
  EntryHold(EntryId entry, uint32_t generation) : entry_(entry), generation_(generation) {}
  EntryId entry_;
  uint32_t generation_ = 0;
};
using Use = EntryHold<struct UseTag>;
using Pin = EntryHold<struct PinTag>;
using Retention = EntryHold<struct RetentionTag>;

struct LedgerPoolCounts {
  uint32_t total = 0;
  uint32_t free = 0;
  uint32_t reserved = 0;
  uint32_t held = 0;
  uint32_t cached = 0;
  uint32_t draining = 0;
};

class Ledger {
 public:
  struct Options {
    std::vector<PagePool::Options> pools;
    int slab_pool = -1;  // whose pages are slabs; -1: no slots
    uint32_t slots_per_page = 0;
    StateKinds kinds;
  };

  explicit Ledger(Options options);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  void set_index(EntryIndex* index) { index_ = index; }
  void set_freed_bytes(FreedBytes* freed) { freed_ = freed; }

  const StateKinds& kinds() const { return kinds_; }
  int pool_count() const { return static_cast<int>(pools_.size()); }
  PagePool& pool(int pool) { return pools_[static_cast<size_t>(pool)]->pages; }
  const PagePool& pool(int pool) const { return pools_[static_cast<size_t>(pool)]->pages; }
  SlabSlots* slabs() const { return slabs_.get(); }
  int slab_pool() const { return slab_pool_; }
  LedgerPoolCounts counts(LedgerLock& lock, int pool) const;
  // Pages that reclaiming every idle entry would free.
  uint32_t cached_pages(int pool) const { return pools_[static_cast<size_t>(pool)]->cached; }
  uint32_t capacity(EntryType type) const {
    return static_cast<uint32_t>(table(type).entries.size());
  }
  uint32_t count(EntryType type) const { return table(type).count; }

  // Pages of a sequence, with one ref each.
  PageId TakeAttention(LedgerLock& lock, int pool, Reservation* from);
  void TakeImage(LedgerLock& lock, int pool, Reservation* from, std::span<PageId> out);
  SlotId TakeSlot(LedgerLock& lock, SlotReservation* from);
  // A page or slot that only its sequence holds, back into its promise. No step may be open.
  void FreeInto(LedgerLock& lock, int pool, PageId page, Reservation* to);
  void FreeSlotInto(LedgerLock& lock, SlotId slot, SlotReservation* to);
  void Ref(LedgerLock& lock, int pool, PageId page);
  void Unref(LedgerLock& lock, int pool, PageId page);
  void RefSlot(LedgerLock& lock, SlotId slot);
  void UnrefSlot(LedgerLock& lock, SlotId slot);
  uint32_t refs(int pool, PageId page) const { return record(pool, page).refs; }
  EntryId owner(int pool, PageId page) const { return record(pool, page).owner; }
  EntryId slot_owner(SlotId slot) const { return record(slot).owner; }

  // Makes members an entry: `pages` in the registry's order (and `slot` when it has one), each held
  // by the caller, whose refs stay. There is always room: an entry has members of its own.
  EntryId Publish(LedgerLock& lock, EntryType type, std::span<const PageId> pages, SlotId slot);
  std::span<const PageId> pages(EntryId entry) const;
  SlotId slot(EntryId entry) const;
  // Refs on every member.
  void RefMembers(LedgerLock& lock, EntryId entry);
  void UnrefMembers(LedgerLock& lock, EntryId entry);

  Use BeginUse(LedgerLock& lock, EntryId entry);
  void EndUse(LedgerLock& lock, Use use);
  Pin BeginPin(LedgerLock& lock, EntryId entry);
  void EndPin(LedgerLock& lock, Pin pin);
  Retention Retain(LedgerLock& lock, EntryId entry);
  // Nothing when the entry was reclaimed in between, whoever has its index now.
  void Release(LedgerLock& lock, Retention retention);
  // Whether what it retains is still there.
  bool Keeps(const Retention& retention) const {
    return at(retention.entry_).generation == retention.generation_;
  }
  bool idle(EntryId entry) const { return at(entry).holds == 0; }
  bool pinned(EntryId entry) const { return at(entry).pins > 0; }
  uint32_t retentions(EntryId entry) const { return at(entry).retentions; }
  ReclaimState state(EntryId entry) const { return at(entry).state; }
  // Fetches what the methods above will read.
  void Prefetch(EntryId entry) const { __builtin_prefetch(&at(entry)); }

  // One arrow of the transaction: the state it is in afterwards. Stays where it is while a pin
  // (Live) or a hold (Frozen) forbids the next step. kGone: it is done.
  ReclaimState Advance(LedgerLock& lock, EntryId entry);
  // Frozen or Idle back to Live. CHECKs that it is one of them.
  void Unfreeze(LedgerLock& lock, EntryId entry);
  // Every arrow that can be done now. True when the entry is gone.
  bool Reclaim(LedgerLock& lock, EntryId entry);
  // Reclaims every entry with a member in the page, so that it is free: for a slab all that have a
  // slot in it. Nothing happens, and -1 is returned, when one of them is held or is already being
  // reclaimed (whoever began that has the id), or the page is no entry's; otherwise the number of
  // entries invalidated.
  int ReclaimPage(LedgerLock& lock, int pool, PageId page);
  // Whether an entry with a member in the page is retained.
  bool IsRetained(int pool, PageId page) const;
  // Slots of it are used, all of them by entries that nobody holds.
  bool SlabIsIdle(PageId slab) const;
  // Goes on with every transaction that stopped.
  void Resume(LedgerLock& lock);
  uint32_t unfinished() const { return static_cast<uint32_t>(unfinished_.size()); }

  // Steps that run without the lock.
  void OpenStep(LedgerLock& lock);
  void CloseStep(LedgerLock& lock);
  bool step_open() const { return open_steps_ > 0; }

  // Slots that wait for a step to end; pages are in `counts`.
  uint32_t draining_slots() const;

  // Entries of a type that nobody holds.
  uint32_t idle_count(EntryType type) const { return table(type).idle; }
  uint64_t metadata_bytes() const;
  uint64_t entries_invalidated() const { return entries_invalidated_; }
  uint32_t retained_count() const { return retained_; }  // entries somebody would like to keep

  // Level 1 O(pools), 2 O(pages), 3 the same with every entry's members.
  Status Validate(LedgerLock& lock, int level) const;

 private:
  friend class LedgerLock;

  struct Record {  // of a page or a slot
    EntryId owner;
    uint32_t refs = 0;
  };
  struct Pool {
    explicit Pool(const PagePool::Options& options) : pages(options), records(options.page_count) {}
    PagePool pages;
    HugeVector<Record> records;
    uint32_t cached = 0;
    uint32_t draining = 0;
  };
  struct Entry {
    ReclaimState state = ReclaimState::kGone;
    uint32_t holds = 0;  // members with a ref + uses + pins
    uint32_t uses = 0;
    uint32_t pins = 0;
    uint32_t retentions = 0;
    uint32_t generation = 0;  // entries that had this index before
    uint32_t unfinished = 0;  // where in unfinished_, once it is being reclaimed
  };
  struct Table {  // entries of one type
    HugeVector<Entry> entries;
    HugeVector<PageId> pages;        // members, a stride per entry
    std::vector<uint32_t> pages_in;  // member pages of an entry, by pool
    HugeVector<uint32_t> free;       // indices not in use
    uint32_t stride = 0;
    uint32_t count = 0;
    uint32_t idle = 0;
  };
  struct Draining {
    int pool = -1;  // -1: a slot
    uint32_t index = 0;
  };

  // An id that names nothing (the invalid one too) stops here, in every build.
  const Record& record(int pool, PageId page) const {
    TESSERA_CHECK(static_cast<size_t>(pool) < pools_.size());
    const HugeVector<Record>& records = pools_[static_cast<size_t>(pool)]->records;
    TESSERA_CHECK(page.valid() && page.index() < records.size());
    return records[page.index()];
  }
  Record& record(int pool, PageId page) {
    return const_cast<Record&>(std::as_const(*this).record(pool, page));
  }
  const Record& record(SlotId slot) const {
    TESSERA_CHECK(slot.valid() && slot.index() < slot_records_.size());
    return slot_records_[slot.index()];
  }
  Record& record(SlotId slot) { return const_cast<Record&>(std::as_const(*this).record(slot)); }
  Table& table(EntryType type) { return tables_[static_cast<size_t>(type)]; }
  const Table& table(EntryType type) const { return tables_[static_cast<size_t>(type)]; }
  const Entry& at(EntryId entry) const {
    TESSERA_CHECK(entry.valid());
    const HugeVector<Entry>& entries = table(entry.type()).entries;
    TESSERA_CHECK(entry.index() < entries.size());
    return entries[entry.index()];
  }
  Entry& at(EntryId entry) { return const_cast<Entry&>(std::as_const(*this).at(entry)); }

  Pool& slab_records() { return *pools_[static_cast<size_t>(slab_pool_)]; }
  void BuildTable(EntryType type);
  void AddRef(Record* record);
  void AddHold(EntryId entry);
  void DropHold(LedgerLock& lock, EntryId entry);
  // Moves an entry's pages between held and cached.
  void CountCached(EntryId entry, bool cached);
  void SlabBusy(PageId slab, int change);
  void FreePage(int pool, PageId page);
  void FreeSlot(SlotId slot);
  void ReturnPage(int pool, PageId page);
  void ReturnSlot(SlotId slot);
  void Freeze(LedgerLock& lock, EntryId entry);
  void Clear(EntryId entry);
  void FreeMembers(EntryId entry);
  void Forget(EntryId entry);
  void DropUnfinished(EntryId entry);
  int ReclaimSlab(LedgerLock& lock, PageId slab);
  Status ValidatePool(int pool, int level) const;
  Status ValidatePages(int pool) const;
  Status ValidateSlabs() const;
  Status ValidateEntries() const;
  Status ValidateEntry(EntryId entry) const;

  Mutex mutex_;
  StateKinds kinds_;
  std::vector<std::unique_ptr<Pool>> pools_;
  int slab_pool_;
  std::unique_ptr<SlabSlots> slabs_;
  HugeVector<Record> slot_records_;
  std::vector<uint32_t> slab_busy_;  // used slots of a slab that are not of an idle entry
  std::vector<SlotId> checkpoint_slots_;
  Table tables_[kEntryTypes];
  std::vector<EntryId> unfinished_;  // reclaims that began and have not ended
  std::vector<Draining> draining_;
  uint32_t open_steps_ = 0;
  uint64_t entries_invalidated_ = 0;
  uint32_t retained_ = 0;
  EntryIndex* index_ = nullptr;
  FreedBytes* freed_ = nullptr;
};

// Proof that the ledger's lock is held.
class SCOPED_CAPABILITY LedgerLock {
 public:
  explicit LedgerLock(Ledger& ledger) ACQUIRE(ledger.mutex_) : ledger_(&ledger) {
    ledger.mutex_.lock();
  }
  ~LedgerLock() RELEASE() { ledger_->mutex_.unlock(); }
  LedgerLock(const LedgerLock&) = delete;
  LedgerLock& operator=(const LedgerLock&) = delete;

  bool Guards(const Ledger& ledger) const { return ledger_ == &ledger; }

 private:
  Ledger* ledger_;
};

}  // namespace tessera
