// SPDX-License-Identifier: Apache-2.0
#include "server/capacity.h"

#include <algorithm>
#include <limits>

namespace tessera {
namespace {

bool Fits(const Organisation& table, uint64_t sequences, uint64_t tokens) {
  for (size_t pool = 0; pool < table.pools.size(); ++pool) {
    uint64_t pages = 0;
    if (static_cast<int>(pool) == table.attention_pool) {
      pages += sequences * table.AttentionPages(tokens);
    }
    if (static_cast<int>(pool) == table.state_pool) {
      pages += sequences * table.state_pages;
      if (table.slot_bytes > 0) pages += DivideUp(sequences, table.slots_per_page);
    }
    if (pages > table.pools[pool].page_count) return false;
  }
  return true;
}

// The largest x in [0, limit] with fits(x), which holds for every smaller one too.
template <typename Predicate>
uint64_t Largest(uint64_t limit, Predicate fits) {
  uint64_t low = 0;
  uint64_t high = limit;
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

uint64_t SequencesThatFit(const Organisation& organisation, uint64_t tokens) {
  // Every sequence takes a page or a slot of one at least, so slots bound the count.
  uint64_t limit = 0;
  for (const PoolTable& pool : organisation.pools) {
    limit += uint64_t{pool.page_count} * std::max<uint32_t>(organisation.slots_per_page, 1);
  }
  return Largest(limit, [&](uint64_t n) { return Fits(organisation, n, tokens); });
}

uint64_t TokensThatFit(const Organisation& organisation, uint64_t limit) {
  if (!Fits(organisation, 1, 0)) return 0;
  return Largest(limit, [&](uint64_t tokens) { return Fits(organisation, 1, tokens); });
}

}  // namespace tessera
