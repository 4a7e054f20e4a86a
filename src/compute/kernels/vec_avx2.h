// SPDX-License-Identifier: Apache-2.0
//
// Vec on x86-64-v3 (AVX2, FMA, F16C): 16 lanes in two registers (see vec.h). Included by avx2.cc
// only.
//
// N forms use maskload and maskstore, which do not touch the lanes that are masked out.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "compute/kernels/vec.h"

namespace tessera::kernels::avx2 {

// n of them from &kMaskWindow[16 - n] on are ones.
alignas(64) inline constexpr int32_t kMaskWindow[32] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                        -1, -1, -1, -1, -1, -1, -1, -1};

struct Vec {
  struct F {
    __m256 lo, hi;  // lanes 0..7 and 8..15
  };
  struct I {
    __m256i lo, hi;
  };
  using P = I;
  using B = I;
  using M = I;  // all ones or zero

  // 6 rows of accumulators are 12 of the 16 registers; bf16 needs one more for a mask, and GCC one
  // to move about in.
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmPairRows = 5;
  static constexpr int kGemmPanels = 1;
  static constexpr int kGemmPanelsOneRow = 4;
  static constexpr int kInt8Rows = 3;
  static constexpr int kInt8Panels = 1;
  static constexpr int kInt8PanelsFewRows = 1;
  static constexpr bool kUnrollDots = false;
  static constexpr int kQueryBlock = 6;
  static constexpr int kScoreGroups = 1;
  static constexpr int kValueVectors = 1;
  static constexpr bool kScanByChains = true;
  static constexpr bool kStreams = true;

  static TESSERA_INLINE __m256i LoadInts(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static TESSERA_INLINE M FirstN(uint32_t n) {
    const int32_t* window = kMaskWindow + (16 - n);
    return {LoadInts(window), LoadInts(window + 8)};
  }

  static TESSERA_INLINE F Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static TESSERA_INLINE F Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static TESSERA_INLINE F Load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
  }
  static TESSERA_INLINE F LoadN(const float* p, uint32_t n) {
    const M m = FirstN(n);
    return {_mm256_maskload_ps(p, m.lo), _mm256_maskload_ps(p + 8, m.hi)};
  }
  static TESSERA_INLINE void Store(float* p, F x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
  }
  static TESSERA_INLINE void Stream(float* p, F x) {
    _mm256_stream_ps(p, x.lo);
    _mm256_stream_ps(p + 8, x.hi);
  }
  static TESSERA_INLINE void StreamFence() { _mm_sfence(); }
  static TESSERA_INLINE void StoreN(float* p, F x, uint32_t n) {
    const M m = FirstN(n);
    _mm256_maskstore_ps(p, m.lo, x.lo);
    _mm256_maskstore_ps(p + 8, m.hi, x.hi);
  }

  static TESSERA_INLINE F WidenBf16(__m256i x) {
    return FromBits(ShiftLeft<16>({_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
                                   _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1))}));
  }
  // vcvtneps2bf16 in the high half of each lane; what the low half holds is of no meaning. The
  // product with 1, which the compiler must not see through, flushes denormals (K2) and quiets
  // NaNs.
  static TESSERA_INLINE __m256i RoundedBits(__m256 x) {
    __m256 one = _mm256_set1_ps(1.0f);
    asm("" : "+x"(one));
    const __m256 flushed = _mm256_mul_ps(x, one);
    const __m256i bits = _mm256_castps_si256(flushed);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i nearest =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256 nan = _mm256_cmp_ps(flushed, flushed, _CMP_UNORD_Q);
    return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(nearest), flushed, nan));
  }
  static TESSERA_INLINE __m256i NarrowBf16(F x) {
    const __m256i mixed = _mm256_packus_epi32(_mm256_srli_epi32(RoundedBits(x.lo), 16),
                                              _mm256_srli_epi32(RoundedBits(x.hi), 16));
    return _mm256_permute4x64_epi64(mixed, 0xD8);  // packing works within each half
  }
  static TESSERA_INLINE F RoundBf16(F x) {
    const __m256i high = _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000u));
    return FromBits(
        {_mm256_and_si256(RoundedBits(x.lo), high), _mm256_and_si256(RoundedBits(x.hi), high)});
  }
  static TESSERA_INLINE F LoadBf16(const uint16_t* p) { return WidenBf16(LoadInts(p)); }
  // Masks work on 4 bytes: pairs, and the last of an odd number by itself.
  static TESSERA_INLINE F LoadBf16N(const uint16_t* p, uint32_t n) {
    if (n >= 16) return LoadBf16(p);
    const int32_t* window = kMaskWindow + (16 - n / 2);
    __m256i x = _mm256_maskload_epi32(reinterpret_cast<const int*>(p), LoadInts(window));
    if (n % 2 != 0) {
      // Ones from lane n / 2 on less those from n / 2 + 1 on.
      const __m256i lane = _mm256_andnot_si256(LoadInts(window), LoadInts(window - 1));
      x = _mm256_or_si256(x, _mm256_and_si256(lane, _mm256_set1_epi32(p[n - 1])));
    }
    return WidenBf16(x);
  }
  static TESSERA_INLINE void StoreBf16(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), NarrowBf16(x));
  }
  static TESSERA_INLINE void LoadBf16Pair(const uint16_t* p, F* a, F* b) {
    *a = LoadBf16(p);
    *b = LoadBf16(p + 16);
  }
  static TESSERA_INLINE void StoreBf16Pair(uint16_t* p, F a, F b) {
    StoreBf16(p, a);
    StoreBf16(p + 16, b);
  }
  static TESSERA_INLINE void StreamBf16Pair(uint16_t* p, F a, F b) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), NarrowBf16(a));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p + 16), NarrowBf16(b));
  }
  static TESSERA_INLINE void RoundBf16Pair(F* a, F* b) {
    *a = RoundBf16(*a);
    *b = RoundBf16(*b);
  }
  static TESSERA_INLINE void StoreBf16N(uint16_t* p, F x, uint32_t n) {
    if (n >= 16) return StoreBf16(p, x);
    const __m256i narrow = NarrowBf16(x);
    _mm256_maskstore_epi32(reinterpret_cast<int*>(p), LoadInts(kMaskWindow + (16 - n / 2)), narrow);
    if (n % 2 != 0) {
      const __m256i index = _mm256_set1_epi32(static_cast<int32_t>(n / 2));
      const __m256i last = _mm256_permutevar8x32_epi32(narrow, index);
      p[n - 1] = static_cast<uint16_t>(_mm_cvtsi128_si32(_mm256_castsi256_si128(last)));
    }
  }
  static TESSERA_INLINE F LoadHalf(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }

  // Lane pairs of two vectors read as 32 consecutive floats, 2n of them present.
  static TESSERA_INLINE void LoadEvenOddN(const float* p, F* even, F* odd, uint32_t n) {
    const F a = LoadN(p, n < 8 ? n * 2 : 16);
    const F b = n > 8 ? LoadN(p + 16, n * 2 - 16) : Zero();
    *even = {Lanes(_mm256_shuffle_ps(a.lo, a.hi, 0x88)),
             Lanes(_mm256_shuffle_ps(b.lo, b.hi, 0x88))};
    *odd = {Lanes(_mm256_shuffle_ps(a.lo, a.hi, 0xDD)), Lanes(_mm256_shuffle_ps(b.lo, b.hi, 0xDD))};
  }
  static TESSERA_INLINE void StoreEvenOddN(float* p, F even, F odd, uint32_t n) {
    StoreN(p, Interleave(even.lo, odd.lo), n < 8 ? n * 2 : 16);
    if (n > 8) StoreN(p + 16, Interleave(even.hi, odd.hi), n * 2 - 16);
  }
  // Shuffles work within each half: its middle quarters change places.
  static TESSERA_INLINE __m256 Lanes(__m256 x) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xD8));
  }
  static TESSERA_INLINE F Interleave(__m256 even, __m256 odd) {
    const __m256 a = _mm256_unpacklo_ps(even, odd);
    const __m256 b = _mm256_unpackhi_ps(even, odd);
    return {_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31)};
  }

  static TESSERA_INLINE F Add(F a, F b) {
    return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
  }
  static TESSERA_INLINE F Sub(F a, F b) {
    return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
  }
  static TESSERA_INLINE F Mul(F a, F b) {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
  }
  static TESSERA_INLINE F Div(F a, F b) {
    return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
  }
  static TESSERA_INLINE F Fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static TESSERA_INLINE F Max(F a, F b) {
    return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
  }
  static TESSERA_INLINE F Neg(F a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
  }
  static TESSERA_INLINE F Abs(F a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
  }

  static TESSERA_INLINE M Less(F a, F b) {
    return Bits({_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)});
  }
  static TESSERA_INLINE M IsNan(F a) {
    return Bits({_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)});
  }
  static TESSERA_INLINE F Select(M m, F a, F b) {
    const F mask = FromBits(m);
    return {_mm256_blendv_ps(b.lo, a.lo, mask.lo), _mm256_blendv_ps(b.hi, a.hi, mask.hi)};
  }

  static TESSERA_INLINE float ReduceAdd(F x) {
    const __m256 t8 = _mm256_add_ps(x.lo, x.hi);
    const __m128 t4 = _mm_add_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    const __m128 t2 = _mm_add_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_add_ss(t2, _mm_movehdup_ps(t2)));
  }
  // The same tree for 8 rows at once: each step adds halves of two vectors, and the pairing leaves
  // row i in lane i.
  static TESSERA_INLINE __m256 ReduceAdd8Rows(const float (*rows)[16]) {
    __m256 quarter[4];
    Unroll<4>([&](auto j) TESSERA_INLINE_LAMBDA {
      quarter[j] = FoldFours(FoldEights(rows[j]), FoldEights(rows[j + 4]));
    });
    const __m256 a = FoldTwos(quarter[0], quarter[1]);
    const __m256 b = FoldTwos(quarter[2], quarter[3]);
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xDD));
  }
  static TESSERA_INLINE F ReduceAddRows(const float (&rows)[16][16]) {
    return {ReduceAdd8Rows(rows), ReduceAdd8Rows(rows + 8)};
  }
  static TESSERA_INLINE __m256 FoldEights(const float* row) {
    return _mm256_add_ps(_mm256_loadu_ps(row), _mm256_loadu_ps(row + 8));
  }
  // a's lanes i + (i+4) in the low half, b's in the high one.
  static TESSERA_INLINE __m256 FoldFours(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  // In every four lanes: a's 0+2 and 1+3, then b's.
  static TESSERA_INLINE __m256 FoldTwos(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE));
  }
  static TESSERA_INLINE float ReduceMax(F x) {
    const __m256 t8 = _mm256_max_ps(x.lo, x.hi);
    const __m128 t4 = _mm_max_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    const __m128 t2 = _mm_max_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_max_ss(t2, _mm_movehdup_ps(t2)));
  }

  static TESSERA_INLINE I Bits(F x) {
    return {_mm256_castps_si256(x.lo), _mm256_castps_si256(x.hi)};
  }
  static TESSERA_INLINE F FromBits(I x) {
    return {_mm256_castsi256_ps(x.lo), _mm256_castsi256_ps(x.hi)};
  }
  static TESSERA_INLINE I Set1I(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static TESSERA_INLINE I AddI(I a, I b) {
    return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
  }
  static TESSERA_INLINE I SubI(I a, I b) {
    return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
  }
  static TESSERA_INLINE I MulI(I a, I b) {
    return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
  }
  template <int kBits>
  static TESSERA_INLINE I ShiftLeft(I a) {
    return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
  }
  template <int kBits>
  static TESSERA_INLINE I ShiftRight(I a) {
    return {_mm256_srai_epi32(a.lo, kBits), _mm256_srai_epi32(a.hi, kBits)};
  }
  static TESSERA_INLINE F ToFloat(I a) {
    return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
  }
  static TESSERA_INLINE I ToInt(F a) {
    return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
  }
  static TESSERA_INLINE void StoreInt8(int8_t* p, I x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.lo, x.hi), 0xD8);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
  static TESSERA_INLINE I LoadInt8Lanes(const void* p) {
    const auto* bytes = static_cast<const __m128i*>(p);
    return {_mm256_cvtepi8_epi32(_mm_loadu_si128(bytes)),
            _mm256_cvtepi8_epi32(_mm_srli_si128(_mm_loadu_si128(bytes), 8))};
  }
  static TESSERA_INLINE I LoadUint8Lanes(const void* p) {
    const auto* bytes = static_cast<const __m128i*>(p);
    return {_mm256_cvtepu8_epi32(_mm_loadu_si128(bytes)),
            _mm256_cvtepu8_epi32(_mm_srli_si128(_mm_loadu_si128(bytes), 8))};
  }

  static TESSERA_INLINE P LoadPairs(const void* p) {
    return {LoadInts(p), LoadInts(static_cast<const std::byte*>(p) + 32)};
  }
  static TESSERA_INLINE P BroadcastPair(const void* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, 4);
    return Set1I(pair);
  }
  static TESSERA_INLINE P BroadcastLast(const void* p) {
    uint16_t element;
    __builtin_memcpy(&element, p, 2);
    return Set1I(element);
  }
  static TESSERA_INLINE F Even(P x) { return FromBits(ShiftLeft<16>(x)); }
  static TESSERA_INLINE F Odd(P x) {
    const __m256i high = _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000u));
    return FromBits({_mm256_and_si256(x.lo, high), _mm256_and_si256(x.hi, high)});
  }
  static TESSERA_INLINE F DotBf16(F acc, P a, P b) {
    return Fma(Even(a), Even(b), Fma(Odd(a), Odd(b), acc));
  }

  // DotBf16 in parts whose operands need not be in registers together.
  static constexpr int kPairParts = 2;
  using Part = F;
  template <int kPart>
  static TESSERA_INLINE Part PartOf(P x) {
    if constexpr (kPart == 0) {
      return Odd(x);
    } else {
      return Even(x);
    }
  }
  static TESSERA_INLINE F DotPart(F acc, Part a, Part b) { return Fma(a, b, acc); }

  // Bytes: 16 lanes of 4. A sum of two products of whole bytes does not fit the 16 bits of
  // vpmaddubsw (255·127·2 saturates), so bytes 0, 2 and 1, 3 of a lane are widened first.
  static TESSERA_INLINE B LoadBytes(const void* p) { return LoadPairs(p); }
  static TESSERA_INLINE B BroadcastBytes(const void* p) { return BroadcastPair(p); }
  static TESSERA_INLINE __m256i DotBytes(__m256i acc, __m256i w, __m256i a) {
    const __m256i w02 = _mm256_and_si256(w, _mm256_set1_epi16(0xFF));
    const __m256i w13 = _mm256_srli_epi16(w, 8);
    const __m256i a02 = _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8);
    const __m256i a13 = _mm256_srai_epi16(a, 8);
    return _mm256_add_epi32(
        acc, _mm256_add_epi32(_mm256_madd_epi16(w02, a02), _mm256_madd_epi16(w13, a13)));
  }
  static TESSERA_INLINE I DotBytes(I acc, B w, B a) {
    return {DotBytes(acc.lo, w.lo, a.lo), DotBytes(acc.hi, w.hi, a.hi)};
  }
  // Here it fits: 63·128·2.
  static TESSERA_INLINE __m256i DotSmallBytes(__m256i acc, __m256i w, __m256i a) {
    const __m256i sums = _mm256_maddubs_epi16(w, a);
    return _mm256_add_epi32(acc, _mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
  }
  static TESSERA_INLINE I DotSmallBytes(I acc, B w, B a) {
    return {DotSmallBytes(acc.lo, w.lo, a.lo), DotSmallBytes(acc.hi, w.hi, a.hi)};
  }
  static TESSERA_INLINE B AndBytes(B x, int8_t mask) {
    const __m256i m = _mm256_set1_epi8(mask);
    return {_mm256_and_si256(x.lo, m), _mm256_and_si256(x.hi, m)};
  }
  static TESSERA_INLINE B OrBytes(B a, B b) {
    return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
  }
  // Shifts of 16 bits move bits between bytes; the masks take them off.
  static TESSERA_INLINE B LowNibbles(B x) { return AndBytes(x, 0x0F); }
  static TESSERA_INLINE B HighNibbles(B x) {
    return AndBytes({_mm256_srli_epi16(x.lo, 4), _mm256_srli_epi16(x.hi, 4)}, 0x0F);
  }
  template <int kShift>
  static TESSERA_INLINE B TopBits(B x) {
    if constexpr (kShift < 4) {
      return AndBytes({_mm256_slli_epi16(x.lo, 4 - kShift), _mm256_slli_epi16(x.hi, 4 - kShift)},
                      0x30);
    } else {
      return AndBytes({_mm256_srli_epi16(x.lo, kShift - 4), _mm256_srli_epi16(x.hi, kShift - 4)},
                      0x30);
    }
  }
};

}  // namespace tessera::kernels::avx2
