// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "memory/ledger/ledger.h"

namespace tessera {
namespace {

Status Wrong(std::string message) { return {StatusCode::kFailed, "ledger: " + std::move(message)}; }

}  // namespace

Status Ledger::Validate(LedgerLock& lock, int level) const {
  TESSERA_CHECK(lock.Guards(*this));
  for (int i = 0; i < pool_count(); ++i) TESSERA_RETURN_IF_ERROR(ValidatePool(i, level));
  if (slabs_ != nullptr) {
    TESSERA_RETURN_IF_ERROR(slabs_->Validate(level));
    if (level >= 2) TESSERA_RETURN_IF_ERROR(ValidateSlabs());
  }
  return level >= 3 ? ValidateEntries() : Status::Ok();
}

Status Ledger::ValidatePool(int index, int level) const {
  const Pool& pool = *pools_[static_cast<size_t>(index)];
  TESSERA_RETURN_IF_ERROR(pool.pages.Validate(level));
  const uint32_t taken = pool.pages.held_attention_pages() + pool.pages.held_state_pages();
  if (uint64_t{pool.cached} + pool.draining > taken) {
    return Wrong(fmt::format("pool {} has {} pages cached and {} draining of {} that are not free",
                             index, pool.cached, pool.draining, taken));
  }
  if (level < 2) return Status::Ok();
  uint32_t cached = 0;
  for (uint32_t i = 0; i < pool.records.size(); ++i) {
    const Record& record = pool.records[i];
    if (record.refs == 0 && !record.owner.valid()) continue;
    if (!pool.pages.IsHeld(PageId(i))) {
      return Wrong(fmt::format("page {} of pool {} is free and has {} refs or an owner", i, index,
                               record.refs));
    }
    if (record.owner.valid() && at(record.owner).holds == 0) ++cached;
  }
  if (index == slab_pool_) {
    for (uint32_t i = 0; i < pool.records.size(); ++i) cached += SlabIsIdle(PageId(i)) ? 1 : 0;
  }
  if (cached == pool.cached) return Status::Ok();
  return Wrong(
      fmt::format("pool {} counts {} cached pages and has {}", index, pool.cached, cached));
}

Status Ledger::ValidateSlabs() const {
  const uint32_t slots = slabs_->slots_per_page();
  for (uint32_t page = 0; page < slab_busy_.size(); ++page) {
    uint32_t busy = 0;
    for (uint32_t i = 0; i < slots; ++i) {
      const SlotId slot(page * slots + i);
      const Record& record = slot_records_[slot.index()];
      if (!slabs_->IsUsed(slot)) {
        if (record.refs == 0 && !record.owner.valid()) continue;
        return Wrong(fmt::format("slot {} is free and has refs or an owner", slot.index()));
      }
      busy += record.owner.valid() && at(record.owner).holds == 0 ? 0 : 1;
    }
    if (busy == slab_busy_[page]) continue;
    return Wrong(
        fmt::format("slab {} counts {} busy slots and has {}", page, slab_busy_[page], busy));
  }
  return Status::Ok();
}

// Every entry's members name it as their owner, and no owner is named without being one (G2).
Status Ledger::ValidateEntries() const {
  uint64_t owned = 0;
  for (int type = 0; type < kEntryTypes; ++type) {
    const Table& table = tables_[type];
    uint32_t count = 0;
    for (uint32_t i = 0; i < table.entries.size(); ++i) {
      const EntryId entry(static_cast<EntryType>(type), i);
      const Entry& record = table.entries[i];
      if (record.state == ReclaimState::kGone) continue;
      ++count;
      if (record.state == ReclaimState::kBare) continue;
      uint32_t holds = record.uses + record.pins;
      const std::span<const PageId> members = pages(entry);
      for (size_t m = 0; m < members.size(); ++m) {
        const Record& member = this->record(kinds_.page_pools(entry.type())[m], members[m]);
        if (member.owner != entry) {
          return Wrong(fmt::format("a member of entry {}/{} has another owner", type, i));
        }
        holds += member.refs > 0 ? 1 : 0;
        ++owned;
      }
      if (slot(entry).valid()) {
        const Record& member = slot_records_[slot(entry).index()];
        if (member.owner != entry) {
          return Wrong(fmt::format("the slot of entry {}/{} has another owner", type, i));
        }
        holds += member.refs > 0 ? 1 : 0;
        ++owned;
      }
      if (holds != record.holds) {
        return Wrong(
            fmt::format("entry {}/{} counts {} holds and has {}", type, i, record.holds, holds));
      }
      if (record.pins > 0 && record.state != ReclaimState::kLive) {
        return Wrong(fmt::format("entry {}/{} is pinned and being reclaimed", type, i));
      }
    }
    if (count != table.count) {
      return Wrong(
          fmt::format("{} entries of type {} are counted, {} there", table.count, type, count));
    }
  }
  uint64_t named = 0;
  for (const std::unique_ptr<Pool>& pool : pools_) {
    for (const Record& record : pool->records) named += record.owner.valid() ? 1 : 0;
  }
  for (const Record& record : slot_records_) named += record.owner.valid() ? 1 : 0;
  if (named == owned) return Status::Ok();
  return Wrong(fmt::format("{} members have an owner, entries have {} members", named, owned));
}

}  // namespace tessera
