// SPDX-License-Identifier: Apache-2.0
#include "port/float_environment.h"

#include <xmmintrin.h>

namespace tessera {
namespace {

constexpr uint32_t kFlushToZero = 0x8000;
constexpr uint32_t kDenormalsAreZero = 0x0040;
constexpr uint32_t kMaskAllExceptions = 0x1F80;  // rounding bits 13-14 are 00: nearest even

}  // namespace

ScopedFloatEnvironment::ScopedFloatEnvironment() : saved_(_mm_getcsr()) {
  _mm_setcsr(kFlushToZero | kDenormalsAreZero | kMaskAllExceptions);
}

ScopedFloatEnvironment::~ScopedFloatEnvironment() { _mm_setcsr(saved_); }

}  // namespace tessera
