// SPDX-License-Identifier: Apache-2.0
//
// PoolMemory is a PagePool and the bytes it stands for: plane p of page i is at
// base + p · plane_stride + i · unit.
//
// Freed bytes are filled with 0xFF in every plane when poisoning is on, before anybody else can
// take them.
//
// Threads: as PagePool. The bytes belong to the arena, which outlives it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/pool/page_pool.h"

namespace tessera::store {

class PoolMemory {
 public:
  struct Options {
    PagePool::Options pages;
    std::byte* base = nullptr;
    uint32_t planes = 1;
    bool poison = false;
  };

  explicit PoolMemory(const Options& options);

  PagePool& pages() { return pages_; }
  const PagePool& pages() const { return pages_; }
  std::byte* base() const { return base_; }
  uint64_t unit_bytes() const { return unit_bytes_; }
  uint64_t plane_stride_bytes() const { return unit_bytes_ * pages_.total_pages(); }
  uint64_t OffsetOf(PageId page) const { return page.index() * unit_bytes_; }

  void Free(PageId page);
  void FreeInto(Reservation* to, PageId page);
  // For parts of a page (slots): [offset, offset + bytes) of every plane.
  void Poison(uint64_t offset, uint64_t bytes);

 private:
  PagePool pages_;
  std::byte* base_;
  uint64_t unit_bytes_;
  uint32_t planes_;
  bool poison_;
};

}  // namespace tessera::store
