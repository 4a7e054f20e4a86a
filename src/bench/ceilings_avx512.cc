// SPDX-License-Identifier: Apache-2.0
//
// The ceilings of AVX-512 with bf16 and VNNI.
#include <immintrin.h>

#include "bench/ceiling_loops_inl.h"

namespace tessera {
namespace bench {
namespace {

struct Avx512 {
  using Reg = __m512i;
  using Float = __m512;
  static constexpr const char* kIsa = "avx512";
  static constexpr size_t kBytes = 64;
  static constexpr int kBf16 = 32;
  static constexpr int kInt8 = 64;

  static TESSERA_INLINE Reg Load(const std::byte* p) { return _mm512_loadu_si512(p); }
  static TESSERA_INLINE void Store(std::byte* p, Reg x) { _mm512_store_si512(p, x); }
  static TESSERA_INLINE void StoreNt(std::byte* p, Reg x) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p), x);
  }
  static TESSERA_INLINE void Fence() { _mm_sfence(); }
  static TESSERA_INLINE Float LoadFloats(const float* p) { return _mm512_loadu_ps(p); }
  static TESSERA_INLINE void StoreFloats(float* p, Float x) { _mm512_storeu_ps(p, x); }
  static TESSERA_INLINE Float Mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static TESSERA_INLINE Reg Mix(Reg a, Reg b) { return _mm512_or_si512(a, b); }
  static TESSERA_INLINE void Keep(Reg x) { asm volatile("" : : "v"(x)); }
  static TESSERA_INLINE void Hide(Reg& x) { asm volatile("" : "+v"(x)); }
  static TESSERA_INLINE void Hide(Float& x) { asm volatile("" : "+v"(x)); }
  static TESSERA_INLINE void Keep(Float x) { asm volatile("" : : "v"(x)); }
  static TESSERA_INLINE Float Fma(Float acc, Float a, Float b) {
    return _mm512_fmadd_ps(a, b, acc);
  }
  static TESSERA_INLINE Float Bf16(Float acc, Reg a, Reg b) {
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
  }
  static TESSERA_INLINE Reg Int8(Reg acc, Reg a, Reg b) { return _mm512_dpbusd_epi32(acc, a, b); }
};

}  // namespace
}  // namespace bench

const CeilingLoops& Avx512CeilingLoops() { return bench::Loops<bench::Avx512>::kTable; }

}  // namespace tessera
