// SPDX-License-Identifier: Apache-2.0
//
// exp, log1p, softplus and silu of 16 lanes from IEEE operations alone, because libm picks variants
// by CPU and changes between versions. Errors are against the true value (kernels_test measures).
#pragma once

#include "compute/kernels/vec.h"

namespace tessera::kernels {

// e^x within 1 ulp. Below -87.3125 it is +0 (a result near 2^-126 would be denormal), above
// 88.72283172607421875, the last x whose exponential is finite, +inf. exp(0) is exactly 1. NaN
// stays.
//
// x = n·ln2 + r, |r| ≤ ln2/2; e^r = 1 + (r + r²·q(r)), q of degree 4 fitted to a relative error of
// 3.2e-9. Adding 1.5·2^23 rounds x/ln2 to an integer and leaves it in the low bits, from where a
// shift by 23 adds it to the exponent.
template <class V>
TESSERA_INLINE typename V::F Exp(typename V::F x) {
  using F = typename V::F;
  const F magic = V::Set1(12582912.0f);
  const F t = V::Fma(x, V::Set1(0x1.715476p+0f), magic);
  const F n = V::Sub(t, magic);
  F r = V::Fma(n, V::Set1(-0x1.62e430p-1f), x);
  r = V::Fma(n, V::Set1(0x1.05c610p-29f), r);
  F q = V::Fma(V::Set1(0x1.6a4b32p-10f), r, V::Set1(0x1.12398ep-7f));
  q = V::Fma(q, r, V::Set1(0x1.5558b2p-5f));
  q = V::Fma(q, r, V::Set1(0x1.555492p-3f));
  q = V::Fma(q, r, V::Set1(0x1.fffffcp-2f));
  const F p = V::Add(V::Fma(V::Mul(r, r), q, r), V::Set1(1.0f));
  F y = V::FromBits(V::AddI(V::Bits(p), V::template ShiftLeft<23>(V::Bits(t))));
  y = V::Select(V::Less(x, V::Set1(-87.3125f)), V::Zero(), y);
  y = V::Select(V::Less(V::Set1(88.72283172607421875f), x), V::Set1(__builtin_inff()), y);
  return V::Select(V::IsNan(x), x, y);
}

// log(x) for finite normal x ≥ 1/2. x = 2^e·(1 + f), 1 + f in [sqrt(1/2), sqrt(2)); with
// s = f/(2 + f), log(1 + f) = 2·artanh(s) = f - (f²/2 - s·(f²/2 + R)), R the series beyond 2s.
template <class V>
TESSERA_INLINE typename V::F LogNormal(typename V::F x) {
  using F = typename V::F;
  using I = typename V::I;
  const I bits = V::Bits(x);
  const I e = V::template ShiftRight<23>(V::SubI(bits, V::Set1I(0x3F3504F3)));
  const F f = V::Sub(V::FromBits(V::SubI(bits, V::template ShiftLeft<23>(e))), V::Set1(1.0f));
  const F n = V::ToFloat(e);
  const F s = V::Div(f, V::Add(f, V::Set1(2.0f)));
  const F z = V::Mul(s, s);
  F r = V::Fma(z, V::Set1(2.0f / 9), V::Set1(2.0f / 7));
  r = V::Fma(z, r, V::Set1(2.0f / 5));
  r = V::Fma(z, r, V::Set1(2.0f / 3));
  r = V::Mul(z, r);
  const F half_square = V::Mul(V::Mul(f, V::Set1(0.5f)), f);
  // ln2 as 0x1.62e4p-1 + 0x1.7f7d1cp-20: the first has 15 bits, so n·it is exact.
  const F low = V::Fma(n, V::Set1(0x1.7f7d1cp-20f), V::Mul(s, V::Add(half_square, r)));
  const F part = V::Sub(f, V::Sub(half_square, low));
  return V::Fma(n, V::Set1(0x1.62e400p-1f), part);
}

// log(1 + e^x), x itself above 20 (where e^-x is below half an ulp of x).
template <class V>
TESSERA_INLINE typename V::F Softplus(typename V::F x) {
  using F = typename V::F;
  const F one = V::Set1(1.0f);
  const F z = Exp<V>(x);
  const F u = V::Add(one, z);
  // What rounding 1 + z lost, relative to u: log1p(z) = log(u) + lost/u.
  const auto small = V::Less(z, one);
  const F lost = V::Select(small, V::Sub(z, V::Sub(u, one)), V::Sub(one, V::Sub(u, z)));
  const F y = V::Add(LogNormal<V>(u), V::Div(lost, u));
  return V::Select(V::Less(V::Set1(20.0f), x), x, y);
}

template <class V>
TESSERA_INLINE typename V::F Silu(typename V::F x) {
  return V::Div(x, V::Add(V::Set1(1.0f), Exp<V>(V::Neg(x))));
}

}  // namespace tessera::kernels
