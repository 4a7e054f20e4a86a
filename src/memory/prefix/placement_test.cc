// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/placement.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"

namespace tessera {
namespace {

using Positions = std::vector<uint32_t>;

PlacementInput Input(std::string_view spec, uint32_t prompt_tokens) {
  PlacementInput input;
  input.spec = PlacementSpec::Parse(spec).value();
  input.match.prompt_tokens = prompt_tokens;
  input.keeps_rows = true;
  return input;
}

Positions Planned(const PlacementInput& input) {
  std::vector<PlannedBoundary> boundaries{{1, true}};  // replaced
  PlanBoundaries(input, &boundaries);
  Positions positions;
  for (const PlannedBoundary& boundary : boundaries) positions.push_back(boundary.position);
  return positions;
}

TEST(Placement, TheTailIsTheWholePromptWithRowsAndAllButATokenWithout) {
  for (const char* spec : {"default", "tail", "tail+branch"}) {
    PlacementInput input = Input(spec, 100);
    EXPECT_EQ(Planned(input), Positions{100});
    input.keeps_rows = false;
    EXPECT_EQ(Planned(input), Positions{99});
    input.match.prompt_tokens = 1;
    EXPECT_EQ(Planned(input), Positions{});
    input.match.prompt_tokens = 0;
    EXPECT_EQ(Planned(input), Positions{});
  }
}

TEST(Placement, ABranchIsWhereThePromptLeavesWhatIsKnown) {
  PlacementInput input = Input("tail+branch", 100);
  input.match.diverged_at = 41;
  EXPECT_EQ(Planned(input), (Positions{41, 100}));
  input.match.reused = 41;  // there is one
  EXPECT_EQ(Planned(input), Positions{100});
  input = Input("tail", 100);
  input.match.diverged_at = 41;
  EXPECT_EQ(Planned(input), Positions{100});
}

TEST(Placement, NamedPositionsOutsideThePromptOrReusedAreIgnored) {
  const Positions named{0, 30, 30, 20, 100, 101, 5000, 7};
  PlacementInput input = Input("tail", 100);
  input.named = named;
  input.match.reused = 10;
  EXPECT_EQ(Planned(input), (Positions{20, 30, 100}));
  input.spec = PlacementSpec::Parse("default").value();
  input.named = {};
  input.message_ends = named;
  EXPECT_EQ(Planned(input), (Positions{20, 30, 100}));
  input.spec = PlacementSpec::Parse("tail").value();  // message ends are the default's
  EXPECT_EQ(Planned(input), Positions{100});
}

TEST(Placement, OfManyMessageEndsTheFirstAndTheLastAreBoundaries) {
  PlacementInput input = Input("default", 100);
  const Positions ends{90, 5, 20, 10, 30, 50, 60, 60, 70, 80, 40, 99, 101};
  input.message_ends = ends;
  EXPECT_EQ(Planned(input), (Positions{5, 40, 50, 60, 70, 80, 90, 99, 100}));
  input.match.reused = 25;  // those before it need none, and take no place
  EXPECT_EQ(Planned(input), (Positions{30, 40, 50, 60, 70, 80, 90, 99, 100}));
  input.grid = 16;
  EXPECT_EQ(Planned(input), (Positions{32, 48, 64, 80, 96}));
  // What the client names is not counted among them.
  input.named = ends;
  input.grid = 1;
  input.match.reused = 0;
  EXPECT_EQ(Planned(input), (Positions{5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99, 100}));
}

TEST(Placement, MarksAndSpareOnesAreMultiplesOfThePrice) {
  PlacementInput input = Input("default", 500);
  input.price_tokens = 160;
  EXPECT_EQ(Planned(input), (Positions{480, 500}));
  input.match.prompt_tokens = 480;  // the mark is before the tail
  EXPECT_EQ(Planned(input), (Positions{320, 480}));
  input.plentiful = true;
  std::vector<PlannedBoundary> boundaries;
  PlanBoundaries(input, &boundaries);
  const std::vector<PlannedBoundary> expected{{160, true}, {320, false}, {480, false}};
  EXPECT_EQ(boundaries, expected);
  input.match.reused = 200;
  EXPECT_EQ(Planned(input), (Positions{320, 480}));
}

TEST(Placement, CheapSpareOnesDoNotCutAPrefillIntoCrumbs) {
  PlacementInput input = Input("default", 500);
  input.plentiful = true;
  for (const auto& [price, spare] : {std::pair(16u, 128u), {48u, 144u}, {128u, 128u}}) {
    input.price_tokens = price;
    const uint32_t mark = 499 / price * price;
    Positions expected{spare, 2 * spare, 3 * spare};
    if (mark != 3 * spare) expected.push_back(mark);
    expected.push_back(500);
    EXPECT_EQ(Planned(input), expected) << price;
  }
}

// On a grid the price is rounded up to it: multiples that were rounded down one by one would be at
// uneven distances, and prompts would share fewer of them.
TEST(Placement, MarksAndSpareOnesAreMultiplesOfThePriceOnTheGrid) {
  PlacementInput input = Input("default", 410);
  input.grid = 100;
  input.price_tokens = 130;
  EXPECT_EQ(Planned(input), Positions{400});
  input.match.prompt_tokens = 590;
  EXPECT_EQ(Planned(input), (Positions{400, 500}));
  input.match.prompt_tokens = 790;
  input.plentiful = true;
  EXPECT_EQ(Planned(input), (Positions{200, 400, 600, 700}));
}

TEST(Placement, DenseIsEveryNTokensAndNeverTheEndOfATurn) {
  PlacementInput input = Input("dense:50", 100);
  EXPECT_EQ(Planned(input), (Positions{50, 100}));  // also at the end: a longer one starts there
  input.spec = PlacementSpec::Parse("dense:30").value();
  EXPECT_EQ(Planned(input), (Positions{30, 60, 90}));
  input.match.reused = 60;
  EXPECT_EQ(Planned(input), Positions{90});
  const Positions named{70};
  input.named = input.message_ends = named;
  EXPECT_EQ(Planned(input), (Positions{70, 90}));
  EXPECT_FALSE(IsTurnBoundary(input.spec, 1, 90));
  EXPECT_TRUE(IsTurnBoundary(PlacementSpec{}, 1, 90));
  EXPECT_FALSE(IsTurnBoundary(PlacementSpec{}, 16, 90));
  EXPECT_TRUE(IsTurnBoundary(PlacementSpec{}, 16, 96));
  EXPECT_FALSE(IsTurnBoundary(PlacementSpec{}, 16, 0));
}

TEST(Placement, EveryBoundaryIsOnTheGridNewAscendingAndInThePrompt) {
  Random random(4);
  constexpr const char* kSpecs[] = {"default", "tail", "tail+branch", "dense:1", "dense:48"};
  for (int i = 0; i < 3000; ++i) {
    PlacementInput input = Input(kSpecs[random.Below(5)], 1 + random.Below(300));
    input.grid = 1 + static_cast<uint32_t>(random.Below(3) * random.Below(40));
    input.keeps_rows = random.Below(2) == 0;
    input.match.diverged_at = static_cast<uint32_t>(random.Below(input.match.prompt_tokens + 1));
    input.match.reused = static_cast<uint32_t>(random.Below(input.match.diverged_at + 1));
    Positions named;
    for (uint64_t n = random.Below(4); n > 0; --n) {
      named.push_back(static_cast<uint32_t>(random.Below(400)));
    }
    input.named = named;
    input.message_ends = named;
    input.price_tokens = static_cast<uint32_t>(random.Below(3) * 32);
    input.plentiful = random.Below(2) == 0;
    uint32_t last = input.match.reused;
    for (uint32_t position : Planned(input)) {
      EXPECT_GT(position, last);
      EXPECT_EQ(position % input.grid, 0u);
      EXPECT_LE(position, input.match.prompt_tokens);
      last = position;
    }
  }
}

TEST(Placement, NothingWrapsNearTheLastPosition) {
  PlacementInput input = Input("dense:3000000000", 4294967295u);
  EXPECT_EQ(Planned(input), Positions{3000000000u});
}

// --- Parsers --------------------------------------------------------------------------------

TEST(PlacementSpec, ParsesWhatItPrintsAndNothingElse) {
  for (const char* good : {"default", "tail", "tail+branch", "dense:1", "dense:4294967295"}) {
    ASSERT_TRUE(PlacementSpec::Parse(good).has_value()) << good;
    EXPECT_EQ(PlacementSpec::Parse(good)->ToString(), good);
  }
  for (const char* bad :
       {"", "Default", "tails", "tail+", "dense", "dense:", "dense:0", "dense:-1", "dense:+5",
        "dense: 5", "dense:5 ", "dense:5x", "dense:4294967296", "dense:1.5"}) {
    const Result<PlacementSpec> parsed = PlacementSpec::Parse(bad);
    ASSERT_FALSE(parsed.has_value()) << bad;
    EXPECT_EQ(parsed.error().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(parsed.error().ToString().find(std::string("'") + bad + "'"), std::string::npos);
  }
}

TEST(EvictionPolicy, ParsesItsNamesAndNothingElse) {
  for (const char* good : {"value", "lru", "flop"}) {
    EXPECT_EQ(EvictionPolicyName(ParseEvictionPolicy(good).value()), good);
  }
  for (const char* bad : {"", "LRU", "lfu", "value "}) {
    EXPECT_FALSE(ParseEvictionPolicy(bad).has_value()) << bad;
  }
}

TEST(RetentionSpec, ParsesWhatItPrintsAndNothingElse) {
  for (const char* good : {"off", "producer:1", "producer:12", "after:2,0.1", "after:3,1",
                           "after:1,0.0625", "strict"}) {
    ASSERT_TRUE(RetentionSpec::Parse(good).has_value()) << good;
    EXPECT_EQ(RetentionSpec::Parse(good)->ToString(), good);
  }
  EXPECT_EQ(RetentionSpec::Parse("producer")->ToString(), "producer:2");
  EXPECT_EQ(RetentionSpec::Parse("after")->ToString(), "after:2,0.1");
  EXPECT_EQ(RetentionSpec::Parse("after:5")->ToString(), "after:5,0.1");
  for (const char* bad :
       {"", "on", "off:1", "strict:2", "producer:", "producer:0", "producer:x", "producer:2,0.5",
        "after:", "after:2,", "after:2,0", "after:2,1.5", "after:2,nan", "after:2,-0.1",
        "after:2,0.5,1", "after:,0.5", "after: 2", "after:2, 0.5", "after:4294967296"}) {
    const Result<RetentionSpec> parsed = RetentionSpec::Parse(bad);
    ASSERT_FALSE(parsed.has_value()) << bad;
    EXPECT_EQ(parsed.error().code(), StatusCode::kInvalidArgument);
  }
}

TEST(ComputeReason, EachHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i < kComputeReasons; ++i) {
    names.insert(ComputeReasonName(static_cast<ComputeReason>(i)));
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"cold", "diverged", "evicted", "no_checkpoint",
                                               "below_grid", "salt", "disabled"}));
}

}  // namespace
}  // namespace tessera
