// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/eviction.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "base/random.h"
#include "memory/prefix/eviction_queue.h"

namespace tessera {
namespace {

constexpr EvictionPolicy kPolicies[] = {EvictionPolicy::kValue, EvictionPolicy::kLru,
                                        EvictionPolicy::kFlop};

// Looks at every id there is.
EvictionQueue::Victim LeastOf(const std::map<uint32_t, EvictionClass>& twin, EvictionPolicy policy,
                              uint32_t now) {
  EvictionQueue::Victim least;
  using Key = std::tuple<EvictionRank, double, uint32_t, uint64_t, uint32_t>;
  Key best;
  // Only the head of a bucket is scored.
  std::map<std::pair<EvictionRank, uint32_t>, std::pair<uint64_t, uint32_t>> heads;
  for (const auto& [id, place] : twin) {
    const auto [it, added] = heads.try_emplace({place.rank, place.bucket}, place.order, id);
    if (!added) it->second = std::min(it->second, {place.order, id});
  }
  for (const auto& [bucket, head] : heads) {
    const double score =
        EvictionScore(policy, bucket.second, static_cast<uint32_t>(head.first >> 32), now);
    const Key key{bucket.first, score, bucket.second, head.first, head.second};
    if (least.id == EvictionQueue::kNone || key < best) {
      best = key;
      least = {head.second, bucket.first, bucket.second};
    }
  }
  return least;
}

TEST(EvictionQueue, TheVictimIsThatOfATwinThatLooksAtAll) {
  for (EvictionPolicy policy : kPolicies) {
    Random random(5);
    constexpr uint32_t kIds = 60;
    EvictionQueue queue(kIds);
    std::map<uint32_t, EvictionClass> twin;
    uint32_t now = 1;
    for (int i = 0; i < 40000; ++i) {
      const uint32_t id = static_cast<uint32_t>(random.Below(kIds));
      const uint64_t choice = random.Below(10);
      if (choice < 5) {
        EvictionClass place;
        place.rank = static_cast<EvictionRank>(random.Below(kEvictionRanks));
        place.bucket = static_cast<uint32_t>(random.Below(2) == 0 ? random.Below(4)
                                                                  : random.Below(kEvictionBuckets));
        place.order = random.Below(now + 1) << 32 | random.Below(3);
        queue.Set(id, place);
        twin[id] = place;
      } else if (choice < 7) {
        queue.Erase(id);
        twin.erase(id);
      } else if (choice == 7) {
        now += static_cast<uint32_t>(random.Below(5));
      } else {
        const EvictionQueue::Victim victim = queue.Least(policy, now);
        const EvictionQueue::Victim expected = LeastOf(twin, policy, now);
        ASSERT_EQ(victim.id, expected.id) << i;
        if (victim.id != EvictionQueue::kNone) {
          ASSERT_EQ(victim.rank, expected.rank);
          ASSERT_EQ(victim.bucket, expected.bucket);
          queue.Erase(victim.id);
          twin.erase(victim.id);
        }
      }
      ASSERT_EQ(queue.Contains(id), twin.contains(id));
    }
  }
}

TEST(EvictionQueue, DrainsInOrderWhenNoTimePasses) {
  EvictionQueue queue(500);
  Random random(8);
  for (uint32_t id = 0; id < 500; ++id) {
    queue.Set(id, {.rank = EvictionRank::kOrdinary, .bucket = 3, .order = random.Below(100)});
  }
  for (uint32_t id = 0; id < 500; id += 7) queue.Erase(id);
  uint32_t drained = 0;
  for (uint32_t id; (id = queue.Least(EvictionPolicy::kLru, 0).id) != EvictionQueue::kNone;) {
    queue.Erase(id);
    ++drained;
  }
  EXPECT_EQ(drained, 500u - 72);
  queue.Erase(3);  // not in it: nothing
  EXPECT_EQ(queue.Least(EvictionPolicy::kLru, 0).id, EvictionQueue::kNone);
}

// --- What things are worth ------------------------------------------------------------------

EvictionFacts Facts() { return {.last_use = 10, .position = 100, .saved_tokens = 64, .pages = 4}; }

EvictionRank RankOf(EvictionPolicy policy, const EvictionFacts& facts) {
  return ClassifyForEviction(policy, facts).rank;
}

TEST(Eviction, WorthlessGoesBeforeSpareBeforeOrdinaryBeforeRetained) {
  for (EvictionPolicy policy : {EvictionPolicy::kValue, EvictionPolicy::kFlop}) {
    EvictionFacts worthless = Facts(), spare = Facts(), retained = Facts();
    worthless.worthless = spare.spare = retained.retained = true;
    EXPECT_LT(RankOf(policy, worthless), RankOf(policy, spare));
    EXPECT_LT(RankOf(policy, spare), RankOf(policy, Facts()));
    EXPECT_LT(RankOf(policy, Facts()), RankOf(policy, retained));
  }
  // LRU knows no ranks but that of what is retained.
  EvictionFacts spare = Facts(), retained = Facts();
  spare.spare = retained.retained = true;
  EXPECT_EQ(RankOf(EvictionPolicy::kLru, spare), RankOf(EvictionPolicy::kLru, Facts()));
  EXPECT_LT(RankOf(EvictionPolicy::kLru, Facts()), RankOf(EvictionPolicy::kLru, retained));
}

TEST(Eviction, ValueGrowsWithTokensSavedAndBranchesAndFallsWithPages) {
  auto bucket = [](const EvictionFacts& facts) {
    return ClassifyForEviction(EvictionPolicy::kValue, facts).bucket;
  };
  const uint32_t base = bucket(Facts());
  EvictionFacts more = Facts(), dearer = Facts(), branched = Facts(), continued = Facts();
  more.saved_tokens *= 4;
  dearer.pages *= 4;
  branched.branches = 3;
  continued.continued = true;
  EXPECT_EQ(bucket(more), base + 4);  // two half octaves each
  EXPECT_EQ(bucket(dearer), base - 4);
  EXPECT_EQ(bucket(branched), base + 4);
  EXPECT_LT(bucket(continued), base);
  continued.branches = 1;  // shown to be of use
  EXPECT_GT(bucket(continued), base);
  EvictionFacts nothing = Facts();
  nothing.saved_tokens = 0;
  EXPECT_EQ(bucket(nothing), 0u);
  nothing = Facts();
  nothing.pages = 0;  // saved for free: no division by it
  EXPECT_GT(bucket(nothing), base);
}

TEST(Eviction, SavingsBelowThePriceCountLess) {
  auto bucket = [](uint32_t saved, uint32_t price) {
    const EvictionFacts facts{.saved_tokens = saved, .price_tokens = price, .pages = 1};
    return static_cast<int>(ClassifyForEviction(EvictionPolicy::kValue, facts).bucket);
  };
  // At 2.5 prices half of what it saves counts, two half octaves less; far below, all but the
  // square: four times the savings are sixteen times the worth.
  EXPECT_EQ(bucket(4000, 1600), bucket(4000, 0) - 2);
  EXPECT_EQ(bucket(64, 64000), bucket(16, 64000) + 8);
  EXPECT_EQ(bucket(1 << 20, 16), bucket(1 << 20, 0));
}

TEST(Eviction, OlderScoresLessInABucketAndANewOneOutlastsAnOldDearOne) {
  for (EvictionPolicy policy : kPolicies) {
    EXPECT_LT(EvictionScore(policy, 30, 5, 100), EvictionScore(policy, 30, 50, 100));
  }
  EXPECT_LT(EvictionScore(EvictionPolicy::kValue, 34, 0, 1000),
            EvictionScore(EvictionPolicy::kValue, 32, 1000, 1000));
  EXPECT_GT(EvictionScore(EvictionPolicy::kValue, 34, 1000, 1000),
            EvictionScore(EvictionPolicy::kValue, 32, 1000, 1000));
  // A use in the future (the look-up being counted) is age 0.
  EXPECT_EQ(EvictionScore(EvictionPolicy::kValue, 32, 11, 10),
            EvictionScore(EvictionPolicy::kValue, 32, 10, 10));
}

TEST(Eviction, OfTheSameAgeTheDeeperGoesFirst) {
  EvictionFacts deep = Facts();
  deep.position = 200;
  for (EvictionPolicy policy : kPolicies) {
    EXPECT_LT(ClassifyForEviction(policy, deep).order, ClassifyForEviction(policy, Facts()).order);
    EXPECT_EQ(ClassifyForEviction(policy, deep).last_use(), 10u);
  }
}

}  // namespace
}  // namespace tessera
