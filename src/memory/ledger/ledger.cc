// SPDX-License-Identifier: Apache-2.0
#include "memory/ledger/ledger.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tessera {

Ledger::Ledger(Options options) : kinds_(std::move(options.kinds)), slab_pool_(options.slab_pool) {
  size_t members = 0;
  for (const PagePool::Options& pool : options.pools) {
    pools_.push_back(std::make_unique<Pool>(pool));
    members += pool.page_count;
  }
  if (slab_pool_ >= 0) {
    slabs_ = std::make_unique<SlabSlots>(&pool(slab_pool_), options.slots_per_page);
    const size_t slots = size_t{pool(slab_pool_).total_pages()} * options.slots_per_page;
    slot_records_.resize(slots);
    slab_busy_.resize(pool(slab_pool_).total_pages(), 0);
    members += slots;
  }
  for (int i = 0; i < kEntryTypes; ++i) BuildTable(static_cast<EntryType>(i));
  if (slabs_ != nullptr) checkpoint_slots_.resize(capacity(EntryType::kCheckpoint));
  size_t entries = 0;
  for (const Table& table : tables_) entries += table.entries.size();
  unfinished_.reserve(entries);
  draining_.reserve(members);
}

Ledger::~Ledger() { TESSERA_CHECK(open_steps_ == 0); }

// As many entries as the least plentiful member allows: there is never a page without a place for
// its entry.
void Ledger::BuildTable(EntryType type) {
  if (!kinds_.has(type)) return;
  for (int pool : kinds_.page_pools(type)) TESSERA_CHECK(pool >= 0 && pool < pool_count());
  uint64_t most = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < pool_count(); ++i) {
    const uint32_t pages = kinds_.pages_in(type, i);
    if (pages > 0) most = std::min<uint64_t>(most, pool(i).total_pages() / pages);
  }
  if (kinds_.has_slot(type)) {
    TESSERA_CHECK(slabs_ != nullptr);
    most = std::min<uint64_t>(most, slot_records_.size());
  }
  TESSERA_CHECK(most < EntryId::kIndicesMax);
  Table& built = table(type);
  built.stride = static_cast<uint32_t>(kinds_.page_pools(type).size());
  built.entries.resize(most);
  built.pages.resize(most * built.stride);
  for (int i = 0; i < pool_count(); ++i) built.pages_in.push_back(kinds_.pages_in(type, i));
  built.free.reserve(most);
  for (uint64_t i = most; i > 0; --i) built.free.push_back(static_cast<uint32_t>(i - 1));
}

LedgerPoolCounts Ledger::counts(LedgerLock& lock, int index) const {
  TESSERA_DCHECK(lock.Guards(*this));
  const Pool& pool = *pools_[static_cast<size_t>(index)];
  LedgerPoolCounts counts;
  counts.total = pool.pages.total_pages();
  counts.free = pool.pages.free_pages();
  counts.reserved = pool.pages.reserved_pages();
  counts.cached = pool.cached;
  counts.draining = pool.draining;
  counts.held = pool.pages.held_attention_pages() + pool.pages.held_state_pages() - pool.cached -
                pool.draining;
  return counts;
}

PageId Ledger::TakeAttention(LedgerLock& lock, int pool_index, Reservation* from) {
  TESSERA_DCHECK(lock.Guards(*this));
  const PageId page = pool(pool_index).TakeAttention(from);
  record(pool_index, page).refs = 1;
  return page;
}

void Ledger::TakeImage(LedgerLock& lock, int pool_index, Reservation* from, std::span<PageId> out) {
  TESSERA_DCHECK(lock.Guards(*this));
  pool(pool_index).TakeImage(from, out);
  for (PageId page : out) record(pool_index, page).refs = 1;
}

SlotId Ledger::TakeSlot(LedgerLock& lock, SlotReservation* from) {
  TESSERA_DCHECK(lock.Guards(*this));
  const SlotId slot = slabs_->Take(from);
  // Before the Take its slab may have been all idle: it no longer is.
  const PageId slab = slabs_->PageOf(slot);
  if (slab_busy_[slab.index()]++ == 0 && slabs_->used_in(slab) > 1) --slab_records().cached;
  record(slot).refs = 1;
  return slot;
}

void Ledger::Ref(LedgerLock& lock, int pool_index, PageId page) {
  TESSERA_DCHECK(lock.Guards(*this));
  AddRef(&record(pool_index, page));
}

void Ledger::Unref(LedgerLock& lock, int pool_index, PageId page) {
  TESSERA_DCHECK(lock.Guards(*this));
  Record& record = this->record(pool_index, page);
  TESSERA_CHECK(record.refs > 0);
  if (--record.refs > 0) return;
  if (record.owner.valid()) {
    DropHold(lock, record.owner);
  } else {
    FreePage(pool_index, page);
  }
}

void Ledger::FreeInto(LedgerLock& lock, int pool_index, PageId page, Reservation* to) {
  TESSERA_DCHECK(lock.Guards(*this));
  Record& record = this->record(pool_index, page);
  TESSERA_CHECK(open_steps_ == 0 && record.refs == 1 && !record.owner.valid());
  record.refs = 0;
  if (freed_ != nullptr) freed_->PageFreed(pool_index, page);
  pool(pool_index).FreeInto(to, page);
}

void Ledger::FreeSlotInto(LedgerLock& lock, SlotId slot, SlotReservation* to) {
  TESSERA_DCHECK(lock.Guards(*this));
  Record& record = this->record(slot);
  TESSERA_CHECK(open_steps_ == 0 && record.refs == 1 && !record.owner.valid());
  record.refs = 0;
  if (freed_ != nullptr) freed_->SlotFreed(slot);
  const PageId slab = slabs_->PageOf(slot);
  slabs_->FreeInto(to, slot);
  if (--slab_busy_[slab.index()] == 0 && slabs_->used_in(slab) > 0) ++slab_records().cached;
}

uint64_t Ledger::metadata_bytes() const {
  uint64_t bytes = slot_records_.capacity() * sizeof(Record) + slab_busy_.capacity() * 4 +
                   checkpoint_slots_.capacity() * sizeof(SlotId) +
                   unfinished_.capacity() * sizeof(EntryId) +
                   draining_.capacity() * sizeof(Draining);
  for (const std::unique_ptr<Pool>& pool : pools_) bytes += pool->records.size() * sizeof(Record);
  for (const Table& table : tables_) {
    bytes += table.entries.size() * (sizeof(Entry) + sizeof(uint32_t)) +
             table.pages.size() * sizeof(PageId);
  }
  return bytes;
}

void Ledger::RefSlot(LedgerLock& lock, SlotId slot) {
  TESSERA_DCHECK(lock.Guards(*this));
  AddRef(&record(slot));
}

void Ledger::UnrefSlot(LedgerLock& lock, SlotId slot) {
  TESSERA_DCHECK(lock.Guards(*this));
  Record& record = this->record(slot);
  TESSERA_CHECK(record.refs > 0);
  if (--record.refs > 0) return;
  if (record.owner.valid()) {
    DropHold(lock, record.owner);
  } else {
    FreeSlot(slot);
  }
}

EntryId Ledger::Publish(LedgerLock& lock, EntryType type, std::span<const PageId> pages,
                        SlotId slot) {
  TESSERA_DCHECK(lock.Guards(*this));
  Table& table = this->table(type);
  TESSERA_CHECK(pages.size() == table.stride && slot.valid() == kinds_.has_slot(type));
  TESSERA_CHECK(!table.free.empty());
  const EntryId entry(type, table.free.back());
  table.free.pop_back();
  ++table.count;
  at(entry).state = ReclaimState::kLive;
  std::copy(pages.begin(), pages.end(),
            table.pages.begin() + ptrdiff_t{entry.index()} * table.stride);
  if (slot.valid()) checkpoint_slots_[entry.index()] = slot;
  for (size_t i = 0; i < pages.size(); ++i) {
    Record& record = this->record(kinds_.page_pools(type)[i], pages[i]);
    TESSERA_CHECK(record.refs > 0 && !record.owner.valid());
    record.owner = entry;
  }
  if (slot.valid()) {
    Record& record = this->record(slot);
    TESSERA_CHECK(record.refs > 0 && !record.owner.valid());
    record.owner = entry;
  }
  at(entry).holds = table.stride + (slot.valid() ? 1 : 0);
  return entry;
}

std::span<const PageId> Ledger::pages(EntryId entry) const {
  TESSERA_CHECK(at(entry).state != ReclaimState::kGone);
  const Table& table = this->table(entry.type());
  return std::span(table.pages).subspan(size_t{entry.index()} * table.stride, table.stride);
}

SlotId Ledger::slot(EntryId entry) const {
  TESSERA_CHECK(at(entry).state != ReclaimState::kGone);
  return kinds_.has_slot(entry.type()) ? checkpoint_slots_[entry.index()] : SlotId();
}

void Ledger::RefMembers(LedgerLock& lock, EntryId entry) {
  const std::span<const int> pools = kinds_.page_pools(entry.type());
  const std::span<const PageId> members = pages(entry);
  for (size_t i = 0; i < members.size(); ++i) Ref(lock, pools[i], members[i]);
  if (slot(entry).valid()) RefSlot(lock, slot(entry));
}

void Ledger::UnrefMembers(LedgerLock& lock, EntryId entry) {
  const std::span<const int> pools = kinds_.page_pools(entry.type());
  const std::span<const PageId> members = pages(entry);
  // The last Unref may tell the index, which may not evict: the members stay as they are.
  for (size_t i = 0; i < members.size(); ++i) Unref(lock, pools[i], members[i]);
  if (slot(entry).valid()) UnrefSlot(lock, slot(entry));
}

Use Ledger::BeginUse(LedgerLock& lock, EntryId entry) {
  TESSERA_DCHECK(lock.Guards(*this));
  AddHold(entry);
  ++at(entry).uses;
  return Use(entry, at(entry).generation);
}

void Ledger::EndUse(LedgerLock& lock, Use use) {
  TESSERA_DCHECK(lock.Guards(*this));
  const EntryId entry = std::exchange(use.entry_, EntryId());
  TESSERA_CHECK(at(entry).uses > 0);
  --at(entry).uses;
  DropHold(lock, entry);
}

Pin Ledger::BeginPin(LedgerLock& lock, EntryId entry) {
  TESSERA_DCHECK(lock.Guards(*this));
  AddHold(entry);
  ++at(entry).pins;
  return Pin(entry, at(entry).generation);
}

void Ledger::EndPin(LedgerLock& lock, Pin pin) {
  TESSERA_DCHECK(lock.Guards(*this));
  const EntryId entry = std::exchange(pin.entry_, EntryId());
  TESSERA_CHECK(at(entry).pins > 0);
  --at(entry).pins;
  DropHold(lock, entry);
}

Retention Ledger::Retain(LedgerLock& lock, EntryId entry) {
  TESSERA_DCHECK(lock.Guards(*this));
  TESSERA_CHECK(at(entry).state == ReclaimState::kLive);
  if (at(entry).retentions++ == 0) ++retained_;
  return Retention(entry, at(entry).generation);
}

void Ledger::Release(LedgerLock& lock, Retention retention) {
  TESSERA_DCHECK(lock.Guards(*this));
  const EntryId entry = std::exchange(retention.entry_, EntryId());
  if (at(entry).generation != retention.generation_) return;
  TESSERA_CHECK(at(entry).retentions > 0);
  if (--at(entry).retentions > 0) return;
  --retained_;
  if (index_ == nullptr) return;
  if (at(entry).holds == 0 && at(entry).state == ReclaimState::kLive) {
    index_->BecameIdle(lock, entry);
  }
}

void Ledger::AddRef(Record* record) {
  if (!record->owner.valid()) {
    TESSERA_CHECK(record->refs > 0);  // without either it is free
  } else if (record->refs == 0) {
    AddHold(record->owner);
  } else {
    TESSERA_CHECK(at(record->owner).state == ReclaimState::kLive);  // G4
  }
  ++record->refs;
}

void Ledger::AddHold(EntryId entry) {
  TESSERA_CHECK(at(entry).state == ReclaimState::kLive);  // G4
  if (at(entry).holds++ == 0) CountCached(entry, false);
}

void Ledger::DropHold(LedgerLock& lock, EntryId entry) {
  TESSERA_CHECK(at(entry).holds > 0);
  if (--at(entry).holds > 0) return;
  CountCached(entry, true);
  if (index_ != nullptr && at(entry).state == ReclaimState::kLive) index_->BecameIdle(lock, entry);
}

void Ledger::CountCached(EntryId entry, bool cached) {
  Table& table = this->table(entry.type());
  table.idle += cached ? 1u : ~0u;
  for (size_t i = 0; i < pools_.size(); ++i) {
    if (cached) {
      pools_[i]->cached += table.pages_in[i];
    } else {
      pools_[i]->cached -= table.pages_in[i];
    }
  }
  if (slot(entry).valid()) SlabBusy(slabs_->PageOf(slot(entry)), cached ? -1 : 1);
}

void Ledger::SlabBusy(PageId slab, int change) {
  uint32_t& busy = slab_busy_[slab.index()];
  const bool was_idle = busy == 0;
  busy += static_cast<uint32_t>(change);
  const bool is_idle = busy == 0;
  if (was_idle && !is_idle) --slab_records().cached;
  if (!was_idle && is_idle) ++slab_records().cached;
}

void Ledger::FreePage(int pool_index, PageId page) {
  if (open_steps_ == 0) return ReturnPage(pool_index, page);
  ++pools_[static_cast<size_t>(pool_index)]->draining;
  draining_.push_back({pool_index, page.index()});
}

void Ledger::FreeSlot(SlotId slot) {
  if (open_steps_ == 0) return ReturnSlot(slot);
  draining_.push_back({-1, slot.index()});
}

void Ledger::ReturnPage(int pool_index, PageId page) {
  const Record& record = this->record(pool_index, page);
  TESSERA_CHECK(record.refs == 0 && !record.owner.valid());  // G3
  if (freed_ != nullptr) freed_->PageFreed(pool_index, page);
  pool(pool_index).Free(page);
}

void Ledger::ReturnSlot(SlotId slot) {
  const Record& record = this->record(slot);
  TESSERA_CHECK(record.refs == 0 && !record.owner.valid());
  if (freed_ != nullptr) freed_->SlotFreed(slot);
  const PageId slab = slabs_->PageOf(slot);
  slabs_->Free(slot);
  // An emptied slab went back to the pool; one with only idle slots left is cached from now on.
  if (--slab_busy_[slab.index()] == 0 && slabs_->used_in(slab) > 0) ++slab_records().cached;
}

uint32_t Ledger::draining_slots() const {
  return static_cast<uint32_t>(std::count_if(draining_.begin(), draining_.end(),
                                             [](Draining item) { return item.pool < 0; }));
}

void Ledger::OpenStep(LedgerLock& lock) {
  TESSERA_DCHECK(lock.Guards(*this));
  ++open_steps_;
}

void Ledger::CloseStep(LedgerLock& lock) {
  TESSERA_DCHECK(lock.Guards(*this));
  TESSERA_CHECK(open_steps_ > 0);
  if (--open_steps_ > 0) return;
  for (const Draining& item : draining_) {
    if (item.pool < 0) {
      ReturnSlot(SlotId(item.index));
    } else {
      --pools_[static_cast<size_t>(item.pool)]->draining;
      ReturnPage(item.pool, PageId(item.index));
    }
  }
  draining_.clear();
}

}  // namespace tessera
