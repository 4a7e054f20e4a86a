// SPDX-License-Identifier: Apache-2.0
//
// ScopedFloatEnvironment sets this thread's MXCSR to what the numerics contract assumes (round to
// nearest even, denormals flushed on output and read as zero, exceptions masked) and restores the
// caller's value when it goes. vdpbf16ps behaves so whatever MXCSR says; fma does not, and the two
// must agree bit for bit. Every entry that computes holds one; worker threads hold one for life.
//
// Threads: affects the thread that makes it, which must also destroy it.
#pragma once

#include <cstdint>

namespace tessera {

class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment();
  ~ScopedFloatEnvironment();
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
  uint32_t saved_;
};

}  // namespace tessera
