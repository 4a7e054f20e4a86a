// SPDX-License-Identifier: Apache-2.0
//
// PagedBytes is a linear byte range cut into members of one unit each: what a kernel is handed
// instead of a pointer. Byte x is at base + offsets[x / unit_bytes] + x % unit_bytes.
//
// A null base is "no state yet": the range reads as zeros, and nothing may be written. It is a
// sentinel of its own, so that it can alias neither page 0 nor a negative offset.
//
// Threads: a value of addresses; the bytes belong to whoever holds the pages.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

struct PagedBytes {
  std::byte* base = nullptr;          // start of the plane in its pool
  const uint64_t* offsets = nullptr;  // byte offset in the plane, per member
  uint64_t unit_bytes = 0;

  bool is_zero() const { return base == nullptr; }
  std::byte* At(uint64_t x) const { return base + offsets[x / unit_bytes] + x % unit_bytes; }
  // Bytes from x to the end of its member: how far At(x) may be read on.
  uint64_t ContiguousFrom(uint64_t x) const { return unit_bytes - x % unit_bytes; }
};

}  // namespace tessera
