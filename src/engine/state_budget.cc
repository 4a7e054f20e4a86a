// SPDX-License-Identifier: Apache-2.0
#include "engine/state_budget.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "memory/store/state_store.h"

namespace tessera {

Result<Budget> ChooseBudget(const BudgetRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(
      const uint64_t least_pools,
      StateStore::BudgetForSequences(request.shape, request.organisation, 1, kGroupTokens));
  TESSERA_ASSIGN_OR_RETURN(
      const uint64_t full_pools,
      StateStore::BudgetForSequences(request.shape, request.organisation, request.max_running,
                                     request.context_length));
  const uint64_t least = request.rows.BudgetFor(least_pools);
  const uint64_t full = request.rows.BudgetFor(full_pools);
  const uint64_t left = request.available_bytes > request.fixed_bytes
                            ? request.available_bytes - request.fixed_bytes
                            : 0;
  Budget budget;
  if (request.asked_bytes > 0) {
    budget = {.bytes = request.asked_bytes, .rule = "as asked for"};
  } else if (full <= left / 2) {
    budget = {
        .bytes = full,
        .rule = fmt::format("{} sequence{} at the full context of {} tokens", request.max_running,
                            request.max_running == 1 ? "" : "s", request.context_length)};
  } else {
    budget = {.bytes = left / 2,
              .rule = fmt::format("half of the {} of memory left after weights and activations",
                                  FormatBytes(left))};
  }
  if (request.rows.PoolBytes(budget.bytes) < least_pools) {
    return NoMemory(
        fmt::format("the budget is {} bytes ({}), but the state of one sequence of {} tokens takes "
                    "{} bytes ({}) "
                    "with organisation {}",
                    budget.bytes, budget.rule, kGroupTokens, least, FormatBytes(least),
                    request.organisation.ToString()));
  }
  if (budget.bytes > left) {
    return NoMemory(fmt::format(
        "the budget of {} bytes ({}) beside {} of weights and activations needs {} bytes of "
        "memory, and {} can be had",
        budget.bytes, FormatBytes(budget.bytes), FormatBytes(request.fixed_bytes),
        budget.bytes + request.fixed_bytes, FormatBytes(request.available_bytes)));
  }
  return budget;
}

Result<uint32_t> LongestSequence(const StateShape& shape, const OrganisationSpec& organisation,
                                 uint64_t pool_bytes, uint32_t context_length) {
  uint32_t low = 0;
  uint32_t high = context_length;
  while (low < high) {  // the budget needed never falls as tokens grow
    const uint32_t middle = low + (high - low + 1) / 2;
    TESSERA_ASSIGN_OR_RETURN(const uint64_t needed,
                             StateStore::BudgetForSequences(shape, organisation, 1, middle));
    if (needed <= pool_bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace tessera
