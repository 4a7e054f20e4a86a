// SPDX-License-Identifier: Apache-2.0
//
// The largest single operator new of this thread since it was last set to 0; counting is built into
// the test binary by largest_allocation.cc.
#pragma once

#include <cstddef>

namespace tessera::testing {

extern thread_local size_t largest_allocation_bytes;

}  // namespace tessera::testing
