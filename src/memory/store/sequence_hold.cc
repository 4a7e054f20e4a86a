// SPDX-License-Identifier: Apache-2.0
#include "memory/store/sequence_hold.h"

#include <fmt/format.h>

#include <utility>

namespace tessera::store {

SequenceHold::SequenceHold(StateMemory* memory, const Terms& terms, Promise promise)
    : memory_(memory), terms_(terms), promise_(std::move(promise)) {
  const Organisation& table = memory_->table();
  attention_pages_.reserve(table.AttentionPages(terms.max_tokens));
  if (memory_->attention() != nullptr) {
    group_offsets_.reserve(DivideUp(terms.max_tokens, kGroupTokens));
  }
  if (memory_->state() != nullptr) {
    memory_->PrepareImage(&images_[0]);
    if (terms.may_fork) memory_->PrepareImage(&images_[1]);
  }
  memory_->Register(this);
}

SequenceHold::~SequenceHold() {
  for (PageId page : attention_pages_) memory_->attention()->Free(page);
  for (ImageHold& image : images_) {
    if (image.held) memory_->FreeImage(&image);
  }
  memory_->Unregister(this);
}

StateView SequenceHold::BeginStep(uint32_t tokens, bool fork) {
  TESSERA_CHECK(step_tokens_ == 0);
  TESSERA_CHECK(tokens > 0 && tokens <= terms_.max_tokens - position_);
  TESSERA_CHECK(!fork || terms_.may_fork);
  step_tokens_ = tokens;
  StateView view;
  if (memory_->attention() != nullptr) {
    TakeAttention(position_ + tokens);
    FillAttention(&view);
  }
  if (memory_->state() != nullptr) {
    TakeImages(fork);
    FillImages(&view);
  }
  return view;
}

void SequenceHold::EndStep() {
  TESSERA_CHECK(step_tokens_ > 0);
  if (source_ >= 0 && source_ != destination_) {
    // Back into the promise: the next fork needs it.
    memory_->FreeImageInto(&promise_, &images_[source_]);
  }
  position_ += step_tokens_;
  step_tokens_ = 0;
}

uint64_t SequenceHold::GroupOffset(uint32_t group) const {
  const Organisation& table = memory_->table();
  return memory_->attention()->OffsetOf(attention_pages_[group / table.groups_per_page]) +
         group % table.groups_per_page * table.group_bytes;
}

void SequenceHold::TakeAttention(uint64_t end_token) {
  const uint32_t pages = memory_->table().AttentionPages(end_token);
  while (attention_pages_.size() < pages) {
    attention_pages_.push_back(memory_->attention()->pages().TakeAttention(&promise_.attention));
  }
  first_new_group_ = static_cast<uint32_t>(group_offsets_.size());
  last_new_group_ = static_cast<uint32_t>(DivideUp(end_token, kGroupTokens));
  for (uint32_t group = first_new_group_; group < last_new_group_; ++group) {
    group_offsets_.push_back(GroupOffset(group));
  }
}

void SequenceHold::FillAttention(StateView* view) const {
  view->attention_base = memory_->attention()->base();
  view->attention_plane_stride = memory_->attention()->plane_stride_bytes();
  view->group_offsets = group_offsets_.data();
}

void SequenceHold::TakeImages(bool fork) {
  source_ = destination_;
  if (source_ >= 0 && !fork) return;
  destination_ = source_ == 0 ? 1 : 0;
  memory_->TakeImage(&promise_, &images_[destination_]);
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

Status SequenceHold::Validate() const {
  const Organisation& table = memory_->table();
  auto wrong = [](const char* what, uint64_t actual, uint64_t expected) {
    return Status(StatusCode::kFailed,
                  fmt::format("sequence: {} are {}, not {}", what, actual, expected));
  };
  const uint64_t written = position_ + step_tokens_;
  if (attention_pages_.size() != table.AttentionPages(written)) {
    return wrong("attention pages", attention_pages_.size(), table.AttentionPages(written));
  }
  const uint64_t attention = attention_pages_.size() + promise_.attention.pages();
  if (attention != table.AttentionPages(terms_.max_tokens)) {
    return wrong("attention pages held and promised", attention,
                 table.AttentionPages(terms_.max_tokens));
  }
  for (uint32_t group = 0; group < group_offsets_.size(); ++group) {
    if (group_offsets_[group] != GroupOffset(group)) {
      return wrong("a group's offset", group_offsets_[group], GroupOffset(group));
    }
  }
  if (memory_->state() == nullptr) return Status::Ok();
  const uint32_t held = (images_[0].held ? 1u : 0u) + (images_[1].held ? 1u : 0u);
  const uint32_t left = terms_.images() - held;
  if (promise_.state.pages() != left * table.state_pages) {
    return wrong("promised image pages", promise_.state.pages(), left * table.state_pages);
  }
  if (table.slot_bytes > 0 && promise_.slots.slots() != left) {
    return wrong("promised slots", promise_.slots.slots(), left);
  }
  return Status::Ok();
}

}  // namespace tessera::store
