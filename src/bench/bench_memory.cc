// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_memory.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/bytes.h"
#include "base/random.h"

namespace tessera {
namespace {

// The bf16 matrix of Falcon-H1-7B's feed-forward: 3,072 × 12,288.
constexpr uint64_t kMatrixBytes = uint64_t{3072} * 12288 * 2;
constexpr uint64_t kColdBytesMin = uint64_t{128} << 20;
// Pages of a big pool lie far apart; where they are decides what address translation costs.
constexpr uint64_t kStateBytes = uint64_t{512} << 20;
// What kernels fetch ahead beyond the last matrix, and the rounding of a matrix to whole panels.
constexpr uint64_t kSlackBytes = uint64_t{4} << 20;

// Where the system does not say; and beyond this the memory would be too much to ask for.
constexpr uint64_t kLastLevelUnknown = 32 * kMiB;
constexpr uint64_t kLastLevelMax = 256 * kMiB;

void FillWeights(std::byte* data, uint64_t bytes) {
  Random random(1);
  for (uint64_t i = 0; i < bytes; i += 8) {
    const uint64_t word = (random.Next() & 0x8F8F8F8F8F8F8F8Fu) | 0x3030303030303030u;
    std::memcpy(data + i, &word, 8);
  }
}

}  // namespace

// sysconf adds up what other cores have on some machines; the cache's own entry does not.
uint64_t LastLevelCacheBytes() {
  std::ifstream entry("/sys/devices/system/cpu/cpu0/cache/index3/size");
  uint64_t kib = 0;
  return entry >> kib && kib > 0 ? std::min(kib * kKiB, kLastLevelMax) : kLastLevelUnknown;
}

Result<BenchMemory> BenchMemory::Map(const BenchMemoryOptions& options) {
  const uint64_t cold = kTimesLastLevel * LastLevelCacheBytes();
  BenchMemory memory;
  memory.matrix_bytes_ =
      options.weights_bytes > 0 ? options.weights_bytes : std::max(kMatrixBytes, cold);
  TESSERA_ASSIGN_OR_RETURN(memory.weights_, Arena::Map(memory.matrix_bytes_ + kSlackBytes));
  const uint64_t needed = std::max(kColdBytesMin, cold);
  uint64_t state = options.scattered ? std::max(kStateBytes, 4 * cold) : needed;
  if (options.state_bytes > 0) state = options.state_bytes;
  TESSERA_ASSIGN_OR_RETURN(memory.state_, Arena::Map(state));
  memory.cold_bytes_ = std::min(needed, memory.state_.size_bytes());
  FillWeights(memory.weights_.data(), memory.weights_.size_bytes());
  return memory;
}

}  // namespace tessera
