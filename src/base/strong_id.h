// SPDX-License-Identifier: Apache-2.0
//
// StrongId is an index that cannot be mixed up with another index or with a count: invalid by
// default, explicit to make, printable. The invalid value is all ones, never 0, so that "none" can
// not alias the first page.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

#include "base/check.h"

namespace tessera {

template <typename Tag, typename Rep = uint32_t>
class StrongId {
 public:
  static constexpr Rep kInvalid = std::numeric_limits<Rep>::max();

  constexpr StrongId() = default;
  explicit constexpr StrongId(Rep index) : index_(index) {}

  constexpr bool valid() const { return index_ != kInvalid; }
  constexpr Rep index() const {
    TESSERA_DCHECK(valid());
    return index_;
  }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  Rep index_ = kInvalid;
};

using PageId = StrongId<struct PageIdTag>;  // one index, the same in every plane of a pool
using SlotId = StrongId<struct SlotIdTag>;  // row n·page + slot of a slab pool
using SequenceId = StrongId<struct SequenceIdTag, uint64_t>;

// A token of the vocabulary; -1 is "none" in files, so it is signed.
using TokenId = int32_t;

}  // namespace tessera
