// SPDX-License-Identifier: Apache-2.0
//
// What is kept and what goes: placement, retention, steps that are open while memory is freed, and
// clearing, seen through the store. How the policies themselves decide is tested beside them
// (memory/prefix).
#include <gtest/gtest.h>

#include <algorithm>

#include "memory/geometry/named_geometries.h"
#include "memory/store/pattern_sequence.h"

namespace tessera {
namespace {

using testing::Ask;
using testing::Joined;
using testing::PatternSequence;
using testing::ReuseCase;
using testing::ReuseCases;
using testing::ReuseLab;
using testing::TokensOf;

StoreOptions Options(const char* organisation, uint64_t budget_bytes = 128 * kKiB,
                     uint32_t row_width = 8) {
  StoreOptions options = ReuseCases(row_width)[0].options;
  options.organisation = OrganisationSpec::Parse(organisation).value();
  options.budget_bytes = budget_bytes;
  return options;
}

// Other people's requests, until what they left behind has displaced so many checkpoints.
void Press(ReuseLab& lab, uint64_t checkpoints, uint64_t seed) {
  const uint64_t before = lab.stats().evicted_checkpoints;
  for (uint64_t i = 0; lab.stats().evicted_checkpoints < before + checkpoints; ++i) {
    ASSERT_LT(i, 3000u);
    lab.Serve({.prompt = TokensOf(seed + i, 60)}, 60);
  }
}

// --- Placement ------------------------------------------------------------------------------

TEST(StorePlacement, TheSecondToShareABeginningPaysItOnceMoreTheThirdNever) {
  for (ReuseCase c : ReuseCases(8)) {
    if (!c.recurrent()) continue;
    SCOPED_TRACE(c.name);
    for (const auto kind : {PlacementSpec::Kind::kTailBranch, PlacementSpec::Kind::kDefault}) {
      c.options.reuse.placement.kind = kind;
      ReuseLab lab(c.options);
      const std::vector<TokenId> common = TokensOf(1, 41);
      EXPECT_EQ(lab.Serve({.prompt = Joined(common, TokensOf(2, 30))}).reused, 0u);
      EXPECT_LE(lab.Serve({.prompt = Joined(common, TokensOf(3, 30))}).reused, 41u);
      for (uint64_t seed = 4; seed < 8; ++seed) {
        EXPECT_EQ(lab.Serve({.prompt = Joined(common, TokensOf(seed, 30))}).reused, 41u);
      }
    }
  }
}

TEST(StorePlacement, ANamedPositionMakesTheSecondRequestAHit) {
  for (ReuseCase c : ReuseCases(8)) {
    SCOPED_TRACE(c.name);
    c.options.reuse.placement.kind = PlacementSpec::Kind::kTailBranch;
    ReuseLab lab(c.options);
    const std::vector<TokenId> common = TokensOf(1, 41);
    lab.Serve({.prompt = Joined(common, TokensOf(2, 30)), .checkpoint_at = {41, 41, 0, 5000}});
    EXPECT_EQ(lab.Serve({.prompt = Joined(common, TokensOf(3, 30))}).reused, 41u);
  }
}

TEST(StorePlacement, AMessageEndMakesTheSecondRequestAHit) {
  for (const ReuseCase& c : ReuseCases(8)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const std::vector<TokenId> common = TokensOf(1, 41);
    lab.Serve({.prompt = Joined(common, TokensOf(2, 30)), .message_ends = {41}});
    EXPECT_EQ(lab.Serve({.prompt = Joined(common, TokensOf(3, 30))}).reused, 41u);
  }
}

TEST(StorePlacement, AMarkLetsTheSecondRequestReuseALongBeginning) {
  // A checkpoint costs as much as 44 tokens of attention state: marks are at multiples of 48.
  StoreOptions options = Options("s3");
  // Three quarters are held, so that no spare checkpoint is placed.
  ReuseLab lab(options);
  std::optional<PatternSequence> rest = lab.Admit({.prompt = TokensOf(9, 16), .generate = 3300});
  ASSERT_TRUE(rest.has_value());
  const std::vector<TokenId> common = TokensOf(1, 100);
  lab.Serve({.prompt = Joined(common, TokensOf(2, 30))});
  for (const BoundaryInfo& boundary : lab.store().Boundaries(100, 0)) {
    EXPECT_FALSE(boundary.spare);
  }
  EXPECT_EQ(lab.Serve({.prompt = Joined(common, TokensOf(3, 30))}).reused, 96u);
  EXPECT_EQ(lab.Serve({.prompt = Joined(common, TokensOf(4, 30))}).reused, 100u);
}

// A prompt that ends on the grid has its checkpoint one step before; that its last tokens were there
// is known all the same, so the second request to share them leaves a checkpoint for the third.
TEST(StorePlacement, OnAGridTheEndOfAPromptIsKnownWithoutACheckpoint) {
  for (ReuseCase c : ReuseCases(0)) {
    if (!c.recurrent() || c.options.shape.attention_layers == 0) continue;
    SCOPED_TRACE(c.name);
    c.options.reuse.placement.kind = PlacementSpec::Kind::kTailBranch;
    c.options.reuse.checkpoint_grid = 32;
    ReuseLab lab(c.options);
    const std::vector<TokenId> common = TokensOf(1, 64);
    lab.Serve({.prompt = common, .generate = 3});
    EXPECT_EQ(lab.Serve({.prompt = Joined(common, TokensOf(2, 40))}).reused, 32u);
    EXPECT_EQ(lab.Serve({.prompt = Joined(common, TokensOf(3, 40))}).reused, 64u);
  }
}

TEST(StorePlacement, SpareCheckpointsAreTheFirstToGo) {
  ReuseLab lab(Options("s3", 64 * kKiB));
  lab.Serve({.prompt = TokensOf(1, 200)});
  auto count = [&lab](bool spare) {
    uint32_t found = 0;
    for (const BoundaryInfo& boundary : lab.store().Boundaries(1000, 1)) {
      found += boundary.prefix == TokensOf(1, 1) && boundary.spare == spare ? 1 : 0;
      EXPECT_TRUE(boundary.checkpoint);
      EXPECT_GT(boundary.bytes, 0u);
      EXPECT_FALSE(boundary.held || boundary.pinned || boundary.retained || boundary.salted);
    }
    return found;
  };
  const uint32_t others = count(false);
  EXPECT_EQ(count(true), 1u);  // 144; 192 is the mark
  EXPECT_EQ(others, 2u);
  for (uint64_t seed = 10; count(false) == others; ++seed) {
    ASSERT_LT(seed, 1000u);
    Press(lab, 1, 1000 * seed);
  }
  EXPECT_EQ(count(true), 0u);
}

TEST(StorePlacement, ASpareCheckpointDisplacesNoOrdinaryOne) {
  for (const char* organisation :
       {"s0:block=32", "s1:block=32", "s2:block=32", "d0:split=0.5", "s3"}) {
    SCOPED_TRACE(organisation);
    ReuseLab lab(Options(organisation, 256 * kKiB));
    // Planned while memory is plentiful, reached when it is not.
    std::optional<PatternSequence> sequence = lab.Admit({.prompt = TokensOf(1, 300)});
    ASSERT_TRUE(sequence.has_value());
    sequence->RunTo(140);
    Press(lab, 5, 1000);
    std::vector<PatternSequence> others;  // which hold what the last of them left free
    for (uint64_t seed = 2; seed < 5; ++seed) {
      others.push_back(*lab.Admit({.prompt = TokensOf(seed, 16)}));
    }
    auto ordinary = [&lab] {
      const std::vector<BoundaryInfo> all = lab.store().Boundaries(1000, 0);
      return std::count_if(all.begin(), all.end(), [](const auto& one) { return !one.spare; });
    };
    const auto before = ordinary();
    const uint64_t evicted = lab.stats().evicted_checkpoints;
    sequence->RunTo(150);  // past the spare one at 144
    EXPECT_EQ(ordinary(), before);
    sequence->RunTo(300);  // past the mark
    EXPECT_GT(lab.stats().evicted_checkpoints, evicted);
  }
}

TEST(StorePlacement, AddCutIsABoundaryLikeANamedOne) {
  for (const ReuseCase& c : ReuseCases(8)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    std::optional<PatternSequence> sequence = lab.Admit({.prompt = TokensOf(1, 80)});
    ASSERT_TRUE(sequence.has_value());
    sequence->RunTo(10);
    EXPECT_FALSE(sequence->state().AddCut(5));  // passed
    EXPECT_TRUE(sequence->state().AddCut(29));
    EXPECT_TRUE(sequence->state().AddCut(29));
    EXPECT_LE(sequence->state().TokensToCut(), 19u);
    sequence->RunTo(40);
    EXPECT_EQ(lab.Lookup({.prompt = Joined(TokensOf(1, 29), TokensOf(2, 9))}).reused, 29u);
  }
}

TEST(StorePlacement, ASequenceTakesSoManyCutsAndSaysNoToMore) {
  for (ReuseCase c : ReuseCases(8, 80)) {
    SCOPED_TRACE(c.name);
    c.options.reuse.placement.kind = PlacementSpec::Kind::kTail;
    ReuseLab lab(c.options);
    // As many named ones as there are make none of those fewer.
    std::vector<uint32_t> named;
    for (uint32_t at = 2; at < 160; at += 4) named.push_back(at);
    std::optional<PatternSequence> sequence =
        lab.Admit({.prompt = TokensOf(1, 160), .checkpoint_at = named});
    ASSERT_TRUE(sequence.has_value());
    SequenceState& state = sequence->state();
    for (uint32_t i = 1; i <= SequenceState::kAddedCutsMax; ++i) EXPECT_TRUE(state.AddCut(4 * i));
    EXPECT_FALSE(state.AddCut(140));
    EXPECT_TRUE(state.AddCut(4));  // there already
    EXPECT_TRUE(state.AddCut(158));
    sequence->RunTo(160, 100);
    for (uint32_t at = 4; at <= 4 * SequenceState::kAddedCutsMax; at += 2) {
      EXPECT_EQ(lab.Lookup({.prompt = Joined(TokensOf(1, at), TokensOf(2, 9))}).reused, at);
    }
    EXPECT_LT(lab.Lookup({.prompt = Joined(TokensOf(1, 140), TokensOf(2, 9))}).reused, 140u);
  }
}

// --- Attention lost before its checkpoint ---------------------------------------------------

TEST(StorePolicy, AttentionBeyondTheLastCheckpointIsTheFirstToGo) {
  ReuseLab lab(Options("s3"));
  std::vector<std::vector<TokenId>> prompts;
  while (lab.stats().evicted_checkpoints < 40) {
    ASSERT_LT(prompts.size(), 1000u);
    prompts.push_back(TokensOf(prompts.size(), 60));
    lab.Serve({.prompt = prompts.back()});
    // Those whose checkpoints were taken and whose attention state is still there.
    const auto left = std::count_if(prompts.begin(), prompts.end(), [&lab](const auto& prompt) {
      const MatchReport match = lab.Lookup({.prompt = prompt});
      return match.attention > 0 && match.recurrent == 0;
    });
    EXPECT_LE(left, 1) << "more than the last victim";
  }
}

// Evicting from the end takes a long text's one boundary and keeps attention that nobody can use.
// Here what hangs on the text goes before it, and what it leaves goes before any other checkpoint.
TEST(StorePolicy, TheOnlyBoundaryOfALongTextOutlivesWhatFollowsItAndLeavesNothingBehind) {
  for (const ReuseCase& c : ReuseCases(8)) {
    if (!c.recurrent() || !c.attention()) continue;
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const Organisation& table = lab.store().organisation();
    const std::vector<TokenId> text = TokensOf(1, 96);
    for (uint64_t question = 0; question < 3; ++question) {
      lab.Serve({.prompt = Joined(text, TokensOf(10 + question, 20)), .checkpoint_at = {96}});
    }
    const auto found = [&](uint64_t question) {
      return lab.Lookup({.prompt = Joined(text, TokensOf(10 + question, 40))});
    };
    ASSERT_EQ(found(0).reused, 116u);
    uint32_t outlived = 0;
    uint64_t other = 1000;
    const auto press = [&] { lab.Serve({.prompt = TokensOf(other++, 60)}, 60); };
    while (found(0).recurrent > 0) {
      ASSERT_LT(other, 4000u);
      press();
      const bool ends = found(0).reused > 96 || found(1).reused > 96 || found(2).reused > 96;
      if (found(9).reused < 96) {
        EXPECT_FALSE(ends);
      } else if (!ends) {
        ++outlived;
      }
    }
    EXPECT_GT(outlived, 0u);
    while (table.attention_pool == table.state_pool && found(9).attention > 0) {
      const uint64_t evicted = lab.stats().evicted_checkpoints;
      press();
      const bool left = found(9).attention > 0;
      EXPECT_TRUE(!left || lab.stats().evicted_checkpoints == evicted);
      ASSERT_LT(other, 4000u);
    }
  }
}

TEST(StorePolicy, ACheckpointWithoutItsAttentionIsAGapAndNotAHit) {
  ReuseLab lab(Options("d0:split=0.3", 64 * kKiB));
  const std::vector<TokenId> prompt = TokensOf(1, 64);
  lab.Serve({.prompt = prompt});
  // Computes a copy of its own: it holds the end of the path, nobody the blocks that lead there.
  std::optional<PatternSequence> copy =
      lab.Admit({.prompt = prompt, .generate = 8, .lookup = false});
  ASSERT_TRUE(copy.has_value());
  copy->RunTo(64);
  std::vector<PatternSequence> others;
  for (uint64_t seed = 10; seed < 200; ++seed) {
    std::optional<PatternSequence> other = lab.Admit({.prompt = TokensOf(seed, 64)});
    if (!other.has_value()) break;
    others.push_back(*std::move(other));
  }
  for (const Ask& ask : {Ask{.prompt = prompt}, Ask{.prompt = Joined(prompt, {1, 2, 3})}}) {
    const MatchReport report = lab.Lookup(ask);
    EXPECT_EQ(report.recurrent, 64u);
    EXPECT_LT(report.attention, 64u);
    EXPECT_EQ(report.reused, 0u);
    EXPECT_EQ(report.gap(), 64u);
    ASSERT_GT(report.computed_count, 0u);
    EXPECT_EQ(report.computed[0].reason, ComputeReason::kEvicted);
  }
  copy->RunTo(72);
}

TEST(StorePolicy, AKeptRowGoesAloneAndItsCheckpointStays) {
  StoreOptions options = Options("s3", 300 * 100 * 64 / 10);  // 30 rows of 64 B
  options.reuse.placement.kind = PlacementSpec::Kind::kTail;
  ReuseLab lab(options);
  const Ask first{.prompt = TokensOf(1, 20)};
  lab.Serve(first);
  const uint32_t rows = lab.stats().row_capacity;
  ASSERT_GT(rows, 0u);
  for (uint64_t seed = 10; lab.stats().evicted_rows == 0; ++seed) {
    ASSERT_LT(seed, 10u + 2 * rows);
    lab.Serve({.prompt = TokensOf(seed, 20)});
  }
  EXPECT_EQ(lab.stats().rows, rows);
  EXPECT_EQ(lab.stats().evicted_checkpoints, 0u);
  const MatchReport report = lab.Lookup(first);
  EXPECT_EQ(report.reused, 0u);
  EXPECT_EQ(report.recurrent, 20u);
  EXPECT_EQ(report.computed[0].reason, ComputeReason::kNoCheckpoint);
  EXPECT_EQ(lab.Lookup({.prompt = Joined(first.prompt, {1})}).reused, 20u);
}

// Tokens that an identical prompt runs again when its row is gone: from a checkpoint's price back.
TEST(StorePolicy, WithoutItsRowAnIdenticalPromptRunsNoMoreThanACheckpointIsWorth) {
  for (const ReuseCase& c : ReuseCases(64, 100)) {
    if (!c.attention()) continue;  // no price
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const StateShape& shape = c.options.shape;
    const uint64_t group_bytes = shape.group_bytes();
    const uint64_t price =
        c.recurrent() ? RoundUp(16 * shape.image_bytes(), group_bytes) / group_bytes : 0;
    const uint64_t most = std::max<uint64_t>(16, RoundUp(price, 16));
    const std::vector<TokenId> prompt = TokensOf(1, 100);
    lab.Serve({.prompt = prompt});
    const uint32_t rows = lab.stats().row_capacity;
    for (uint64_t seed = 10; lab.Lookup({.prompt = prompt}).from_row; ++seed) {
      ASSERT_LE(seed, 10u + rows);
      lab.Serve({.prompt = TokensOf(seed, 2)});
    }
    EXPECT_EQ(lab.stats().evicted_checkpoints, 0u);
    const MatchReport report = lab.Serve({.prompt = prompt});
    EXPECT_LT(report.reused, 100u);
    EXPECT_GE(report.reused + most, 100u);
    EXPECT_TRUE(lab.Lookup({.prompt = prompt}).from_row);  // which kept it anew
  }
}

TEST(StorePolicy, ARowStaysWithItsCheckpointWhereThereIsAUnitForEach) {
  for (const char* organisation : {"s0", "s1:block=64", "s2:block=64", "d0:split=0.3", "s3"}) {
    SCOPED_TRACE(organisation);
    StoreOptions options = Options(organisation, 1 * kMiB);
    options.shape.ssm_state = 128;  // 9 KiB a checkpoint, 64 B a row
    options.reuse.placement.kind = PlacementSpec::Kind::kTail;
    ReuseLab lab(options);
    Press(lab, 40, 100);
    EXPECT_GT(lab.stats().evicted_rows, 0u);
    EXPECT_EQ(lab.stats().rows, lab.stats().checkpoints);
    for (const BoundaryInfo& boundary : lab.store().Boundaries(1000, 0)) EXPECT_TRUE(boundary.row);
  }
}

TEST(StorePolicy, PublishedModelsHaveARowForEveryCheckpointOrCheckpointsOfSixteenTokens) {
  for (const StateGeometry& geometry : NamedGeometries()) {
    if (geometry.shape.recurrent_layers == 0) continue;
    for (const StateType type : {StateType::kF32, StateType::kBF16}) {
      for (const char* organisation : {"s0", "s1", "s2", "d0:split=0.1", "s3"}) {
        for (const uint32_t sequences : {1u, 7u, 64u}) {
          SCOPED_TRACE(geometry.name + " " + organisation + " " + std::to_string(sequences));
          StateShape shape = geometry.shape;
          shape.state_type = type;
          const auto spec = OrganisationSpec::Parse(organisation).value();
          const KeptRows rows(geometry.width);
          const uint64_t budget =
              rows.BudgetFor(StateStore::BudgetForSequences(shape, spec, sequences, 2048).value());
          const Organisation table = MakeOrganisation(spec, shape, rows.PoolBytes(budget)).value();
          const uint64_t pages = table.pools[static_cast<size_t>(table.state_pool)].page_count;
          const uint64_t checkpoints =
              table.state_pages > 0 ? pages / table.state_pages : pages * table.slots_per_page;
          if (geometry.name == "lfm2-1.2b") {
            EXPECT_LE(16 * shape.image_bytes(), 16 * shape.group_bytes());
          } else {
            EXPECT_GE(rows.Units(budget), checkpoints);
          }
        }
      }
    }
  }
}

// A sequence that computed its own copy holds the end of the path; what leads there goes by force
// when others need it, and so must the row, or its node and all above it would stay for good.
TEST(StorePolicy, ARowGoesWithWhatItsPromptWouldStartFrom) {
  for (ReuseCase c : ReuseCases(8)) {
    SCOPED_TRACE(c.name);
    if (c.recurrent()) continue;  // there a checkpoint is never out of reach
    ReuseLab lab(c.options);
    const std::vector<TokenId> prompt = TokensOf(1, 64);
    lab.Serve({.prompt = prompt});
    EXPECT_EQ(lab.stats().rows, 1u);
    std::optional<PatternSequence> copy =
        lab.Admit({.prompt = prompt, .generate = 8, .lookup = false});
    ASSERT_TRUE(copy.has_value());
    copy->RunTo(64);
    std::vector<PatternSequence> others;
    for (uint64_t seed = 10; lab.last().outcome == Admission::kAdmitted; ++seed) {
      std::optional<PatternSequence> other = lab.Admit({.prompt = TokensOf(seed, 16)});
      if (other.has_value()) others.push_back(*std::move(other));
    }
    EXPECT_EQ(lab.stats().blocks, 0u);
    copy.reset();
    others.clear();
    lab.Check();
    EXPECT_EQ(lab.stats().rows, 0u);
    EXPECT_EQ(lab.stats().nodes, 1u);  // the root
  }
}

// --- Retention ------------------------------------------------------------------------------

// A producer that runs and has left a checkpoint at 33, which two requests started from.
std::optional<PatternSequence> WantedTwice(ReuseLab& lab, const std::vector<TokenId>& common) {
  std::optional<PatternSequence> producer = lab.Admit(
      {.prompt = Joined(common, TokensOf(2, 20)), .generate = 100, .checkpoint_at = {33}});
  EXPECT_TRUE(producer.has_value());
  producer->RunTo(60);
  for (uint64_t seed : {3, 4}) {
    EXPECT_EQ(lab.Serve({.prompt = Joined(common, TokensOf(seed, 20))}).reused, 33u);
  }
  return producer;
}

StoreOptions Retaining(const char* organisation, const char* retention) {
  StoreOptions options = Options(organisation, 48 * kKiB);
  options.reuse.eviction = EvictionPolicy::kLru;
  options.reuse.placement.kind = PlacementSpec::Kind::kTail;
  options.reuse.retention = RetentionSpec::Parse(retention).value();
  return options;
}

constexpr const char* kOrganisations[] = {"s0:block=32", "s1:block=32", "s2:block=64",
                                          "d0:split=0.5", "s3"};

TEST(StoreRetention, AWantedCheckpointOutlivesOthersWhileItsProducerRuns) {
  const std::vector<TokenId> common = TokensOf(1, 33);
  for (const char* organisation : kOrganisations) {
    for (const char* retention : {"off", "producer:2", "producer:3", "strict"}) {
      SCOPED_TRACE(std::string(organisation) + " " + retention);
      ReuseLab lab(Retaining(organisation, retention));
      const bool retains =
          std::string_view(retention) != "off" && std::string_view(retention) != "producer:3";
      std::optional<PatternSequence> producer = WantedTwice(lab, common);
      EXPECT_EQ(lab.stats().retained_checkpoints, retains ? 1u : 0u);
      Press(lab, 40, 100);
      const Ask again{.prompt = Joined(common, TokensOf(5, 20))};
      EXPECT_EQ(lab.Lookup(again).reused, retains ? 33u : 0u);
      // Protection ends with the producer.
      producer.reset();
      lab.Check();
      EXPECT_EQ(lab.stats().retained_checkpoints, 0u);
      Press(lab, 40, 4000);
      EXPECT_EQ(lab.Lookup(again).reused, 0u);
      EXPECT_EQ(lab.stats().retention_drops, 0u);
    }
  }
}

// Sequences that grow take what is cached, and what is retained last or, when it is strict, not.
TEST(StoreRetention, GrowthDropsWhatIsRetainedUnlessItIsStrict) {
  const std::vector<TokenId> common = TokensOf(1, 33);
  for (const char* organisation : {"s1:block=32", "s3"}) {
    for (const char* retention : {"producer:2", "strict"}) {
      SCOPED_TRACE(std::string(organisation) + " " + retention);
      ReuseLab lab(Retaining(organisation, retention));
      const bool strict = std::string_view(retention) == "strict";
      std::optional<PatternSequence> producer = WantedTwice(lab, common);
      Press(lab, 10, 100);
      EXPECT_EQ(lab.stats().retention_drops, 0u);
      std::vector<PatternSequence> growing;
      bool refused = false;
      for (uint64_t seed = 10; !refused; ++seed) {
        std::optional<PatternSequence> one = lab.Admit(
            {.prompt = TokensOf(seed, 10), .generate = 80, .lookup = false, .grows = true});
        if (!one.has_value()) break;
        growing.push_back(*std::move(one));
        refused = growing.back().state().Grow(90) > 0;
        lab.Check();
      }
      EXPECT_EQ(lab.stats().retention_drops, strict ? 0u : 1u);
      EXPECT_EQ(lab.Lookup({.prompt = Joined(common, {1})}).recurrent == 33, strict);
    }
  }
}

TEST(StoreRetention, AfterKeepsItPastTheProducersEndWithinItsShare) {
  const std::vector<TokenId> common = TokensOf(1, 33);
  for (const char* organisation : kOrganisations) {
    SCOPED_TRACE(organisation);
    for (const auto& [retention, kept] :
         {std::pair("after:2,0.2", true), {"after:2,0.0001", false}}) {
      ReuseLab lab(Retaining(organisation, retention));
      WantedTwice(lab, common).reset();
      EXPECT_EQ(lab.stats().retained_checkpoints, kept ? 1u : 0u);
      Press(lab, 40, 100);
      const Ask again{.prompt = Joined(common, TokensOf(5, 20))};
      EXPECT_EQ(lab.Lookup(again).reused, kept ? 33u : 0u);
      uint32_t marked = 0;
      for (const BoundaryInfo& boundary : lab.store().Boundaries(1000, 0)) {
        marked += boundary.retained ? 1 : 0;
      }
      EXPECT_EQ(marked, kept ? 1u : 0u);
    }
  }
}

TEST(StoreRetention, AWishGivesWayToARequestThatNeedsTheMemoryAndIsCounted) {
  const std::vector<TokenId> common = TokensOf(1, 33);
  for (const char* organisation : {"s1:block=32", "s2:block=64", "s3"}) {
    for (const char* retention : {"producer:2", "after:2,0.5", "strict"}) {
      SCOPED_TRACE(std::string(organisation) + " " + retention);
      const bool strict = std::string_view(retention) == "strict";
      ReuseLab lab(Retaining(organisation, retention));
      std::optional<PatternSequence> producer = WantedTwice(lab, common);
      ASSERT_EQ(lab.stats().retained_checkpoints, 1u);
      // All that is not held, to the page.
      std::vector<PatternSequence> others;
      for (uint64_t seed = 10; seed < 3000; ++seed) {
        std::optional<PatternSequence> other = lab.Admit({.prompt = TokensOf(seed, 16)});
        if (!other.has_value()) break;
        others.push_back(*std::move(other));
      }
      EXPECT_EQ(lab.last().outcome, Admission::kMustWait);
      EXPECT_EQ(lab.stats().retention_drops, strict ? 0u : 1u);
      EXPECT_EQ(lab.stats().retained_checkpoints, strict ? 1u : 0u) << "what was dropped is not";
      EXPECT_EQ(lab.Lookup({.prompt = Joined(common, {1})}).recurrent == 33, strict);
      producer.reset();
      lab.Check();
      if (strict) {  // and is there for the next
        EXPECT_TRUE(lab.Admit({.prompt = TokensOf(5000, 16)}).has_value()) << lab.last().reason;
      }
    }
  }
}

TEST(StoreRetention, ANewCheckpointDisplacesNoneThatIsRetained) {
  const std::vector<TokenId> common = TokensOf(1, 33);
  ReuseLab lab(Retaining("s3", "producer:2"));
  std::optional<PatternSequence> producer = WantedTwice(lab, common);
  ASSERT_EQ(lab.stats().retained_checkpoints, 1u);
  // Until nothing is free and the retained checkpoint is all that is cached, but for a part.
  const uint32_t image = lab.store().organisation().state_pages;
  const uint32_t need = lab.store().NeedFor(16).pages[0];
  const auto there = [&lab] {
    const PoolStats pool = lab.store().Stats().pools[0];
    return pool.free_pages + pool.cached_attention_pages + pool.cached_state_pages;
  };
  std::vector<PatternSequence> others;
  for (uint64_t seed = 10; there() >= image + need; ++seed) {
    std::optional<PatternSequence> other = lab.Admit({.prompt = TokensOf(seed, 16)});
    ASSERT_TRUE(other.has_value()) << lab.last().reason;
    others.push_back(*std::move(other));
  }
  ASSERT_GE(there(), image);
  const uint64_t skipped = lab.stats().skipped_checkpoints;
  for (PatternSequence& other : others) other.RunTo(16);
  EXPECT_EQ(lab.stats().skipped_checkpoints, skipped + others.size());
  EXPECT_EQ(lab.stats().retention_drops, 0u);
  EXPECT_EQ(lab.stats().retained_checkpoints, 1u);
}

// --- Open steps and clearing ----------------------------------------------------------------

TEST(StoreSteps, WhatIsFreedWhileAStepIsOpenIsNobodysUntilItEnds) {
  for (const ReuseCase& c : ReuseCases(0, 4)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    std::vector<PatternSequence> held;
    for (uint64_t seed = 10; seed < 3000; ++seed) {
      std::optional<PatternSequence> other =
          lab.Admit({.prompt = TokensOf(seed, 60), .lookup = false});
      if (!other.has_value()) break;
      other->RunTo(13);  // no boundary: nothing is published
      held.push_back(*std::move(other));
    }
    ASSERT_GT(held.size(), 1u);
    lab.store().OpenStep();
    held.pop_back();
    lab.Check();
    uint32_t draining = 0;
    for (const PoolStats& pool : lab.store().Stats().pools) draining += pool.draining_pages;
    if (c.attention() || lab.store().organisation().state_pages > 0) {  // not slots alone
      EXPECT_GT(draining, 0u);
    }
    lab.store().CloseStep();
    lab.Check();
    for (const PoolStats& pool : lab.store().Stats().pools) EXPECT_EQ(pool.draining_pages, 0u);
    EXPECT_TRUE(lab.Admit({.prompt = TokensOf(1, 60)}).has_value()) << lab.last().reason;
  }
}

TEST(StoreSteps, AnOpenStepDoesNotMakeAnAdmissionThrowTheCacheAway) {
  for (const ReuseCase& c : ReuseCases(8, 4, 0)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    Press(lab, c.recurrent() ? 3 : 0, 10);
    lab.Serve({.prompt = TokensOf(1, 60)});
    const uint64_t gone = lab.stats().entries_invalidated;
    lab.store().OpenStep();
    std::vector<PatternSequence> held;
    for (uint64_t seed = 5000; seed < 8000; ++seed) {
      std::optional<PatternSequence> other = lab.Admit({.prompt = TokensOf(seed, 60)});
      if (!other.has_value()) break;
      held.push_back(*std::move(other));
    }
    EXPECT_EQ(lab.last().outcome, Admission::kMustWait);
    EXPECT_EQ(lab.stats().entries_invalidated, gone);
    lab.store().CloseStep();
  }
}

TEST(StoreClear, WhileASequenceRunsTheRestGoesWhenItEnds) {
  for (const ReuseCase& c : ReuseCases(8)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const std::vector<TokenId> prompt = TokensOf(1, 50);
    lab.Serve({.prompt = TokensOf(2, 50)});
    lab.Serve({.prompt = prompt});
    std::optional<PatternSequence> adopter = lab.Admit({.prompt = Joined(prompt, TokensOf(3, 40))});
    std::optional<PatternSequence> producer =
        lab.Admit({.prompt = TokensOf(4, 70), .generate = 30, .checkpoint_at = {32}});
    ASSERT_TRUE(adopter.has_value() && producer.has_value());
    producer->RunTo(40);
    EXPECT_GT(lab.store().Clear(), 0u);
    lab.Check();
    for (const uint64_t seed : {1, 2, 4}) {
      EXPECT_EQ(lab.Lookup({.prompt = Joined(TokensOf(seed, 50), {1})}).reused, 0u);
    }
    adopter->Finish(7);  // both go on with what they have
    producer->Finish(7);
    lab.Check();
    adopter.reset();
    producer.reset();
    lab.Check();
    lab.store().Clear();
    lab.Check();
    lab.ExpectAllFree();
    EXPECT_EQ(lab.stats().nodes, 1u);  // the root
    lab.Serve({.prompt = prompt});
    EXPECT_EQ(lab.Serve({.prompt = Joined(prompt, {1})}).reused, 50u);
  }
}

TEST(StoreClear, WhatARunningSequenceLeavesAfterItCanBeStartedFrom) {
  for (const ReuseCase& c : ReuseCases(8)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    // One has published the beginning of what it will leave, which goes; one has left nothing yet.
    std::optional<PatternSequence> half =
        lab.Admit({.prompt = TokensOf(1, 80), .generate = 10, .checkpoint_at = {32}});
    std::optional<PatternSequence> fresh = lab.Admit({.prompt = TokensOf(2, 80), .generate = 10});
    ASSERT_TRUE(half.has_value() && fresh.has_value());
    half->RunTo(40);
    fresh->RunTo(7);
    lab.store().Clear();
    half->Finish();
    fresh->Finish();
    half.reset();
    fresh.reset();
    lab.Check();
    uint32_t found = 0;
    for (const BoundaryInfo& boundary : lab.store().Boundaries(100, 100)) {
      const MatchReport match = lab.Lookup({.prompt = Joined(boundary.prefix, {1})});
      EXPECT_EQ(match.reused, boundary.tokens);
      ++found;
    }
    EXPECT_GT(found, 0u) << "what `fresh` left";
  }
}

TEST(StoreClear, WhatASequenceHeldAtAClearIsFreeAsSoonAsItEnds) {
  for (const ReuseCase& c : ReuseCases(8)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const std::vector<TokenId> prompt = TokensOf(1, 50);
    lab.Serve({.prompt = prompt});
    std::optional<PatternSequence> adopter = lab.Admit({.prompt = Joined(prompt, {1, 2, 3})});
    ASSERT_TRUE(adopter.has_value());
    EXPECT_EQ(adopter->match().reused, 50u);
    lab.store().Clear();
    adopter.reset();
    lab.ExpectAllFree();
    lab.Check();
  }
}

}  // namespace
}  // namespace tessera
