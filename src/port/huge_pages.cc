// SPDX-License-Identifier: Apache-2.0
#include "port/huge_pages.h"

#include <sys/mman.h>

#include <cstdlib>

namespace tessera {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kSmallAlignment = 128;  // of every T there is

}  // namespace

void* AllocateHuge(size_t bytes) {
  const bool huge = bytes >= kHugePageBytes;
  void* data = nullptr;
  if (::posix_memalign(&data, huge ? kHugePageBytes : kSmallAlignment, bytes) != 0) {
    throw std::bad_alloc();
  }
  // Advice only; the rest of the last huge page stays as it is.
  if (huge) ::madvise(data, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  return data;
}

void FreeHuge(void* data) { std::free(data); }

}  // namespace tessera
