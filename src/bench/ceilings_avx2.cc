// SPDX-License-Identifier: Apache-2.0
//
// The ceilings of AVX2 with FMA, which every build may use. Products of bf16 go through fma here.
// int8: two sign extensions' worth of pmaddwd, 16 multiplications each, and the addition to a chain;
// the widening is left out, as a ceiling should.
#include <immintrin.h>

#include "bench/ceiling_loops_inl.h"

namespace tessera {
namespace bench {
namespace {

struct Avx2 {
  using Reg = __m256i;
  using Float = __m256;
  static constexpr const char* kIsa = "avx2";
  static constexpr size_t kBytes = 32;
  static constexpr int kBf16 = 0;
  static constexpr int kInt8 = 16;

  static TESSERA_INLINE Reg Load(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static TESSERA_INLINE void Store(std::byte* p, Reg x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
  }
  static TESSERA_INLINE void StoreNt(std::byte* p, Reg x) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), x);
  }
  static TESSERA_INLINE void Fence() { _mm_sfence(); }
  static TESSERA_INLINE Float LoadFloats(const float* p) { return _mm256_loadu_ps(p); }
  static TESSERA_INLINE void StoreFloats(float* p, Float x) { _mm256_storeu_ps(p, x); }
  static TESSERA_INLINE Float Mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static TESSERA_INLINE Reg Mix(Reg a, Reg b) { return _mm256_or_si256(a, b); }
  static TESSERA_INLINE void Keep(Reg x) { asm volatile("" : : "x"(x)); }
  static TESSERA_INLINE void Hide(Reg& x) { asm volatile("" : "+x"(x)); }
  static TESSERA_INLINE void Hide(Float& x) { asm volatile("" : "+x"(x)); }
  static TESSERA_INLINE void Keep(Float x) { asm volatile("" : : "x"(x)); }
  static TESSERA_INLINE Float Fma(Float acc, Float a, Float b) {
    return _mm256_fmadd_ps(a, b, acc);
  }
  static TESSERA_INLINE Float Bf16(Float acc, Reg, Reg) { return acc; }
  // The compiler must not take the product, the same in every chain, out of the loop.
  static TESSERA_INLINE Reg Int8(Reg acc, Reg a, Reg b) {
    Reg product = _mm256_madd_epi16(a, b);
    asm volatile("" : "+x"(product));
    return _mm256_add_epi32(acc, product);
  }
};

}  // namespace
}  // namespace bench

const CeilingLoops& Avx2CeilingLoops() { return bench::Loops<bench::Avx2>::kTable; }

}  // namespace tessera
