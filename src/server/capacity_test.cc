// SPDX-License-Identifier: Apache-2.0
#include "server/capacity.h"

#include <gtest/gtest.h>

#include "server/startup_summary.h"

namespace tessera {
namespace {

// A shared pool: pages of `groups` groups of 16 tokens, images of two pages and maybe a slot.
Organisation SharedPool(uint32_t pages, uint32_t groups, bool slot) {
  Organisation table;
  table.planes = 2;
  table.pools = {{"shared", 4096, pages}};
  table.attention_pool = 0;
  table.groups_per_page = groups;
  table.state_pool = 0;
  table.state_pages = 2;
  if (slot) {
    table.slot_bytes = 1024;
    table.slots_per_page = 4;
  }
  return table;
}

// Puts sequences in one after another, as long as there are pages.
uint64_t FillSlowly(const Organisation& table, uint64_t tokens) {
  std::vector<uint64_t> free;
  for (const PoolTable& pool : table.pools) free.push_back(pool.page_count);
  for (uint64_t count = 0;; ++count) {
    std::vector<uint64_t> need(free.size(), 0);
    if (table.attention_pool >= 0) {
      need[static_cast<size_t>(table.attention_pool)] += table.AttentionPages(tokens);
    }
    if (table.state_pool >= 0) {
      uint64_t& state = need[static_cast<size_t>(table.state_pool)];
      state += table.state_pages;
      if (table.slot_bytes > 0 && count % table.slots_per_page == 0) ++state;
    }
    for (size_t pool = 0; pool < free.size(); ++pool) {
      if (need[pool] > free[pool]) return count;
      free[pool] -= need[pool];
    }
  }
}

TEST(Capacity, SequencesThatFitEqualsFillingOneByOne) {
  for (bool slot : {false, true}) {
    for (uint32_t pages : {0u, 1u, 2u, 3u, 7u, 24u, 100u, 1001u}) {
      const Organisation table = SharedPool(pages, 2, slot);
      for (uint64_t tokens : {1u, 16u, 32u, 33u, 500u}) {
        EXPECT_EQ(SequencesThatFit(table, tokens), FillSlowly(table, tokens))
            << pages << " pages, " << tokens << " tokens, slot " << slot;
      }
    }
  }
}

TEST(Capacity, TheFullerOfTwoPoolsDecides) {
  Organisation table = SharedPool(10, 1, false);
  table.pools.push_back({"state", 4096, 5});
  table.state_pool = 1;
  table.state_pages = 1;
  EXPECT_EQ(SequencesThatFit(table, 16), 5u);
  EXPECT_EQ(SequencesThatFit(table, 48), 3u);
}

TEST(Capacity, LongestSequenceFillsTheArenaToTheLastPage) {
  // 12 pages − 2 of the image = 10 pages of 2 groups of 16 tokens.
  EXPECT_EQ(TokensThatFit(SharedPool(12, 2, false), 8192), 320u);
  EXPECT_EQ(TokensThatFit(SharedPool(12, 2, true), 8192), 288u);
  EXPECT_EQ(TokensThatFit(SharedPool(12, 2, false), 100), 100u);
  EXPECT_EQ(TokensThatFit(SharedPool(1, 2, false), 8192), 0u);
}

TEST(Capacity, AModelWithoutAttentionIsAsLongAsItsContext) {
  Organisation table = SharedPool(12, 2, false);
  table.attention_pool = -1;
  EXPECT_EQ(TokensThatFit(table, 8192), 8192u);
  EXPECT_EQ(SequencesThatFit(table, 8192), 6u);
}

TEST(StartupSummary, SaysPoolsLongestContextAndHowManyFit) {
  const std::string lines = CapacitySummary(SharedPool(12, 2, false), 8192);
  EXPECT_NE(lines.find("shared: 12 pages"), std::string::npos) << lines;
  EXPECT_NE(lines.find("320 tokens at most"), std::string::npos) << lines;
  EXPECT_NE(lines.find("together: 1\n"), std::string::npos) << lines;
}

}  // namespace
}  // namespace tessera
