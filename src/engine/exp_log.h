// SPDX-License-Identifier: Apache-2.0
//
// exp and log in double from + × ÷ and fma alone, so that sampling and reported log-probabilities
// are the same bits on every machine: libm picks its variants by CPU. Within 2 ulp of the exact
// value (exp_log_test compares with libm).
//
// Threads: pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tessera {

// e^x for x <= 0, the only case a softmax less its maximum has; below -708 (where the result would
// be denormal) it is 0. Branch-free, so that loops over a vocabulary vectorise.
inline double ExpOfNonPositive(double x) {
  const double clamped = x < -708.0 ? -708.0 : x;
  // Nearest integer to x/ln2: adding 1.5·2^52 rounds it into the low bits of the mantissa.
  constexpr double kShift = 0x1.8p52;
  const double shifted = std::fma(clamped, 0x1.71547652b82fep0, kShift);
  const double k = shifted - kShift;
  // ln2 in two parts; the first has 32 trailing zero bits, so k·high is exact.
  double r = std::fma(k, -0x1.62e42feep-1, clamped);
  r = std::fma(k, -0x1.a39ef35793c76p-33, r);
  // Taylor to r^13/13!: |r| <= ln2/2, the next term is below 2^-57.
  double p = 1.0 / 6227020800.0;
  p = std::fma(p, r, 1.0 / 479001600.0);
  p = std::fma(p, r, 1.0 / 39916800.0);
  p = std::fma(p, r, 1.0 / 3628800.0);
  p = std::fma(p, r, 1.0 / 362880.0);
  p = std::fma(p, r, 1.0 / 40320.0);
  p = std::fma(p, r, 1.0 / 5040.0);
  p = std::fma(p, r, 1.0 / 720.0);
  p = std::fma(p, r, 1.0 / 120.0);
  p = std::fma(p, r, 1.0 / 24.0);
  p = std::fma(p, r, 1.0 / 6.0);
  p = std::fma(p, r, 0.5);
  p = std::fma(p, r, 1.0);
  p = std::fma(p, r, 1.0);
  // 2^k: the low bits of `shifted` are k in two's complement.
  const uint64_t exponent = (std::bit_cast<uint64_t>(shifted) + 1023) << 52;
  const double value = p * std::bit_cast<double>(exponent);
  return x < -708.0 ? 0.0 : value;
}

// ln x for a normal, positive, finite x.
inline double LogOfPositive(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (m > 0x1.6a09e667f3bcdp0) {  // sqrt 2
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 atanh(s), s = (m-1)/(m+1), |s| <= 0.1716: s^2 < 0.0295, twelve terms reach 2^-61.
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double p = 0.0;
  for (int n = 23; n >= 3; n -= 2) p = std::fma(p, s2, 1.0 / n);
  const double log_m = 2.0 * std::fma(s * s2, p, s);
  const double k = static_cast<double>(exponent);
  return std::fma(k, 0x1.62e42feep-1, std::fma(k, 0x1.a39ef35793c76p-33, log_m));
}

}  // namespace tessera
