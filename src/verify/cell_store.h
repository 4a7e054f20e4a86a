// SPDX-License-Identifier: Apache-2.0
//
// The StateStore of one cell. It holds all sequences of the cell at once, and what they publish for
// each other without evicting any of it: in a cell, what is to be found is known.
//
// Failure: kNoMemory with the bytes needed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "compute/model/model.h"
#include "memory/store/state_store.h"
#include "verify/matrix.h"
#include "verify/workload.h"

namespace tessera {

// Of the sequences that start from a subject's boundaries, so many run beside it; it waits while
// there are more. One boundary brings up to three of them.
inline constexpr uint32_t kAdoptersBeside = 2;
inline constexpr uint32_t kAdoptersMax = kAdoptersBeside + 3;
// How often the first role's sequence is preempted; the others are once. An evicted one computes
// again all that it had.
constexpr uint32_t LeadPreemptions(Reuse reuse) { return reuse == Reuse::kEvicted ? 1 : 3; }

Result<std::unique_ptr<StateStore>> MakeCellStore(const Model& model, StateType state_type,
                                                  const CellSettings& cell,
                                                  const std::vector<Role>& roles,
                                                  const Workload& workload);

}  // namespace tessera
