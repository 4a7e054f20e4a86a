// SPDX-License-Identifier: Apache-2.0
//
// HugeVector is a std::vector whose memory, from 2 MiB on, is aligned to 2 MiB and advised to use
// huge pages: for tables that are read in random order, where every access to a page of 4 KiB also
// misses the TLB (a look-up among 10^6 prefixes: 75 ns a block without, 55 with).
//
// Only whole pages of 2 MiB are advised, so that no more memory is resident than was asked for.
// Failure: std::bad_alloc. Threads: as std::vector.
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <vector>

namespace tessera {

void* AllocateHuge(size_t bytes);  // throws std::bad_alloc
void FreeHuge(void* data);

template <typename T>
struct HugeAllocator {
  using value_type = T;

  HugeAllocator() = default;
  template <typename U>
  HugeAllocator(const HugeAllocator<U>&) {}  // NOLINT(google-explicit-constructor): an allocator

  T* allocate(size_t count) {
    if (count > std::numeric_limits<size_t>::max() / sizeof(T)) throw std::bad_alloc();
    return static_cast<T*>(AllocateHuge(count * sizeof(T)));
  }
  void deallocate(T* data, size_t) { FreeHuge(data); }
  friend bool operator==(const HugeAllocator&, const HugeAllocator&) { return true; }
};

template <typename T>
using HugeVector = std::vector<T, HugeAllocator<T>>;

}  // namespace tessera
