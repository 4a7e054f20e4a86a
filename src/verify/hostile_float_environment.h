// SPDX-License-Identifier: Apache-2.0
//
// What an embedding program may have set before it calls us: rounding toward zero, denormals kept.
// The library must not care, and must put it back: neither while a step runs nor while what is made
// once (rotary frequencies, tables) is made.
//
// Threads: affects the thread that makes it, which must also destroy it.
#pragma once

#include <xmmintrin.h>

#include <cstdint>

namespace tessera {

class HostileFloatEnvironment {
 public:
  explicit HostileFloatEnvironment(bool on) : saved_(_mm_getcsr()) {
    if (on) _mm_setcsr(kMaskedTowardZero);
  }
  ~HostileFloatEnvironment() { _mm_setcsr(saved_); }
  HostileFloatEnvironment(const HostileFloatEnvironment&) = delete;
  HostileFloatEnvironment& operator=(const HostileFloatEnvironment&) = delete;

 private:
  // All exceptions masked, rounding toward zero, neither flush-to-zero nor denormals-are-zero.
  static constexpr uint32_t kMaskedTowardZero = 0x1F80 | 0x6000;
  const uint32_t saved_;
};

}  // namespace tessera
