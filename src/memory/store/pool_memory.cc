// SPDX-License-Identifier: Apache-2.0
#include "memory/store/pool_memory.h"

#include <cstring>

namespace tessera::store {

PoolMemory::PoolMemory(const Options& options)
    : pages_(options.pages),
      base_(options.base),
      unit_bytes_(options.pages.unit_bytes),
      planes_(options.planes),
      poison_(options.poison) {
  Poison(0, plane_stride_bytes());
}

void PoolMemory::Free(PageId page) {
  Poison(OffsetOf(page), unit_bytes_);
  pages_.Free(page);
}

void PoolMemory::FreeInto(Reservation* to, PageId page) {
  Poison(OffsetOf(page), unit_bytes_);
  pages_.FreeInto(to, page);
}

void PoolMemory::Poison(uint64_t offset, uint64_t bytes) {
  if (!poison_) return;
  for (uint32_t plane = 0; plane < planes_; ++plane) {
    std::memset(base_ + plane * plane_stride_bytes() + offset, 0xFF, bytes);
  }
}

}  // namespace tessera::store
