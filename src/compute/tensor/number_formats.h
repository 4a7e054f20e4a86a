// SPDX-License-Identifier: Apache-2.0
//
// bf16 and f16 as integers, converted by integer arithmetic alone: the bits never depend on MXCSR,
// on the compiler's idea of denormals or on the CPU.
//
// N1  FloatToBf16 is vcvtneps2bf16: nearest even, denormals to zero of their sign, NaN quieted.
// N2  HalfToFloat is vcvtph2ps: exact, subnormals included, NaN quieted.
// N3  FloatToHalf rounds to nearest even into subnormals too; beyond 65519.99… it is infinity.
//
// Threads: pure.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

constexpr float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  if (magnitude < 0x00800000u) return static_cast<uint16_t>((bits >> 16) & 0x8000u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t fraction = half & 0x3FFu;
  if (exponent == 0x1F) {
    const uint32_t quiet = fraction == 0 ? 0u : 0x00400000u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | (fraction << 13));
  }
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  if (fraction == 0) return std::bit_cast<float>(sign);
  // fraction·2^-24, its leading one moved to bit 10: biased exponent 113 - shift.
  const uint32_t shift = static_cast<uint32_t>(std::countl_zero(fraction)) - 21;
  return std::bit_cast<float>(sign | ((113 - shift) << 23) |
                              (((fraction << shift) & 0x3FFu) << 13));
}

constexpr uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // ≥ 65520
  uint32_t significand = magnitude;
  uint32_t drop = 13;
  uint32_t base = 112u << 10;     // subtracted with the exponent still in place
  if (magnitude < 0x38800000u) {  // below 2^-14: the result is subnormal, in units of 2^-24
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) return static_cast<uint16_t>(sign);  // below 2^-25
    significand = (magnitude & 0x007FFFFFu) | 0x00800000u;
    drop = 126 - exponent;
    base = 0;
  }
  const uint32_t half_unit = (1u << (drop - 1)) - 1;
  const uint32_t rounded = (significand + half_unit + ((significand >> drop) & 1u)) >> drop;
  return static_cast<uint16_t>(sign | (rounded - base));
}

}  // namespace tessera
