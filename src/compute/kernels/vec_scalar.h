// SPDX-License-Identifier: Apache-2.0
//
// The reference Vec: 16 lanes as an array and loops over it (see vec.h for the vocabulary).
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "compute/kernels/vec.h"
#include "compute/tensor/number_formats.h"

namespace tessera::kernels::scalar {

struct Vec {
  struct F {
    float v[16];
  };
  struct I {
    int32_t v[16];
  };
  struct M {
    uint32_t v[16];  // all ones or zero
  };
  struct P {
    uint32_t v[16];
  };
  struct B {
    uint8_t v[64];
  };

  static constexpr int kGemmRows = 2;
  static constexpr int kGemmPairRows = 2;
  static constexpr int kGemmPanels = 1;
  static constexpr int kGemmPanelsOneRow = 1;
  static constexpr int kInt8Rows = 2;
  static constexpr int kInt8Panels = 1;
  static constexpr int kInt8PanelsFewRows = 1;
  static constexpr bool kUnrollDots = true;
  static constexpr int kQueryBlock = 1;
  static constexpr int kScoreGroups = 1;
  static constexpr int kValueVectors = 1;
  static constexpr bool kScanByChains = false;
  static constexpr bool kStreams = false;

  template <class Lane>
  static TESSERA_INLINE F Map(Lane lane) {
    F r;
    for (int i = 0; i < 16; ++i) r.v[i] = lane(i);
    return r;
  }
  template <class Lane>
  static TESSERA_INLINE I MapI(Lane lane) {
    I r;
    for (int i = 0; i < 16; ++i) r.v[i] = static_cast<int32_t>(lane(i));
    return r;
  }
  template <class Lane>
  static TESSERA_INLINE M MapM(Lane lane) {
    M r;
    for (int i = 0; i < 16; ++i) r.v[i] = lane(i) ? ~0u : 0u;
    return r;
  }

  static TESSERA_INLINE F Zero() { return Set1(0.0f); }
  static TESSERA_INLINE F Set1(float x) {
    return Map([&](int) TESSERA_INLINE_LAMBDA { return x; });
  }
  static TESSERA_INLINE F Load(const float* p) {
    F r;
    __builtin_memcpy(&r, p, 64);
    return r;
  }
  static TESSERA_INLINE F LoadN(const float* p, uint32_t n) {
    F r = Zero();
    for (uint32_t i = 0; i < n; ++i) r.v[i] = p[i];
    return r;
  }
  static TESSERA_INLINE void Store(float* p, F x) { __builtin_memcpy(p, &x, 64); }
  static TESSERA_INLINE void Stream(float* p, F x) { Store(p, x); }
  static TESSERA_INLINE void StreamFence() {}
  static TESSERA_INLINE void StoreN(float* p, F x, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) p[i] = x.v[i];
  }

  static TESSERA_INLINE F LoadBf16(const uint16_t* p) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return Bf16ToFloat(p[i]); });
  }
  static TESSERA_INLINE F LoadBf16N(const uint16_t* p, uint32_t n) {
    F r = Zero();
    for (uint32_t i = 0; i < n; ++i) r.v[i] = Bf16ToFloat(p[i]);
    return r;
  }
  static TESSERA_INLINE void StoreBf16(uint16_t* p, F x) {
    for (int i = 0; i < 16; ++i) p[i] = FloatToBf16(x.v[i]);
  }
  static TESSERA_INLINE void StoreBf16N(uint16_t* p, F x, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) p[i] = FloatToBf16(x.v[i]);
  }
  static TESSERA_INLINE void LoadBf16Pair(const uint16_t* p, F* a, F* b) {
    *a = LoadBf16(p);
    *b = LoadBf16(p + 16);
  }
  static TESSERA_INLINE void StoreBf16Pair(uint16_t* p, F a, F b) {
    StoreBf16(p, a);
    StoreBf16(p + 16, b);
  }
  static TESSERA_INLINE void StreamBf16Pair(uint16_t* p, F a, F b) { StoreBf16Pair(p, a, b); }
  // F16C belongs to the baseline; its conversion is exact, HalfToFloat's bits included.
  static TESSERA_INLINE F LoadHalf(const uint16_t* p) {
    F r;
    for (int i = 0; i < 16; i += 8) {
      __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i));
      _mm256_storeu_ps(r.v + i, _mm256_cvtph_ps(half));
    }
    return r;
  }
  static TESSERA_INLINE void LoadEvenOddN(const float* p, F* even, F* odd, uint32_t n) {
    *even = *odd = Zero();
    for (uint32_t i = 0; i < n; ++i) {
      even->v[i] = p[2 * i];
      odd->v[i] = p[2 * i + 1];
    }
  }
  static TESSERA_INLINE void StoreEvenOddN(float* p, F even, F odd, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) {
      p[2 * i] = even.v[i];
      p[2 * i + 1] = odd.v[i];
    }
  }

  static TESSERA_INLINE F Add(F a, F b) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return a.v[i] + b.v[i]; });
  }
  static TESSERA_INLINE F Sub(F a, F b) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return a.v[i] - b.v[i]; });
  }
  static TESSERA_INLINE F Mul(F a, F b) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return a.v[i] * b.v[i]; });
  }
  static TESSERA_INLINE F Div(F a, F b) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return a.v[i] / b.v[i]; });
  }
  static TESSERA_INLINE F Fma(F a, F b, F c) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
  }
  static TESSERA_INLINE F Max(F a, F b) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static TESSERA_INLINE F Neg(F a) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return -a.v[i]; });
  }
  static TESSERA_INLINE F Abs(F a) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return __builtin_fabsf(a.v[i]); });
  }

  static TESSERA_INLINE void RoundBf16Pair(F* a, F* b) {
    uint16_t words[32];
    StoreBf16Pair(words, *a, *b);
    LoadBf16Pair(words, a, b);
  }

  static TESSERA_INLINE M Less(F a, F b) {
    return MapM([&](int i) TESSERA_INLINE_LAMBDA { return a.v[i] < b.v[i]; });
  }
  static TESSERA_INLINE M IsNan(F a) {
    return MapM([&](int i) TESSERA_INLINE_LAMBDA { return a.v[i] != a.v[i]; });
  }
  static TESSERA_INLINE M FirstN(uint32_t n) {
    return MapM([&](int i) TESSERA_INLINE_LAMBDA { return static_cast<uint32_t>(i) < n; });
  }
  static TESSERA_INLINE F Select(M m, F a, F b) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return m.v[i] != 0 ? a.v[i] : b.v[i]; });
  }

  static TESSERA_INLINE float ReduceAdd(F x) {
    for (int width = 8; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) x.v[i] = x.v[i] + x.v[i + width];
    }
    return x.v[0];
  }
  // Lane i: ReduceAdd of row i.
  static TESSERA_INLINE F ReduceAddRows(const float (&rows)[16][16]) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return ReduceAdd(Load(rows[i])); });
  }
  static TESSERA_INLINE float ReduceMax(F x) {
    for (int width = 8; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) x.v[i] = x.v[i] > x.v[i + width] ? x.v[i] : x.v[i + width];
    }
    return x.v[0];
  }

  static TESSERA_INLINE I Bits(F x) {
    return MapI([&](int i) TESSERA_INLINE_LAMBDA { return std::bit_cast<int32_t>(x.v[i]); });
  }
  static TESSERA_INLINE F FromBits(I x) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return std::bit_cast<float>(x.v[i]); });
  }
  static TESSERA_INLINE I Set1I(int32_t x) {
    return MapI([&](int) TESSERA_INLINE_LAMBDA { return x; });
  }
  static TESSERA_INLINE I AddI(I a, I b) {
    return MapI([&](int i) TESSERA_INLINE_LAMBDA {
      return static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i]);
    });
  }
  static TESSERA_INLINE I SubI(I a, I b) {
    return MapI([&](int i) TESSERA_INLINE_LAMBDA {
      return static_cast<uint32_t>(a.v[i]) - static_cast<uint32_t>(b.v[i]);
    });
  }
  template <int kBits>
  static TESSERA_INLINE I ShiftLeft(I a) {
    return MapI([&](int i)
                    TESSERA_INLINE_LAMBDA { return static_cast<uint32_t>(a.v[i]) << kBits; });
  }
  template <int kBits>
  static TESSERA_INLINE I ShiftRight(I a) {
    return MapI([&](int i) TESSERA_INLINE_LAMBDA { return a.v[i] >> kBits; });
  }
  static TESSERA_INLINE F ToFloat(I a) {
    return Map([&](int i) TESSERA_INLINE_LAMBDA { return static_cast<float>(a.v[i]); });
  }
  // The instruction's own rule for what does not fit: INT32_MIN.
  static TESSERA_INLINE I ToInt(F a) {
    return MapI([&](int i) TESSERA_INLINE_LAMBDA { return _mm_cvtss_si32(_mm_set_ss(a.v[i])); });
  }
  static TESSERA_INLINE void StoreInt8(int8_t* p, I x) {
    for (int i = 0; i < 16; ++i) {
      const int32_t v = x.v[i] < -128 ? -128 : x.v[i] > 127 ? 127 : x.v[i];
      p[i] = static_cast<int8_t>(v);
    }
  }

  static TESSERA_INLINE P LoadPairs(const void* p) {
    P r;
    __builtin_memcpy(&r, p, 64);
    return r;
  }
  static TESSERA_INLINE P BroadcastPair(const void* p) {
    uint32_t pair;
    __builtin_memcpy(&pair, p, 4);
    P r;
    for (int i = 0; i < 16; ++i) r.v[i] = pair;
    return r;
  }
  // One element, its odd partner +0.
  static TESSERA_INLINE P BroadcastLast(const void* p) {
    uint16_t element;
    __builtin_memcpy(&element, p, 2);
    P r;
    for (int i = 0; i < 16; ++i) r.v[i] = element;
    return r;
  }
  static TESSERA_INLINE F DotBf16(F acc, P a, P b) {
    const auto even = [](uint32_t pair) { return std::bit_cast<float>(pair << 16); };
    const auto odd = [](uint32_t pair) { return std::bit_cast<float>(pair & 0xFFFF0000u); };
    const F t = Map([&](int i) TESSERA_INLINE_LAMBDA {
      return __builtin_fmaf(odd(a.v[i]), odd(b.v[i]), acc.v[i]);
    });
    return Map([&](int i) TESSERA_INLINE_LAMBDA {
      return __builtin_fmaf(even(a.v[i]), even(b.v[i]), t.v[i]);
    });
  }

  // DotBf16 in parts whose operands need not be in registers together.
  static constexpr int kPairParts = 1;
  using Part = P;
  template <int kPart>
  static TESSERA_INLINE Part PartOf(P x) {
    return x;
  }
  static TESSERA_INLINE F DotPart(F acc, Part a, Part b) { return DotBf16(acc, a, b); }

  static TESSERA_INLINE B LoadBytes(const void* p) {
    B r;
    __builtin_memcpy(&r, p, 64);
    return r;
  }
  static TESSERA_INLINE B BroadcastBytes(const void* p) {
    B r;
    for (int i = 0; i < 16; ++i) __builtin_memcpy(r.v + 4 * i, p, 4);
    return r;
  }
  static TESSERA_INLINE I DotBytes(I acc, B w, B a) {
    return MapI([&](int i) TESSERA_INLINE_LAMBDA {
      int32_t sum = acc.v[i];
      for (int e = 4 * i; e < 4 * i + 4; ++e) sum += w.v[e] * static_cast<int8_t>(a.v[e]);
      return sum;
    });
  }
  static TESSERA_INLINE I DotSmallBytes(I acc, B w, B a) { return DotBytes(acc, w, a); }
  template <class Byte>
  static TESSERA_INLINE B MapBytes(Byte byte) {
    B r;
    for (int i = 0; i < 64; ++i) r.v[i] = static_cast<uint8_t>(byte(i));
    return r;
  }
  static TESSERA_INLINE B LowNibbles(B x) {
    return MapBytes([&](int i) TESSERA_INLINE_LAMBDA { return x.v[i] & 15; });
  }
  static TESSERA_INLINE B HighNibbles(B x) {
    return MapBytes([&](int i) TESSERA_INLINE_LAMBDA { return x.v[i] >> 4; });
  }
  template <int kShift>
  static TESSERA_INLINE B TopBits(B x) {
    return MapBytes([&](int i) TESSERA_INLINE_LAMBDA { return ((x.v[i] >> kShift) & 3) << 4; });
  }
  static TESSERA_INLINE B OrBytes(B a, B b) {
    return MapBytes([&](int i) TESSERA_INLINE_LAMBDA { return a.v[i] | b.v[i]; });
  }
  static TESSERA_INLINE I MulI(I a, I b) {
    return MapI([&](int i) TESSERA_INLINE_LAMBDA {
      return static_cast<uint32_t>(a.v[i]) * static_cast<uint32_t>(b.v[i]);
    });
  }
  static TESSERA_INLINE I LoadInt8Lanes(const void* p) {
    return MapI([&](int i) TESSERA_INLINE_LAMBDA { return static_cast<const int8_t*>(p)[i]; });
  }
  static TESSERA_INLINE I LoadUint8Lanes(const void* p) {
    return MapI([&](int i) TESSERA_INLINE_LAMBDA { return static_cast<const uint8_t*>(p)[i]; });
  }
};

}  // namespace tessera::kernels::scalar
