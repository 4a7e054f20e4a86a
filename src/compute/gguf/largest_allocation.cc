// SPDX-License-Identifier: Apache-2.0
#include "compute/gguf/largest_allocation.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace tessera::testing {
thread_local size_t largest_allocation_bytes = 0;
}  // namespace tessera::testing

// In a file of their own: inlined beside a new expression, g++ 12 takes the pair for mismatched.
void* operator new(size_t size_bytes) {
  size_t& largest = tessera::testing::largest_allocation_bytes;
  largest = std::max(largest, size_bytes);
  if (void* block = std::malloc(size_bytes)) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
