// SPDX-License-Identifier: Apache-2.0
//
// PoolMemory is the bytes of one pool: plane p of page i is at base + p · plane_stride + i · unit.
// Without a base (a dry store) it is only the arithmetic.
//
// With poisoning on, bytes that nobody owns are 0xFF in every plane.
//
// Threads: a value; the bytes belong to whoever holds the page.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/strong_id.h"

namespace tessera::store {

class PoolMemory {
 public:
  struct Options {
    std::byte* base = nullptr;
    uint64_t unit_bytes = 0;
    uint32_t page_count = 0;
    uint32_t planes = 1;
    bool poison = false;
  };

  explicit PoolMemory(const Options& options);

  std::byte* base() const { return options_.base; }
  uint64_t unit_bytes() const { return options_.unit_bytes; }
  uint64_t plane_stride_bytes() const { return options_.unit_bytes * options_.page_count; }
  uint64_t OffsetOf(PageId page) const { return page.index() * options_.unit_bytes; }

  // [offset, offset + bytes) of every plane.
  void Poison(uint64_t offset, uint64_t bytes) const;
  void Copy(uint64_t to, uint64_t from, uint64_t bytes) const;

 private:
  Options options_;
};

}  // namespace tessera::store
