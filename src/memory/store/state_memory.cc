// SPDX-License-Identifier: Apache-2.0
#include "memory/store/state_memory.h"

#include <fmt/format.h>

#include <utility>

#include "memory/store/sequence_hold.h"

namespace tessera::store {
StateMemory::StateMemory(const StoreOptions& options, Organisation table, ArenaLayout layout,
                         Arena arena)
    : options_(options),
      table_(std::move(table)),
      layout_(std::move(layout)),
      arena_(std::move(arena)) {
  for (size_t i = 0; i < table_.pools.size(); ++i) {
    PoolMemory::Options pool;
    pool.pages = {.page_count = table_.pools[i].page_count,
                  .unit_bytes = table_.pools[i].unit_bytes,
                  .shuffle_seed = options_.shuffle_seed == 0 ? 0 : options_.shuffle_seed + i};
    pool.base = arena_.data() + layout_.pool_start[i];
    pool.planes = table_.planes;
    pool.poison = options_.poison;
    pools_.push_back(std::make_unique<PoolMemory>(pool));
  }
  if (table_.slot_bytes > 0) {
    slabs_ = std::make_unique<SlabSlots>(&state()->pages(), table_.slots_per_page);
  }
}

StateMemory::~StateMemory() {
  TESSERA_CHECK(sequences_ == nullptr);
  slabs_.reset();
}

Admission StateMemory::CanPromise(const Terms& terms, std::string* reason) const {
  const StateNeed need = NeedOf(table_, terms);
  const std::vector<uint64_t> alone = PagesFor(table_, need, 1);
  for (size_t i = 0; i < pools_.size(); ++i) {
    const PagePool& pages = pools_[i]->pages();
    if (alone[i] <= pages.total_pages()) continue;
    *reason = fmt::format(
        "{} tokens need {} pages of pool '{}', which has {}; the budget is {} bytes and must be at "
        "least {}",
        terms.max_tokens, alone[i], table_.pools[i].name, pages.total_pages(),
        options_.budget_bytes, BudgetOf(table_, terms, 1));
    return Admission::kNeverFits;
  }
  for (size_t i = 0; i < pools_.size(); ++i) {
    const PagePool& pages = pools_[i]->pages();
    uint64_t now = need.pages[i];
    if (need.slots > 0 && static_cast<int>(i) == table_.state_pool) {
      now += slabs_->PagesToReserve(need.slots);
    }
    if (now <= pages.free_pages()) continue;
    *reason = fmt::format("{} tokens need {} pages of pool '{}', which has {} of {} free now",
                          terms.max_tokens, now, table_.pools[i].name, pages.free_pages(),
                          pages.total_pages());
    return Admission::kMustWait;
  }
  return Admission::kAdmitted;
}

Promise StateMemory::MakePromise(const Terms& terms) {
  Promise promise;
  if (attention() != nullptr) {
    std::optional<Reservation> pages =
        attention()->pages().Reserve(table_.AttentionPages(terms.max_tokens));
    TESSERA_CHECK(pages.has_value());
    promise.attention = *std::move(pages);
  }
  if (state() != nullptr) {
    std::optional<Reservation> pages =
        state()->pages().Reserve(terms.images() * table_.state_pages);
    TESSERA_CHECK(pages.has_value());
    promise.state = *std::move(pages);
  }
  if (slabs_ != nullptr) {
    std::optional<SlotReservation> slots = slabs_->Reserve(terms.images());
    TESSERA_CHECK(slots.has_value());
    promise.slots = *std::move(slots);
  }
  return promise;
}

void StateMemory::PrepareImage(ImageHold* image) const {
  image->pages.resize(table_.state_pages);
  image->offsets.resize(table_.state_members());
}

void StateMemory::TakeImage(Promise* from, ImageHold* image) {
  TESSERA_CHECK(!image->held);
  state()->pages().TakeImage(&from->state, image->pages);
  for (size_t i = 0; i < image->pages.size(); ++i) {
    image->offsets[i] = state()->OffsetOf(image->pages[i]);
  }
  if (slabs_ != nullptr) {
    image->slot = slabs_->Take(&from->slots);
    image->offsets.back() = SlotOffset(image->slot);
  }
  image->held = true;
}

uint64_t StateMemory::SlotOffset(SlotId slot) const {
  return state()->OffsetOf(slabs_->PageOf(slot)) + slabs_->IndexInPage(slot) * table_.slot_bytes;
}

void StateMemory::FreeImage(ImageHold* image) {
  for (PageId page : image->pages) state()->Free(page);
  if (slabs_ != nullptr) {
    state()->Poison(SlotOffset(image->slot), table_.slot_bytes);
    slabs_->Free(image->slot);
  }
  image->slot = SlotId();
  image->held = false;
}

void StateMemory::FreeImageInto(Promise* to, ImageHold* image) {
  for (PageId page : image->pages) state()->FreeInto(&to->state, page);
  if (slabs_ != nullptr) {
    state()->Poison(SlotOffset(image->slot), table_.slot_bytes);
    slabs_->FreeInto(&to->slots, image->slot);
  }
  image->slot = SlotId();
  image->held = false;
}

void StateMemory::Register(SequenceHold* sequence) {
  sequence->next_ = sequences_;
  if (sequences_ != nullptr) sequences_->previous_ = sequence;
  sequences_ = sequence;
}

void StateMemory::Unregister(SequenceHold* sequence) {
  if (sequence->next_ != nullptr) sequence->next_->previous_ = sequence->previous_;
  if (sequence->previous_ != nullptr) {
    sequence->previous_->next_ = sequence->next_;
  } else {
    sequences_ = sequence->next_;
  }
}

PoolStats StateMemory::StatsOfPool(size_t pool) const {
  const PagePool& pages = pools_[pool]->pages();
  PoolStats stats;
  stats.name = table_.pools[pool].name;
  stats.unit_bytes = table_.page_bytes_all_planes(static_cast<int>(pool));
  stats.total_pages = pages.total_pages();
  stats.free_pages = pages.free_pages();
  stats.reserved_pages = pages.reserved_pages();
  stats.held_attention_pages = pages.held_attention_pages();
  stats.held_state_pages = pages.held_state_pages();
  if (slabs_ != nullptr && static_cast<int>(pool) == table_.state_pool) {
    stats.slab_pages = slabs_->slab_pages();
    stats.used_slots = slabs_->used_slots();
    stats.total_slots = slabs_->total_slots();
  }
  return stats;
}

void StateMemory::AddImageStats(const ImageHold& image, StoreStats* stats, uint64_t* runs) const {
  if (!image.held) return;
  stats->ssm_bytes += shape().ssm_image_bytes() * table_.planes;
  stats->conv_bytes += shape().conv_image_bytes() * table_.planes;
  for (size_t i = 0; i < image.offsets.size(); ++i) {
    const bool goes_on =
        i > 0 && image.offsets[i] == image.offsets[i - 1] + table_.state_unit_bytes;
    if (!goes_on) ++*runs;
  }
}

StoreStats StateMemory::Stats() const {
  StoreStats stats;
  stats.budget_bytes = options_.budget_bytes;
  stats.arena_bytes = layout_.bytes;
  for (size_t i = 0; i < pools_.size(); ++i) stats.pools.push_back(StatsOfPool(i));
  const uint64_t token_bytes = shape().kv_bytes_per_token_layer() * shape().attention_layers;
  uint64_t runs = 0, images = 0;
  for (const SequenceHold* sequence = sequences_; sequence != nullptr; sequence = sequence->next_) {
    ++stats.sequences;
    stats.attention_bytes += sequence->position() * token_bytes;
    for (int i = 0; i < 2; ++i) {
      AddImageStats(sequence->image(i), &stats, &runs);
      images += sequence->image(i).held ? 1 : 0;
    }
  }
  if (runs > 0) {
    const uint64_t image_bytes = table_.state_pages * table_.state_unit_bytes + table_.slot_bytes;
    stats.mean_run_bytes = static_cast<double>(images * image_bytes) / static_cast<double>(runs);
  }
  return stats;
}

}  // namespace tessera::store
