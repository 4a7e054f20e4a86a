// SPDX-License-Identifier: Apache-2.0
//
// StateCursor walks PagedBytes in (mostly) ascending order and divides only where a member begins:
// a 64-bit division costs as much as a quarter of the work on a state row.
//
// Threads: a value of one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/vec.h"
#include "memory/geometry/paged_bytes.h"

namespace tessera::kernels {

class StateCursor {
 public:
  StateCursor() = default;
  explicit StateCursor(const PagedBytes& state) : state_(state) {}

  bool is_zero() const { return state_.is_zero(); }
  TESSERA_INLINE std::byte* At(uint64_t x) {
    // Below begin_ the difference wraps around and exceeds every unit.
    if (x - begin_ >= size_) Seek(x);
    return member_ + (x - begin_);
  }

 private:
  TESSERA_INLINE void Seek(uint64_t x) {
    const uint64_t member = x / state_.unit_bytes;
    begin_ = member * state_.unit_bytes;
    size_ = state_.unit_bytes;
    member_ = state_.base + state_.offsets[member];
  }

  PagedBytes state_;
  uint64_t begin_ = 0;
  uint64_t size_ = 0;
  std::byte* member_ = nullptr;
};

}  // namespace tessera::kernels
