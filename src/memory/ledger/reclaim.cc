// SPDX-License-Identifier: Apache-2.0
//
// The reclaim transaction of the Ledger; its states and order are drawn in ledger.h.
#include <algorithm>

#include "memory/ledger/ledger.h"

namespace tessera {
namespace {

constexpr size_t kMembersAhead = 8;

}  // namespace

ReclaimState Ledger::Advance(LedgerLock& lock, EntryId entry) {
  TESSERA_DCHECK(lock.Guards(*this));
  Entry& record = at(entry);
  switch (record.state) {
    case ReclaimState::kGone:
      TESSERA_CHECK(false);
      break;
    case ReclaimState::kLive:
      if (record.pins == 0) Freeze(lock, entry);
      break;
    case ReclaimState::kFrozen:
      if (record.holds == 0) record.state = ReclaimState::kIdle;
      break;
    case ReclaimState::kIdle:
      if (index_ != nullptr) index_->Unlink(lock, entry);
      record.state = ReclaimState::kHidden;
      ++entries_invalidated_;
      break;
    case ReclaimState::kHidden:
      Clear(entry);
      record.state = ReclaimState::kBare;
      break;
    case ReclaimState::kBare:
      FreeMembers(entry);
      Forget(entry);
      return ReclaimState::kGone;
  }
  return record.state;
}

void Ledger::Freeze(LedgerLock& lock, EntryId entry) {
  at(entry).state = ReclaimState::kFrozen;
  at(entry).unfinished = unfinished();
  unfinished_.push_back(entry);
  // What Clear will change is on its way while the index reads its own. An image of many pages lies
  // in runs, which the hardware fetches: for 194 members doing it here cost 4 %.
  const std::span<const int> pools = kinds_.page_pools(entry.type());
  const std::span<const PageId> members = pages(entry);
  for (size_t i = 0; i < std::min<size_t>(members.size(), kMembersAhead); ++i) {
    __builtin_prefetch(&record(pools[i], members[i]), 1);
  }
  if (index_ != nullptr) index_->SetOffered(lock, entry, false);
}

void Ledger::Unfreeze(LedgerLock& lock, EntryId entry) {
  TESSERA_DCHECK(lock.Guards(*this));
  Entry& record = at(entry);
  TESSERA_CHECK(record.state == ReclaimState::kFrozen || record.state == ReclaimState::kIdle);
  record.state = ReclaimState::kLive;
  DropUnfinished(entry);
  if (index_ == nullptr) return;
  index_->SetOffered(lock, entry, true);
  if (record.holds == 0) index_->BecameIdle(lock, entry);
}

void Ledger::Clear(EntryId entry) {
  const std::span<const int> pools = kinds_.page_pools(entry.type());
  const std::span<const PageId> members = pages(entry);
  CountCached(entry, false);
  for (size_t i = 0; i < members.size(); ++i) {
    record(pools[i], members[i]).owner = EntryId();
    ++pools_[static_cast<size_t>(pools[i])]->draining;
  }
  if (slot(entry).valid()) record(slot(entry)).owner = EntryId();
}

void Ledger::FreeMembers(EntryId entry) {
  const std::span<const int> pools = kinds_.page_pools(entry.type());
  const std::span<const PageId> members = pages(entry);
  for (size_t i = 0; i < members.size(); ++i) {
    --pools_[static_cast<size_t>(pools[i])]->draining;
    FreePage(pools[i], members[i]);
  }
  if (slot(entry).valid()) FreeSlot(slot(entry));
}

void Ledger::Forget(EntryId entry) {
  Table& table = this->table(entry.type());
  DropUnfinished(entry);
  if (at(entry).retentions > 0) --retained_;
  at(entry) = {.generation = at(entry).generation + 1};
  table.free.push_back(entry.index());
  --table.count;
}

// The last one takes its place: after a Clear there may be as many as entries.
void Ledger::DropUnfinished(EntryId entry) {
  const uint32_t place = at(entry).unfinished;
  const EntryId last = unfinished_.back();
  unfinished_[place] = last;
  at(last).unfinished = place;
  unfinished_.pop_back();
}

bool Ledger::Reclaim(LedgerLock& lock, EntryId entry) {
  ReclaimState before = at(entry).state;
  while (true) {
    const ReclaimState now = Advance(lock, entry);
    if (now == ReclaimState::kGone) return true;
    if (now == before) return false;
    before = now;
  }
}

bool Ledger::SlabIsIdle(PageId slab) const {
  return slabs_->used_in(slab) > 0 && slab_busy_[slab.index()] == 0;
}

int Ledger::ReclaimPage(LedgerLock& lock, int pool_index, PageId page) {
  const EntryId owner = this->owner(pool_index, page);
  if (owner.valid()) {
    if (!idle(owner) || at(owner).state != ReclaimState::kLive) return -1;
    TESSERA_CHECK(Reclaim(lock, owner));
    return 1;
  }
  if (slabs_ == nullptr || pool_index != slab_pool_ || !SlabIsIdle(page)) return -1;
  return ReclaimSlab(lock, page);
}

int Ledger::ReclaimSlab(LedgerLock& lock, PageId slab) {
  const uint32_t slots = slabs_->slots_per_page();
  const std::span<const Record> records =
      std::span(slot_records_).subspan(size_t{slab.index()} * slots, slots);
  for (const Record& record : records) {  // before any of them goes
    if (record.owner.valid() && at(record.owner).state != ReclaimState::kLive) return -1;
  }
  int invalidated = 0;
  for (const Record& record : records) {
    if (!record.owner.valid()) continue;
    TESSERA_CHECK(Reclaim(lock, record.owner));  // idle, so nothing stops it
    ++invalidated;
  }
  return invalidated;
}

bool Ledger::IsRetained(int pool_index, PageId page) const {
  const EntryId owner = this->owner(pool_index, page);
  if (owner.valid()) return at(owner).retentions > 0;
  if (slabs_ == nullptr || pool_index != slab_pool_) return false;
  const uint32_t slots = slabs_->slots_per_page();
  for (uint32_t i = 0; i < slots; ++i) {
    const EntryId entry = slot_owner(SlotId(page.index() * slots + i));
    if (entry.valid() && at(entry).retentions > 0) return true;
  }
  return false;
}

void Ledger::Resume(LedgerLock& lock) {
  for (size_t i = unfinished_.size(); i > 0; --i) {
    // Going down, so that what takes the place of an entry that ends was looked at.
    if (i <= unfinished_.size()) Reclaim(lock, unfinished_[i - 1]);
  }
}

}  // namespace tessera
