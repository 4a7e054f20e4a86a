// SPDX-License-Identifier: Apache-2.0
//
// Joins against a brute-force twin over random prompts that share beginnings, then each claim of
// the header alone.
#include "engine/inflight_prefills.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"

namespace tessera {
namespace {

constexpr uint32_t kAll = std::numeric_limits<uint32_t>::max();  // public

struct FakePrefill {
  std::vector<TokenId> prompt;
  std::string salt;
  uint32_t isolate_after = 0;
  uint32_t position = 0;

  uint32_t public_tokens() const { return salt.empty() ? kAll : isolate_after; }
  // Where the state of its first tokens is kept.
  std::string PlaceOf(uint32_t tokens) const {
    if (tokens <= public_tokens()) return "everybody's";
    return salt + " from " + std::to_string(public_tokens());
  }
};
using Prefills = std::map<SequenceId, FakePrefill>;

// Tries every position with every prefill, token by token.
std::optional<Join> SlowBest(const Prefills& prefills, uint32_t grid, const JoinQuery& query,
                             const FakePrefill& fresh) {
  std::optional<Join> best;
  for (const auto& [id, prefill] : prefills) {
    if (!(id < query.id)) continue;
    for (uint32_t position = 1; position <= query.usable_limit; ++position) {
      if (position > prefill.prompt.size()) continue;
      if (prefill.prompt[position - 1] != query.prompt[position - 1]) break;
      const bool whole = position == query.prompt.size();
      if (whole && prefill.prompt.size() != query.prompt.size()) continue;
      if (prefill.PlaceOf(position) != fresh.PlaceOf(position)) continue;
      if (position % grid != 0 || position <= prefill.position) continue;
      if (position <= query.already_reusable + kLeastJoinTokens) continue;
      if (!best || position > best->position) best = Join{id, position};
    }
  }
  return best;
}

// A tree of beginnings: prompts fork at few places and end at others.
std::vector<TokenId> ForkingPrompt(Random& random) {
  const size_t size = random.Below(2) == 0 ? 1 + random.Below(200) : 40 * (1 + random.Below(5));
  const uint64_t fork = random.Below(3) * 70;
  std::vector<TokenId> prompt(size);
  for (size_t i = 0; i < size; ++i) {
    prompt[i] = i < fork ? 7 : static_cast<TokenId>(random.Below(i % 40 == 0 ? 2 : 1));
  }
  return prompt;
}

TEST(InflightPrefills, JoinsAreThoseOfTheBruteForceTwin) {
  const char* salts[] = {"", "a", "b"};
  uint32_t joins = 0;
  uint32_t whole = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const uint32_t grid = std::vector<uint32_t>{1, 1, 3, 16, 64}[random.Below(5)];
    InflightPrefills inflight(grid);
    Prefills twin;
    for (uint64_t next = 1; next <= 60; ++next) {
      const SequenceId id(next);
      FakePrefill fresh{ForkingPrompt(random), salts[random.Below(3)],
                        static_cast<uint32_t>(40 * random.Below(4))};
      const auto size = static_cast<uint32_t>(fresh.prompt.size());
      JoinQuery query{.id = id,
                      .prompt = fresh.prompt,
                      .salt = fresh.salt,
                      .public_tokens = fresh.public_tokens()};
      query.usable_limit = size - static_cast<uint32_t>(random.Below(2));
      query.already_reusable = random.Below(2) == 0 ? 0 : static_cast<uint32_t>(random.Below(size));
      const std::optional<Join> best = inflight.Best(query);
      const std::optional<Join> expected = SlowBest(twin, grid, query, fresh);
      ASSERT_EQ(best.has_value(), expected.has_value());
      if (best) {
        ASSERT_EQ(best->producer, expected->producer);
        ASSERT_EQ(best->position, expected->position);
        ASSERT_TRUE(inflight.WillReach(best->producer, best->position));
        ++joins;
        whole += best->position == size;
      }
      const auto at = twin.emplace(id, std::move(fresh)).first;
      inflight.Add(id, at->second.prompt, at->second.salt, at->second.public_tokens(), 0);
      for (uint64_t other = 1; other <= next; ++other) {
        const auto found = twin.find(SequenceId(other));
        const auto position = found == twin.end() ? 5 : found->second.position + 9;
        if (random.Below(20) == 0) {
          inflight.Remove(SequenceId(other));
          if (found != twin.end()) twin.erase(found);
        } else if (random.Below(3) == 0) {
          inflight.Advance(SequenceId(other), position);
          if (found == twin.end()) continue;
          found->second.position = position;
          if (position >= found->second.prompt.size()) twin.erase(found);
        }
      }
      ASSERT_EQ(inflight.size(), twin.size());
    }
  }
  EXPECT_GT(joins, 2000u);
  EXPECT_GT(whole, 100u);
}

std::vector<TokenId> Counting(size_t size) {
  std::vector<TokenId> prompt(size);
  std::iota(prompt.begin(), prompt.end(), 0);
  return prompt;
}

class Joins : public ::testing::Test {
 protected:
  // The join of a request like prompt_, all but its last token usable.
  std::optional<Join> Best(std::string_view salt = "", uint32_t reusable = 0) const {
    return inflight_.Best({.id = SequenceId(9),
                           .prompt = prompt_,
                           .salt = salt,
                           .public_tokens = salt.empty() ? kAll : 0,
                           .usable_limit = static_cast<uint32_t>(prompt_.size()) - 1,
                           .already_reusable = reusable});
  }

  const std::vector<TokenId> prompt_ = Counting(100);
  InflightPrefills inflight_;
};

TEST_F(Joins, AnotherSaltIsNoProducer) {
  inflight_.Add(SequenceId(1), prompt_, "a", 0, 0);
  EXPECT_FALSE(Best());
  EXPECT_FALSE(Best("b"));
  ASSERT_TRUE(Best("a"));
  EXPECT_EQ(Best("a")->position, 99u);
}

TEST_F(Joins, OnlyOneThatIsStillBehindTheCommonPoint) {
  std::vector<TokenId> other = prompt_;
  other[60] = -1;
  inflight_.Add(SequenceId(1), other, "", kAll, 0);
  EXPECT_EQ(Best()->position, 60u);
  inflight_.Advance(SequenceId(1), 59);
  EXPECT_TRUE(Best());
  EXPECT_TRUE(inflight_.WillReach(SequenceId(1), 60));
  inflight_.Advance(SequenceId(1), 60);
  EXPECT_FALSE(Best());
  EXPECT_FALSE(inflight_.WillReach(SequenceId(1), 60));
}

TEST_F(Joins, OnlyWhenItSavesMoreThanAGroup) {
  inflight_.Add(SequenceId(1), prompt_, "", kAll, 0);
  EXPECT_TRUE(Best("", 99 - kLeastJoinTokens - 1));
  EXPECT_FALSE(Best("", 99 - kLeastJoinTokens));
}

// Otherwise two could wait for each other, and a stream of new ones could hold one back for ever.
TEST_F(Joins, OnlyWithOneThatArrivedBefore) {
  inflight_.Add(SequenceId(10), prompt_, "", kAll, 0);
  EXPECT_FALSE(Best());
  inflight_.Add(SequenceId(8), prompt_, "", kAll, 0);
  EXPECT_EQ(Best()->producer, SequenceId(8));
}

TEST_F(Joins, TheLongestAndOfThoseTheOldest) {
  std::vector<TokenId> shorter = prompt_;
  shorter[50] = -1;
  inflight_.Add(SequenceId(7), prompt_, "", kAll, 0);
  inflight_.Add(SequenceId(2), shorter, "", kAll, 0);
  inflight_.Add(SequenceId(5), prompt_, "", kAll, 0);
  EXPECT_EQ(Best()->producer, SequenceId(5));
  EXPECT_EQ(Best()->position, 99u);
  inflight_.Remove(SequenceId(5));
  inflight_.Remove(SequenceId(7));
  EXPECT_EQ(Best()->producer, SequenceId(2));
  EXPECT_EQ(Best()->position, 50u);
}

// A longer prompt passes the point where this one ends, but computes no row there.
TEST_F(Joins, AWholePromptOnlyWithOneThatEndsThereToo) {
  const auto best = [&] {
    return inflight_.Best({.id = SequenceId(9),
                           .prompt = prompt_,
                           .salt = "",
                           .public_tokens = kAll,
                           .usable_limit = 100});
  };
  const std::vector<TokenId> longer = Counting(130);
  inflight_.Add(SequenceId(1), longer, "", kAll, 0);
  EXPECT_EQ(best()->position, 99u);
  inflight_.Add(SequenceId(2), prompt_, "", kAll, 0);
  EXPECT_EQ(best()->position, 100u);
  EXPECT_EQ(best()->producer, SequenceId(2));
}

TEST_F(Joins, APromptThatContinuesAnotherJoinsAtItsEnd) {
  const std::vector<TokenId> shorter = Counting(40);
  inflight_.Add(SequenceId(1), shorter, "", kAll, 0);
  EXPECT_EQ(Best()->position, 40u);
  inflight_.Advance(SequenceId(1), 40);  // done: forgotten
  EXPECT_EQ(inflight_.size(), 0u);
}

TEST(InflightPrefillsGrid, JoinsLieOnTheGrid) {
  const std::vector<TokenId> prompt = Counting(100);
  InflightPrefills inflight(32);
  inflight.Add(SequenceId(1), prompt, "", kAll, 90);
  const JoinQuery query = {.id = SequenceId(2),
                           .prompt = prompt,
                           .salt = "",
                           .public_tokens = kAll,
                           .usable_limit = 100};
  EXPECT_EQ(inflight.Best(query)->position, 96u);
  inflight.Advance(SequenceId(1), 96);
  EXPECT_FALSE(inflight.Best(query));  // 97, 98 … are not on it
}

TEST(InflightPrefillsDeathTest, AddingOneTwiceIsABug) {
  const std::vector<TokenId> prompt = Counting(10);
  InflightPrefills inflight;
  inflight.Add(SequenceId(1), prompt, "", kAll, 0);
  EXPECT_DEATH(inflight.Add(SequenceId(1), prompt, "", kAll, 0), "IndexOf");
}

TEST(InflightPrefillsDeathTest, APromptWithNothingLeftIsNotInFlight) {
  const std::vector<TokenId> prompt = Counting(10);
  InflightPrefills inflight;
  EXPECT_DEATH(inflight.Add(SequenceId(1), prompt, "", kAll, 10), "position");
}

}  // namespace
}  // namespace tessera
