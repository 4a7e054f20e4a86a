// SPDX-License-Identifier: Apache-2.0
//
// The monotonic clock, for timings and waits. Deciding code never reads it.
#pragma once

#include <cstdint>

namespace tessera {

// Nanoseconds since an arbitrary start; never goes back.
uint64_t NowNs();

inline double NsToMs(uint64_t ns) { return static_cast<double>(ns) * 1e-6; }

}  // namespace tessera
