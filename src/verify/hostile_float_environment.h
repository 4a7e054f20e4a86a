// SPDX-License-Identifier: Apache-2.0
//
// What an embedding program may have set before it calls us: denormals kept, another rounding mode,
// exceptions that trap. The library must not care, and must put it back: neither while a step runs
// nor while what is made once (rotary frequencies, tables) is made.
//
// Threads: HostileFloatEnvironment affects the thread that makes it, which must also destroy it.
#pragma once

#include <xmmintrin.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

struct FloatMode {
  std::string_view name;
  uint32_t mxcsr = 0;
  bool traps = false;

  // True when it alone can change a result that has no denormals in it.
  bool rounds_otherwise() const { return (mxcsr & 0x6000u) != 0; }
};

// None flushes denormals. The last traps on everything but inexact results, which no program could
// run with.
inline constexpr FloatMode kFloatModes[] = {
    {"denormals kept", 0x1F80},        {"rounding down", 0x1F80 | 0x2000},
    {"rounding up", 0x1F80 | 0x4000},  {"rounding toward zero", 0x1F80 | 0x6000},
    {"exceptions trap", 0x1000, true},
};
// The one under which everything that is made once is made.
inline constexpr const FloatMode& kTowardZero = kFloatModes[3];

// Everything but the sticky flags of what has happened.
inline constexpr uint32_t kFloatControlBits = 0xFFC0;

class HostileFloatEnvironment {
 public:
  // Null: the caller's stays.
  explicit HostileFloatEnvironment(const FloatMode* mode) : saved_(_mm_getcsr()) {
    if (mode != nullptr) _mm_setcsr(mode->mxcsr);
    set_ = _mm_getcsr() & kFloatControlBits;
  }
  ~HostileFloatEnvironment() { _mm_setcsr(saved_); }
  HostileFloatEnvironment(const HostileFloatEnvironment&) = delete;
  HostileFloatEnvironment& operator=(const HostileFloatEnvironment&) = delete;

  // What was set, and what is there now: the same when whoever was called put it back.
  uint32_t set() const { return set_; }
  uint32_t now() const { return _mm_getcsr() & kFloatControlBits; }

 private:
  const uint32_t saved_;
  uint32_t set_ = 0;
};

}  // namespace tessera
