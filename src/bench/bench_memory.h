// SPDX-License-Identifier: Apache-2.0
//
// BenchMemory is the memory that kernels are measured on: huge pages, touched at start, so that
// what is measured is the memory and not the page faults.
//
//   weights   read only; every byte is of the form s011xxxx, random. Read as f32, f16 or bf16 that
//             is a finite number between 2^-31 and 2, and any packed weight type can be laid over
//             it: no type needs a quantiser here, and speed does not depend on values
//   state     read and written: recurrent images and attention groups
//
// "From memory" means that a case touches kTimesLastLevel times the last level cache, and at least
// 64 MB, before it comes back to the same byte.
//
// Failure: kNoMemory with the size. Threads: the bytes are the user's to share.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "port/arena.h"

namespace tessera {

struct BenchMemoryOptions {
  uint64_t weights_bytes = 0;  // 0: what "from memory" takes here
  uint64_t state_bytes = 0;    // 0: what "from memory" takes, and room to scatter it
  bool scattered = true;       // else no such room: ceilings and products do without
};

class BenchMemory {
 public:
  static constexpr uint64_t kTimesLastLevel = 2;

  static Result<BenchMemory> Map(const BenchMemoryOptions& options);

  // Bytes of one matrix that does not stay in any cache.
  uint64_t matrix_bytes() const { return matrix_bytes_; }
  // Matrices of matrix_bytes() start at 0; behind them is room for prefetches.
  const std::byte* weights() const { return weights_.data(); }
  std::byte* state() const { return state_.data(); }
  uint64_t state_bytes() const { return state_.size_bytes(); }
  uint64_t mapped_bytes() const { return weights_.size_bytes() + state_.size_bytes(); }
  // Bytes of state that a case must go through before it repeats.
  uint64_t cold_bytes() const { return cold_bytes_; }

 private:
  uint64_t matrix_bytes_ = 0;
  uint64_t cold_bytes_ = 0;
  Arena weights_;
  Arena state_;
};

// Of the last level cache, as the system reports it, up to 256 MiB; 32 MiB when it does not.
uint64_t LastLevelCacheBytes();

}  // namespace tessera
