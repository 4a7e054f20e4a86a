// SPDX-License-Identifier: Apache-2.0
//
// ArenaLayout says where in the arena each pool starts, and the kept rows after them. Pools lie one
// after another, each planes × pages × unit bytes. A start on 2 MiB lets a pool's 2 MiB blocks be huge pages; where the padding
// for that would exceed the budget (D0's second pool in a tight budget) the start is aligned to
// 4 KiB, or else to the 64 bytes that vectors need, which no unit can miss.
//
// A1  bytes <= budget: padding never takes more than the pools leave.
//
// The system maps whole 4 KiB pages, so a budget that is no multiple of 4 KiB may be passed by less
// than one of them at the arena's end.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/geometry/organisation.h"

namespace tessera::store {

struct ArenaLayout {
  std::vector<uint64_t> pool_start;
  uint64_t rows_start = 0;
  uint64_t bytes = 0;
};

// `row_bytes` of kept rows, a multiple of 64, are part of the budget.
ArenaLayout LayOutPools(const Organisation& table, uint64_t budget_bytes, uint64_t row_bytes = 0);

}  // namespace tessera::store
