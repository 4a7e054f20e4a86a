// SPDX-License-Identifier: Apache-2.0
//
// EntryId names a findable piece of state: a block (attention state of some tokens), a checkpoint
// (recurrent and convolution state at one boundary) or a kept row (the final-norm row at one). The
// type is in the upper two bits, the index among entries of that type below it, so that a page's
// owner is one word.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

#include "base/check.h"

namespace tessera {

enum class EntryType : uint8_t { kBlock, kCheckpoint, kRow };
inline constexpr int kEntryTypes = 3;

class EntryId {
 public:
  static constexpr uint32_t kIndexBits = 30;
  static constexpr uint32_t kIndicesMax = (1u << kIndexBits) - 1;

  constexpr EntryId() = default;
  constexpr EntryId(EntryType type, uint32_t index)
      : bits_(static_cast<uint32_t>(type) << kIndexBits | index) {}

  constexpr bool valid() const { return bits_ != kInvalid; }
  constexpr EntryType type() const {
    TESSERA_DCHECK(valid());
    return static_cast<EntryType>(bits_ >> kIndexBits);
  }
  constexpr uint32_t index() const {
    TESSERA_DCHECK(valid());
    return bits_ & kIndicesMax;
  }
  friend constexpr auto operator<=>(EntryId, EntryId) = default;

 private:
  static constexpr uint32_t kInvalid = std::numeric_limits<uint32_t>::max();
  uint32_t bits_ = kInvalid;
};

}  // namespace tessera
