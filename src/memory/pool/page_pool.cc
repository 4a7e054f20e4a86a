// SPDX-License-Identifier: Apache-2.0
#include "memory/pool/page_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace tessera {
namespace {

constexpr uint64_t kRunBytes = 512 * kKiB;
constexpr uint64_t kBlockBytes = 2 * kMiB;

}  // namespace

Reservation::Reservation(Reservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), pages_(std::exchange(other.pages_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  ShrinkTo(0);
  pool_ = std::exchange(other.pool_, nullptr);
  pages_ = std::exchange(other.pages_, 0);
  return *this;
}

Reservation::~Reservation() { ShrinkTo(0); }

void Reservation::ShrinkTo(uint32_t pages) {
  TESSERA_CHECK(pages <= pages_);
  if (pool_ != nullptr) pool_->reserved_ -= pages_ - pages;
  pages_ = pages;
}

void Reservation::Merge(Reservation other) {
  TESSERA_CHECK(pool_ != nullptr && pool_ == other.pool_);
  pages_ += std::exchange(other.pages_, 0);
}

PagePool::PagePool(const Options& options)
    : free_(options.page_count),
      state_(options.page_count),
      run_pages_(static_cast<uint32_t>(DivideUp(kRunBytes, options.unit_bytes))),
      block_pages_(std::max<uint32_t>(1, static_cast<uint32_t>(kBlockBytes / options.unit_bytes))),
      shuffle_(options.shuffle_seed != 0),
      random_(options.shuffle_seed) {
  free_.InsertAll();
}

PagePool::~PagePool() { TESSERA_CHECK(reserved_ == 0); }

std::optional<Reservation> PagePool::Reserve(uint32_t pages) {
  if (pages > free_pages()) return std::nullopt;
  reserved_ += pages;
  return Reservation(this, pages);
}

PageId PagePool::TakeAttention(Reservation* from) {
  const uint32_t index = shuffle_ ? PickShuffled() : free_.FindFirst();
  Claim(index, /*state=*/false, from);
  return PageId(index);
}

void PagePool::TakeImage(Reservation* from, std::span<PageId> out) {
  TESSERA_CHECK(out.size() <= from->pages_);
  if (shuffle_) {
    for (PageId& page : out) {
      page = PageId(PickShuffled());
      Claim(page.index(), /*state=*/true, from);
    }
    return;
  }
  out = out.subspan(TakeRuns(from, out));
  out = out.subspan(TakeFromBlocks(from, out));
  TakeHighest(from, total_pages(), out);
}

uint32_t PagePool::TakeRuns(Reservation* from, std::span<PageId> out) {
  const uint32_t count = static_cast<uint32_t>(out.size());
  uint32_t done = 0;
  uint32_t end = total_pages();
  while (done < count) {
    const uint32_t left = count - done;
    const uint32_t least = std::min(left, run_pages_);
    // The rest of an image fits holes above that were too small for a whole run.
    if (least < run_pages_) end = total_pages();
    const IndexSet::Run run = free_.FindRunDown(end, least, left);
    if (run.length == 0) break;
    for (uint32_t i = 0; i < run.length; ++i) {
      out[done + i] = PageId(run.begin + i);
      Claim(run.begin + i, /*state=*/true, from);
    }
    done += run.length;
    end = run.begin;
  }
  return done;
}

uint32_t PagePool::TakeFromBlocks(Reservation* from, std::span<PageId> out) {
  const uint32_t count = static_cast<uint32_t>(out.size());
  uint32_t done = 0;
  uint32_t end = total_pages();
  while (done < count) {
    const uint32_t highest = free_.FindLast(end);
    if (highest == IndexSet::kNone) break;
    const uint32_t block = highest / block_pages_ * block_pages_;
    const uint32_t there = free_.CountIn(block, highest + 1);
    const uint32_t left = count - done;
    if (there >= std::min(left, run_pages_)) {
      const uint32_t taken = std::min(there, left);
      TakeHighest(from, highest + 1, out.subspan(done, taken));
      done += taken;
    }
    end = block;
  }
  return done;
}

void PagePool::TakeHighest(Reservation* from, uint32_t end, std::span<PageId> out) {
  for (size_t i = out.size(); i > 0; --i) {
    end = free_.FindLast(end);
    out[i - 1] = PageId(end);
    Claim(end, /*state=*/true, from);
  }
}

uint32_t PagePool::PickShuffled() {
  const uint32_t at = free_.FindFirst(static_cast<uint32_t>(random_.Below(total_pages())));
  return at != IndexSet::kNone ? at : free_.FindFirst();
}

void PagePool::Claim(uint32_t index, bool state, Reservation* from) {
  TESSERA_CHECK(from->pool_ == this && from->pages_ > 0);
  free_.Erase(index);
  --from->pages_;
  --reserved_;
  if (state) {
    state_.Insert(index);
    ++held_state_;
  } else {
    ++held_attention_;
  }
}

void PagePool::Free(PageId page) {
  TESSERA_CHECK(IsHeld(page));
  if (state_.Contains(page.index())) {
    state_.Erase(page.index());
    --held_state_;
  } else {
    --held_attention_;
  }
  free_.Insert(page.index());
}

void PagePool::FreeInto(Reservation* to, PageId page) {
  TESSERA_CHECK(to->pool_ == this);
  Free(page);
  ++to->pages_;
  ++reserved_;
}

bool PagePool::IsHeld(PageId page) const {
  return page.valid() && page.index() < total_pages() && !free_.Contains(page.index());
}

bool PagePool::IsHeldByState(PageId page) const {
  return page.valid() && state_.Contains(page.index());
}

Status PagePool::Validate(int level) const {
  const uint32_t held = held_attention_ + held_state_;
  if (reserved_ > free_.count() || free_.count() + held != total_pages()) {
    return {StatusCode::kFailed,
            fmt::format("pool: {} not held ({} of them reserved) and {} held are not {} pages",
                        free_.count(), reserved_, held, total_pages())};
  }
  if (level < 2) return Status::Ok();
  if (!free_.IsConsistent() || !state_.IsConsistent() || state_.count() != held_state_) {
    return {StatusCode::kFailed, "pool: bits and counters of the free or state set disagree"};
  }
  for (uint32_t i = state_.FindFirst(); i != IndexSet::kNone; i = state_.FindFirst(i + 1)) {
    if (free_.Contains(i)) {
      return {StatusCode::kFailed, fmt::format("pool: page {} is free and held", i)};
    }
  }
  return Status::Ok();
}

}  // namespace tessera
