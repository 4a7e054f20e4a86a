// SPDX-License-Identifier: Apache-2.0
#include "memory/pool/index_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/random.h"

namespace tessera {
namespace {

// The slow obvious twin of FindRunDown.
IndexSet::Run SlowRunDown(const std::set<uint32_t>& members, uint32_t end, uint32_t least,
                          uint32_t most) {
  uint32_t run_end = end;
  while (run_end > 0) {
    uint32_t begin = run_end;
    while (begin > 0 && run_end - begin < most && members.count(begin - 1) > 0) --begin;
    if (run_end - begin >= least) return {begin, run_end - begin};
    run_end = begin == run_end ? run_end - 1 : begin;
  }
  return {};
}

void CompareFinds(const IndexSet& set, const std::set<uint32_t>& twin, Random* random) {
  const uint32_t size = set.size();
  ASSERT_EQ(set.count(), twin.size());
  const uint32_t at = static_cast<uint32_t>(random->Below(size + 2));
  const auto first = twin.lower_bound(at);
  ASSERT_EQ(set.FindFirst(at), first == twin.end() ? IndexSet::kNone : *first) << at;
  ASSERT_EQ(set.FindLast(at), first == twin.begin() ? IndexSet::kNone : *std::prev(first)) << at;
  const uint32_t to = at + static_cast<uint32_t>(random->Below(200));
  ASSERT_EQ(set.CountIn(at, to), std::distance(first, twin.lower_bound(to))) << at << " " << to;
  const uint32_t least = 1 + static_cast<uint32_t>(random->Below(150));
  const uint32_t most = least + static_cast<uint32_t>(random->Below(100));
  const IndexSet::Run run = set.FindRunDown(at, least, most);
  const IndexSet::Run slow = SlowRunDown(twin, std::min(at, size), least, most);
  ASSERT_EQ(run.length, slow.length) << "end " << at << " least " << least << " most " << most;
  if (slow.length > 0) {
    ASSERT_EQ(run.begin, slow.begin);
  }
}

TEST(IndexSet, RandomStretchesAgreeWithAStdSet) {
  const uint64_t seed = 41;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (uint32_t size : {1u, 63u, 64u, 65u, 300u, 4096u, 5000u}) {
    IndexSet set(size);
    std::set<uint32_t> twin;
    for (int op = 0; op < 600; ++op) {
      // A stretch at a time, so that runs of every length and alignment come up.
      const uint32_t begin = static_cast<uint32_t>(random.Below(size));
      const uint32_t end =
          std::min<uint32_t>(size, begin + 1 + static_cast<uint32_t>(random.Below(160)));
      const bool insert = random.Below(2) == 0;
      for (uint32_t i = begin; i < end; ++i) {
        if (insert && twin.insert(i).second) set.Insert(i);
        if (!insert && twin.erase(i) > 0) set.Erase(i);
      }
      for (int probe = 0; probe < 8; ++probe) CompareFinds(set, twin, &random);
      ASSERT_TRUE(set.IsConsistent());
    }
  }
}

TEST(IndexSet, ARunDoesNotJumpOverAnEmptyWord) {
  IndexSet set(256);
  for (uint32_t i = 120; i < 128; ++i) set.Insert(i);  // to the top of word 1
  for (uint32_t i = 192; i < 200; ++i) set.Insert(i);  // from the bottom of word 3
  EXPECT_EQ(set.FindRunDown(256, 9, 16).length, 0u);
  EXPECT_EQ(set.FindRunDown(256, 8, 16).begin, 192u);
}

TEST(IndexSet, InsertAllMakesEveryIndexAMemberAndNoMore) {
  for (uint32_t size : {0u, 1u, 64u, 65u, 4097u}) {
    IndexSet set(size);
    set.InsertAll();
    EXPECT_EQ(set.count(), size);
    EXPECT_TRUE(set.IsConsistent());
    EXPECT_EQ(set.FindLast(size + 100), size == 0 ? IndexSet::kNone : size - 1);
    EXPECT_FALSE(set.Contains(size));
  }
}

TEST(IndexSetDeathTest, InsertingAMemberOrErasingANonMemberAborts) {
  IndexSet set(10);
  set.Insert(3);
  EXPECT_DEATH(set.Insert(3), "Contains");
  EXPECT_DEATH(set.Insert(10), "size_");
  EXPECT_DEATH(set.Erase(4), "Contains");
}

}  // namespace
}  // namespace tessera
