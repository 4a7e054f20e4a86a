// SPDX-License-Identifier: Apache-2.0
#include "memory/store/state_need.h"

#include <algorithm>
#include <limits>

namespace tessera::store {
namespace {

uint32_t Saturate(uint64_t count) {
  return static_cast<uint32_t>(std::min<uint64_t>(count, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

uint32_t ImagePages(const Organisation& table, const Terms& terms) {
  return table.state_pool < 0 ? 0 : table.state_pages + terms.extra_image_pages;
}

StateNeed NeedOf(const Organisation& table, const Terms& terms) {
  std::vector<uint64_t> pages(table.pools.size(), 0);
  StateNeed need;
  if (table.attention_pool >= 0) {
    pages[static_cast<size_t>(table.attention_pool)] += table.AttentionPages(terms.max_tokens);
  }
  if (table.state_pool >= 0) {
    pages[static_cast<size_t>(table.state_pool)] +=
        uint64_t{terms.images()} * ImagePages(table, terms);
    need.slots = table.slot_bytes > 0 ? terms.images() : 0;
  }
  need.bytes = need.slots * table.slot_bytes * table.planes;
  for (size_t i = 0; i < pages.size(); ++i) {
    need.pages.push_back(Saturate(pages[i]));
    // Saturates for token counts that no store can hold.
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(pages[i], table.page_bytes_all_planes(static_cast<int>(i)),
                               &bytes) ||
        __builtin_add_overflow(need.bytes, bytes, &need.bytes)) {
      need.bytes = std::numeric_limits<uint64_t>::max();
    }
  }
  return need;
}

std::vector<uint64_t> PagesFor(const Organisation& table, const StateNeed& need,
                               uint64_t sequences) {
  std::vector<uint64_t> pages;
  for (uint32_t count : need.pages) pages.push_back(count * sequences);
  if (need.slots > 0) {
    pages[static_cast<size_t>(table.state_pool)] +=
        DivideUp(need.slots * sequences, table.slots_per_page);
  }
  return pages;
}

uint64_t PoolBytesOf(const Organisation& table, const Terms& terms, uint64_t sequences) {
  std::vector<uint64_t> pages = PagesFor(table, NeedOf(table, terms), sequences);
  for (uint64_t& count : pages) {
    if (count > kMaxPoolIndices) return std::numeric_limits<uint64_t>::max();
    count = std::max<uint64_t>(count, 1);  // a store has a page of every pool, needed or not
  }
  return BudgetForPages(table, pages);
}

}  // namespace tessera::store
