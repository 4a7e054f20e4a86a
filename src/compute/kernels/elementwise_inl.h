// SPDX-License-Identifier: Apache-2.0
//
// Norm, roundings, gates, residual, rotary embedding, discretisation: whole vectors, then
// one masked vector through the same operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/kernel_table.h"
#include "compute/kernels/math_inl.h"
#include "compute/kernels/vec.h"

namespace tessera::kernels {

// body(i, lanes): 16 lanes per call, fewer in the last.
template <class Body>
TESSERA_INLINE void ForLanes(uint32_t n, Body body) {
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) body(i, Index<16>{});
  if (i < n) body(i, n - i);
}
template <class V>
TESSERA_INLINE typename V::F LoadLanes(const float* p, Index<16>) {
  return V::Load(p);
}
template <class V>
TESSERA_INLINE typename V::F LoadLanes(const float* p, uint32_t n) {
  return V::LoadN(p, n);
}
template <class V>
TESSERA_INLINE void StoreLanes(float* p, typename V::F x, Index<16>) {
  V::Store(p, x);
}
template <class V>
TESSERA_INLINE void StoreLanes(float* p, typename V::F x, uint32_t n) {
  V::StoreN(p, x, n);
}
template <class V>
TESSERA_INLINE void StoreBf16Lanes(uint16_t* p, typename V::F x, Index<16>) {
  V::StoreBf16(p, x);
}
template <class V>
TESSERA_INLINE void StoreBf16Lanes(uint16_t* p, typename V::F x, uint32_t n) {
  V::StoreBf16N(p, x, n);
}

template <class V>
void RmsNorm(const float* x, const float* weight, uint32_t n, float eps, float* y) {
  typename V::F squares = V::Zero();
  ForLanes(n, [&](uint32_t i, auto lanes) TESSERA_INLINE_LAMBDA {
    const typename V::F v = LoadLanes<V>(x + i, lanes);
    squares = V::Fma(v, v, squares);
  });
  const float mean = V::ReduceAdd(squares) / static_cast<float>(n);
  const typename V::F scale = V::Set1(1.0f / __builtin_sqrtf(mean + eps));
  ForLanes(n, [&](uint32_t i, auto lanes) TESSERA_INLINE_LAMBDA {
    const typename V::F v = V::Mul(LoadLanes<V>(x + i, lanes), scale);
    StoreLanes<V>(y + i, V::Mul(v, LoadLanes<V>(weight + i, lanes)), lanes);
  });
}

template <class V>
void ToBf16(const float* x, uint32_t n, uint16_t* y) {
  ForLanes(n, [&](uint32_t i, auto lanes) TESSERA_INLINE_LAMBDA {
    StoreBf16Lanes<V>(y + i, LoadLanes<V>(x + i, lanes), lanes);
  });
}

template <class V>
void ScaleToBf16(const float* x, float scale, uint32_t n, uint16_t* y) {
  const typename V::F s = V::Set1(scale);
  ForLanes(n, [&](uint32_t i, auto lanes) TESSERA_INLINE_LAMBDA {
    StoreBf16Lanes<V>(y + i, V::Mul(LoadLanes<V>(x + i, lanes), s), lanes);
  });
}

// |x|, infinite for a NaN: a comparison would lose it, and the block would look like numbers. With
// an infinite d the products of the block are infinite or NaN, as they would be in fp32.
template <class V>
TESSERA_INLINE typename V::F Magnitude(typename V::F x) {
  return V::Select(V::IsNan(x), V::Set1(__builtin_inff()), V::Abs(x));
}

template <int kCount>
TESSERA_INLINE int32_t MinusSum(const int8_t* y) {
  int32_t sum = 0;
  for (int i = 0; i < kCount; ++i) sum -= y[i];
  return sum;
}

// What a block of largest magnitude `amax` is divided by, and the factor that does it. A d below
// 2^-126 is flushed to zero and so is its block: 1/d would be infinite.
template <class V>
struct BlockScale {
  TESSERA_INLINE explicit BlockScale(float amax) : d(amax / 127.0f) {
    if (!(d > 0.0f)) d = 0.0f;
    inverse = d == 0.0f ? 0.0f : 1.0f / d;
  }
  float d;
  float inverse;
};

template <class V>
void ToInt8(const float* x, uint32_t n, int8_t* y, float* scales, int32_t* sums) {
  for (uint32_t i = 0; i < n; i += 32) {
    const uint32_t count = n - i < 32 ? n - i : 32;
    const typename V::F low = V::LoadN(x + i, count < 16 ? count : 16);
    const typename V::F high = count > 16 ? V::LoadN(x + i + 16, count - 16) : V::Zero();
    const float amax = V::ReduceMax(V::Max(Magnitude<V>(low), Magnitude<V>(high)));
    const BlockScale<V> scale(amax);
    scales[i / 32] = scale.d;
    const typename V::F inverse = V::Set1(scale.inverse);
    V::StoreInt8(y + i, V::ToInt(V::Mul(low, inverse)));
    V::StoreInt8(y + i + 16, V::ToInt(V::Mul(high, inverse)));
    sums[i / 32] = MinusSum<32>(y + i);
  }
}

template <class V>
void ToInt8K(const float* x, uint32_t n, int8_t* y, float* scales, int32_t* sums) {
  for (uint32_t block = 0; block < n / 256; ++block, x += 256, y += 256, sums += kKSumWords) {
    typename V::F largest = V::Zero();
    for (uint32_t i = 0; i < 256; i += 16) {
      largest = V::Max(largest, Magnitude<V>(V::Load(x + i)));
    }
    const BlockScale<V> scale(V::ReduceMax(largest));
    scales[block] = scale.d;
    const typename V::F inverse = V::Set1(scale.inverse);
    for (uint32_t i = 0; i < 256; i += 16) {
      V::StoreInt8(y + i, V::ToInt(V::Mul(V::Load(x + i), inverse)));
      sums[i / 16] = MinusSum<16>(y + i);
    }
    int8_t halves[16];
    for (int s = 0; s < 8; ++s) {
      const int32_t sum = sums[2 * s] + sums[2 * s + 1];
      const int32_t high = (sum + 32) >> 6;
      halves[s] = static_cast<int8_t>(sum - 64 * high);
      halves[8 + s] = static_cast<int8_t>(high);
    }
    __builtin_memcpy(sums + 16, halves, 16);
  }
}

template <class V>
void SiluMul(const float* gate, const float* x, uint32_t n, float* out) {
  ForLanes(n, [&](uint32_t i, auto lanes) TESSERA_INLINE_LAMBDA {
    const typename V::F g = Silu<V>(LoadLanes<V>(gate + i, lanes));
    StoreLanes<V>(out + i, V::Mul(g, LoadLanes<V>(x + i, lanes)), lanes);
  });
}

template <class V>
void AddResidual(const float* a, const float* b, uint32_t n, float* residual) {
  ForLanes(n, [&](uint32_t i, auto lanes) TESSERA_INLINE_LAMBDA {
    typename V::F sum = LoadLanes<V>(a + i, lanes);
    if (b != nullptr) sum = V::Add(sum, LoadLanes<V>(b + i, lanes));
    StoreLanes<V>(residual + i, V::Add(LoadLanes<V>(residual + i, lanes), sum), lanes);
  });
}

template <class V>
void Rope(float* head, uint32_t n_rot, bool neox, const float* cos, const float* sin) {
  const uint32_t half = n_rot / 2;
  for (uint32_t j = 0; j < half; j += 16) {
    const uint32_t n = half - j < 16 ? half - j : 16;
    typename V::F a, b;
    if (neox) {
      a = V::LoadN(head + j, n);
      b = V::LoadN(head + half + j, n);
    } else {
      V::LoadEvenOddN(head + 2 * j, &a, &b, n);
    }
    const typename V::F c = V::LoadN(cos + j, n);
    const typename V::F s = V::LoadN(sin + j, n);
    const typename V::F a2 = V::Fma(V::Neg(b), s, V::Mul(a, c));
    const typename V::F b2 = V::Fma(a, s, V::Mul(b, c));
    if (neox) {
      V::StoreN(head + j, a2, n);
      V::StoreN(head + half + j, b2, n);
    } else {
      V::StoreEvenOddN(head + 2 * j, a2, b2, n);
    }
  }
}

template <class V>
void Discretize(const float* dt, const float* bias, const float* a, uint32_t heads, float* delta,
                float* decay) {
  ForLanes(heads, [&](uint32_t i, auto lanes) TESSERA_INLINE_LAMBDA {
    const typename V::F x = V::Add(LoadLanes<V>(dt + i, lanes), LoadLanes<V>(bias + i, lanes));
    const typename V::F d = Softplus<V>(x);
    StoreLanes<V>(delta + i, d, lanes);
    StoreLanes<V>(decay + i, Exp<V>(V::Mul(d, LoadLanes<V>(a + i, lanes))), lanes);
  });
}

}  // namespace tessera::kernels
