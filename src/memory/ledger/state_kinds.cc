// SPDX-License-Identifier: Apache-2.0
#include "memory/ledger/state_kinds.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tessera {

StateKinds::StateKinds(std::vector<StateKind> kinds) : kinds_(std::move(kinds)) {
  for (const StateKind& kind : kinds_) {
    pools_[Index(kind.entry)].insert(pools_[Index(kind.entry)].end(), kind.pages, kind.pool);
    if (!kind.slot) continue;
    TESSERA_CHECK(kind.entry == EntryType::kCheckpoint && !slot_);
    slot_ = true;
  }
}

StateKinds StateKinds::Of(const Organisation& table, int row_pool) {
  std::vector<StateKind> kinds;
  if (table.attention_pool >= 0) {
    kinds.push_back({"attention", EntryType::kBlock, table.attention_pool, 1, false});
  }
  if (table.state_pool >= 0) {
    kinds.push_back({"ssm and conv", EntryType::kCheckpoint, table.state_pool, table.state_pages,
                     table.slot_bytes > 0});
  }
  if (row_pool >= 0) kinds.push_back({"kept row", EntryType::kRow, row_pool, 1, false});
  return StateKinds(std::move(kinds));
}

uint32_t StateKinds::pages_in(EntryType type, int pool) const {
  const std::span<const int> pools = page_pools(type);
  return static_cast<uint32_t>(std::count(pools.begin(), pools.end(), pool));
}

}  // namespace tessera
