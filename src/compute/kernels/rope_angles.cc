// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/rope_angles.h"

#include <bit>

#include "base/check.h"
#include "port/float_environment.h"

namespace tessera {
namespace {

double Fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kLn2Low = 0x1.abc9e3b39803fp-56;  // ln2 - kLn2

// A value and what its rounding lost.
struct Pair {
  double high;
  double low;
};

// log(x), x > 0 and normal: x = 2^e·m, m in [sqrt(1/2), sqrt(2)), log m = 2·artanh((m-1)/(m+1)).
// s² ≤ .02944, so the series ends at s^23/23: the next term is 4e-19 of the sum.
Pair Log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int64_t e = static_cast<int64_t>(bits - 0x3FE6A09E667F3BCDu) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(e) << 52));
  const double n = static_cast<double>(e);
  const double numerator = m - 1;  // exact
  const double denominator = m + 1;
  const double s = numerator / denominator;
  const double denominator_low = m - (denominator - 1);
  const double s_low = (Fma(-s, denominator, numerator) - s * denominator_low) / denominator;
  const double z = s * s;
  double series = 2.0 / 23;
  for (int k = 21; k >= 3; k -= 2) series = Fma(series, z, 2.0 / k);
  const double tail = Fma(s * z, series, 2 * s_low);  // what log m has beyond 2·s
  // n·ln2 + 2s + tail, the two large terms added exactly (|n·ln2| ≥ |2s| unless n = 0).
  const double big = n * kLn2;
  const double big_low = Fma(n, kLn2, -big);
  const double sum = big + 2 * s;
  const double sum_low = n == 0 ? 0.0 : 2 * s - (sum - big);
  const double low = sum_low + (big_low + Fma(n, kLn2Low, tail));
  const double high = sum + low;
  return {high, low - (high - sum)};
}

// e^(high + low), for results that are normal: 2^n·e^r, |r| ≤ ln2/2, Taylor to r^14/14!
// (the next term is below 1e-19).
double Exp(Pair x) {
  constexpr double kRound = 0x1.8p52;
  const double n = Fma(x.high, 1 / kLn2, kRound) - kRound;
  const double r = Fma(-n, kLn2, x.high);
  const double r_low = Fma(-n, kLn2Low, x.low);
  constexpr double kInverseFactorial[] = {
      1.0 / 2,         1.0 / 6,          1.0 / 24,         1.0 / 120,     1.0 / 720,
      1.0 / 5040,      1.0 / 40320,      1.0 / 362880,     1.0 / 3628800, 1.0 / 39916800,
      1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200};
  double series = kInverseFactorial[12];
  for (int k = 11; k >= 0; --k) series = Fma(series, r, kInverseFactorial[k]);
  // e^(r + low) = 1 + r + r²·series + low·e^r.
  const double rest = r * r * series;
  const double p = 1 + (r + Fma(r_low, 1 + r + rest, rest));
  const uint64_t exponent = static_cast<uint64_t>(static_cast<int64_t>(n)) << 52;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(p) + exponent);
}

// sin(r + low) and cos(r + low) for |r| ≤ π/4 + a little: Taylor to r^19 and r^18, the next terms
// below 1e-19.
double SinSmall(double r, double low) {
  const double z = r * r;
  double series = 0;
  for (int k = 19; k >= 3; k -= 2) {
    series = Fma(series, -z / ((k + 1) * (k + 2)), 1.0);
  }
  return r + Fma(r * z, series * (-1.0 / 6), low);
}
double CosSmall(double r, double low) {
  const double z = r * r;
  double series = 0;
  for (int k = 18; k >= 2; k -= 2) {
    series = Fma(series, -z / ((k + 1) * (k + 2)), 1.0);
  }
  return 1 - Fma(z, series * 0.5, r * low);
}

struct SinCos {
  double sin;
  double cos;
};

// x ≥ 0 less the nearest multiple of π/2 (Cody and Waite 1980). Where k > 0, x and
// k·0x1.921fb54442d18p0 are multiples of 2^-53 whose difference is below 1, so the first fma is
// exact for all x < 2^51; the second brings in π/2 - that to 53 bits.
SinCos SinCosOf(double x) {
  constexpr double kHalfPi = 0x1.921fb54442d18p0;
  constexpr double kHalfPiLow = 0x1.1a62633145c07p-54;
  constexpr double kRound = 0x1.8p52;
  const double k = Fma(x, 1 / kHalfPi, kRound) - kRound;
  const double exact = Fma(-k, kHalfPi, x);
  const double r = Fma(-k, kHalfPiLow, exact);
  const double low = Fma(-k, kHalfPiLow, exact - r);
  const double s = SinSmall(r, low);
  const double c = CosSmall(r, low);
  switch (static_cast<uint64_t>(k) % 4) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

}  // namespace

void RopeInverseFrequencies(double base, uint32_t n_rot, const float* divisors,
                            double* inverse_frequencies) {
  const ScopedFloatEnvironment environment;  // rounding to an integer by adding 1.5·2^52 needs it
  TESSERA_CHECK(base >= 0x1p-100 && base <= 0x1p100);
  const Pair log_base = Log(base);
  for (uint32_t j = 0; j < n_rot / 2; ++j) {
    // -log(base)·2j/n_rot: the quotient is rounded once, its remainder kept.
    const double numerator = 2.0 * j;
    const double t = numerator / n_rot;
    const double t_low = Fma(-t, n_rot, numerator) / n_rot;
    const double high = -log_base.high * t;
    const double low = -Fma(log_base.high, t, high) - Fma(log_base.low, t, log_base.high * t_low);
    double f = Exp({high, low});
    if (divisors != nullptr) f /= static_cast<double>(divisors[j]);
    inverse_frequencies[j] = f;
  }
}

void RopeAngles(uint32_t position, const double* inverse_frequencies, uint32_t n, float* cos,
                float* sin) {
  for (uint32_t j = 0; j < n; ++j) {
    const SinCos value = SinCosOf(static_cast<double>(position) * inverse_frequencies[j]);
    sin[j] = static_cast<float>(value.sin);
    cos[j] = static_cast<float>(value.cos);
  }
}

}  // namespace tessera
