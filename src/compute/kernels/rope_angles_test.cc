// SPDX-License-Identifier: Apache-2.0
//
// Rotary angles against long double libm.
#include "compute/kernels/rope_angles.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "port/float_environment.h"

namespace tessera {
namespace {

constexpr double kBases[] = {500.0, 10000.0, 500000.0, 1e6, 1e11};
constexpr uint32_t kRotations[] = {2, 16, 64, 80, 128, 256};

TEST(RopeAngles, InverseFrequenciesAreTheNearestDoubleOrItsNeighbour) {
  for (double base : kBases) {
    for (uint32_t n_rot : kRotations) {
      std::vector<double> f(n_rot / 2);
      RopeInverseFrequencies(base, n_rot, nullptr, f.data());
      EXPECT_EQ(f[0], 1.0);
      for (uint32_t j = 0; j < n_rot / 2; ++j) {
        const long double want =
            std::pow(static_cast<long double>(base), -2.0L * j / static_cast<long double>(n_rot));
        const double ulp = std::ldexp(1.0, std::ilogb(static_cast<double>(want)) - 52);
        EXPECT_LE(std::abs(static_cast<double>(f[j] - want)), ulp)
            << base << " " << n_rot << " " << j;
      }
    }
  }
}

// They are computed when a model is set up, in whatever environment the host has.
TEST(RopeAngles, InverseFrequenciesIgnoreTheCallersRoundingMode) {
  double want[32];
  RopeInverseFrequencies(1e11, 64, nullptr, want);
  const uint32_t saved = _mm_getcsr();
  for (const uint32_t rounding : {0x2000u, 0x4000u, 0x6000u}) {  // down, up, toward zero
    double got[32];
    _mm_setcsr((saved & ~0x6000u) | rounding);
    RopeInverseFrequencies(1e11, 64, nullptr, got);
    _mm_setcsr(saved);
    for (int j = 0; j < 32; ++j) EXPECT_EQ(got[j], want[j]) << rounding << " " << j;
  }
}

TEST(RopeAngles, DivisorsDivide) {
  const float divisors[] = {1.0f, 2.0f, 8.0f, 3.7f};
  double plain[4], divided[4];
  RopeInverseFrequencies(500000.0, 8, nullptr, plain);
  RopeInverseFrequencies(500000.0, 8, divisors, divided);
  for (int j = 0; j < 4; ++j) EXPECT_EQ(divided[j], plain[j] / static_cast<double>(divisors[j]));
}

// The rounding of position·frequency to double (relative 2^-53) is part of the definition, so it is
// applied before libm sees the angle; what remains is one rounding to fp32, at most 0.5 ulp and a
// little.
TEST(RopeAngles, SinAndCosAreWithinOneUlpForPositionsTo2To20) {
  ScopedFloatEnvironment environment;
  Random random(1);
  double worst = 0;
  for (double base : kBases) {
    std::vector<double> f(64);
    std::vector<float> cos(64), sin(64);
    RopeInverseFrequencies(base, 128, nullptr, f.data());
    for (int i = 0; i < 400; ++i) {
      const uint32_t position = i < 100   ? static_cast<uint32_t>(i)
                                : i < 110 ? (1u << 20) - static_cast<uint32_t>(i - 100)
                                          : static_cast<uint32_t>(random.Below(1 << 20));
      RopeAngles(position, f.data(), 64, cos.data(), sin.data());
      for (size_t j = 0; j < 64; ++j) {
        const long double angle = static_cast<double>(position) * f[j];
        for (auto [got, want] : {std::pair{cos[j], std::cos(angle)}, {sin[j], std::sin(angle)}}) {
          if (want == 0) {
            EXPECT_EQ(got, 0.0f);
            continue;
          }
          const double ulp = std::ldexp(1.0, std::ilogb(static_cast<double>(want)) - 23);
          worst = std::max(worst, std::abs(static_cast<double>(got - want)) / ulp);
        }
      }
    }
  }
  EXPECT_LE(worst, 0.501);
  RecordProperty("worst_ulps", std::to_string(worst));
}

// Against the true angle the error is that rounding: below 2^20·2^-52 absolute.
TEST(RopeAngles, TheWholeWayFromBaseToSineIsAccurate) {
  Random random(2);
  for (double base : kBases) {
    std::vector<double> f(64);
    std::vector<float> cos(64), sin(64);
    RopeInverseFrequencies(base, 128, nullptr, f.data());
    for (int i = 0; i < 200; ++i) {
      const uint32_t position = static_cast<uint32_t>(random.Below(1 << 20));
      RopeAngles(position, f.data(), 64, cos.data(), sin.data());
      for (uint32_t j = 0; j < 64; ++j) {
        const long double angle =
            position * std::pow(static_cast<long double>(base), -2.0L * j / 128.0L);
        EXPECT_NEAR(static_cast<double>(cos[j]), static_cast<double>(std::cos(angle)),
                    0x1p-25 + 0x1p-32);
        EXPECT_NEAR(static_cast<double>(sin[j]), static_cast<double>(std::sin(angle)),
                    0x1p-25 + 0x1p-32);
      }
    }
  }
}

// Multiples of π/2 to the last bit, where the reduction cancels most.
TEST(RopeAngles, AnglesNextToMultiplesOfHalfPiKeepTheirSines) {
  const long double half_pi = std::acos(-1.0L) / 2;
  for (uint32_t k : {1u, 2u, 3u, 4u, 1000u, 65537u, 667543u}) {
    const double f = static_cast<double>(half_pi * k);
    float cos, sin;
    RopeAngles(1, &f, 1, &cos, &sin);
    const long double small =
        k % 2 == 0 ? std::sin(static_cast<long double>(f)) : std::cos(static_cast<long double>(f));
    const float got = k % 2 == 0 ? sin : cos;
    EXPECT_NEAR(static_cast<double>(got / small), 1.0, 0x1p-20) << k;
  }
}

}  // namespace
}  // namespace tessera
