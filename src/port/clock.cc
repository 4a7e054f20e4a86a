// SPDX-License-Identifier: Apache-2.0
#include "port/clock.h"

#include <chrono>

namespace tessera {

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace tessera
