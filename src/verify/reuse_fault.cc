// SPDX-License-Identifier: Apache-2.0
#include "verify/reuse_fault.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "verify/state_pieces.h"

namespace tessera {

void ReuseFault::ProducerBegins(const StateView& view) {
  if (fault_ == Fault::kStaleImage) before_ = SourceBytes(shape_, view);
}

void ReuseFault::ProducerPublishes(uint32_t at, const StateView& view) {
  if (fault_ == Fault::kStaleImage) stale_[at] = before_;
  if (fault_ == Fault::kSharedWritten && shape_.attention_layers > 0 && at % kGroupTokens != 0) {
    partial_groups_[at] = view.group_offsets[at / kGroupTokens];
  }
}

void ReuseFault::AdopterBegins(uint32_t at, uint32_t groups, StateView* view) {
  if (!holds_producer()) return;
  TESSERA_CHECK(view_ == nullptr);
  view_ = view;
  own_ = *view;
  if (fault_ == Fault::kSharedWritten) return WriteInPlace(at, groups);
  source_ = SourceBytes(shape_, *view);
  if (fault_ == Fault::kStaleImage) return WriteSource(stale_.at(at));
  std::vector<std::byte> without = source_;
  const uint64_t image = shape_.ssm_image_bytes() + shape_.conv_image_bytes();
  for (uint32_t plane = 0; plane < shape_.planes(); ++plane) {
    std::memset(without.data() + plane * image + shape_.ssm_image_bytes(), 0,
                shape_.conv_image_bytes());
  }
  WriteSource(without);
}

void ReuseFault::AdopterEnds() {
  if (view_ == nullptr) return;
  if (fault_ == Fault::kSharedWritten) {
    GoOnInOwn();
  } else {
    WriteSource(source_);
  }
  *view_ = own_;
  view_ = nullptr;
}

void ReuseFault::WriteSource(const std::vector<std::byte>& bytes) const {
  const std::byte* from = bytes.data();
  ForEachSourcePiece(shape_, own_, [&from](const StatePiece& piece) {
    std::memcpy(piece.data, from, piece.size);
    from += piece.size;
  });
}

void ReuseFault::WriteInPlace(uint32_t at, uint32_t groups) {
  view_->destination_offsets = own_.source_offsets;
  groups_.clear();
  const auto partial = partial_groups_.find(at);
  if (partial == partial_groups_.end()) return;
  shared_group_ = at / kGroupTokens;
  groups_.assign(own_.group_offsets, own_.group_offsets + groups);
  groups_[shared_group_] = partial->second;
  view_->group_offsets = groups_.data();
}

void ReuseFault::GoOnInOwn() {
  if (own_.source_offsets != nullptr) {
    const std::vector<std::byte> written = SourceBytes(shape_, own_);
    const std::byte* from = written.data();
    ForEachDestinationPiece(shape_, own_, [&from](const StatePiece& piece) {
      std::memcpy(piece.data, from, piece.size);
      from += piece.size;
    });
  }
  if (groups_.empty()) return;
  for (uint32_t plane = 0; plane < shape_.planes(); ++plane) {
    std::memcpy(own_.GroupAt(plane, shared_group_), view_->GroupAt(plane, shared_group_),
                shape_.group_bytes());
  }
}

}  // namespace tessera
