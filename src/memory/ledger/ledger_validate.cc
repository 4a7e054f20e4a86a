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
  return level >= 2 ? ValidatePages(index) : Status::Ok();
}

Status Ledger::ValidatePages(int index) const {
  const Pool& pool = *pools_[static_cast<size_t>(index)];
  uint32_t cached = 0, draining = 0;
  for (uint32_t i = 0; i < pool.records.size(); ++i) {
    const Record& record = pool.records[i];
    const bool known = record.refs > 0 || record.owner.valid();
    const bool held = pool.pages.IsHeld(PageId(i));
    if (known && !held) {
      return Wrong(fmt::format("page {} of pool {} is free and has {} refs or an owner", i, index,
                               record.refs));
    }
    if (index == slab_pool_ && slabs_->used_in(PageId(i)) > 0) {
      if (known) return Wrong(fmt::format("slab {} has {} refs or an owner", i, record.refs));
      cached += SlabIsIdle(PageId(i)) ? 1 : 0;
      continue;
    }
    if (record.owner.valid() && at(record.owner).holds == 0) ++cached;
    if (held && !known) ++draining;  // nobody's, so a step's end must be what it waits for
  }
  if (cached == pool.cached && draining == pool.draining) return Status::Ok();
  return Wrong(fmt::format("pool {} counts {} cached pages and {} draining, and has {} and {}",
                           index, pool.cached, pool.draining, cached, draining));
}

Status Ledger::ValidateSlabs() const {
  const uint32_t slots = slabs_->slots_per_page();
  for (uint32_t page = 0; page < slab_busy_.size(); ++page) {
    uint32_t busy = 0;
    for (uint32_t i = 0; i < slots; ++i) {
      const SlotId slot(page * slots + i);
      const Record& record = this->record(slot);
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
  uint64_t owned = 0, reclaiming = 0, retained = 0;
  for (int type = 0; type < kEntryTypes; ++type) {
    const Table& table = tables_[type];
    uint32_t count = 0;
    for (uint32_t i = 0; i < table.entries.size(); ++i) {
      const ReclaimState state = table.entries[i].state;
      if (state == ReclaimState::kGone) continue;
      ++count;
      retained += table.entries[i].retentions > 0 ? 1 : 0;
      if (state != ReclaimState::kLive) {
        ++reclaiming;
        const uint32_t place = table.entries[i].unfinished;
        if (place >= unfinished_.size() ||
            unfinished_[place] != EntryId(static_cast<EntryType>(type), i)) {
          return Wrong(
              fmt::format("entry {}/{} is being reclaimed and is not at place {} of those "
                          "that are",
                          type, i, place));
        }
      }
      if (state == ReclaimState::kBare) continue;
      TESSERA_RETURN_IF_ERROR(ValidateEntry(EntryId(static_cast<EntryType>(type), i)));
      owned += table.stride + (kinds_.has_slot(static_cast<EntryType>(type)) ? 1 : 0);
    }
    if (count != table.count || table.free.size() + count != table.entries.size()) {
      return Wrong(fmt::format("{} entries of type {} are counted and {} free of {}, {} there",
                               table.count, type, table.free.size(), table.entries.size(), count));
    }
  }
  uint64_t named = 0;
  for (const std::unique_ptr<Pool>& pool : pools_) {
    for (const Record& record : pool->records) named += record.owner.valid() ? 1 : 0;
  }
  for (const Record& record : slot_records_) named += record.owner.valid() ? 1 : 0;
  if (named != owned) {
    return Wrong(fmt::format("{} members have an owner, entries have {} members", named, owned));
  }
  if (retained != retained_) {
    return Wrong(fmt::format("{} entries are counted as retained, {} are", retained_, retained));
  }
  if (reclaiming == unfinished_.size()) return Status::Ok();
  return Wrong(fmt::format("{} entries are being reclaimed, {} are listed as unfinished",
                           reclaiming, unfinished_.size()));
}

Status Ledger::ValidateEntry(EntryId entry) const {
  const Entry& record = at(entry);
  const int type = static_cast<int>(entry.type());
  uint32_t holds = record.uses + record.pins;
  const std::span<const PageId> members = pages(entry);
  for (size_t m = 0; m < members.size(); ++m) {
    const Record& member = this->record(kinds_.page_pools(entry.type())[m], members[m]);
    if (member.owner != entry) {
      return Wrong(
          fmt::format("member {} of entry {}/{} has another owner", m, type, entry.index()));
    }
    holds += member.refs > 0 ? 1 : 0;
  }
  if (slot(entry).valid()) {
    const Record& member = this->record(slot(entry));
    if (member.owner != entry) {
      return Wrong(fmt::format("the slot of entry {}/{} has another owner", type, entry.index()));
    }
    holds += member.refs > 0 ? 1 : 0;
  }
  if (holds != record.holds) {
    return Wrong(fmt::format("entry {}/{} counts {} holds and has {}", type, entry.index(),
                             record.holds, holds));
  }
  if (record.pins > 0 && record.state != ReclaimState::kLive) {
    return Wrong(fmt::format("entry {}/{} is pinned and being reclaimed", type, entry.index()));
  }
  return Status::Ok();
}

}  // namespace tessera
