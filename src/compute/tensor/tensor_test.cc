// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "base/random.h"
#include "compute/tensor/aligned_buffer.h"
#include "compute/tensor/number_formats.h"

namespace tessera {
namespace {

uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }
float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

// The nearest bf16 by distance in double, ties to the even one: no bit tricks.
uint16_t SlowBf16(float x) {
  const uint16_t down = static_cast<uint16_t>(Bits(x) >> 16);
  const uint16_t up = static_cast<uint16_t>(down + 1);
  const double low = std::abs(static_cast<double>(x) - static_cast<double>(Bf16ToFloat(down)));
  // One past the largest bf16 counts as 2^128, not as infinity.
  const double top = (up & 0x7FFF) == 0x7F80 ? std::copysign(0x1p128, static_cast<double>(x))
                                             : static_cast<double>(Bf16ToFloat(up));
  const double high = std::abs(top - static_cast<double>(x));
  if (low != high) return low < high ? down : up;
  return (down & 1) == 0 ? down : up;
}

TEST(Bf16, RoundsToNearestEvenAndFlushesDenormals) {
  Random random(1);
  for (int i = 0; i < 200000; ++i) {
    uint32_t bits = static_cast<uint32_t>(random.Next());
    if (i % 4 == 0) bits = (bits & 0xFFFF0000u) | 0x8000u;  // exact ties
    const float x = FromBits(bits);
    if (std::isnan(x)) {
      EXPECT_EQ(FloatToBf16(x), (bits >> 16) | 0x40u);
    } else if (std::isinf(x)) {
      EXPECT_EQ(FloatToBf16(x), bits >> 16);
    } else if (std::abs(x) < std::numeric_limits<float>::min()) {
      EXPECT_EQ(FloatToBf16(x), (bits >> 16) & 0x8000u);
    } else {
      ASSERT_EQ(FloatToBf16(x), SlowBf16(x)) << std::hex << bits;
    }
  }
  EXPECT_EQ(FloatToBf16(FromBits(0x7F800001u)), 0x7FC0);  // a signalling NaN must not become inf
  EXPECT_EQ(FloatToBf16(FromBits(0x7F7FFFFFu)), 0x7F80);
}

TEST(Half, EveryHalfGoesToTheFloatF16cGives) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float want = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(h))));
    ASSERT_EQ(Bits(HalfToFloat(static_cast<uint16_t>(h))), Bits(want)) << h;
  }
}

TEST(Half, EveryHalfSurvivesTheWayThroughFloat) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const uint16_t back = FloatToHalf(HalfToFloat(static_cast<uint16_t>(h)));
    const bool nan = (h & 0x7C00) == 0x7C00 && (h & 0x3FF) != 0;
    ASSERT_EQ(back, nan ? (h | 0x200u) : h);
  }
}

TEST(Half, FloatsRoundAsF16cRoundsThem) {
  Random random(2);
  for (int i = 0; i < 200000; ++i) {
    uint32_t bits = static_cast<uint32_t>(random.Next());
    if (i % 2 == 0) bits = (bits & 0x807FFFFFu) | ((100u + (bits >> 24) % 46) << 23);
    if (i % 4 == 0) bits &= 0xFFFFF000u;  // ties
    const __m128i want = _mm_cvtps_ph(_mm_set_ss(FromBits(bits)), _MM_FROUND_TO_NEAREST_INT);
    ASSERT_EQ(FloatToHalf(FromBits(bits)), static_cast<uint16_t>(_mm_extract_epi16(want, 0)))
        << std::hex << bits;
  }
}

TEST(AlignedBuffer, IsAlignedZeroedAndMoves) {
  AlignedBuffer<float> a(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
  for (float x : a) EXPECT_EQ(Bits(x), 0u);
  a[999] = 3;
  float* data = a.data();
  AlignedBuffer<float> b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b[999], 3);
  AlignedBuffer<float> c(5);
  c = std::move(b);
  EXPECT_EQ(c.size(), 1000u);
  EXPECT_TRUE(AlignedBuffer<float>(0).empty());
}

}  // namespace
}  // namespace tessera
