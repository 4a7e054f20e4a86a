// SPDX-License-Identifier: Apache-2.0
#include "memory/store/arena_layout.h"

#include <gtest/gtest.h>

#include "memory/geometry/model_shapes.h"

namespace tessera::store {
namespace {

Organisation D0(uint64_t budget_bytes) {
  return MakeOrganisation(OrganisationSpec::Parse("d0").value(), testing::Harbour(StateType::kF32),
                          budget_bytes)
      .value();
}

TEST(ArenaLayout, ASecondPoolStartsOnAHugePageWhenTheBudgetHasRoom) {
  // Pools smaller than their shares leave room for the padding between them.
  const uint64_t budget = 64 * kMiB;
  Organisation table = D0(budget);
  table.pools[0].page_count -= 100;
  table.pools[1].page_count -= 20;
  const ArenaLayout layout = LayOutPools(table, budget);
  EXPECT_EQ(layout.pool_start[0], 0u);
  EXPECT_EQ(layout.pool_start[1] % (2 * kMiB), 0u);
  EXPECT_LE(layout.bytes, budget);
}

TEST(ArenaLayout, ATightBudgetIsNeverExceededByAlignment) {
  for (uint64_t budget = 400'000; budget < 3'000'000; budget += 12'345) {
    const Organisation table = D0(budget);
    const ArenaLayout layout = LayOutPools(table, budget);
    const uint64_t first_bytes = table.pools[0].page_count * table.page_bytes_all_planes(0);
    EXPECT_LE(layout.bytes, budget);
    EXPECT_GE(layout.pool_start[1], first_bytes);
    EXPECT_EQ(layout.pool_start[1] % 64, 0u);
    EXPECT_EQ(layout.bytes,
              layout.pool_start[1] + table.pools[1].page_count * table.page_bytes_all_planes(1));
  }
}

TEST(ArenaLayout, PoolsOfOddUnitsDoNotOverlapInABudgetWithoutSlack) {
  StateShape shape = testing::Harbour(StateType::kF32);
  shape.kv_heads = 1;
  shape.head_dim = 6;  // groups of 384 B
  const OrganisationSpec spec = OrganisationSpec::Parse("d0").value();
  const std::vector<uint64_t> pages = {95, 1};
  const uint64_t budget = BudgetForPages(DescribeOrganisation(spec, shape).value(), pages);
  const Organisation table = MakeOrganisation(spec, shape, budget).value();
  const uint64_t first_bytes = table.pools[0].page_count * table.page_bytes_all_planes(0);
  ASSERT_NE(first_bytes % (4 * kKiB), 0u);
  EXPECT_GE(LayOutPools(table, budget).pool_start[1], first_bytes);
  EXPECT_EQ(LayOutPools(table, budget).pool_start[1] % 64, 0u);
  // Exactly what the pools take, and nothing for alignment.
  const uint64_t bare = first_bytes + table.pools[1].page_count * table.page_bytes_all_planes(1);
  EXPECT_EQ(LayOutPools(table, bare).pool_start[1], first_bytes);
}

TEST(ArenaLayout, OnePoolTakesExactlyItsPages) {
  const Organisation table =
      MakeOrganisation({}, testing::Harbour(StateType::kF32), 100'000).value();
  EXPECT_EQ(LayOutPools(table, 100'000).bytes, 4u * 5 * 4096);
}

}  // namespace
}  // namespace tessera::store
