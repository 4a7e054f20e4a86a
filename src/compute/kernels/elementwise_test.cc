// SPDX-License-Identifier: Apache-2.0
//
// Norm, roundings, gates, rotary embedding, discretisation against the formulas.
#include <xmmintrin.h>

#include <numeric>

#include "compute/kernels/oracle.h"
#include "compute/kernels/test_support.h"

namespace tessera::testing {
namespace {

class Elementwise : public KernelTest {};
TESSERA_KERNEL_TEST_SUITE(Elementwise);

constexpr uint32_t kSizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 100, 257};

TEST_P(Elementwise, NormIsTheFormula) {
  Random random(1);
  for (Data data : kAllData) {
    for (uint32_t n : kSizes) {
      const std::vector<float> x = Floats(random, n, data);
      const std::vector<float> w = Floats(random, n, Data::kPlain);
      std::vector<float> lanes(16, 0.0f);
      for (uint32_t i = 0; i < n; ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
      const float scale = 1.0f / std::sqrt(oracle::Tree(lanes) / static_cast<float>(n) + 1e-5f);
      std::vector<float> want(n), got(n);
      for (uint32_t i = 0; i < n; ++i) want[i] = x[i] * scale * w[i];
      table().rms_norm(x.data(), w.data(), n, 1e-5f, got.data());
      EXPECT_TRUE(SameBits(got, want)) << n;
    }
  }
}

TEST_P(Elementwise, Bf16RoundingsAreTheIntegerRule) {
  Random random(2);
  for (uint32_t n : kSizes) {
    std::vector<float> x(n);
    for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(random.Next()));
    std::vector<uint16_t> got(n + 1, 0xABCD), scaled(n + 1, 0xABCD);
    table().to_bf16(x.data(), n, got.data());
    for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(got[i], FloatToBf16(x[i])) << std::hex << x[i];
    for (float& v : x) v = AwkwardFloat(random, Data::kWide);
    table().scale_to_bf16(x.data(), 0.088388346f, n, scaled.data());
    for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(scaled[i], FloatToBf16(x[i] * 0.088388346f));
    EXPECT_EQ(got[n], 0xABCD);
    EXPECT_EQ(scaled[n], 0xABCD);
  }
}

TEST_P(Elementwise, Int8BlocksAreTheFormulaAndPaddedWithZeros) {
  Random random(3);
  for (Data data : kAllData) {
    for (uint32_t n : kSizes) {
      std::vector<float> x = Floats(random, n, data);
      if (n > 32) std::fill_n(x.begin(), 32, n % 2 == 0 ? 0.0f : -0.0f);
      const uint32_t padded = (n + 31) / 32 * 32;
      std::vector<int8_t> got(padded, 99);
      std::vector<float> scales(padded / 32, -1.0f);
      std::vector<int32_t> sums(padded / 32, 12345);
      table().to_int8(x.data(), n, got.data(), scales.data(), sums.data());
      for (uint32_t b = 0; b < padded; b += 32) {
        float amax = 0;
        for (uint32_t i = b; i < std::min(n, b + 32); ++i) amax = std::max(amax, std::abs(x[i]));
        const float d = amax / 127.0f;
        EXPECT_EQ(BitsOf(scales[b / 32]), BitsOf(d));
        for (uint32_t i = b; i < b + 32; ++i) {
          const float q = d == 0 || i >= n ? 0.0f : std::nearbyint(x[i] * (1.0f / d));
          ASSERT_EQ(got[i], static_cast<int>(q)) << "n " << n << " i " << i;
        }
        EXPECT_EQ(sums[b / 32], -std::accumulate(&got[b], &got[b] + 32, 0));
      }
    }
  }
}

TEST_P(Elementwise, Int8SuperBlocksAreTheFormulaWithTheirSums) {
  Random random(13);
  for (Data data : kAllData) {
    std::vector<float> x = Floats(random, 1024, data);
    std::fill_n(x.begin() + 256, 256, -0.0f);
    std::fill_n(x.begin() + 512, 256, -1.5f);  // the largest sums: 32 times 127
    std::vector<int8_t> got(1024, 99);
    std::vector<float> scales(4, -1.0f);
    std::vector<int32_t> sums(4 * kKSumWords, 12345);
    table().to_int8_k(x.data(), 1024, got.data(), scales.data(), sums.data());
    for (uint32_t b = 0; b < 4; ++b) {
      float amax = 0;
      for (uint32_t i = 0; i < 256; ++i) amax = std::max(amax, std::abs(x[b * 256 + i]));
      const float d = amax / 127.0f;
      EXPECT_EQ(BitsOf(scales[b]), BitsOf(d));
      const int8_t* q = &got[b * 256];
      for (uint32_t i = 0; i < 256; ++i) {
        const float want = d == 0 ? 0.0f : std::nearbyint(x[b * 256 + i] * (1.0f / d));
        ASSERT_EQ(q[i], static_cast<int>(want)) << "block " << b << " i " << i;
      }
      const int32_t* words = &sums[b * kKSumWords];
      for (uint32_t i = 0; i < 16; ++i) {
        EXPECT_EQ(words[i], -std::accumulate(q + i * 16, q + i * 16 + 16, 0));
      }
      const auto* bytes = reinterpret_cast<const int8_t*>(words + 16);
      for (uint32_t s = 0; s < 8; ++s) {
        EXPECT_EQ(64 * bytes[8 + s] + bytes[s], words[2 * s] + words[2 * s + 1]);
        EXPECT_TRUE(bytes[s] >= -32 && bytes[s] < 32);
      }
    }
  }
}

TEST_P(Elementwise, GateAndResidualAreTheFormula) {
  Random random(4);
  for (Data data : kAllData) {
    for (uint32_t n : kSizes) {
      const std::vector<float> a = Floats(random, n, data);
      const std::vector<float> b = Floats(random, n, data);
      const std::vector<float> r = Floats(random, n, data);
      std::vector<float> want(n), got(n);
      for (uint32_t i = 0; i < n; ++i) want[i] = oracle::Silu(a[i]) * b[i];
      table().silu_mul(a.data(), b.data(), n, got.data());
      EXPECT_TRUE(SameBits(got, want));
      for (uint32_t i = 0; i < n; ++i) want[i] = r[i] + (a[i] + b[i]);
      got = r;
      table().add_residual(a.data(), b.data(), n, got.data());
      EXPECT_TRUE(SameBits(got, want));
      for (uint32_t i = 0; i < n; ++i) want[i] = r[i] + a[i];
      got = r;
      table().add_residual(a.data(), nullptr, n, got.data());
      EXPECT_TRUE(SameBits(got, want));
    }
  }
}

TEST_P(Elementwise, RopeRotatesPairsOfBothKindsAndLeavesTheRest) {
  Random random(5);
  for (bool neox : {true, false}) {
    for (uint32_t n_rot : {2u, 6u, 16u, 32u, 34u, 64u, 80u, 128u}) {
      const uint32_t half = n_rot / 2;
      const std::vector<float> head = Floats(random, n_rot + 5, Data::kPlain);
      const std::vector<float> cos = Floats(random, half, -1.0f, 1.0f);
      const std::vector<float> sin = Floats(random, half, -1.0f, 1.0f);
      std::vector<float> want = head, got = head;
      for (uint32_t j = 0; j < half; ++j) {
        const uint32_t ia = neox ? j : 2 * j;
        const uint32_t ib = neox ? j + half : 2 * j + 1;
        want[ia] = std::fma(-head[ib], sin[j], head[ia] * cos[j]);
        want[ib] = std::fma(head[ia], sin[j], head[ib] * cos[j]);
      }
      table().rope(got.data(), n_rot, neox, cos.data(), sin.data());
      EXPECT_TRUE(SameBits(got, want)) << n_rot;
    }
  }
}

TEST_P(Elementwise, DiscretizeIsTheFormula) {
  Random random(6);
  for (uint32_t n : kSizes) {
    const std::vector<float> dt = Floats(random, n, -30.0f, 30.0f);
    const std::vector<float> bias = Floats(random, n, -3.0f, 3.0f);
    const std::vector<float> a = Floats(random, n, -16.0f, -0.01f);
    std::vector<float> want_delta(n), want_decay(n), delta(n), decay(n);
    for (uint32_t i = 0; i < n; ++i) {
      want_delta[i] = oracle::Softplus(dt[i] + bias[i]);
      want_decay[i] = oracle::Exp(want_delta[i] * a[i]);
    }
    table().discretize(dt.data(), bias.data(), a.data(), n, delta.data(), decay.data());
    EXPECT_TRUE(SameBits(delta, want_delta));
    EXPECT_TRUE(SameBits(decay, want_decay));
  }
}

// A NaN that rounding to int8 dropped would make a broken model look like a working one.
TEST_P(Elementwise, Int8BlocksWithANanOrAnInfinityHaveAnInfiniteScale) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), inf, -inf}) {
    for (uint32_t at = 0; at < 64; ++at) {
      std::vector<float> x(64, 1.0f);
      x[at] = bad;
      std::vector<int8_t> y(64);
      std::vector<float> scales(2);
      std::vector<int32_t> sums(2);
      table().to_int8(x.data(), 64, y.data(), scales.data(), sums.data());
      EXPECT_EQ(scales[at / 32], inf) << bad << " at " << at;
      EXPECT_EQ(scales[1 - at / 32], 1.0f / 127.0f);
    }
  }
}

TEST_P(Elementwise, Int8SuperBlocksWithANanOrAnInfinityHaveAnInfiniteScale) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), inf, -inf}) {
    for (uint32_t at = 0; at < 512; ++at) {
      std::vector<float> x(512, 1.0f);
      x[at] = bad;
      std::vector<int8_t> y(512);
      std::vector<float> scales(2);
      std::vector<int32_t> sums(2 * kKSumWords);
      table().to_int8_k(x.data(), 512, y.data(), scales.data(), sums.data());
      EXPECT_EQ(scales[at / 256], inf) << bad << " at " << at;
      EXPECT_EQ(scales[1 - at / 256], 1.0f / 127.0f);
    }
  }
}

// exp through the decay of discretize: Δ = x for x > 20, then exp(x·a) with a = 1/32 … reaches
// every argument of interest without a way of calling exp alone.
float KernelExp(const KernelTable& table, float x) {
  const float dt = 32, bias = 0, a = x / 32;
  float delta, decay;
  table.discretize(&dt, &bias, &a, 1, &delta, &decay);
  return decay;
}

double UlpsOff(float got, long double want) {
  const double ulp = std::ldexp(1.0, std::ilogb(static_cast<float>(want)) - 23);
  return static_cast<double>(std::abs(static_cast<long double>(got) - want)) / ulp;
}

TEST_P(Elementwise, ExpIsWithinOneUlp) {
  double worst = 0;
  for (float x = -87.3f; x < 88.7f; x += 0.00317f) {
    const float exact_input = x / 32 * 32;
    worst = std::max(
        worst, UlpsOff(KernelExp(table(), x), std::exp(static_cast<long double>(exact_input))));
  }
  EXPECT_LT(worst, 1.0);
  RecordProperty("worst_ulps", std::to_string(worst));
}

TEST_P(Elementwise, ExpAtTheEdges) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(BitsOf(KernelExp(table(), 0.0f)), BitsOf(1.0f));
  EXPECT_EQ(BitsOf(KernelExp(table(), -0.0f)), BitsOf(1.0f));
  EXPECT_EQ(BitsOf(KernelExp(table(), -87.5f)), 0u);
  EXPECT_EQ(BitsOf(KernelExp(table(), -1e30f)), 0u);
  EXPECT_EQ(BitsOf(KernelExp(table(), -inf)), 0u);
  EXPECT_GE(KernelExp(table(), -87.3125f), std::numeric_limits<float>::min());
  EXPECT_LT(KernelExp(table(), 88.72283172607421875f), inf);
  EXPECT_EQ(KernelExp(table(), 88.75f), inf);
  EXPECT_EQ(KernelExp(table(), 1e30f), inf);
  EXPECT_EQ(KernelExp(table(), inf), inf);
  EXPECT_TRUE(std::isnan(KernelExp(table(), std::bit_cast<float>(0x7FC00123u))));
}

TEST_P(Elementwise, SoftplusIsWithinTwoUlps) {
  double worst = 0;
  const float bias = 0, a = -1;
  for (float x = -80.0f; x < 25.0f; x += 0.00117f) {
    float delta, decay;
    table().discretize(&x, &bias, &a, 1, &delta, &decay);
    worst = std::max(worst, UlpsOff(delta, std::log1p(std::exp(static_cast<long double>(x)))));
  }
  EXPECT_LT(worst, 2.0);
  RecordProperty("worst_ulps", std::to_string(worst));
}

}  // namespace
}  // namespace tessera::testing
