// SPDX-License-Identifier: Apache-2.0
//
// The census of a store against objects counted by hand; over random operations it is held against
// the pools by ReuseLab::Check and against a slow count by prefix_model_test.
#include <gtest/gtest.h>

#include "memory/store/pattern_sequence.h"

namespace tessera {
namespace {

using testing::Joined;
using testing::PatternSequence;
using testing::ReuseCases;
using testing::ReuseLab;
using testing::TokensOf;

StoreOptions Options(const char* organisation, uint64_t budget_bytes = 256 * kKiB) {
  StoreOptions options = ReuseCases(8)[0].options;
  options.organisation = OrganisationSpec::Parse(organisation).value();
  options.budget_bytes = budget_bytes;
  options.reuse.placement.kind = PlacementSpec::Kind::kTail;
  return options;
}

TEST(StoreCensus, ARunningSequencesStateIsItsOwnUntilItIsPublishedAndNobodysWhenItEnds) {
  ReuseLab lab(Options("s3"));
  std::optional<PatternSequence> sequence = lab.Admit({.prompt = TokensOf(1, 40), .generate = 24});
  ASSERT_TRUE(sequence.has_value());
  sequence->Step(20);
  StoreCensus census = lab.store().Census();
  EXPECT_EQ(census.blocks.live, 2u);
  EXPECT_EQ(census.images.live, 1u);
  EXPECT_EQ(census.blocks.findable() + census.images.findable(), 0u);

  sequence->RunTo(40);  // the prompt's end is a boundary
  census = lab.store().Census();
  EXPECT_EQ(census.blocks.live, 0u);
  EXPECT_EQ(census.blocks.held, 3u);
  EXPECT_EQ(census.images.live, 0u) << "the image is the checkpoint now";
  EXPECT_EQ(census.images.held, 1u);
  EXPECT_EQ(census.rows.total(), 1u);
  EXPECT_EQ(census.reusable_blocks, 3u);
  EXPECT_EQ(census.reusable_images, 1u);

  sequence->Finish();
  sequence.reset();
  census = lab.store().Census();
  EXPECT_EQ(census.blocks.total(), census.blocks.cached);
  EXPECT_EQ(census.images.total(), census.images.cached);
  EXPECT_EQ(census.images.cached, 2u) << "where the prompt and where the answer ended";
  EXPECT_EQ(census.block_tokens, 16u);
  EXPECT_EQ(census.ssm_bytes, lab.options().shape.ssm_bytes());
  EXPECT_EQ(census.conv_bytes, lab.options().shape.conv_bytes());
}

TEST(StoreCensus, AttentionBelowTheLastCheckpointThatIsLeftIsAnOrphan) {
  // Dense boundaries along one path; what is evicted first leaves attention without a checkpoint.
  StoreOptions options = Options("d0:split=0.9", 96 * kKiB);
  ReuseLab lab(options);
  uint64_t orphans = 0;
  for (uint64_t seed = 1; seed < 60; ++seed) {
    lab.Serve({.prompt = TokensOf(seed, 64)});
    const StoreCensus census = lab.store().Census();
    // Each prompt's path is its own: what is of use is four blocks for each checkpoint there is.
    EXPECT_EQ(census.reusable_images, census.images.findable());
    EXPECT_EQ(census.reusable_blocks, 4 * census.reusable_images);
    orphans += census.blocks.findable() - census.reusable_blocks;
  }
  EXPECT_GT(lab.stats().evicted_checkpoints, 0u);
  EXPECT_GT(orphans, 0u);
}

TEST(StoreCensus, EveryPageOfStateIsOfAnImageWhileNoStepIsOpen) {
  for (const testing::ReuseCase& c : ReuseCases(8, 4)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    std::optional<PatternSequence> running = lab.Admit({.prompt = TokensOf(1, 70)});
    ASSERT_TRUE(running.has_value());
    running->Step(20);
    for (uint64_t seed = 2; seed < 30; ++seed) {
      lab.Serve({.prompt = TokensOf(seed % 5, 30 + seed)});
      const StoreCensus census = lab.store().Census();
      for (const PoolStats& pool : lab.store().Stats().pools) {
        const uint64_t pages = pool.held_state_pages + pool.cached_state_pages - pool.slab_pages;
        if (pool.total_slots > 0) {
          EXPECT_EQ(census.images.total(), pool.used_slots);
        }
        if (pool.name == "attention") continue;  // of D0
        EXPECT_EQ(census.images.total() * lab.store().organisation().state_pages, pages);
      }
      EXPECT_EQ(census.images.live, c.recurrent() ? 1u : 0u);
    }
  }
}

TEST(StoreCensus, WithoutReuseThereIsOnlyWhatRuns) {
  StoreOptions options = Options("s2:block=64");
  options.reuse.enabled = false;
  ReuseLab lab(options);
  std::optional<PatternSequence> sequence = lab.Admit({.prompt = TokensOf(1, 100)});
  ASSERT_TRUE(sequence.has_value());
  sequence->Step(100);
  const StoreCensus census = lab.store().Census();
  EXPECT_EQ(census.blocks.live, 2u);
  EXPECT_EQ(census.images.live, 1u);
  EXPECT_EQ(census.blocks.findable() + census.images.findable() + census.rows.total(), 0u);
}

// --- Look-ups and reclaims ------------------------------------------------------------------

TEST(StoreCensus, EveryLookUpHasOneResultAndOneReason) {
  ReuseLab lab(Options("s3"));
  const std::vector<TokenId> prompt = TokensOf(1, 50);
  lab.Serve({.prompt = prompt});                           // none, cold
  lab.Serve({.prompt = prompt});                           // full
  lab.Serve({.prompt = Joined(prompt, TokensOf(2, 10))});  // partial, diverged
  lab.Serve({.prompt = prompt, .lookup = false});          // none, disabled
  lab.Serve({.prompt = prompt, .salt = "a"});              // none, salt
  const ReuseStats stats = lab.stats();
  const auto count = [&](LookupResult result, ComputeReason reason) {
    return stats.outcomes[static_cast<size_t>(result)][static_cast<size_t>(reason)];
  };
  EXPECT_EQ(count(LookupResult::kNone, ComputeReason::kCold), 1u);
  EXPECT_EQ(count(LookupResult::kFull, ComputeReason::kCold), 1u);
  EXPECT_EQ(count(LookupResult::kPartial, ComputeReason::kDiverged), 1u);
  EXPECT_EQ(count(LookupResult::kNone, ComputeReason::kDisabled), 1u);
  EXPECT_EQ(count(LookupResult::kNone, ComputeReason::kSalt), 1u);
  uint64_t all = 0;
  for (const auto& reasons : stats.outcomes) {
    for (const uint64_t outcome : reasons) all += outcome;
  }
  EXPECT_EQ(all, stats.lookups);
}

TEST(StoreCensus, WhatAReclaimTookAlongIsCounted) {
  ReuseLab lab(Options("s2:block=64", 96 * kKiB));
  for (uint64_t seed = 1; seed < 60; ++seed) lab.Serve({.prompt = TokensOf(seed, 60)});
  const ReuseStats pressed = lab.stats();
  EXPECT_GT(pressed.reclaims, 0u);
  EXPECT_EQ(pressed.reclaimed_entries, pressed.entries_invalidated)
      << "nothing was cleared, so all that went went for its memory";
  EXPECT_GT(lab.store().Clear(), 0u);
  EXPECT_EQ(lab.stats().reclaims, pressed.reclaims) << "clearing is no reclaim";
  EXPECT_EQ(lab.stats().reclaimed_entries, pressed.reclaimed_entries);
}

}  // namespace
}  // namespace tessera
