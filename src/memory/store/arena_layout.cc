// SPDX-License-Identifier: Apache-2.0
#include "memory/store/arena_layout.h"

namespace tessera::store {
namespace {

ArenaLayout LayOutAligned(const Organisation& table, uint64_t row_bytes, uint64_t alignment_bytes) {
  ArenaLayout layout;
  for (size_t i = 0; i < table.pools.size(); ++i) {
    const uint64_t start = RoundUp(layout.bytes, alignment_bytes);
    layout.pool_start.push_back(start);
    layout.bytes =
        start + table.pools[i].page_count * table.page_bytes_all_planes(static_cast<int>(i));
  }
  layout.rows_start = layout.bytes;
  layout.bytes += row_bytes;
  return layout;
}

}  // namespace

ArenaLayout LayOutPools(const Organisation& table, uint64_t budget_bytes, uint64_t row_bytes) {
  for (uint64_t alignment_bytes : {2 * kMiB, 4 * kKiB}) {
    ArenaLayout layout = LayOutAligned(table, row_bytes, alignment_bytes);
    if (layout.bytes <= budget_bytes) return layout;
  }
  ArenaLayout layout = LayOutAligned(table, row_bytes, 64);
  TESSERA_CHECK(layout.bytes <= budget_bytes);  // O1, and units are multiples of 64
  return layout;
}

}  // namespace tessera::store
