// SPDX-License-Identifier: Apache-2.0
#include "bench/memory_ops_bench.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/bytes.h"
#include "bench/prompt_forest.h"
#include "memory/geometry/named_geometries.h"
#include "testing/allocation_count.h"

namespace tessera {
namespace {

Organisation TableOf(OrganisationSpec::Kind kind) {
  OrganisationSpec spec;
  spec.kind = kind;
  return *DescribeOrganisation(spec, FindGeometry("falcon-h1-7b")->shape);
}

TEST(PromptForest, EveryPromptIsFoundWholeAndNothingIsHeld) {
  using Kind = OrganisationSpec::Kind;
  for (Kind kind : {Kind::kS0, Kind::kS1, Kind::kS2, Kind::kD0, Kind::kS3}) {
    for (bool mixed : {false, true}) {
      PromptForest forest(TableOf(kind), 4000, mixed);
      // A context's 16 prompts are 2,816 groups; the first five of the next are 512, three times 128
      // and, with a branch of its own, 256.
      EXPECT_EQ(forest.prompts(), 16u + 5u);
      EXPECT_EQ(forest.groups(), 2816u + 256 + 2 * 128 + 5 * 128);
      LedgerLock lock(forest.ledger());
      for (uint32_t i = 0; i < forest.prompts(); ++i) {
        const std::vector<TokenId> tokens = forest.TokensOf(i);
        const Match match = forest.index().Find(lock, {.prompt = tokens, .salt = {}});
        EXPECT_EQ(match.report.reused, PromptForest::kPromptTokens) << i;
      }
      for (int pool = 0; pool < forest.ledger().pool_count(); ++pool) {
        EXPECT_EQ(forest.ledger().counts(lock, pool).held, 0u);
      }
      EXPECT_TRUE(forest.ledger().Validate(lock, 3).ok());
      EXPECT_TRUE(forest.index().Validate(lock, 3).ok());
    }
  }
}

TEST(PromptForest, ItsMetadataIsAboutWhatWasAnnounced) {
  const Organisation table = TableOf(OrganisationSpec::Kind::kS3);
  const PromptForest forest(table, 100'000);
  const uint64_t real =
      const_cast<PromptForest&>(forest).ledger().metadata_bytes() + forest.index().metadata_bytes();
  const uint64_t announced = PromptForest::MetadataBytes(table, 100'000);
  EXPECT_LT(real, announced + announced / 4);
  EXPECT_GT(real, announced / 2);
}

// The hot path: whatever a request does with an index that is there, from the look-up to eviction.
TEST(PromptForest, FindAdoptPublishReclaimAndEvictAllocateNothing) {
  PromptForest forest(TableOf(OrganisationSpec::Kind::kS3), 4000);
  PrefixIndex& index = forest.index();
  Ledger& ledger = forest.ledger();
  const int pool = forest.table().attention_pool;
  const uint32_t prompt = 7;
  const std::vector<TokenId> old = forest.TokensOf(prompt);
  forest.Renew(prompt);
  const std::vector<TokenId> tokens = forest.TokensOf(prompt);
  LedgerLock lock(ledger);
  const PromptForest::Written written = forest.TakeLeaf(lock);

  const uint64_t before = testing::AllocationCount();
  const Match found = index.Find(lock, {.prompt = old, .salt = {}});
  Lease lease = index.Adopt(lock, found);
  index.CountLookup(lock, found);
  index.Release(lock, &lease);
  ASSERT_TRUE(ledger.Reclaim(lock, forest.LeafCheckpoint(prompt)));
  const std::span<const PageId> pages = forest.LeafPages(prompt);
  for (size_t i = pages.size(); i > 0; --i) {
    ASSERT_EQ(ledger.ReclaimPage(lock, pool, pages[i - 1]), 1);
  }
  const Match shared = index.Find(lock, {.prompt = tokens, .salt = {}});
  ASSERT_EQ(shared.report.reused, PromptForest::kPromptTokens - PromptForest::kLeafTokens);
  lease = index.Adopt(lock, shared);
  index.CountLookup(lock, shared);
  PublishPath path = index.OpenPath(lock, {}, lease);
  forest.PublishGroups(lock, &path,
                       std::span(tokens).subspan(lease.position(), PromptForest::kLeafTokens),
                       written.pages);
  forest.PublishCheckpoint(lock, prompt, path, written);
  forest.LetGo(lock, written);
  index.ClosePath(lock, &path);
  index.Release(lock, &lease);
  const uint32_t wanted = ledger.pool(pool).free_pages() + 1000;
  ASSERT_TRUE(index.MakeRoom(lock, pool, [&] { return ledger.pool(pool).free_pages() >= wanted; }));
  EXPECT_EQ(testing::AllocationCount() - before, 0u);
  EXPECT_TRUE(index.Validate(lock, 3).ok());
}

MemoryBenchOptions Small() {
  MemoryBenchOptions options;
  options.entries = {1'000, 12'000};
  options.samples = 10;
  options.requests_per_step = 5;
  return options;
}

TEST(MemoryBench, EveryOperationHasALineForEachSize) {
  const auto report = RunMemoryBench(Small());
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  const auto json = nlohmann::json::parse(MemoryBenchJson(*report));
  for (uint64_t entries : {1'000, 12'000}) {
    std::set<std::string> lines;
    for (const auto& line : json["operations"]) {
      if (line["entries"] != entries) continue;
      EXPECT_LE(line["blocks"], entries);
      EXPECT_GT(line["ns"], 0);
      EXPECT_TRUE(
          lines
              .insert(line["operation"].get<std::string>() + " " + line["cache"].get<std::string>())
              .second);
    }
    EXPECT_EQ(lines.size(), 15u);
  }
  // Two sizes, one and two threads, one and five requests a lock.
  ASSERT_EQ(json["requests"].size(), 8u);
  EXPECT_EQ(json["requests"][7]["threads"], 2);
  EXPECT_EQ(json["requests"][7]["requests_per_lock"], 5);
  EXPECT_GT(json["requests"][7]["requests_per_second"], 0);
  EXPECT_NE(MemoryBenchText(*report).find("reclaim checkpoint"), std::string::npos);
}

// 12,000 groups of S2 in fp32: an attention page holds a block, a checkpoint 6 pages and a slot of
// 16 in a slab; a slab that is reclaimed takes with it as many checkpoints as it has used slots.
TEST(MemoryBench, ASlabInvalidatesWhatHasASlotInItAndAPageOneEntry) {
  const auto report = RunMemoryBench(Small());
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  std::set<std::string> organisations;
  uint32_t slabs = 0;
  for (const ReclaimTime& line : report->reclaims) {
    organisations.insert(line.organisation.substr(0, 2));
    if (line.slots == 0) {
      EXPECT_EQ(line.invalidated, 1) << line.organisation << line.page;
      continue;
    }
    ++slabs;
    EXPECT_EQ(line.organisation.substr(0, 2), "s2");
    EXPECT_EQ(line.slots, 16u);
    EXPECT_EQ(line.invalidated, line.slots_used);
    EXPECT_EQ(line.pages_freed, 6 * line.slots_used + 1);
    EXPECT_LE(line.contexts, line.slots_used);
  }
  EXPECT_EQ(organisations, (std::set<std::string>{"d0", "s0", "s1", "s2", "s3"}));
  EXPECT_GE(slabs, 10u);  // 1, 2, 4, 8, 16 slots, of few contexts and of many
}

TEST(MemoryBench, ASizeThatMemoryDoesNotAllowIsLeftOutByName) {
  MemoryBenchOptions options = Small();
  options.entries = {1'000, 1'000'000};
  options.memory_bytes = 16 * kMiB;
  const auto report = RunMemoryBench(options);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  ASSERT_EQ(report->left_out.size(), 1u);
  EXPECT_NE(MemoryBenchText(*report).find("left out: 1000000 entries"), std::string::npos);
  const auto json = nlohmann::json::parse(MemoryBenchJson(*report));
  EXPECT_EQ(json["left_out"][0]["entries"], 1'000'000);
  EXPECT_GT(json["left_out"][0]["needed_bytes"], json["left_out"][0]["available_bytes"]);
}

TEST(MemoryBench, AModelWithoutBothKindsOfStateIsRefused) {
  MemoryBenchOptions options = Small();
  options.geometry = "mamba2-130m";
  const auto report = RunMemoryBench(options);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(report.error().message().find("--geometry mamba2-130m: 0 attention"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
