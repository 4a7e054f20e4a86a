// SPDX-License-Identifier: Apache-2.0
#include "memory/store/sequence_hold.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera::store {

SequenceHold::SequenceHold(LedgerLock& lock, StateMemory* memory, const SequenceRequest& request,
                           const Terms& terms, const Match& match, Lease lease, Promise promise)
    : memory_(memory),
      tag_(request.tag),
      salt_(request.salt),
      terms_(terms),
      promise_(std::move(promise)),
      match_(match.report),
      lease_(std::move(lease)),
      position_(match.report.reused) {
  PrepareTables(lock);
  if (memory_->index() != nullptr && !request.prompt.empty()) {
    PlanCuts(request);
    const PrefixQuery query{
        .prompt = request.prompt, .salt = salt_, .isolate_after = request.isolate_after};
    path_ = memory_->index()->OpenPath(lock, query, lease_);
  }
  memory_->Register(this);
}

void SequenceHold::PrepareTables(LedgerLock& lock) {
  const Organisation& table = memory_->table();
  if (memory_->attention() != nullptr) {
    own_pages_.reserve(table.AttentionPages(terms_.max_tokens) - first_own_page());
    copies_.reserve(table.groups_per_page);
    const size_t adopted = DivideUp(position_, kGroupTokens);
    group_offsets_.reserve(DivideUp(terms_.max_tokens, kGroupTokens));
    std::vector<PageId> pages(adopted);
    if (adopted > 0) memory_->index()->ListGroupPages(lock, lease_, pages);
    for (size_t group = 0; group < adopted; ++group) {
      group_offsets_.push_back(memory_->attention()->OffsetOf(pages[group]) +
                               group % table.groups_per_page * table.group_bytes);
    }
  }
  if (memory_->state() != nullptr) {
    for (ImageHold& image : images_) memory_->PrepareImage(&image);
    if (lease_.checkpoint().valid()) {
      destination_ = 0;
      memory_->ShowCheckpoint(lease_.checkpoint(), &images_[0]);
    }
  }
}

void SequenceHold::PlanCuts(const SequenceRequest& request) {
  const ReuseOptions& reuse = memory_->options().reuse;
  PlacementInput input;
  input.spec = reuse.placement;
  input.grid = reuse.checkpoint_grid;
  input.match = match_;
  if (request.plan_tokens > 0) {
    input.match.prompt_tokens = std::min(match_.prompt_tokens, request.plan_tokens);
  }
  input.keeps_rows = memory_->keeps_rows();
  input.named = request.checkpoint_at;
  input.message_ends = request.message_ends;
  input.public_tokens = PublicTokens(request.salt, request.isolate_after);
  input.price_tokens = memory_->PriceTokens();
  input.plentiful = memory_->IsPlentiful();
  PlanBoundaries(input, &cuts_);
  cuts_.reserve(cuts_.size() + SequenceState::kAddedCutsMax);
  if (memory_->retainer().on()) {
    retentions_.produced.reserve(cuts_.capacity() + 1);
    retentions_.held.reserve(cuts_.capacity() + 1);
  }
}

SequenceHold::~SequenceHold() {
  LedgerLock lock(memory_->ledger());
  if (memory_->retainer().on()) memory_->retainer().Ended(lock, &retentions_);
  const int pool = memory_->table().attention_pool;
  if (replaced_page_.valid()) memory_->ledger().Unref(lock, pool, replaced_page_);
  for (PageId page : own_pages_) memory_->ledger().Unref(lock, pool, page);
  for (ImageHold& image : images_) {
    if (image.held) memory_->FreeImage(lock, &image);
  }
  if (memory_->index() != nullptr) {
    memory_->index()->Release(lock, &lease_);
    memory_->index()->ClosePath(lock, &path_);
  }
  promise_ = Promise();
  memory_->Unregister(this);
  // Entries that Clear marked to go when this sequence lets them.
  memory_->ledger().Resume(lock);
}

std::span<const float> SequenceHold::kept_row() const {
  if (!lease_.row().valid()) return {};
  const PageId row = memory_->ledger().pages(lease_.row())[0];
  return {memory_->RowAt(row), memory_->options().reuse.row_width};
}

uint32_t SequenceHold::TokensToCut() const {
  for (size_t i = next_cut_; i < cuts_.size(); ++i) {
    if (cuts_[i].position > position_) return cuts_[i].position - static_cast<uint32_t>(position_);
  }
  return SequenceState::kNoCut;
}

bool SequenceHold::AddCut(uint32_t position) {
  if (!path_.open() || position <= position_ ||
      position % memory_->options().reuse.checkpoint_grid != 0) {
    return false;
  }
  const auto before = [](const PlannedBoundary& cut, uint32_t at) { return cut.position < at; };
  const auto at = std::lower_bound(cuts_.begin(), cuts_.end(), position, before);
  if (at != cuts_.end() && at->position == position) {
    at->spare = false;
    return true;
  }
  if (added_cuts_ == SequenceState::kAddedCutsMax) return false;
  ++added_cuts_;
  cuts_.insert(at, {position, false});
  return true;
}

// ---- What it may still take.

uint32_t SequenceHold::PagesToGrow(uint64_t tokens) const {
  const Organisation& table = memory_->table();
  if (memory_->attention() == nullptr || tokens <= terms_.reserve_tokens) return 0;
  return table.AttentionPages(tokens) - table.AttentionPages(terms_.reserve_tokens);
}

void SequenceHold::SetReserved(uint64_t tokens) {
  if (memory_->attention() == nullptr) return;  // max_tokens from the start
  const uint64_t whole_pages = RoundUp(tokens, memory_->page_tokens());
  terms_.reserve_tokens = std::max(terms_.reserve_tokens, std::min(terms_.max_tokens, whole_pages));
}

uint32_t SequenceHold::promised_images() const {
  if (memory_->state() == nullptr) return 0;
  return memory_->image_pages() > 0 ? promise_.state.pages() / memory_->image_pages()
                                    : promise_.slots.slots();
}

uint32_t SequenceHold::Grow(LedgerLock& lock, uint64_t tokens) {
  TESSERA_CHECK(step_tokens_ == 0 && !paused_ && tokens <= terms_.max_tokens);
  const uint32_t pages = PagesToGrow(tokens);
  if (pages > 0 && !memory_->AddPromise(lock, {.attention_pages = pages}, &promise_)) {
    const uint32_t free = memory_->ledger().pool(memory_->table().attention_pool).free_pages();
    return pages - std::min(free, pages - 1);
  }
  SetReserved(tokens);
  return 0;
}

HeldPages SequenceHold::held_pages() const {
  const Organisation& table = memory_->table();
  const int pool = table.attention_pool >= 0 ? table.attention_pool : table.state_pool;
  HeldPages pages;
  if (pool == table.attention_pool) {
    pages.unused += promise_.attention.pages();
    pages.all += static_cast<uint32_t>(own_pages_.size());
  }
  if (pool == table.state_pool) {
    pages.unused += promise_.state.pages();
    for (const ImageHold& image : images_) pages.all += image.held ? memory_->image_pages() : 0;
  }
  pages.all += pages.unused;
  return pages;
}

void SequenceHold::Pause(LedgerLock& lock) {
  TESSERA_CHECK(step_tokens_ == 0 && !paused_);
  if (memory_->retainer().on()) memory_->retainer().Ended(lock, &retentions_);
  given_back_ = {.attention_pages = promise_.attention.pages(), .images = promised_images()};
  promise_ = memory_->EmptyPromise();
  paused_ = true;
}

bool SequenceHold::Resume(LedgerLock& lock, uint64_t tokens, double headroom) {
  TESSERA_CHECK(paused_ && tokens <= terms_.max_tokens);
  Ask ask = given_back_;
  ask.attention_pages += PagesToGrow(tokens);
  if (!memory_->HasRoom(ask, headroom) || !memory_->AddPromise(lock, ask, &promise_)) return false;
  SetReserved(tokens);
  paused_ = false;
  return true;
}

// ---- Steps.

StateView SequenceHold::BeginStep(LedgerLock& lock, uint32_t tokens, bool fork) {
  TESSERA_CHECK(step_tokens_ == 0 && !paused_);
  TESSERA_CHECK(tokens > 0 && tokens <= terms_.reserve_tokens - position_);
  TESSERA_CHECK(!fork || terms_.may_fork);
  step_tokens_ = tokens;
  StateView view;
  if (memory_->attention() != nullptr) {
    TakeAttention(lock, position_ + tokens);
    FillAttention(&view);
  }
  if (memory_->state() != nullptr) {
    TakeImages(lock, fork);
    FillImages(&view);
  }
  return view;
}

void SequenceHold::CopyShared() const {
  for (const GroupCopy& copy : copies_) {
    memory_->attention()->Copy(copy.to, copy.from, memory_->table().group_bytes);
  }
}

void SequenceHold::EndStep(LedgerLock& lock) {
  TESSERA_CHECK(step_tokens_ > 0);
  if (source_ >= 0 && source_ != destination_) {
    ImageHold& read = images_[source_];
    if (!read.held) {
      read.published = false;  // the lease's, which goes below
    } else if (read.published) {
      memory_->FreeImage(lock, &read);
    } else {
      memory_->FreeImageInto(lock, &promise_, &read);  // the next fork needs it
    }
  }
  if (replaced_page_.valid()) {
    memory_->ledger().Unref(lock, memory_->table().attention_pool, replaced_page_);
    replaced_page_ = PageId();
  }
  if (lease_.has_source()) memory_->index()->ReleaseSource(lock, &lease_);
  copies_.clear();
  position_ += step_tokens_;
  step_tokens_ = 0;
  while (next_cut_ < cuts_.size() && cuts_[next_cut_].position < position_) ++next_cut_;
}

PageId SequenceHold::OwnPageOf(uint32_t group) const {
  return own_pages_[group / memory_->table().groups_per_page - first_own_page()];
}

uint64_t SequenceHold::GroupOffset(uint32_t group) const {
  const Organisation& table = memory_->table();
  return memory_->attention()->OffsetOf(OwnPageOf(group)) +
         group % table.groups_per_page * table.group_bytes;
}

void SequenceHold::TakeAttention(LedgerLock& lock, uint64_t end_token) {
  const Organisation& table = memory_->table();
  const uint32_t written = static_cast<uint32_t>(group_offsets_.size());
  if (last_page_published_) ReplaceLastPage(lock);
  const size_t pages = table.AttentionPages(end_token) - first_own_page();
  const bool adopted_partial = own_pages_.empty() && position_ > terms_.shared_tokens;
  while (own_pages_.size() < pages) {
    own_pages_.push_back(
        memory_->ledger().TakeAttention(lock, table.attention_pool, &promise_.attention));
  }
  if (adopted_partial) {
    for (uint32_t group = first_own_page() * table.groups_per_page; group < written; ++group) {
      copies_.push_back({GroupOffset(group), group_offsets_[group]});
      group_offsets_[group] = GroupOffset(group);
    }
  }
  memory_->reuse_stats().copied_groups += copies_.size();
  first_new_group_ = written;
  last_new_group_ = static_cast<uint32_t>(DivideUp(end_token, kGroupTokens));
  for (uint32_t group = first_new_group_; group < last_new_group_; ++group) {
    group_offsets_.push_back(GroupOffset(group));
  }
}

// The last page ends in a published partial group: the step appends to a copy of it.
void SequenceHold::ReplaceLastPage(LedgerLock& lock) {
  const Organisation& table = memory_->table();
  replaced_page_ = own_pages_.back();
  own_pages_.back() =
      memory_->ledger().TakeAttention(lock, table.attention_pool, &promise_.attention);
  last_page_published_ = false;
  const uint32_t groups = static_cast<uint32_t>(group_offsets_.size());
  for (uint32_t group = (groups - 1) / table.groups_per_page * table.groups_per_page;
       group < groups; ++group) {
    copies_.push_back({GroupOffset(group), group_offsets_[group]});
    group_offsets_[group] = GroupOffset(group);
  }
}

void SequenceHold::FillAttention(StateView* view) const {
  view->attention_base = memory_->attention()->base();
  view->attention_plane_stride = memory_->attention()->plane_stride_bytes();
  view->group_offsets = group_offsets_.data();
}

void SequenceHold::TakeImages(LedgerLock& lock, bool fork) {
  source_ = destination_;
  if (source_ >= 0 && !fork && !images_[source_].published) return;
  destination_ = source_ == 0 ? 1 : 0;
  memory_->TakeImage(lock, &promise_, &images_[destination_]);
}

void SequenceHold::FillImages(StateView* view) const {
  const Organisation& table = memory_->table();
  view->state_base = memory_->state()->base();
  view->state_plane_stride = memory_->state()->plane_stride_bytes();
  view->source_offsets = source_ < 0 ? nullptr : images_[source_].offsets.data();
  view->destination_offsets = images_[destination_].offsets.data();
  view->unit_bytes = table.state_unit_bytes;
  view->ssm_start = table.ssm_start;
  view->conv_start = table.conv_start;
}

std::vector<std::byte*> SequenceHold::ExtraPages(size_t kind, bool source) const {
  TESSERA_CHECK(step_tokens_ > 0);
  std::vector<std::byte*> pages;
  const int at = source ? source_ : destination_;
  if (at < 0) return pages;
  const PoolMemory& state = *memory_->state();
  for (uint32_t plane = 0; plane < memory_->table().planes; ++plane) {
    for (uint32_t i = 0; i < memory_->ExtraPageCount(kind); ++i) {
      const PageId page = images_[at].pages[memory_->FirstExtraPage(kind) + i];
      pages.push_back(state.base() + plane * state.plane_stride_bytes() + state.OffsetOf(page));
    }
  }
  return pages;
}

// ---- Publishing.

const PlannedBoundary* SequenceHold::DueBoundary() const {
  for (size_t i = next_cut_; i < cuts_.size() && cuts_[i].position <= position_; ++i) {
    if (cuts_[i].position == position_) return &cuts_[i];
  }
  return nullptr;
}

void SequenceHold::Publish(LedgerLock& lock, std::span<const TokenId> history,
                           std::span<const float> row, bool last) {
  TESSERA_CHECK(step_tokens_ == 0 && history.size() >= position_);
  if (path_.open()) memory_->index()->CloseIfCleared(lock, &path_);
  if (!path_.open() || position_ == 0) return;
  const PlannedBoundary* due = DueBoundary();
  const ReuseOptions& reuse = memory_->options().reuse;
  const bool turn_end = last && IsTurnBoundary(reuse.placement, reuse.checkpoint_grid,
                                               static_cast<uint32_t>(position_));
  if (due == nullptr && !turn_end) {
    // Off the grid no checkpoint ends it, but the next prompt that begins so shows where it leaves.
    const bool hybrid = memory_->state() != nullptr && memory_->attention() != nullptr;
    if (last && hybrid) PublishGroups(lock, history);
    return;
  }
  PublishBoundary(lock, history, row, last, due != nullptr && due->spare);
}

// Whole groups up to position().
bool SequenceHold::PublishGroups(LedgerLock& lock, std::span<const TokenId> history) {
  const bool attention = memory_->attention() != nullptr;
  while (path_.position() + kGroupTokens <= position_) {
    const uint32_t group = path_.position() / kGroupTokens;
    const PageId page = attention ? OwnPageOf(group) : PageId();
    if (group % PrefixIndex::kGroupsAhead == 0) {
      memory_->index()->PrefetchGroups(
          path_, history.subspan(path_.position(), position_ - path_.position()));
    }
    const std::span<const TokenId> tokens = history.subspan(path_.position(), kGroupTokens);
    if (!memory_->index()->PublishGroup(lock, &path_, tokens, page)) return false;
  }
  return true;
}

// What a sequence that goes on needs once its image, or its last block, is not its own to write.
bool SequenceHold::ReserveToGoOn(LedgerLock& lock, Lack lack, bool spare) {
  if (lack.image && !memory_->ReserveImage(lock, spare, &promise_)) return false;
  if (!lack.block || memory_->ReserveAttentionPage(lock, spare, &promise_)) return true;
  GiveBack({.image = lack.image});
  return false;
}

void SequenceHold::GiveBack(Lack lack) {
  if (lack.image) memory_->GiveBackImage(&promise_);
  if (lack.block) memory_->GiveBackAttentionPage(&promise_);
}

SequenceHold::Lack SequenceHold::LackAt(std::span<const TokenId> tail) const {
  const PrefixIndex& index = *memory_->index();
  const NodeId node = index.FindTail(path_, tail);
  return {.image = memory_->state() != nullptr && !(node.valid() && index.HasCheckpoint(node)),
          .block = memory_->attention() != nullptr && !tail.empty() &&
                   !(node.valid() && index.HasBlock(node))};
}

void SequenceHold::PublishBoundary(LedgerLock& lock, std::span<const TokenId> history,
                                   std::span<const float> row, bool last, bool spare) {
  PrefixIndex& index = *memory_->index();
  // An adopted position nothing was computed after: everything is there already.
  if (position_ == match_.reused && own_pages_.empty() && !images_[0].held && !images_[1].held) {
    return;
  }
  if (!PublishGroups(lock, history)) {
    ++memory_->reuse_stats().skipped_checkpoints;
    return;
  }
  const std::span<const TokenId> tail =
      history.subspan(path_.position(), position_ - path_.position());
  const Lack lack = LackAt(tail);
  if (!last && !ReserveToGoOn(lock, lack, spare)) {
    ++memory_->reuse_stats().skipped_checkpoints;
    return;
  }
  // Making room may have taken what was there of the boundary: it would be left incomplete.
  NodeId node;
  if (LackAt(tail) == lack) {
    node = index.PublishTail(lock, path_, tail, lack.block ? own_pages_.back() : PageId());
  }
  if (!node.valid()) {
    ++memory_->reuse_stats().skipped_checkpoints;
    if (!last) GiveBack(lack);
    return;
  }
  last_page_published_ = last_page_published_ || lack.block;
  if (lack.image) PublishImage(lock, node, spare);
  // A block that is being reclaimed took no citation: then there is nowhere to start from.
  const bool keeps_row = memory_->keeps_rows() && index.HasStart(node);
  if (!row.empty() && keeps_row && !index.HasRow(node)) PublishRow(lock, node, row);
  index.Settle(lock, node);
}

void SequenceHold::PublishImage(LedgerLock& lock, NodeId node, bool spare) {
  ImageHold& image = images_[destination_];
  const EntryId entry =
      memory_->index()->PublishCheckpoint(lock, node, image.pages, image.slot, spare);
  image.published = true;
  if (memory_->retainer().on()) memory_->retainer().Produced(lock, entry, &retentions_);
}

void SequenceHold::PublishRow(LedgerLock& lock, NodeId node, std::span<const float> row) {
  const PageId page = memory_->TakeRow(lock, row);
  if (!page.valid()) {
    ++memory_->reuse_stats().skipped_rows;
    return;
  }
  memory_->index()->PublishRow(lock, node, page);
  memory_->ledger().Unref(lock, memory_->row_pool(), page);
}

// ---- Checking.

Status SequenceHold::Validate() const {
  const Organisation& table = memory_->table();
  auto wrong = [](const char* what, uint64_t actual, uint64_t expected) {
    return Status(StatusCode::kFailed,
                  fmt::format("sequence: {} are {}, not {}", what, actual, expected));
  };
  if (memory_->attention() != nullptr) {
    const uint64_t own = table.AttentionPages(terms_.reserve_tokens) - first_own_page();
    const uint64_t there =
        own_pages_.size() + (paused_ ? given_back_.attention_pages : promise_.attention.pages());
    if (paused_ && promise_.attention.pages() > 0) {
      return wrong("pages promised while paused", promise_.attention.pages(), 0);
    }
    // A published block that nobody goes on from (the last one) had nothing reserved for its copy.
    if (there != own && !(last_page_published_ && there == own + 1)) {
      return wrong("attention pages held and promised", there, own);
    }
    for (uint32_t group = first_own_page() * table.groups_per_page;
         !own_pages_.empty() && group < group_offsets_.size(); ++group) {
      if (group_offsets_[group] != GroupOffset(group)) {
        return wrong("a group's offset", group_offsets_[group], GroupOffset(group));
      }
    }
    const uint64_t written = position_ + step_tokens_;
    if (group_offsets_.size() != DivideUp(written, kGroupTokens)) {
      return wrong("groups", group_offsets_.size(), DivideUp(written, kGroupTokens));
    }
  }
  if (memory_->state() == nullptr) return Status::Ok();
  uint32_t held = 0, to_read = 0;
  for (const ImageHold& image : images_) {
    held += image.held ? 1 : 0;
    to_read += image.held && image.published ? 1 : 0;
  }
  // A published image that nobody goes on from (the last one) had nothing reserved for it.
  const uint32_t least = terms_.images() - std::min(terms_.images(), held);
  const uint32_t most = terms_.images() + to_read - held;
  const uint32_t promised = paused_ ? given_back_.images : promised_images();
  if (promised < least || promised > most) return wrong("promised images", promised, most);
  if (table.slot_bytes > 0 && !paused_ && promise_.slots.slots() != promised) {
    return wrong("promised slots", promise_.slots.slots(), promised);
  }
  return Status::Ok();
}

}  // namespace tessera::store
