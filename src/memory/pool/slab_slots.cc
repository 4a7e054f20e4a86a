// SPDX-License-Identifier: Apache-2.0
#include "memory/pool/slab_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/bytes.h"

namespace tessera {

SlotReservation::SlotReservation(SlotReservation&& other) noexcept
    : slabs_(std::exchange(other.slabs_, nullptr)), slots_(std::exchange(other.slots_, 0)) {}

SlotReservation& SlotReservation::operator=(SlotReservation&& other) noexcept {
  if (this == &other) return *this;
  ShrinkTo(0);
  slabs_ = std::exchange(other.slabs_, nullptr);
  slots_ = std::exchange(other.slots_, 0);
  return *this;
}

SlotReservation::~SlotReservation() { ShrinkTo(0); }

void SlotReservation::ShrinkTo(uint32_t slots) {
  TESSERA_CHECK(slots <= slots_);
  if (slabs_ == nullptr) return;
  slabs_->reserved_ -= slots_ - slots;
  slots_ = slots;
  slabs_->ReturnSparePages();
}

void SlotReservation::Merge(SlotReservation other) {
  TESSERA_CHECK(slabs_ != nullptr && slabs_ == other.slabs_);
  slots_ += std::exchange(other.slots_, 0);
}

SlabSlots::SlabSlots(PagePool* pool, uint32_t slots_per_page)
    : pool_(pool),
      slots_per_page_(slots_per_page),
      words_per_page_(static_cast<uint32_t>(DivideUp(slots_per_page, 64))),
      spare_(*pool->Reserve(0)),
      bits_(uint64_t{words_per_page_} * pool->total_pages(), 0),
      count_(pool->total_pages(), 0),
      head_(uint64_t{slots_per_page} + 1, kNoPage),
      next_(pool->total_pages(), kNoPage),
      previous_(pool->total_pages(), kNoPage),
      counts_(slots_per_page + 1) {
  TESSERA_CHECK(slots_per_page > 0);
}

SlabSlots::~SlabSlots() { TESSERA_CHECK(reserved_ == 0); }

uint32_t SlabSlots::SparePagesFor(uint32_t reserved) const {
  const uint32_t free_slots = total_slots() - used_;
  return reserved <= free_slots
             ? 0
             : static_cast<uint32_t>(DivideUp(reserved - free_slots, slots_per_page_));
}

uint32_t SlabSlots::PagesToReserve(uint32_t slots) const {
  return SparePagesFor(reserved_ + slots) - spare_.pages();
}

std::optional<SlotReservation> SlabSlots::Reserve(uint32_t slots) {
  std::optional<Reservation> pages = pool_->Reserve(PagesToReserve(slots));
  if (!pages.has_value()) return std::nullopt;
  spare_.Merge(*std::move(pages));
  reserved_ += slots;
  return SlotReservation(this, slots);
}

void SlabSlots::ReturnSparePages() { spare_.ShrinkTo(SparePagesFor(reserved_)); }

void SlabSlots::Link(uint32_t page) {
  uint32_t& head = head_[count_[page]];
  if (head == kNoPage) counts_.Insert(count_[page]);
  next_[page] = head;
  previous_[page] = kNoPage;
  if (head != kNoPage) previous_[head] = page;
  head = page;
}

void SlabSlots::Unlink(uint32_t page) {
  const uint32_t next = next_[page], previous = previous_[page];
  if (next != kNoPage) previous_[next] = previous;
  if (previous != kNoPage) {
    next_[previous] = next;
    return;
  }
  head_[count_[page]] = next;
  if (next == kNoPage) counts_.Erase(count_[page]);
}

void SlabSlots::SetUseCount(uint32_t page, uint32_t count) {
  if (count_[page] > 0) Unlink(page);
  count_[page] = count;
  if (count > 0) Link(page);
}

uint32_t SlabSlots::TakeFreeBit(uint32_t page) {
  uint64_t* words = &bits_[uint64_t{page} * words_per_page_];
  uint32_t word = 0;
  while (words[word] == ~uint64_t{0}) ++word;
  const uint32_t bit = static_cast<uint32_t>(std::countr_one(words[word]));
  words[word] |= uint64_t{1} << bit;
  TESSERA_CHECK(word * 64 + bit < slots_per_page_);
  return word * 64 + bit;
}

SlotId SlabSlots::Take(SlotReservation* from) {
  TESSERA_CHECK(from->slabs_ == this && from->slots_ > 0);
  const uint32_t fullest = counts_.FindLast(slots_per_page_);  // below n: has a free slot
  uint32_t page = 0;
  if (fullest != IndexSet::kNone) {
    page = head_[fullest];
  } else {
    PageId taken;
    pool_->TakeImage(&spare_, {&taken, 1});
    page = taken.index();
    ++slab_pages_;
  }
  const uint32_t slot = TakeFreeBit(page);
  SetUseCount(page, count_[page] + 1);
  ++used_;
  --from->slots_;
  --reserved_;
  return SlotId(page * slots_per_page_ + slot);
}

void SlabSlots::FreeInto(SlotReservation* to, SlotId slot) {
  TESSERA_CHECK(to->slabs_ == this);
  // The promise first: the slab's page may be what it rests on.
  ++to->slots_;
  ++reserved_;
  Free(slot);
}

void SlabSlots::Free(SlotId slot) {
  TESSERA_CHECK(IsUsed(slot));
  const uint32_t page = PageOf(slot).index(), index = IndexInPage(slot);
  bits_[uint64_t{page} * words_per_page_ + index / 64] &= ~(uint64_t{1} << (index % 64));
  SetUseCount(page, count_[page] - 1);
  --used_;
  if (count_[page] == 0) {
    --slab_pages_;
    pool_->FreeInto(&spare_, PageId(page));
  }
  ReturnSparePages();
}

bool SlabSlots::IsUsed(SlotId slot) const {
  if (!slot.valid() || PageOf(slot).index() >= count_.size()) return false;
  const uint32_t index = IndexInPage(slot);
  const uint64_t word = bits_[uint64_t{PageOf(slot).index()} * words_per_page_ + index / 64];
  return (word >> (index % 64) & 1) != 0;
}

Status SlabSlots::Validate(int level) const {
  if (used_ > total_slots() || spare_.pages() != SparePagesFor(reserved_)) {
    return {StatusCode::kFailed,
            fmt::format("slabs: {} of {} slots used, {} reserved, but {} pages in reserve", used_,
                        total_slots(), reserved_, spare_.pages())};
  }
  if (level < 2) return Status::Ok();
  uint32_t used = 0, slabs = 0;
  for (uint32_t page = 0; page < count_.size(); ++page) {
    uint32_t in_page = 0;
    for (uint32_t word = 0; word < words_per_page_; ++word) {
      in_page +=
          static_cast<uint32_t>(std::popcount(bits_[uint64_t{page} * words_per_page_ + word]));
    }
    if (in_page != count_[page] || (in_page > 0 && !pool_->IsHeldByState(PageId(page)))) {
      return {StatusCode::kFailed,
              fmt::format("slabs: page {} has {} used slots, counted {}, held by state: {}", page,
                          in_page, count_[page], pool_->IsHeldByState(PageId(page)))};
    }
    used += in_page;
    slabs += in_page > 0 ? 1 : 0;
  }
  if (used != used_ || slabs != slab_pages_) {
    return {StatusCode::kFailed, fmt::format("slabs: {} slots in {} slabs, counted {} in {}", used,
                                             slabs, used_, slab_pages_)};
  }
  return Status::Ok();
}

}  // namespace tessera
