// SPDX-License-Identifier: Apache-2.0
#include "memory/store/pool_memory.h"

#include <cstring>

namespace tessera::store {

PoolMemory::PoolMemory(const Options& options) : options_(options) {
  Poison(0, plane_stride_bytes());
}

void PoolMemory::Poison(uint64_t offset, uint64_t bytes) const {
  if (!options_.poison || options_.base == nullptr) return;
  for (uint32_t plane = 0; plane < options_.planes; ++plane) {
    std::memset(options_.base + plane * plane_stride_bytes() + offset, 0xFF, bytes);
  }
}

void PoolMemory::Copy(uint64_t to, uint64_t from, uint64_t bytes) const {
  if (options_.base == nullptr) return;
  for (uint32_t plane = 0; plane < options_.planes; ++plane) {
    std::byte* const start = options_.base + plane * plane_stride_bytes();
    std::memcpy(start + to, start + from, bytes);
  }
}

}  // namespace tessera::store
