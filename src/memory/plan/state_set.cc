// SPDX-License-Identifier: Apache-2.0
#include "memory/plan/state_set.h"

#include <algorithm>
#include <limits>

namespace tessera {
namespace {

constexpr uint64_t kMany = std::numeric_limits<uint64_t>::max();

uint64_t Multiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMany : product;
}

uint64_t Add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMany : sum;
}

uint64_t AttentionPagesOf(const Organisation& table, const StateSet& set, uint64_t copies) {
  return Multiply(copies, Multiply(set.attention_blocks, table.AttentionPages(set.block_tokens)));
}

// Slab pages whole: slots of different copies share them.
uint64_t StatePagesOf(const Organisation& table, const StateSet& set, uint64_t copies) {
  if (table.state_pool < 0) return 0;
  const uint64_t checkpoints = Multiply(copies, set.checkpoints);
  uint64_t pages = Multiply(checkpoints, table.state_pages);
  if (table.slots_per_page > 0) {
    pages = Add(pages, checkpoints / table.slots_per_page +
                           (checkpoints % table.slots_per_page > 0 ? 1 : 0));
  }
  return pages;
}

uint64_t PagesOf(const Organisation& table, int pool) {
  return pool < 0 ? 0 : table.pools[static_cast<size_t>(pool)].page_count;
}

bool Fit(const Organisation& table, const StateSet& set, uint64_t copies) {
  const uint64_t attention = AttentionPagesOf(table, set, copies);
  const uint64_t state = StatePagesOf(table, set, copies);
  if (table.attention_pool == table.state_pool) {
    return Add(attention, state) <= PagesOf(table, table.state_pool);
  }
  // A kind without a pool takes no pages, and there are none.
  return attention <= PagesOf(table, table.attention_pool) &&
         state <= PagesOf(table, table.state_pool);
}

}  // namespace

uint64_t IdealBytes(const StateShape& shape, const StateSet& set) {
  return set.attention_blocks * set.block_tokens * shape.kv_bytes_per_token_layer() *
             shape.attention_layers +
         set.checkpoints * (shape.ssm_bytes() + shape.conv_bytes());
}

uint64_t CopiesOf(const Organisation& table, const StateSet& set) {
  if (AttentionPagesOf(table, set, 1) == 0 && StatePagesOf(table, set, 1) == 0) return kMany;
  uint64_t low = 0;
  uint64_t high = kMaxPoolIndices;  // pages and slots of any pool, and a copy takes one at least
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    if (Fit(table, set, middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Copies that the attention pool holds grow with its share, those of the state pool fall: the least
// of both is greatest where they cross.
BestSplit BestSplitFor(const StateShape& shape, const StateSet& set, uint64_t budget_bytes) {
  OrganisationSpec spec;
  spec.kind = OrganisationSpec::Kind::kD0;
  Organisation table = DescribeOrganisation(spec, shape).value();
  TESSERA_CHECK(table.pools.size() == 2);
  const auto copies_with = [&](uint64_t share, StateSet part) {
    table.pools[0].share = share;
    const std::vector<uint64_t> bytes = PoolBytes(table, budget_bytes);
    for (size_t i = 0; i < bytes.size(); ++i) {
      table.pools[i].page_count = static_cast<uint32_t>(
          std::min(bytes[i] / table.page_bytes_all_planes(static_cast<int>(i)), kMaxPoolIndices));
    }
    return CopiesOf(table, part);
  };
  const StateSet attention = {set.attention_blocks, 0, set.block_tokens};
  const StateSet state = {0, set.checkpoints, set.block_tokens};
  uint64_t low = 1;
  uint64_t high = kShareScale - 1;
  while (low < high) {  // the least share whose attention pool holds as many as the state pool
    const uint64_t middle = low + (high - low) / 2;
    if (copies_with(middle, attention) >= copies_with(middle, state)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  BestSplit best;
  for (uint64_t share : {low, std::max<uint64_t>(low, 2) - 1}) {
    const uint64_t copies = copies_with(share, set);
    if (copies <= best.copies && best.split > 0) continue;
    best = {static_cast<double>(share) / static_cast<double>(kShareScale), copies};
  }
  return best;
}

uint64_t S3BoundBytes(const Organisation& s3, const StateSet& set) {
  uint64_t bytes = 0;
  if (s3.state_pool >= 0) {
    bytes = Multiply(set.checkpoints, s3.page_bytes_all_planes(s3.state_pool));
  }
  if (s3.attention_pool >= 0) {
    const uint64_t block_groups = DivideUp(set.block_tokens, kGroupTokens);
    const uint64_t rounding = uint64_t{s3.AttentionPages(set.block_tokens)} *
                                  s3.page_bytes_all_planes(s3.attention_pool) -
                              block_groups * s3.group_bytes * s3.planes;
    bytes = Add(bytes, Multiply(set.attention_blocks, rounding));
  }
  return bytes;
}

}  // namespace tessera
