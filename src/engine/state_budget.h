// SPDX-License-Identifier: Apache-2.0
//
// How many bytes of state the engine asks for, decided from metadata alone, before a weight is
// read: an impossible budget is refused in milliseconds with the number that would do.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "memory/geometry/kept_rows.h"
#include "memory/geometry/organisation.h"

namespace tessera {

struct BudgetRequest {
  OrganisationSpec organisation;
  StateShape shape;
  KeptRows rows;                 // carved from the budget before the pools
  uint64_t asked_bytes = 0;      // 0: choose
  uint64_t available_bytes = 0;  // what the process may still take, weights not loaded
  uint64_t fixed_bytes = 0;      // weights and activations that will be taken from it
  uint32_t max_running = 16;
  uint32_t context_length = 0;
};

struct Budget {
  uint64_t bytes = 0;
  std::string rule;  // one line for people
};

// Asked for: that. Otherwise min(half of what is available after the fixed bytes, max_running
// sequences at full context). kNoMemory, with the bytes needed, when not even one sequence of one
// group of tokens fits it, or when it cannot fit in memory.
Result<Budget> ChooseBudget(const BudgetRequest& request);

// The most tokens, up to `context_length`, that one sequence can have in pools of so many bytes:
// what kept rows leave of a budget.
Result<uint32_t> LongestSequence(const StateShape& shape, const OrganisationSpec& organisation,
                                 uint64_t pool_bytes, uint32_t context_length);

}  // namespace tessera
