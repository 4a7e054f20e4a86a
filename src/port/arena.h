// SPDX-License-Identifier: Apache-2.0
//
// Arena is one anonymous mapping, aligned to 2 MiB at its start, advised to use huge pages and
// touched whole before Map returns, so that no later access takes a page fault. (First touch of
// 4 KiB pages on demand costs 10-18 us each here; pre-faulted huge pages 0.24 us.)
//
// A1  size_bytes() is the size asked for, rounded up to 4 KiB; every byte reads as zero after Map.
// A2  The address and size never change; nothing else is ever mapped for it.
//
// Failure: kNoMemory with the size when the system cannot give it.
// Threads: Map and destruction from one thread; the bytes are the owner's to share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace tessera {

class Arena {
 public:
  static constexpr size_t kAlignmentBytes = size_t{2} << 20;

  // 0 bytes gives an empty arena.
  static Result<Arena> Map(uint64_t size_bytes);
  Arena() = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  std::byte* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* data_ = nullptr;  // 2 MiB-aligned, inside the mapping
  uint64_t size_bytes_ = 0;
  void* mapping_ = nullptr;
  uint64_t mapping_bytes_ = 0;
};

}  // namespace tessera
