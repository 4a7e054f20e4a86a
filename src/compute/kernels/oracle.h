// SPDX-License-Identifier: Apache-2.0
//
// The formulas of kernel_table.h as plain loops over single floats with std::fma: what the kernels
// must reproduce bit for bit. Nothing here shares code with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "compute/tensor/number_formats.h"

namespace tessera::testing::oracle {

// K3 over 16 lanes.
inline float Tree(std::vector<float> t) {
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) t[i] += t[i + width];
  }
  return t[0];
}

inline float Exp(float x) {
  if (std::isnan(x)) return x;
  if (x < -87.3125f) return 0.0f;
  if (x > 88.72283172607421875f) return std::numeric_limits<float>::infinity();
  const float n = std::nearbyint(std::fma(x, 0x1.715476p+0f, 0.0f));
  float r = std::fma(n, -0x1.62e430p-1f, x);
  r = std::fma(n, 0x1.05c610p-29f, r);
  const float c[] = {0x1.6a4b32p-10f, 0x1.12398ep-7f, 0x1.5558b2p-5f, 0x1.555492p-3f,
                     0x1.fffffcp-2f};
  float q = c[0];
  for (int i = 1; i < 5; ++i) q = std::fma(q, r, c[i]);
  const float p = std::fma(r * r, q, r) + 1.0f;
  return std::ldexp(p, static_cast<int>(n));
}

inline float Log(float x) {
  int e = 0;
  float m = std::frexp(x, &e);
  // frexp gives [1/2, 1); the kernels' range is [0x1.6a09e6p-1, 0x1.6a09e6p0).
  if (m < 0x1.6a09e6p-1f) {
    m *= 2;
    e -= 1;
  }
  const float f = m - 1;
  const float n = static_cast<float>(e);
  const float s = f / (f + 2);
  const float z = s * s;
  float r = std::fma(z, 2.0f / 9, 2.0f / 7);
  r = std::fma(z, r, 2.0f / 5);
  r = std::fma(z, r, 2.0f / 3);
  r = z * r;
  const float half_square = f * 0.5f * f;
  const float low = std::fma(n, 0x1.7f7d1cp-20f, s * (half_square + r));
  return std::fma(n, 0x1.62e400p-1f, f - (half_square - low));
}

inline float Softplus(float x) {
  if (x > 20) return x;
  const float z = Exp(x);
  const float u = 1 + z;
  const float lost = z < 1 ? z - (u - 1) : 1 - (u - z);
  return Log(u) + lost / u;
}

inline float Silu(float x) { return x / (1 + Exp(-x)); }

inline float RoundBf16(float x) { return Bf16ToFloat(FloatToBf16(x)); }

// One accumulator over pairs of bf16, odd first; an odd count has a last partner of +0.
inline float ChainBf16(const uint16_t* a, const uint16_t* w, size_t k, float acc = 0) {
  for (size_t i = 0; i < k; i += 2) {
    const bool pair = i + 1 < k;
    acc = std::fma(pair ? Bf16ToFloat(a[i + 1]) : 0.0f, pair ? Bf16ToFloat(w[i + 1]) : 0.0f, acc);
    acc = std::fma(Bf16ToFloat(a[i]), Bf16ToFloat(w[i]), acc);
  }
  return acc;
}

}  // namespace tessera::testing::oracle
