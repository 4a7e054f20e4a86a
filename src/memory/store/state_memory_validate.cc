// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "memory/store/sequence_hold.h"
#include "memory/store/state_memory.h"

namespace tessera::store {
namespace {

// What the sequences say of one pool.
struct Owned {
  std::vector<uint8_t> pages;  // seen already
  uint32_t held = 0;
  uint32_t promised = 0;
  bool wrong = false;  // a page has two owners, is free, or is held as the other kind

  void Add(PageId page, const PagePool& pool, bool state) {
    ++held;
    wrong = wrong || pages[page.index()]++ != 0 || !pool.IsHeld(page) ||
            pool.IsHeldByState(page) != state;
  }
  Status Compare(const PagePool& pool, const std::string& name) const {
    const uint32_t pool_held = pool.held_attention_pages() + pool.held_state_pages();
    if (!wrong && held == pool_held && promised == pool.reserved_pages()) return Status::Ok();
    return {StatusCode::kFailed,
            fmt::format("store: pool '{}' has {} pages held and {} reserved, its owners {} and "
                        "{}{}",
                        name, pool_held, pool.reserved_pages(), held, promised,
                        wrong ? ", and a page with two owners or of the wrong kind" : "")};
  }
};

Status ValidateSlots(const SlabSlots& slabs, std::vector<SlotId>* slots) {
  std::sort(slots->begin(), slots->end());
  bool wrong = std::adjacent_find(slots->begin(), slots->end()) != slots->end();
  for (SlotId slot : *slots) wrong = wrong || !slabs.IsUsed(slot);
  if (!wrong && slots->size() == slabs.used_slots()) return Status::Ok();
  return {StatusCode::kFailed,
          fmt::format("store: {} slots are used, {} have an owner{}", slabs.used_slots(),
                      slots->size(), wrong ? ", one of them two or none" : "")};
}

}  // namespace

Status StateMemory::Validate(int level) const {
  for (const std::unique_ptr<PoolMemory>& pool : pools_) {
    TESSERA_RETURN_IF_ERROR(pool->pages().Validate(level));
  }
  if (slabs_ != nullptr) TESSERA_RETURN_IF_ERROR(slabs_->Validate(level));
  if (level < 3) return Status::Ok();
  for (const SequenceHold* sequence = sequences_; sequence != nullptr; sequence = sequence->next_) {
    TESSERA_RETURN_IF_ERROR(sequence->Validate());
  }
  return ValidateOwners();
}

// S2, and that no page is held or promised without a sequence or a slab behind it.
Status StateMemory::ValidateOwners() const {
  std::vector<Owned> owned(pools_.size());
  for (size_t i = 0; i < pools_.size(); ++i) {
    owned[i].pages.resize(pools_[i]->pages().total_pages(), 0);
  }
  std::vector<SlotId> slots;
  for (const SequenceHold* sequence = sequences_; sequence != nullptr; sequence = sequence->next_) {
    if (attention() != nullptr) {
      Owned& pool = owned[static_cast<size_t>(table_.attention_pool)];
      pool.promised += sequence->promise().attention.pages();
      for (PageId page : sequence->attention_pages()) pool.Add(page, attention()->pages(), false);
    }
    if (state() == nullptr) continue;
    Owned& pool = owned[static_cast<size_t>(table_.state_pool)];
    pool.promised += sequence->promise().state.pages();
    for (int i = 0; i < 2; ++i) {
      if (!sequence->image(i).held) continue;
      for (PageId page : sequence->image(i).pages) pool.Add(page, state()->pages(), true);
      if (slabs_ != nullptr) slots.push_back(sequence->image(i).slot);
    }
  }
  if (slabs_ != nullptr) {
    TESSERA_RETURN_IF_ERROR(ValidateSlots(*slabs_, &slots));
    owned[static_cast<size_t>(table_.state_pool)].held += slabs_->slab_pages();
    owned[static_cast<size_t>(table_.state_pool)].promised += slabs_->spare_pages();
  }
  for (size_t i = 0; i < pools_.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(owned[i].Compare(pools_[i]->pages(), table_.pools[i].name));
  }
  return Status::Ok();
}

}  // namespace tessera::store
