// SPDX-License-Identifier: Apache-2.0
#include "compute/tensor/quant_blocks.h"

#include <cstring>

#include "compute/tensor/number_formats.h"

namespace tessera {
namespace {

uint32_t Byte(const std::byte* p, size_t i) { return std::to_integer<uint32_t>(p[i]); }

float Half(const std::byte* p) {
  uint16_t half;
  std::memcpy(&half, p, 2);
  return HalfToFloat(half);
}

// Low nibbles are elements 0..15, high ones 16..31.
uint32_t Nibble(const std::byte* qs, uint32_t i) {
  return i < 16 ? Byte(qs, i) & 15 : Byte(qs, i - 16) >> 4;
}

uint32_t FifthBit(const std::byte* qh, uint32_t i) {
  uint32_t bits;
  std::memcpy(&bits, qh, 4);
  return (bits >> i & 1) << 4;
}

// 8 scales and 8 minima of 6 bits in 12 bytes: the first four of each whole, the low halves of the
// others in bytes 8..11 and their high bits above the first ones.
void UnpackSixBits(const std::byte* s, uint8_t* scales, uint8_t* mins) {
  for (uint32_t i = 0; i < 4; ++i) {
    scales[i] = static_cast<uint8_t>(Byte(s, i) & 63);
    mins[i] = static_cast<uint8_t>(Byte(s, i + 4) & 63);
    scales[i + 4] = static_cast<uint8_t>((Byte(s, i + 8) & 15) | (Byte(s, i) >> 6) << 4);
    mins[i + 4] = static_cast<uint8_t>(Byte(s, i + 8) >> 4 | (Byte(s, i + 4) >> 6) << 4);
  }
}

// 64 elements in 32 bytes: low nibbles first.
uint32_t SuperNibble(const std::byte* qs, uint32_t i) {
  const uint32_t byte = Byte(qs, i / 64 * 32 + i % 32);
  return i / 32 % 2 == 0 ? byte & 15 : byte >> 4;
}

float Scaled(float scale, uint32_t q, float min) {
  const float product = scale * static_cast<float>(q);
  return product - min;
}

}  // namespace

Q4KIntegers UnpackQ4K(const std::byte* block) {
  Q4KIntegers out;
  UnpackSixBits(block + 4, out.scales, out.mins);
  for (uint32_t i = 0; i < kSuperBlock; ++i) {
    out.q[i] = static_cast<uint8_t>(SuperNibble(block + 16, i));
  }
  return out;
}

Q6KIntegers UnpackQ6K(const std::byte* block) {
  Q6KIntegers out;
  std::memcpy(out.scales, block + 192, 16);
  for (uint32_t i = 0; i < kSuperBlock; ++i) {
    const uint32_t half = i / 128;
    const uint32_t quarter = i % 128 / 32;
    const uint32_t l = i % 32;
    const uint32_t low = Byte(block, 64 * half + l + 32 * (quarter & 1));
    const uint32_t nibble = quarter < 2 ? low & 15 : low >> 4;
    const uint32_t high = Byte(block + 128, 32 * half + l) >> (2 * quarter) & 3;
    out.q[i] = static_cast<uint8_t>(nibble | high << 4);
  }
  return out;
}

void ReadQ8_0(const std::byte* block, float* values) {
  const float d = Half(block);
  for (uint32_t i = 0; i < kSmallBlock; ++i) {
    values[i] = static_cast<float>(static_cast<int8_t>(Byte(block, 2 + i))) * d;
  }
}

void ReadQ4_0(const std::byte* block, float* values) {
  const float d = Half(block);
  for (uint32_t i = 0; i < kSmallBlock; ++i) {
    values[i] = static_cast<float>(static_cast<int>(Nibble(block + 2, i)) - 8) * d;
  }
}

void ReadQ4_1(const std::byte* block, float* values) {
  const float d = Half(block);
  const float m = Half(block + 2);
  for (uint32_t i = 0; i < kSmallBlock; ++i) {
    values[i] = Scaled(d, Nibble(block + 4, i), -m);
  }
}

void ReadQ5_0(const std::byte* block, float* values) {
  const float d = Half(block);
  for (uint32_t i = 0; i < kSmallBlock; ++i) {
    const uint32_t q = Nibble(block + 6, i) | FifthBit(block + 2, i);
    values[i] = static_cast<float>(static_cast<int>(q) - 16) * d;
  }
}

void ReadQ5_1(const std::byte* block, float* values) {
  const float d = Half(block);
  const float m = Half(block + 2);
  for (uint32_t i = 0; i < kSmallBlock; ++i) {
    values[i] = Scaled(d, Nibble(block + 8, i) | FifthBit(block + 4, i), -m);
  }
}

// In each half of 128: field j (2 bits) of 32 bytes is elements 32j..32j+31, in two groups of 16.
void ReadQ2K(const std::byte* block, float* values) {
  const float d = Half(block + 80);
  const float dmin = Half(block + 82);
  for (uint32_t i = 0; i < kSuperBlock; ++i) {
    const uint32_t scale = Byte(block, i / 16);
    const uint32_t q = Byte(block + 16, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
    values[i] =
        Scaled(d * static_cast<float>(scale & 15), q, dmin * static_cast<float>(scale >> 4));
  }
}

// As Q2_K; the third bit, inverted, is bit i / 32 of hmask. 16 scales of 6 bits, less 32: low
// nibbles in 8 bytes, high pairs in 4.
void ReadQ3K(const std::byte* block, float* values) {
  const std::byte* s = block + 96;
  const float d = Half(block + 108);
  for (uint32_t i = 0; i < kSuperBlock; ++i) {
    const uint32_t g = i / 16;
    const uint32_t low = g < 8 ? Byte(s, g) & 15 : Byte(s, g - 8) >> 4;
    const uint32_t high = Byte(s, 8 + g % 4) >> (g / 4 * 2) & 3;
    const int scale = static_cast<int>(low | high << 4) - 32;
    const uint32_t pair = Byte(block + 32, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
    const int q = static_cast<int>(pair) - ((Byte(block, i % 32) >> (i / 32) & 1) != 0 ? 0 : 4);
    values[i] = d * static_cast<float>(scale) * static_cast<float>(q);
  }
}

void ReadQ4K(const std::byte* block, float* values) {
  const Q4KIntegers k = UnpackQ4K(block);
  const float d = Half(block);
  const float dmin = Half(block + 2);
  for (uint32_t i = 0; i < kSuperBlock; ++i) {
    values[i] = Scaled(d * static_cast<float>(k.scales[i / 32]), k.q[i],
                       dmin * static_cast<float>(k.mins[i / 32]));
  }
}

void ReadQ5K(const std::byte* block, float* values) {
  uint8_t scales[8];
  uint8_t mins[8];
  UnpackSixBits(block + 4, scales, mins);
  const float d = Half(block);
  const float dmin = Half(block + 2);
  for (uint32_t i = 0; i < kSuperBlock; ++i) {
    const uint32_t sub = i / 32;
    const uint32_t fifth = Byte(block + 16, i % 32) >> sub & 1;
    values[i] = Scaled(d * static_cast<float>(scales[sub]), SuperNibble(block + 48, i) | fifth << 4,
                       dmin * static_cast<float>(mins[sub]));
  }
}

void ReadQ6K(const std::byte* block, float* values) {
  const Q6KIntegers k = UnpackQ6K(block);
  const float d = Half(block + 208);
  for (uint32_t i = 0; i < kSuperBlock; ++i) {
    const float scale = d * static_cast<float>(k.scales[i / 16]);
    values[i] = scale * static_cast<float>(static_cast<int>(k.q[i]) - 32);
  }
}

}  // namespace tessera
