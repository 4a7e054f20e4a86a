// SPDX-License-Identifier: Apache-2.0
//
// The page map of a store against owners known by hand; that it has every page once, and as many of
// each use as are counted, is held by ReuseLab::Check after every call of all the reuse tests.
#include "memory/store/page_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

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
  options.budget_bytes = 256 * kKiB;
  options.shuffle_seed = 0;  // pages in order, so that neighbours meet
  options.reuse.placement.kind = PlacementSpec::Kind::kTail;
  return options;
}

// Those of all pools that are not free.
std::vector<PageRun> Taken(const ReuseLab& lab) {
  std::vector<PageRun> taken;
  for (const PoolPageMap& pool : const_cast<ReuseLab&>(lab).store().PageMap()) {
    for (const PageRun& run : pool.runs) {
      if (run.use != PageUse::kFree) taken.push_back(run);
    }
  }
  return taken;
}

std::vector<PageRun> Of(const std::vector<PageRun>& runs, PageContent content) {
  std::vector<PageRun> result;
  for (const PageRun& run : runs) {
    if (run.content == content) result.push_back(run);
  }
  return result;
}

TEST(PageMap, AFreeStoreIsOneRunAPool) {
  ReuseLab lab(Options("d0"));
  for (const PoolPageMap& pool : lab.store().PageMap()) {
    ASSERT_EQ(pool.runs.size(), 1u) << pool.name;
    EXPECT_EQ(pool.runs[0].pages, pool.pages);
    EXPECT_EQ(pool.runs[0].use, PageUse::kFree);
    EXPECT_GT(pool.page_bytes, 0u);
  }
}

TEST(PageMap, WhatASequenceHasWrittenCarriesItsTagUntilItCanBeFound) {
  ReuseLab lab(Options("d0"));
  std::optional<PatternSequence> sequence =
      lab.Admit({.prompt = TokensOf(1, 40), .generate = 24, .tag = 77});
  ASSERT_TRUE(sequence.has_value());
  sequence->Step(20);
  std::vector<PageRun> taken = Taken(lab);
  ASSERT_EQ(taken.size(), 2u) << "two blocks in order and an image";
  for (const PageRun& run : taken) {
    EXPECT_EQ(run.owner, 77u);
    EXPECT_FALSE(run.findable);
    EXPECT_EQ(run.use, PageUse::kHeld);
  }
  ASSERT_EQ(Of(taken, PageContent::kBlock).size(), 1u);
  EXPECT_EQ(Of(taken, PageContent::kBlock)[0].pages, 2u);
  EXPECT_EQ(Of(taken, PageContent::kBlock)[0].end, 32u);
  ASSERT_EQ(Of(taken, PageContent::kImage).size(), 1u);
  EXPECT_EQ(Of(taken, PageContent::kImage)[0].end, 20u);

  sequence->RunTo(40);  // the prompt's end is a boundary
  taken = Taken(lab);
  const std::vector<PageRun> blocks = Of(taken, PageContent::kBlock);
  ASSERT_EQ(blocks.size(), 1u) << "three blocks of one path";
  EXPECT_EQ(blocks[0].pages, 3u);
  EXPECT_EQ(blocks[0].begin, 0u);
  EXPECT_EQ(blocks[0].end, 40u);
  for (const PageRun& run : taken) {
    EXPECT_TRUE(run.findable);
    EXPECT_EQ(run.sharers, run.content == PageContent::kRow ? 0u : 1u);
  }
  EXPECT_EQ(Of(taken, PageContent::kRow).size(), 1u);
}

TEST(PageMap, APrefixSaysHowManyReadItAndIsCachedWhenNobodyDoes) {
  ReuseLab lab(Options("s3"));
  const std::vector<TokenId> common = TokensOf(1, 48);
  lab.Serve({.prompt = common});
  const std::vector<PageRun> cached = Of(Taken(lab), PageContent::kBlock);
  ASSERT_EQ(cached.size(), 1u);
  EXPECT_EQ(cached[0].use, PageUse::kCached);
  EXPECT_EQ(cached[0].sharers, 0u);
  std::optional<PatternSequence> a = lab.Admit({.prompt = Joined(common, TokensOf(2, 9))});
  std::optional<PatternSequence> b = lab.Admit({.prompt = Joined(common, TokensOf(3, 9))});
  ASSERT_TRUE(a.has_value() && b.has_value());
  const std::vector<PageRun> shared = Of(Taken(lab), PageContent::kBlock);
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0].use, PageUse::kHeld);
  EXPECT_EQ(shared[0].sharers, 2u);
  EXPECT_EQ(shared[0].owner, cached[0].owner);
}

TEST(PageMap, ACheckpointIsCalledWhatTheListOfEntriesCallsIt) {
  ReuseLab lab(Options("d0"));
  lab.Serve({.prompt = TokensOf(1, 40)});
  lab.Serve({.prompt = TokensOf(2, 30)});
  const std::vector<PageRun> images = Of(Taken(lab), PageContent::kImage);
  const std::vector<BoundaryInfo> entries = lab.store().Boundaries(10, 0);
  ASSERT_EQ(images.size(), 2u);
  ASSERT_EQ(entries.size(), 2u);
  for (const BoundaryInfo& entry : entries) {
    const auto same = [&](const PageRun& run) { return run.owner == entry.id; };
    const auto found = std::find_if(images.begin(), images.end(), same);
    ASSERT_NE(found, images.end());
    EXPECT_EQ(found->end, entry.tokens);
  }
}

TEST(PageMap, ASlabSaysHowManyOfItsSlotsAreUsed) {
  StoreOptions options = Options("s3");
  options.shape = testing::TinyConvOnly();
  ReuseLab lab(options);
  lab.Serve({.prompt = TokensOf(1, 40)});
  const std::vector<PageRun> slabs = Of(Taken(lab), PageContent::kSlab);
  ASSERT_EQ(slabs.size(), 1u);
  EXPECT_EQ(slabs[0].begin, lab.store().Stats().pools[0].used_slots);
  EXPECT_EQ(slabs[0].end, lab.store().Stats().pools[0].total_slots);
  EXPECT_EQ(slabs[0].use, PageUse::kCached);
}

TEST(PageMap, WhatWaitsForAStepToEndIsNobodys) {
  ReuseLab lab(Options("d0"));
  std::optional<PatternSequence> sequence = lab.Admit({.prompt = TokensOf(1, 20)});
  ASSERT_TRUE(sequence.has_value());
  sequence->Step(10);
  lab.store().OpenStep();
  sequence.reset();
  for (const PageRun& run : Taken(lab)) {
    EXPECT_EQ(run.use, PageUse::kDraining);
    EXPECT_EQ(run.content, PageContent::kNone);
  }
  lab.Check();
  lab.store().CloseStep();
  EXPECT_TRUE(Taken(lab).empty());
}

}  // namespace
}  // namespace tessera
