// SPDX-License-Identifier: Apache-2.0
//
// Counts calls of operator new in a test binary that asks: linking AllocationCount replaces the
// global operators with counting ones.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace tessera::testing {

uint64_t AllocationCount();

}  // namespace tessera::testing
