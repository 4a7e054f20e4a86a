// SPDX-License-Identifier: Apache-2.0
//
// Vec on AVX-512 F, BW, DQ, VL, BF16 and VNNI (see vec.h). Included by avx512.cc only.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "compute/kernels/vec.h"

namespace tessera::kernels::avx512 {

struct Vec {
  using F = __m512;
  using I = __m512i;
  using P = __m512i;
  using B = __m512i;
  using M = __mmask16;

  static constexpr int kGemmRows = 6;
  static constexpr int kGemmPairRows = 6;
  static constexpr int kGemmPanels = 4;
  static constexpr int kGemmPanelsOneRow = 4;
  static constexpr int kInt8Rows = 6;
  static constexpr int kInt8Panels = 2;
  static constexpr int kInt8PanelsFewRows = 4;
  static constexpr bool kUnrollDots = true;
  static constexpr int kQueryBlock = 6;
  static constexpr int kScoreGroups = 2;
  static constexpr int kValueVectors = 4;
  static constexpr bool kScanByChains = false;
  static constexpr bool kStreams = true;

  static TESSERA_INLINE M FirstN(uint32_t n) { return static_cast<M>((1u << n) - 1); }

  static TESSERA_INLINE F Zero() { return _mm512_setzero_ps(); }
  static TESSERA_INLINE F Set1(float x) { return _mm512_set1_ps(x); }
  static TESSERA_INLINE F Load(const float* p) { return _mm512_loadu_ps(p); }
  static TESSERA_INLINE F LoadN(const float* p, uint32_t n) {
    return _mm512_maskz_loadu_ps(FirstN(n), p);
  }
  static TESSERA_INLINE void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static TESSERA_INLINE void Stream(float* p, F x) { _mm512_stream_ps(p, x); }
  static TESSERA_INLINE void StreamFence() { _mm_sfence(); }
  static TESSERA_INLINE void StoreN(float* p, F x, uint32_t n) {
    _mm512_mask_storeu_ps(p, FirstN(n), x);
  }

  static TESSERA_INLINE F WidenBf16(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
  }
  static TESSERA_INLINE __m256i NarrowBf16(F x) { return (__m256i)_mm512_cvtneps_pbh(x); }
  static TESSERA_INLINE F LoadBf16(const uint16_t* p) {
    return WidenBf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static TESSERA_INLINE F LoadBf16N(const uint16_t* p, uint32_t n) {
    return WidenBf16(_mm256_maskz_loadu_epi16(FirstN(n), p));
  }
  static TESSERA_INLINE void StoreBf16(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), NarrowBf16(x));
  }
  static TESSERA_INLINE void StoreBf16N(uint16_t* p, F x, uint32_t n) {
    _mm256_mask_storeu_epi16(p, FirstN(n), NarrowBf16(x));
  }
  // One conversion narrows two vectors and one permutation widens each: a third less work for the
  // scan of a bf16 state than vector by vector.
  static TESSERA_INLINE void LoadBf16Pair(const uint16_t* p, F* a, F* b) {
    const __m512i words = _mm512_loadu_si512(p);
    *a = WidenHalfOf<0>(words);
    *b = WidenHalfOf<1>(words);
  }
  static TESSERA_INLINE void StoreBf16Pair(uint16_t* p, F a, F b) {
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(b, a));
  }
  static TESSERA_INLINE void StreamBf16Pair(uint16_t* p, F a, F b) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p), (__m512i)_mm512_cvtne2ps_pbh(b, a));
  }
  static TESSERA_INLINE void RoundBf16Pair(F* a, F* b) {
    const __m512i words = (__m512i)_mm512_cvtne2ps_pbh(*b, *a);
    *a = WidenHalfOf<0>(words);
    *b = WidenHalfOf<1>(words);
  }
  // Words 16·half + i to the upper half of lane i, zero below.
  template <int kHalf>
  static TESSERA_INLINE F WidenHalfOf(__m512i words) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index =
        _mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(16 * kHalf)), 16);
    return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xAAAAAAAA, index, words));
  }
  static TESSERA_INLINE F LoadHalf(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  // Lane pairs of two vectors read as 32 consecutive floats, 2n of them present.
  static TESSERA_INLINE void LoadEvenOddN(const float* p, F* even, F* odd, uint32_t n) {
    const uint32_t first = n < 8 ? n * 2 : 16;
    const F a = LoadN(p, first);
    const F b = n > 8 ? LoadN(p + 16, n * 2 - 16) : Zero();
    const __m512i even_index =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, even_index, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(even_index, _mm512_set1_epi32(1)), b);
  }
  static TESSERA_INLINE void StoreEvenOddN(float* p, F even, F odd, uint32_t n) {
    const __m512i low_index =
        _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high_index = _mm512_add_epi32(low_index, _mm512_set1_epi32(8));
    StoreN(p, _mm512_permutex2var_ps(even, low_index, odd), n < 8 ? n * 2 : 16);
    if (n > 8) StoreN(p + 16, _mm512_permutex2var_ps(even, high_index, odd), n * 2 - 16);
  }

  static TESSERA_INLINE F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static TESSERA_INLINE F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static TESSERA_INLINE F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static TESSERA_INLINE F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static TESSERA_INLINE F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static TESSERA_INLINE F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static TESSERA_INLINE F Neg(F a) { return _mm512_xor_ps(a, Set1(-0.0f)); }
  static TESSERA_INLINE F Abs(F a) { return _mm512_andnot_ps(Set1(-0.0f), a); }

  static TESSERA_INLINE M Less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static TESSERA_INLINE M IsNan(F a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
  static TESSERA_INLINE F Select(M m, F a, F b) { return _mm512_mask_blend_ps(m, b, a); }

  // The tree in hand: a compiler's reduce intrinsic has whatever order it likes.
  static TESSERA_INLINE float ReduceAdd(F x) {
    __m256 t8 = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 t4 = _mm_add_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    __m128 t2 = _mm_add_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_add_ss(t2, _mm_movehdup_ps(t2)));
  }
  // The same tree for 16 rows at once: each step adds halves of two vectors, and the pairing leaves
  // row i in lane i.
  static TESSERA_INLINE F ReduceAddRows(const float (&rows)[16][16]) {
    F quarter[4];
    Unroll<4>([&](auto j) TESSERA_INLINE_LAMBDA {
      const F low = FoldEights(Load(rows[j]), Load(rows[j + 4]));
      const F high = FoldEights(Load(rows[j + 8]), Load(rows[j + 12]));
      quarter[j] =
          Add(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xDD));
    });
    const F a = FoldTwos(quarter[0], quarter[1]);
    const F b = FoldTwos(quarter[2], quarter[3]);
    return Add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
  }
  // a's lanes i + (i+8) in the low half, b's in the high one.
  static TESSERA_INLINE F FoldEights(F a, F b) {
    return Add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  }
  // In every four lanes: a's 0+2 and 1+3, then b's.
  static TESSERA_INLINE F FoldTwos(F a, F b) {
    return Add(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
  }
  static TESSERA_INLINE float ReduceMax(F x) {
    __m256 t8 = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 t4 = _mm_max_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    __m128 t2 = _mm_max_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_max_ss(t2, _mm_movehdup_ps(t2)));
  }

  static TESSERA_INLINE I Bits(F x) { return _mm512_castps_si512(x); }
  static TESSERA_INLINE F FromBits(I x) { return _mm512_castsi512_ps(x); }
  static TESSERA_INLINE I Set1I(int32_t x) { return _mm512_set1_epi32(x); }
  static TESSERA_INLINE I AddI(I a, I b) { return _mm512_add_epi32(a, b); }
  static TESSERA_INLINE I SubI(I a, I b) { return _mm512_sub_epi32(a, b); }
  template <int kBits>
  static TESSERA_INLINE I ShiftLeft(I a) {
    return _mm512_slli_epi32(a, kBits);
  }
  template <int kBits>
  static TESSERA_INLINE I ShiftRight(I a) {
    return _mm512_srai_epi32(a, kBits);
  }
  static TESSERA_INLINE F ToFloat(I a) { return _mm512_cvtepi32_ps(a); }
  static TESSERA_INLINE I ToInt(F a) { return _mm512_cvtps_epi32(a); }
  static TESSERA_INLINE void StoreInt8(int8_t* p, I x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(x));
  }

  static TESSERA_INLINE P LoadPairs(const void* p) { return _mm512_loadu_si512(p); }
  static TESSERA_INLINE P BroadcastPair(const void* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, 4);
    return _mm512_set1_epi32(pair);
  }
  static TESSERA_INLINE P BroadcastLast(const void* p) {
    uint16_t element;
    __builtin_memcpy(&element, p, 2);
    return _mm512_set1_epi32(element);
  }
  static TESSERA_INLINE F DotBf16(F acc, P a, P b) {
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
  }

  // DotBf16 in parts whose operands need not be in registers together.
  static constexpr int kPairParts = 1;
  using Part = P;
  template <int kPart>
  static TESSERA_INLINE Part PartOf(P x) {
    return x;
  }
  static TESSERA_INLINE F DotPart(F acc, Part a, Part b) { return DotBf16(acc, a, b); }

  static TESSERA_INLINE B LoadBytes(const void* p) { return _mm512_loadu_si512(p); }
  static TESSERA_INLINE B BroadcastBytes(const void* p) { return BroadcastPair(p); }
  // vpdpbusd does not saturate.
  static TESSERA_INLINE I DotBytes(I acc, B w, B a) { return _mm512_dpbusd_epi32(acc, w, a); }
  static TESSERA_INLINE I DotSmallBytes(I acc, B w, B a) { return DotBytes(acc, w, a); }
  static TESSERA_INLINE B LowNibbles(B x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
  static TESSERA_INLINE B HighNibbles(B x) { return LowNibbles(_mm512_srli_epi16(x, 4)); }
  template <int kShift>
  static TESSERA_INLINE B TopBits(B x) {
    const B at4 = kShift < 4 ? _mm512_slli_epi16(x, kShift < 4 ? 4 - kShift : 0)
                             : _mm512_srli_epi16(x, kShift < 4 ? 0 : kShift - 4);
    return _mm512_and_si512(at4, _mm512_set1_epi8(0x30));
  }
  static TESSERA_INLINE B OrBytes(B a, B b) { return _mm512_or_si512(a, b); }
  static TESSERA_INLINE I MulI(I a, I b) { return _mm512_mullo_epi32(a, b); }
  static TESSERA_INLINE I LoadInt8Lanes(const void* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static TESSERA_INLINE I LoadUint8Lanes(const void* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
};

}  // namespace tessera::kernels::avx512
