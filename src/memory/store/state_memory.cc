// SPDX-License-Identifier: Apache-2.0
#include "memory/store/state_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "memory/store/sequence_hold.h"

namespace tessera::store {
namespace {

// Beyond one node per group and checkpoint: namespaces of salts and paths without members.
constexpr uint64_t kSpareNodes = 4096;
// Nodes of a model without attention lead to checkpoints and hold nothing: a hundredth of the
// budget, which is 640 groups of tokens per checkpoint of 8 MiB.
constexpr uint64_t kBudgetPerNodeByte = 100;

// What a new checkpoint may displace: never what several requests wanted.
EvictionRank RankToDisplace(bool spare) {
  return spare ? EvictionRank::kSpare : EvictionRank::kOrdinary;
}

}  // namespace

StateMemory::StateMemory(const StoreOptions& options, Organisation table, const KeptRows& rows,
                         const ArenaLayout& layout, Arena arena)
    : options_(options),
      table_(std::move(table)),
      rows_(rows),
      layout_(layout),
      arena_(std::move(arena)) {
  auto at = [this](uint64_t offset) { return options_.dry ? nullptr : arena_.data() + offset; };
  for (size_t i = 0; i < table_.pools.size(); ++i) {
    memory_.push_back(PoolMemory({.base = at(layout_.pool_start[i]),
                                  .unit_bytes = table_.pools[i].unit_bytes,
                                  .page_count = table_.pools[i].page_count,
                                  .planes = table_.planes,
                                  .poison = options_.poison}));
  }
  const uint32_t row_units = static_cast<uint32_t>(rows_.Units(options_.budget_bytes));
  if (row_units > 0) {
    row_pool_ = static_cast<int>(memory_.size());
    memory_.push_back(PoolMemory({.base = at(layout_.rows_start),
                                  .unit_bytes = rows_.unit_bytes(),
                                  .page_count = row_units,
                                  .planes = 1,
                                  .poison = options_.poison}));
  }
  for (size_t i = 0; i < options_.extra_kinds.size(); ++i) {
    extra_image_pages_ += ExtraPageCount(i);
  }
  image_pages_ = ImagePages(table_, {.extra_image_pages = extra_image_pages_});
  ledger_ = std::make_unique<Ledger>(LedgerOptions(row_units));
  ledger_->set_freed_bytes(this);
  if (options_.reuse.enabled) MakeIndex(row_units);
  retainer_ = Retainer(ledger_.get(), options_.reuse.retention);
  pins_ = ClientPins(ledger_.get());
}

StateMemory::~StateMemory() {
  TESSERA_CHECK(sequences_ == nullptr);
  LedgerLock lock(*ledger_);
  retainer_.ReleaseAll(lock);
  pins_.ReleaseAll(lock);
}

Ledger::Options StateMemory::LedgerOptions(uint32_t row_units) const {
  Ledger::Options ledger{.pools = {},
                         .slab_pool = table_.slot_bytes > 0 ? table_.state_pool : -1,
                         .slots_per_page = table_.slots_per_page,
                         .kinds = StateKinds({})};
  for (size_t i = 0; i < table_.pools.size(); ++i) {
    ledger.pools.push_back(
        {.page_count = table_.pools[i].page_count,
         .unit_bytes = table_.pools[i].unit_bytes,
         .shuffle_seed = options_.shuffle_seed == 0 ? 0 : options_.shuffle_seed + i});
  }
  if (row_units > 0) {
    ledger.pools.push_back({.page_count = row_units, .unit_bytes = rows_.unit_bytes()});
  }
  const StateKinds standard = StateKinds::Of(table_, row_pool_);
  std::vector<StateKind> kinds(standard.kinds().begin(), standard.kinds().end());
  for (size_t i = 0; i < options_.extra_kinds.size(); ++i) {
    kinds.push_back({options_.extra_kinds[i].name, EntryType::kCheckpoint, table_.state_pool,
                     ExtraPageCount(i), false});
  }
  ledger.kinds = StateKinds(std::move(kinds));
  return ledger;
}

void StateMemory::MakeIndex(uint32_t row_units) {
  uint64_t nodes = ledger_->capacity(EntryType::kCheckpoint) + row_units + kSpareNodes;
  nodes +=
      attention() != nullptr
          ? uint64_t{ledger_->pool(table_.attention_pool).total_pages()} * table_.groups_per_page
          : options_.budget_bytes / kBudgetPerNodeByte / sizeof(PrefixTree::Node);
  PrefixIndex::Options index;
  index.node_capacity = static_cast<uint32_t>(std::min<uint64_t>(nodes, EntryId::kIndicesMax));
  index.contract_id = options_.reuse.contract_id;
  index.groups_per_page = std::max(1u, table_.groups_per_page);
  index.grid = options_.reuse.checkpoint_grid;
  index.attention_pool = table_.attention_pool;
  index.state_pool = table_.state_pool;
  index.row_pool = row_pool_;
  index.price_tokens = PriceTokens();
  index.eviction = options_.reuse.eviction;
  index.strict_retention = options_.reuse.retention.kind == RetentionSpec::Kind::kStrict;
  index_ = std::make_unique<PrefixIndex>(ledger_.get(), index);
}

uint32_t StateMemory::ExtraPageCount(size_t kind) const {
  const uint64_t unit = table_.pools[static_cast<size_t>(table_.state_pool)].unit_bytes;
  return static_cast<uint32_t>(DivideUp(options_.extra_kinds[kind].bytes, unit));
}

uint32_t StateMemory::FirstExtraPage(size_t kind) const {
  uint32_t page = table_.state_pages;
  for (size_t i = 0; i < kind; ++i) page += ExtraPageCount(i);
  return page;
}

// ---- Promises.

uint64_t StateMemory::PagesNow(const Ask& ask, size_t pool) const {
  uint64_t pages = static_cast<int>(pool) == table_.attention_pool ? ask.attention_pages : 0;
  if (static_cast<int>(pool) == table_.state_pool) {
    pages += uint64_t{ask.images} * image_pages_;
    if (ledger_->slabs() != nullptr) pages += ledger_->slabs()->PagesToReserve(ask.images);
  }
  return pages;
}

Ask StateMemory::AskOf(const Terms& terms) const {
  return {.attention_pages = table_.AttentionPages(terms.reserve_tokens) -
                             table_.AttentionPages(terms.shared_tokens),
          .images = state() != nullptr ? terms.images() : 0};
}

bool StateMemory::HasRoom(const Ask& ask, double headroom) const {
  for (size_t i = 0; i < table_.pools.size(); ++i) {
    if (PagesNow(ask, i) + HeadroomPages(headroom, i) > PagesToTake(i)) return false;
  }
  return true;
}

uint64_t StateMemory::HeadroomPages(double headroom, size_t pool) const {
  // 0.29 · 100 is 28.999…: a share that was meant to be whole pages is.
  constexpr double kRounding = 1e-6;
  const double total = ledger_->pool(static_cast<int>(pool)).total_pages();
  return static_cast<uint64_t>(headroom * total + kRounding);
}

uint64_t StateMemory::PagesToTake(size_t pool) const {
  const int index = static_cast<int>(pool);
  return uint64_t{ledger_->pool(index).free_pages()} + ledger_->cached_pages(index);
}

Admission StateMemory::CanPromise(const Terms& terms, double headroom, std::string* reason) const {
  const std::vector<uint64_t> alone = PagesFor(table_, NeedOf(table_, terms), 1);
  for (size_t i = 0; i < table_.pools.size(); ++i) {
    const uint32_t total = ledger_->pool(static_cast<int>(i)).total_pages();
    if (alone[i] <= total) continue;
    *reason = fmt::format(
        "{} tokens need {} pages of pool '{}', which has {}; the budget is {} bytes and must be at "
        "least {}",
        terms.max_tokens, alone[i], table_.pools[i].name, total, options_.budget_bytes,
        rows_.BudgetFor(PoolBytesOf(table_, terms, 1)));
    return Admission::kNeverFits;
  }
  const Ask ask = AskOf(terms);
  for (size_t i = 0; i < table_.pools.size(); ++i) {
    const uint64_t now = PagesNow(ask, i);
    const uint64_t room = HeadroomPages(headroom, i);
    const uint64_t there = PagesToTake(i);
    if (now + room <= there) continue;
    *reason =
        fmt::format("{} tokens need {} pages of pool '{}'{}, which has {} of {} free or cached now",
                    terms.reserve_tokens, now, table_.pools[i].name,
                    room > 0 ? fmt::format(" beside a headroom of {}", room) : "", there,
                    ledger_->pool(static_cast<int>(i)).total_pages());
    return Admission::kMustWait;
  }
  return Admission::kAdmitted;
}

bool StateMemory::AddPromise(LedgerLock& lock, const Ask& ask, Promise* promise) {
  for (size_t i = 0; i < table_.pools.size(); ++i) {
    const int pool = static_cast<int>(i);
    auto enough = [&] { return PagesNow(ask, i) <= ledger_->pool(pool).free_pages(); };
    if (enough()) continue;
    if (index_ == nullptr || !index_->MakeRoom(lock, pool, enough)) return false;
  }
  if (attention() != nullptr) {
    promise->attention.Merge(*ledger_->pool(table_.attention_pool).Reserve(ask.attention_pages));
  }
  if (state() == nullptr) return true;
  promise->state.Merge(*ledger_->pool(table_.state_pool).Reserve(ask.images * image_pages_));
  if (ledger_->slabs() != nullptr) promise->slots.Merge(*ledger_->slabs()->Reserve(ask.images));
  return true;
}

Promise StateMemory::EmptyPromise() const {
  Promise promise;
  if (attention() != nullptr) promise.attention = *ledger_->pool(table_.attention_pool).Reserve(0);
  if (state() != nullptr) promise.state = *ledger_->pool(table_.state_pool).Reserve(0);
  if (ledger_->slabs() != nullptr) promise.slots = *ledger_->slabs()->Reserve(0);
  return promise;
}

void StateMemory::CountAdmission(LedgerLock& lock, const Match& match) {
  if (index_ == nullptr || match.report.prompt_tokens == 0) return;
  index_->CountLookup(lock, match);
  if (!retainer_.on() || !match.boundary.valid() || state() == nullptr) return;
  const PrefixTree::Node& node = index_->tree().at(match.boundary);
  retainer_.Wanted(lock, EntryId(EntryType::kCheckpoint, node.checkpoint), node.hits);
}

bool StateMemory::ReserveImage(LedgerLock& lock, bool spare, Promise* promise) {
  PagePool& pool = ledger_->pool(table_.state_pool);
  SlabSlots* slabs = ledger_->slabs();
  auto enough = [&] {
    const uint32_t slab_pages = slabs == nullptr ? 0 : slabs->PagesToReserve(1);
    return uint64_t{image_pages_} + slab_pages <= pool.free_pages();
  };
  if (!index_->MakeRoomUpTo(lock, table_.state_pool, RankToDisplace(spare), enough)) return false;
  promise->state.Merge(*pool.Reserve(image_pages_));
  if (slabs != nullptr) promise->slots.Merge(*slabs->Reserve(1));
  return true;
}

bool StateMemory::ReserveAttentionPage(LedgerLock& lock, bool spare, Promise* promise) {
  PagePool& pool = ledger_->pool(table_.attention_pool);
  auto enough = [&] { return pool.free_pages() > 0; };
  if (!index_->MakeRoomUpTo(lock, table_.attention_pool, RankToDisplace(spare), enough))
    return false;
  promise->attention.Merge(*pool.Reserve(1));
  return true;
}

void StateMemory::GiveBackImage(Promise* promise) const {
  promise->state.ShrinkTo(promise->state.pages() - image_pages_);
  if (ledger_->slabs() != nullptr) promise->slots.ShrinkTo(promise->slots.slots() - 1);
}

void StateMemory::GiveBackAttentionPage(Promise* promise) const {
  promise->attention.ShrinkTo(promise->attention.pages() - 1);
}

uint32_t StateMemory::PriceTokens() const {
  if (state() == nullptr || attention() == nullptr) return 0;
  const uint64_t price = DivideUp(shape().image_bytes() * kGroupTokens, table_.group_bytes);
  return static_cast<uint32_t>(RoundUp(price, kGroupTokens));
}

bool StateMemory::IsPlentiful() const {
  if (state() == nullptr) return false;
  const PagePool& pool = ledger_->pool(table_.state_pool);
  return uint64_t{pool.free_pages()} * 4 >= pool.total_pages();
}

PageId StateMemory::TakeRow(LedgerLock& lock, std::span<const float> row) {
  PagePool& pool = ledger_->pool(row_pool_);
  if (!index_->MakeRoom(lock, row_pool_, [&] { return pool.free_pages() > 0; })) return PageId();
  Reservation unit = *pool.Reserve(1);
  const PageId page = ledger_->TakeAttention(lock, row_pool_, &unit);
  const PoolMemory& memory = *MemoryOf(row_pool_);
  if (memory.base() != nullptr) {
    std::memcpy(memory.base() + memory.OffsetOf(page), row.data(), row.size_bytes());
  }
  return page;
}

const float* StateMemory::RowAt(PageId row) const {
  const PoolMemory& memory = *MemoryOf(row_pool_);
  return reinterpret_cast<const float*>(memory.base() + memory.OffsetOf(row));
}

// ---- Images.

void StateMemory::PrepareImage(ImageHold* image) const {
  image->pages.resize(image_pages_);
  image->offsets.resize(table_.state_members());
}

void StateMemory::TakeImage(LedgerLock& lock, Promise* from, ImageHold* image) {
  TESSERA_CHECK(!image->held);
  ledger_->TakeImage(lock, table_.state_pool, &from->state, image->pages);
  if (ledger_->slabs() != nullptr) image->slot = ledger_->TakeSlot(lock, &from->slots);
  FillOffsets(image);
  image->held = true;
  image->published = false;
}

void StateMemory::ShowCheckpoint(EntryId checkpoint, ImageHold* image) const {
  const std::span<const PageId> pages = ledger_->pages(checkpoint);
  std::copy(pages.begin(), pages.end(), image->pages.begin());
  image->slot = ledger_->slot(checkpoint);
  FillOffsets(image);
  image->published = true;
}

void StateMemory::FillOffsets(ImageHold* image) const {
  for (size_t i = 0; i < table_.state_pages; ++i) {
    image->offsets[i] = state()->OffsetOf(image->pages[i]);
  }
  if (image->slot.valid()) image->offsets.back() = SlotOffset(image->slot);
}

uint64_t StateMemory::SlotOffset(SlotId slot) const {
  const SlabSlots& slabs = *ledger_->slabs();
  return state()->OffsetOf(slabs.PageOf(slot)) + slabs.IndexInPage(slot) * table_.slot_bytes;
}

void StateMemory::FreeImage(LedgerLock& lock, ImageHold* image) {
  for (PageId page : image->pages) ledger_->Unref(lock, table_.state_pool, page);
  if (image->slot.valid()) ledger_->UnrefSlot(lock, image->slot);
  image->slot = SlotId();
  image->held = image->published = false;
}

void StateMemory::FreeImageInto(LedgerLock& lock, Promise* to, ImageHold* image) {
  for (PageId page : image->pages) ledger_->FreeInto(lock, table_.state_pool, page, &to->state);
  if (image->slot.valid()) ledger_->FreeSlotInto(lock, image->slot, &to->slots);
  image->slot = SlotId();
  image->held = false;
}

void StateMemory::PageFreed(int pool, PageId page) {
  const PoolMemory& memory = *MemoryOf(pool);
  memory.Poison(memory.OffsetOf(page), memory.unit_bytes());
}

void StateMemory::SlotFreed(SlotId slot) { state()->Poison(SlotOffset(slot), table_.slot_bytes); }

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

}  // namespace tessera::store
