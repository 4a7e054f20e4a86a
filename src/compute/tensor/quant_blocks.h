// SPDX-License-Identifier: Apache-2.0
//
// The blocks of GGUF's quantised types: what each byte means, and the values a block stands for. Of
// the types that are multiplied as integers also the integers themselves.
//
//   32 elements                          256 elements, bytes
//   Q8_0  d | int8[32]                   Q2_K   84  scales[16] qs[64] d dmin
//   Q4_0  d | qs[16]                     Q3_K  110  hmask[32] qs[64] scales[12] d
//   Q4_1  d m | qs[16]                   Q4_K  144  d dmin scales[12] qs[128]
//   Q5_0  d | qh[4] qs[16]               Q5_K  176  d dmin scales[12] qh[32] qs[128]
//   Q5_1  d m | qh[4] qs[16]             Q6_K  210  ql[128] qh[64] scales[16] d
//
// d, m and dmin are f16. Values are computed in fp32 as written, one rounding per operation: q·d,
// (q - 8)·d, q·d + m (two roundings), (d·sc)·q - dmin·mn, (d·sc)·q.
//
// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

inline constexpr uint32_t kSmallBlock = 32;
inline constexpr uint32_t kSuperBlock = 256;

// Elements q 0..15, the scales and minima (0..63) of 8 sub-blocks of 32.
struct Q4KIntegers {
  uint8_t q[kSuperBlock];
  uint8_t scales[8];
  uint8_t mins[8];
};
Q4KIntegers UnpackQ4K(const std::byte* block);

// Elements q 0..63, standing for q - 32, and the scales of 16 sub-blocks of 16.
struct Q6KIntegers {
  uint8_t q[kSuperBlock];
  int8_t scales[16];
};
Q6KIntegers UnpackQ6K(const std::byte* block);

// The values of one block.
using ReadBlock = void (*)(const std::byte* block, float* values);
void ReadQ8_0(const std::byte* block, float* values);
void ReadQ4_0(const std::byte* block, float* values);
void ReadQ4_1(const std::byte* block, float* values);
void ReadQ5_0(const std::byte* block, float* values);
void ReadQ5_1(const std::byte* block, float* values);
void ReadQ2K(const std::byte* block, float* values);
void ReadQ3K(const std::byte* block, float* values);
void ReadQ4K(const std::byte* block, float* values);
void ReadQ5K(const std::byte* block, float* values);
void ReadQ6K(const std::byte* block, float* values);

}  // namespace tessera
