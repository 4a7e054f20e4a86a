// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "memory/store/sequence_hold.h"
#include "memory/store/state_memory.h"

namespace tessera::store {
namespace {

Status Wrong(std::string what) { return {StatusCode::kFailed, "store: " + std::move(what)}; }

}  // namespace

Status StateMemory::Validate(LedgerLock& lock, int level) const {
  TESSERA_RETURN_IF_ERROR(ledger_->Validate(lock, level));
  if (index_ != nullptr) TESSERA_RETURN_IF_ERROR(index_->Validate(lock, level));
  if (level < 3) return Status::Ok();
  for (const SequenceHold* sequence = sequences_; sequence != nullptr; sequence = sequence->next_) {
    TESSERA_RETURN_IF_ERROR(sequence->Validate());
  }
  return ValidateOwners(lock);
}

// S2, and that no page is held or promised without a sequence, an entry or a slab behind it.
Status StateMemory::ValidateOwners(LedgerLock& lock) const {
  const size_t pools = table_.pools.size();
  std::vector<std::vector<uint8_t>> written(pools);  // by sequences, unpublished
  std::vector<uint64_t> promised(pools, 0);
  uint32_t slots = 0;
  for (size_t i = 0; i < pools; ++i) {
    written[i].resize(ledger_->pool(static_cast<int>(i)).total_pages(), 0);
  }
  bool twice = false;
  auto own = [&](int pool, PageId page) {
    if (ledger_->owner(pool, page).valid()) return;
    twice = twice || written[static_cast<size_t>(pool)][page.index()]++ != 0;
  };
  for (const SequenceHold* sequence = sequences_; sequence != nullptr; sequence = sequence->next_) {
    if (attention() != nullptr) {
      promised[static_cast<size_t>(table_.attention_pool)] += sequence->promise().attention.pages();
      for (PageId page : sequence->own_pages()) own(table_.attention_pool, page);
      if (sequence->replaced_page().valid()) own(table_.attention_pool, sequence->replaced_page());
    }
    if (state() == nullptr) continue;
    promised[static_cast<size_t>(table_.state_pool)] += sequence->promise().state.pages();
    for (int i = 0; i < 2; ++i) {
      const ImageHold& image = sequence->image(i);
      if (!image.held) continue;
      for (PageId page : image.pages) own(table_.state_pool, page);
      if (image.slot.valid() && !ledger_->slot_owner(image.slot).valid()) ++slots;
    }
  }
  if (twice) return Wrong("two sequences write the same page");
  for (size_t i = 0; i < pools; ++i) {
    const int pool = static_cast<int>(i);
    const LedgerPoolCounts counts = ledger_->counts(lock, pool);
    uint64_t there = counts.draining;
    for (uint32_t page = 0; page < written[i].size(); ++page) {
      there += written[i][page] + (ledger_->owner(pool, PageId(page)).valid() ? 1u : 0u);
    }
    if (pool == ledger_->slab_pool()) {
      there += ledger_->slabs()->slab_pages();
      promised[i] += ledger_->slabs()->spare_pages();
    }
    if (there != counts.held + counts.cached + counts.draining || promised[i] != counts.reserved) {
      return Wrong(
          fmt::format("pool '{}' has {} pages taken and {} reserved, their owners {} and {}",
                      table_.pools[i].name, counts.held + counts.cached + counts.draining,
                      counts.reserved, there, promised[i]));
    }
  }
  if (ledger_->slabs() == nullptr) return Status::Ok();
  uint32_t owned = 0;
  for (uint32_t slot = 0;
       slot < ledger_->slabs()->slots_per_page() * ledger_->pool(table_.state_pool).total_pages();
       ++slot) {
    owned += ledger_->slot_owner(SlotId(slot)).valid() ? 1 : 0;
  }
  owned += slots + ledger_->draining_slots();
  if (owned == ledger_->slabs()->used_slots()) return Status::Ok();
  return Wrong(
      fmt::format("{} slots are used, {} have an owner", ledger_->slabs()->used_slots(), owned));
}

}  // namespace tessera::store
