// SPDX-License-Identifier: Apache-2.0
//
// What the system says of this process's memory.
#pragma once

#include <cstdint>

namespace tessera {

uint64_t ResidentBytes();      // VmRSS
uint64_t PeakResidentBytes();  // VmHWM

// What this process can still take: the smaller of what its control groups leave and the
// machine's available memory.
uint64_t AvailableMemoryBytes();

}  // namespace tessera
