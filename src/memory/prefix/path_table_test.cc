// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/path_table.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace tessera {
namespace {

uint32_t FindNode(const PathTable& table, uint64_t hash, uint32_t node) {
  return table.Find(hash, [node](uint32_t other) { return other == node; });
}

TEST(PathTable, EveryNodeIsFoundAfterAnyInsertsAndErasures) {
  // As full as it gets, and most hashes name the last bins: what overflows goes round the end, and
  // an Erase moves back what lies behind bins that were full.
  constexpr uint32_t kNodes = 96;
  PathTable table(kNodes);
  Random random(5);
  std::map<uint32_t, uint64_t> twin;  // node -> hash
  for (int i = 0; i < 200'000; ++i) {
    const uint32_t node = static_cast<uint32_t>(random.Below(kNodes));
    const auto it = twin.find(node);
    if (it != twin.end()) {
      ASSERT_EQ(FindNode(table, it->second, node), node) << i;
      table.Erase(it->second, node);
      ASSERT_EQ(FindNode(table, it->second, node), PathTable::kNone) << i;
      twin.erase(it);
    } else {
      const uint64_t tag = random.Below(4) == 0 ? random.Below(1 << 20) : 28 + random.Below(4);
      table.Insert(tag, node);
      twin[node] = tag;
    }
    if (i % 16 != 0) continue;
    for (const auto& [other, hash] : twin) ASSERT_EQ(FindNode(table, hash, other), other) << i;
    ASSERT_EQ(table.CountNodes(), twin.size());
  }
}

TEST(PathTable, NodesOfOneHashAreAllOfferedUntilOneIsMeant) {
  PathTable table(30);
  for (uint32_t node = 0; node < 20; ++node) table.Insert(7, node);
  for (uint32_t node = 0; node < 20; ++node) EXPECT_EQ(FindNode(table, 7, node), node);
  uint32_t offered = 0;
  EXPECT_EQ(table.Find(7, [&](uint32_t) { return ++offered == 0; }), PathTable::kNone);
  EXPECT_EQ(offered, 20u);
  EXPECT_EQ(table.Find(8, [](uint32_t) { return true; }), PathTable::kNone);
}

TEST(PathTable, APathIsRememberedByItsUpperHalfUntilAnotherTakesItsPlace) {
  PathTable table(30);
  const uint64_t hash = uint64_t{0x4000'0001} << 32 | 3;
  EXPECT_FALSE(table.Remembers(hash));
  EXPECT_FALSE(table.Remembers(3));  // a fingerprint of zero is none
  table.Remember(hash);
  table.Insert(hash, 1);
  table.Erase(hash, 1);
  EXPECT_TRUE(table.Remembers(hash));
  EXPECT_FALSE(table.Remembers(hash + (uint64_t{1} << 32)));
  EXPECT_FALSE(table.Remembers(hash + 1));     // of another bin
  table.Remember(hash ^ (uint64_t{1} << 63));  // another of the four places
  EXPECT_TRUE(table.Remembers(hash));
  table.Remember(hash + (uint64_t{1} << 32));
  EXPECT_FALSE(table.Remembers(hash));
}

}  // namespace
}  // namespace tessera
