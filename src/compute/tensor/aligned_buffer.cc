// SPDX-License-Identifier: Apache-2.0
#include "compute/tensor/aligned_buffer.h"

#include <cstdlib>
#include <cstring>

#include "base/bytes.h"

namespace tessera {

void* AllocateAligned(size_t bytes) {
  if (bytes == 0) return nullptr;
  const size_t rounded = RoundUp(bytes, kBufferAlignmentBytes);
  void* data = std::aligned_alloc(kBufferAlignmentBytes, rounded);
  TESSERA_CHECK(data != nullptr);
  std::memset(data, 0, rounded);
  return data;
}

void FreeAligned(void* data) { std::free(data); }

}  // namespace tessera
