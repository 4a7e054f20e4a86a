// SPDX-License-Identifier: Apache-2.0
#include "memory/store/client_pins.h"

#include <gtest/gtest.h>

#include "memory/store/pattern_sequence.h"

namespace tessera {
namespace {

using testing::Joined;
using testing::PatternSequence;
using testing::ReuseCases;
using testing::ReuseLab;
using testing::TokensOf;

StoreOptions Options(const char* organisation) {
  StoreOptions options = ReuseCases(8)[0].options;
  options.organisation = OrganisationSpec::Parse(organisation).value();
  options.budget_bytes = 128 * kKiB;
  return options;
}

void Press(ReuseLab& lab, uint64_t checkpoints, uint64_t seed) {
  const uint64_t before = lab.stats().evicted_checkpoints;
  for (uint64_t i = 0; lab.stats().evicted_checkpoints < before + checkpoints; ++i) {
    ASSERT_LT(i, 3000u);
    lab.Serve({.prompt = TokensOf(seed + i, 60)}, 60);
  }
}

TEST(ClientPins, APinnedPrefixOutlivesOthersUntilItIsReleased) {
  for (const char* organisation : {"s1:block=32", "s2:block=64", "s3", "d0:split=0.5"}) {
    SCOPED_TRACE(organisation);
    ReuseLab lab(Options(organisation));
    const std::vector<TokenId> prefix = TokensOf(1, 33);
    lab.Serve({.prompt = prefix});
    const std::vector<TokenId> longer = Joined(prefix, TokensOf(2, 20));
    const PinResult pin = lab.store().Pin({.prompt = longer}, {});
    ASSERT_TRUE(pin.pin.has_value());
    EXPECT_EQ(pin.pin->tokens, 33u);
    EXPECT_GT(pin.pin->bytes, 0u);
    Press(lab, 40, 100);
    EXPECT_EQ(lab.Lookup({.prompt = longer}).reused, 33u);
    ASSERT_EQ(lab.store().Pins("").size(), 1u);
    EXPECT_FALSE(lab.store().Pins("")[0].lost);
    uint32_t pinned = 0;
    for (const BoundaryInfo& boundary : lab.store().Boundaries(1000, 0)) {
      pinned += boundary.pinned ? 1 : 0;
      EXPECT_FALSE(boundary.retained);
    }
    EXPECT_EQ(pinned, 1u);
    EXPECT_TRUE(lab.store().Unpin(pin.pin->id, ""));
    EXPECT_FALSE(lab.store().Unpin(pin.pin->id, ""));
    lab.Check();
    Press(lab, 40, 4000);
    EXPECT_EQ(lab.Lookup({.prompt = longer}).reused, 0u);
  }
}

TEST(ClientPins, APinGivesWayToARequestThatNeedsTheMemoryAndSaysSo) {
  ReuseLab lab(Options("s3"));
  const std::vector<TokenId> prefix = TokensOf(1, 33);
  lab.Serve({.prompt = prefix});
  ASSERT_TRUE(lab.store().Pin({.prompt = Joined(prefix, TokensOf(2, 1))}, {}).pin.has_value());
  std::vector<PatternSequence> others;
  for (uint64_t seed = 10; seed < 3000; ++seed) {
    std::optional<PatternSequence> other = lab.Admit({.prompt = TokensOf(seed, 16)});
    if (!other.has_value()) break;
    others.push_back(*std::move(other));
  }
  ASSERT_EQ(lab.store().Pins("").size(), 1u);
  EXPECT_TRUE(lab.store().Pins("")[0].lost);
  EXPECT_TRUE(lab.store().Unpin(lab.store().Pins("")[0].id, ""));
  lab.Check();
}

TEST(ClientPins, PinsEndWhenTheirTimeHasPassed) {
  ReuseLab lab(Options("s3"));
  const std::vector<TokenId> prompt = Joined(TokensOf(1, 33), TokensOf(2, 1));
  lab.Serve({.prompt = TokensOf(1, 33)});
  for (uint64_t expires_at : {30, 0, 10, 20, 10}) {
    ASSERT_TRUE(lab.store().Pin({.prompt = prompt}, {.expires_at = expires_at}).pin.has_value());
  }
  const auto ids_at = [&](uint64_t now) {
    lab.store().ExpirePins(now);
    std::vector<uint64_t> ids;
    for (const PinInfo& pin : lab.store().Pins("")) ids.push_back(pin.id);
    lab.Check();
    return ids;
  };
  EXPECT_EQ(ids_at(9), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(ids_at(10), (std::vector<uint64_t>{1, 2, 4}));
  EXPECT_EQ(ids_at(29), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(ids_at(1000), (std::vector<uint64_t>{2}));
}

TEST(ClientPins, WhatIsNotThereOrCannotBePinnedIsSaid) {
  ReuseLab lab(Options("s3"));
  EXPECT_FALSE(lab.store().Pin({.prompt = TokensOf(1, 33)}, {}).pin.has_value());
  lab.Serve({.prompt = TokensOf(1, 33), .salt = "a"});
  // Another salt's state is nobody else's to pin.
  EXPECT_FALSE(lab.store().Pin({.prompt = TokensOf(1, 33)}, {}).pin.has_value());
  const PinResult own = lab.store().Pin({.prompt = TokensOf(1, 33), .salt = "a"}, {});
  ASSERT_TRUE(own.pin.has_value());
  EXPECT_TRUE(own.pin->salted);
  for (size_t i = 1; i < kClientPinsMax; ++i) {
    ASSERT_TRUE(lab.store().Pin({.prompt = TokensOf(1, 33), .salt = "a"}, {}).pin.has_value());
  }
  EXPECT_NE(
      lab.store().Pin({.prompt = TokensOf(1, 33), .salt = "a"}, {}).error.message().find("1024"),
      std::string::npos);
  // Clearing forgets pins too.
  EXPECT_GT(lab.store().Clear(), 0u);
  EXPECT_TRUE(lab.store().Pins("").empty());
  lab.Check();
  StoreOptions strict = Options("s3");
  strict.reuse.retention = RetentionSpec::Parse("strict").value();
  EXPECT_NE(
      ReuseLab(strict).store().Pin({.prompt = TokensOf(1, 3)}, {}).error.message().find("strict"),
      std::string::npos);
}

TEST(ClientPins, APinIsListedAndReleasedByItsOwnerAlone) {
  ReuseLab lab(Options("s3"));
  const std::vector<TokenId> prompt = Joined(TokensOf(1, 33), TokensOf(2, 1));
  lab.Serve({.prompt = TokensOf(1, 33)});
  std::vector<uint64_t> ids;
  for (const char* owner : {"ada", "rosa", "ada"}) {
    ids.push_back(lab.store().Pin({.prompt = prompt}, {.expires_at = 0, .owner = owner}).pin->id);
  }
  EXPECT_TRUE(lab.store().Pins("").empty());
  EXPECT_EQ(lab.store().Pins("ada").size(), 2u);
  EXPECT_FALSE(lab.store().Unpin(ids[1], "ada"));
  EXPECT_FALSE(lab.store().Unpin(ids[1], ""));
  EXPECT_TRUE(lab.store().Unpin(ids[0], "ada"));  // those behind it keep their owners
  ASSERT_EQ(lab.store().Pins("rosa").size(), 1u);
  EXPECT_EQ(lab.store().Pins("rosa")[0].id, ids[1]);
  EXPECT_EQ(lab.store().Pins("ada")[0].id, ids[2]);
  EXPECT_TRUE(lab.store().Unpin(ids[1], "rosa"));
  lab.Check();
}

TEST(ClientPins, StateThatIsDroppedWithPinsLeftIsClean) {
  ReuseLab lab(Options("s3"));
  lab.Serve({.prompt = TokensOf(1, 33)});
  EXPECT_TRUE(
      lab.store().Pin({.prompt = Joined(TokensOf(1, 33), TokensOf(2, 1))}, {}).pin.has_value());
}

}  // namespace
}  // namespace tessera
