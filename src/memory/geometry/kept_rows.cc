// SPDX-License-Identifier: Apache-2.0
#include "memory/geometry/kept_rows.h"

#include <limits>

#include "base/bytes.h"

namespace tessera {
namespace {

constexpr uint64_t kBudgetPerRowByte = 100;  // rows take at most a hundredth
constexpr uint64_t kRowAlignment = 64;       // a vector load never leaves the row's unit

}  // namespace

KeptRows::KeptRows(uint32_t width)
    : unit_bytes_(RoundUp(uint64_t{width} * sizeof(float), kRowAlignment)) {}

uint64_t KeptRows::Units(uint64_t budget_bytes) const {
  return unit_bytes_ == 0 ? 0 : budget_bytes / kBudgetPerRowByte / unit_bytes_;
}

uint64_t KeptRows::PoolBytes(uint64_t budget_bytes) const {
  return budget_bytes - Units(budget_bytes) * unit_bytes_;
}

// With k units carved, budgets run up to 100·unit·(k+1) - 1 and leave up to 99·unit·k + 100·unit -
// 1 bytes. The least k that can leave n gives the least budget, n + k·unit: as k - 1 leaves less
// than n, n >= 99·unit·k + unit, so that budget does lie among those that carve k units.
uint64_t KeptRows::BudgetFor(uint64_t pool_bytes) const {
  const uint64_t without_rows = kBudgetPerRowByte * unit_bytes_;  // budgets below it carve none
  if (pool_bytes < without_rows || unit_bytes_ == 0) return pool_bytes;
  const uint64_t period = (kBudgetPerRowByte - 1) * unit_bytes_;
  const uint64_t units = (pool_bytes - without_rows) / period + 1;
  uint64_t budget_bytes = 0;
  // units · unit_bytes is about pool_bytes / 99: only the sum can overflow.
  return __builtin_add_overflow(pool_bytes, units * unit_bytes_, &budget_bytes)
             ? std::numeric_limits<uint64_t>::max()
             : budget_bytes;
}

}  // namespace tessera
