// SPDX-License-Identifier: Apache-2.0
//
// What every prefix cache must do (block = 16 tokens unless said), in every organisation and for
// every kind of model. Bytes are checked by the sequences themselves (pattern_sequence.h): a test
// that only runs a sequence says that what it adopted was what a cold run would have written.
#include <gtest/gtest.h>

#include "memory/prefix/prefix_tree.h"
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

constexpr uint32_t kWidth = 8;

ReuseCase Case(const char* organisation, const StateShape& shape = testing::TinyHybrid(),
               uint32_t row_width = kWidth) {
  ReuseCase c = ReuseCases(row_width)[0];
  c.name = organisation;
  c.options.organisation = OrganisationSpec::Parse(organisation).value();
  c.options.shape = shape;
  c.options.budget_bytes = 256 * kKiB;
  return c;
}

uint32_t AttentionPagesInUse(ReuseLab& lab) {
  uint32_t pages = 0;
  for (const PoolStats& pool : lab.store().Stats().pools) pages += pool.held_attention_pages;
  return pages;
}

void ExpectSame(const StoreStats& a, const StoreStats& b) {
  for (size_t i = 0; i < a.pools.size(); ++i) {
    EXPECT_EQ(a.pools[i].free_pages, b.pools[i].free_pages);
    EXPECT_EQ(a.pools[i].reserved_pages, b.pools[i].reserved_pages);
    EXPECT_EQ(a.pools[i].held_attention_pages, b.pools[i].held_attention_pages);
    EXPECT_EQ(a.pools[i].held_state_pages, b.pools[i].held_state_pages);
    EXPECT_EQ(a.pools[i].cached_attention_pages, b.pools[i].cached_attention_pages);
    EXPECT_EQ(a.pools[i].cached_state_pages, b.pools[i].cached_state_pages);
    EXPECT_EQ(a.pools[i].used_slots, b.pools[i].used_slots);
  }
  EXPECT_EQ(a.reuse.nodes, b.reuse.nodes);
  EXPECT_EQ(a.reuse.lookups, b.reuse.lookups);
  EXPECT_EQ(a.reuse.entries_invalidated, b.reuse.entries_invalidated);
  EXPECT_EQ(a.sequences, b.sequences);
}

void ExpectSame(const MatchReport& a, const MatchReport& b) {
  EXPECT_EQ(a.reused, b.reused);
  EXPECT_EQ(a.attention, b.attention);
  EXPECT_EQ(a.recurrent, b.recurrent);
  EXPECT_EQ(a.diverged_at, b.diverged_at);
  EXPECT_EQ(a.from_row, b.from_row);
}

// --- 1. Sharing -----------------------------------------------------------------------------

TEST(StoreReuse, OfFiftyFiveTokensFortyEightAreSharedAndOneBlockIsNew) {
  for (const char* organisation : {"s0:block=16", "s1:block=16", "s2:block=16", "d0", "s3"}) {
    for (const StateShape& shape : {testing::TinyHybrid(), testing::TinyAttentionOnly()}) {
      SCOPED_TRACE(organisation);
      ReuseLab lab(Case(organisation, shape).options);
      const std::vector<TokenId> common = TokensOf(1, 48);
      std::optional<PatternSequence> first =
          lab.Admit({.prompt = Joined(common, TokensOf(2, 7)), .checkpoint_at = {48}});
      ASSERT_TRUE(first.has_value());
      first->RunTo(55);
      const uint32_t before = AttentionPagesInUse(lab);
      std::optional<PatternSequence> second =
          lab.Admit({.prompt = Joined(common, TokensOf(3, 7)), .checkpoint_at = {48}});
      ASSERT_TRUE(second.has_value());
      EXPECT_EQ(second->match().reused, 48u);
      EXPECT_EQ(second->match().attention, 48u);
      EXPECT_EQ(second->match().diverged_at, 48u);
      second->RunTo(55);
      EXPECT_EQ(AttentionPagesInUse(lab), before + 1);
      EXPECT_EQ(lab.store().Stats().attention_bytes,
                (55 + 7) * shape.kv_bytes_per_token_layer() * shape.attention_layers)
          << "what is shared counts once";
      lab.Check();
      // Both go on reading the shared blocks, whoever goes first.
      first.reset();
      lab.Check();
      second.reset();
      lab.Check();
    }
  }
}

// --- 2. Refusals and hits under pressure ----------------------------------------------------

TEST(StoreReuse, ARefusedAdmissionChangesNothing) {
  for (const ReuseCase& c : ReuseCases(kWidth, 6, 0)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const std::vector<TokenId> prompt = TokensOf(1, 70);
    lab.Serve({.prompt = prompt});
    std::vector<PatternSequence> held;
    for (uint64_t seed = 100; seed < 4000; ++seed) {
      std::optional<PatternSequence> more = lab.Admit({.prompt = TokensOf(seed, 40)});
      if (!more.has_value()) break;
      held.push_back(*std::move(more));
    }
    ASSERT_EQ(lab.last().outcome, Admission::kMustWait);
    const StoreStats before = lab.store().Stats();
    const MatchReport known = lab.Lookup({.prompt = prompt});
    EXPECT_FALSE(lab.Admit({.prompt = prompt, .generate = 100}).has_value());
    EXPECT_EQ(lab.last().outcome, Admission::kMustWait) << lab.last().reason;
    ExpectSame(before, lab.store().Stats());
    if (c.attention()) {
      EXPECT_FALSE(lab.Admit({.prompt = prompt, .generate = 1u << 30}).has_value());
      EXPECT_EQ(lab.last().outcome, Admission::kNeverFits);
      ExpectSame(before, lab.store().Stats());
    }
    ExpectSame(known, lab.Lookup({.prompt = prompt}));
  }
}

TEST(StoreReuse, WhatAnAdmissionReusesIsNotEvictedByIt) {
  for (const ReuseCase& c : ReuseCases(kWidth, 6, 0)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const std::vector<TokenId> prompt = TokensOf(1, 100);
    lab.Serve({.prompt = prompt});
    for (uint64_t seed = 10; lab.stats().entries_invalidated == 0; ++seed) {
      ASSERT_LT(seed, 2000u);
      lab.Serve({.prompt = TokensOf(seed, 90)});
    }
    lab.Serve({.prompt = prompt});  // there again, if it had gone
    const uint64_t gone = lab.stats().entries_invalidated;
    // It asks for nearly all there is.
    uint32_t more = 16;
    while (lab.store().BudgetFor(100 + more + 16) < c.options.budget_bytes * 3 / 4 && more < 3000) {
      more += 16;
    }
    std::optional<PatternSequence> last = lab.Admit({.prompt = prompt, .generate = more});
    ASSERT_TRUE(last.has_value()) << lab.last().reason;
    EXPECT_GE(last->match().reused, 99u);  // the smallest stores keep no rows
    if (c.attention()) {
      EXPECT_GT(lab.stats().entries_invalidated, gone);
    }
    last->RunTo(110);
  }
}

TEST(StoreReuse, ExactlyFitsRunsAlsoWhenItsOwnPrefixTakesTheRoom) {
  for (ReuseCase c : ReuseCases(0)) {
    for (const uint32_t prompt_tokens : {31u, 32u, 33u, 64u, 70u}) {
      SCOPED_TRACE(c.name + " " + std::to_string(prompt_tokens));
      c.options.budget_bytes = StateStore::BudgetForSequences(
                                   c.options.shape, c.options.organisation, 1, prompt_tokens + 20)
                                   .value();
      ReuseLab lab(c.options);
      const Ask ask{.prompt = TokensOf(1, prompt_tokens), .generate = 20};
      for (int i = 0; i < 4; ++i) lab.Serve(ask);
      lab.Serve({.prompt = TokensOf(2, prompt_tokens), .generate = 20});
      lab.Serve(ask);
    }
  }
}

TEST(StoreReuse, AnAdmissionNeedsRoomOnlyForWhatItDoesNotShare) {
  // 20 pages, images of 3. The first takes 10 and an image, and leaves a checkpoint; the second
  // shares all of that and needs a page and an image.
  ReuseCase c = Case("s3", testing::TinyHybrid(), /*row_width=*/0);
  c.options.budget_bytes =
      StateStore::BudgetForSequences(c.options.shape, c.options.organisation, 2, 112).value();
  c.options.reuse.placement = PlacementSpec::Parse("dense:1000").value();
  ReuseLab lab(c.options);
  ASSERT_EQ(lab.store().Stats().pools[0].total_pages, 20u);
  const std::vector<TokenId> prompt = TokensOf(1, 160);
  std::optional<PatternSequence> first = lab.Admit({.prompt = prompt, .checkpoint_at = {160}});
  ASSERT_TRUE(first.has_value());
  first->RunTo(160);
  std::optional<PatternSequence> second = lab.Admit({.prompt = Joined(prompt, TokensOf(2, 16))});
  ASSERT_TRUE(second.has_value()) << lab.last().reason;
  EXPECT_EQ(second->match().reused, 160u);
  EXPECT_EQ(lab.store().Stats().pools[0].free_pages, 0u);
  second->RunTo(176);
}

ComputeReason FirstReason(const MatchReport& report) {
  EXPECT_GT(report.computed_count, 0u);
  return report.computed[0].reason;
}

// --- 3. Salts and contracts -----------------------------------------------------------------

TEST(StoreReuse, SaltsNeverMeetAndTheEmptyOneIsNone) {
  const std::string salts[] = {"",
                               "a",
                               "b",
                               std::string(49, 'x'),
                               std::string(50, 'x'),
                               std::string("a\0", 2),
                               std::string(200, 'y')};
  for (const ReuseCase& c : ReuseCases(kWidth)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    for (const std::string& salt : salts) {
      const MatchReport first = lab.Serve({.prompt = TokensOf(1, 50), .salt = salt});
      EXPECT_EQ(first.reused, 0u);
      ASSERT_EQ(first.computed_count, 1u);
      EXPECT_EQ(first.computed[0].reason,
                salt.empty() ? ComputeReason::kCold : ComputeReason::kSalt);
    }
    for (const std::string& salt : salts) {
      EXPECT_EQ(lab.Serve({.prompt = TokensOf(1, 50), .salt = salt}).reused, 50u);
    }
    for (const BoundaryInfo& boundary : lab.store().Boundaries(1000, 1000)) {
      EXPECT_EQ(boundary.prefix.empty(), boundary.salted);
    }
  }
}

// Tenants who begin with one text: it is computed once, and what each goes on with is its own.
TEST(StoreReuse, SaltsShareWhatTheyDeclarePublicAndNothingAfterIt) {
  const std::string long_salt(49, 'x');
  for (const ReuseCase& c : ReuseCases(kWidth)) {
    for (const uint32_t isolate_after : {16u, 40u, 48u}) {
      SCOPED_TRACE(c.name + " " + std::to_string(isolate_after));
      ReuseLab lab(c.options);
      const uint32_t shared = isolate_after / kGroupTokens * kGroupTokens;
      const std::vector<TokenId> prompt = Joined(TokensOf(1, isolate_after), TokensOf(2, 30));
      const auto of = [&](const std::string& salt, uint32_t public_tokens = 0) {
        return Ask{.prompt = prompt, .salt = salt, .isolate_after = public_tokens};
      };
      EXPECT_EQ(lab.Serve(of("a", isolate_after)).reused, 0u);
      // Another tenant with the very same prompt finds the public part, and is told no more.
      MatchReport report = lab.Serve(of(long_salt, isolate_after));
      EXPECT_EQ(report.reused, shared);
      EXPECT_EQ(report.diverged_at, shared);
      EXPECT_EQ(FirstReason(report), ComputeReason::kSalt);
      // Each has its own rest, whole.
      EXPECT_EQ(lab.Serve(of("a", isolate_after)).reused, prompt.size());
      EXPECT_EQ(lab.Serve(of(long_salt, isolate_after)).reused, prompt.size());
      // Who has no salt shares the public part too, and what it leaves after it is nobody else's.
      report = lab.Serve(of(""));
      EXPECT_EQ(report.reused, shared);
      EXPECT_EQ(lab.Serve(of("")).reused, prompt.size());
      report = lab.Serve(of("b", isolate_after));
      EXPECT_EQ(report.reused, shared);
      EXPECT_EQ(report.diverged_at, shared);
      // Who declares nothing public shares nothing; who declares less shares less.
      EXPECT_EQ(lab.Serve(of("a")).reused, 0u);
      EXPECT_LE(lab.Serve(of("c", 16)).reused, 16u);
      for (const BoundaryInfo& boundary : lab.store().Boundaries(1000, 1000)) {
        EXPECT_EQ(boundary.prefix.empty(), boundary.salted);
      }
    }
  }
}

// What it hangs on stays while tenants come and go, and in the end all of it can go.
TEST(StoreReuse, WhatTenantsLeaveAfterAPublicPartIsEvictedBeforeIt) {
  for (const ReuseCase& c : ReuseCases(kWidth)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const std::vector<TokenId> text = TokensOf(1, 32);
    const auto evicted = [&] {
      return lab.stats().evicted_blocks + lab.stats().evicted_checkpoints;
    };
    for (int tenant = 0; tenant < 10 || (evicted() < 10 && tenant < 3000); ++tenant) {
      const MatchReport report = lab.Serve({.prompt = Joined(text, TokensOf(100 + tenant, 40)),
                                            .salt = std::to_string(tenant),
                                            .isolate_after = 32});
      EXPECT_EQ(report.reused, tenant == 0 ? 0u : 32u) << tenant;
    }
    EXPECT_GE(evicted(), 10u);
    lab.store().Clear();
    lab.Check();
    EXPECT_EQ(lab.stats().nodes, 1u);
  }
}

TEST(StoreReuse, ContractIdsNeverMix) {
  // Same keys but for the id, in trees of the same store: a store has one id, so the tree is asked.
  PrefixTree tree(64);
  const NodeId one = tree.AddNamespace(tree.root(), 1, "a");
  const NodeId two = tree.AddNamespace(tree.root(), 2, "a");
  EXPECT_NE(one, two);
  EXPECT_EQ(tree.FindNamespace(tree.root(), 1, "a"), one);
  EXPECT_EQ(tree.FindNamespace(tree.root(), 2, "a"), two);
  EXPECT_FALSE(tree.FindNamespace(tree.root(), 3, "a").valid());
  EXPECT_FALSE(tree.FindNamespace(tree.root(), 1, "").valid());
}

// --- 4. The same prompt again ---------------------------------------------------------------

TEST(StoreReuse, AnIdenticalPromptReusesAllOfItWithARow) {
  for (const ReuseCase& c : ReuseCases(kWidth)) {
    for (const uint32_t tokens : {1u, 2u, 15u, 16u, 17u, 18u, 31u, 32u, 33u, 34u, 63u, 64u, 65u,
                                  66u, 127u, 128u, 129u, 130u}) {
      SCOPED_TRACE(c.name + " " + std::to_string(tokens));
      ReuseLab lab(c.options);
      const Ask ask{.prompt = TokensOf(1, tokens), .generate = 5};
      EXPECT_EQ(lab.Serve(ask).reused, 0u);
      for (int again = 0; again < 3; ++again) {
        const MatchReport report = lab.Serve(ask);
        EXPECT_EQ(report.reused, tokens);
        EXPECT_TRUE(report.from_row);
        EXPECT_EQ(report.computed_count, 0u);
      }
      Ask without = ask;  // the caller cannot start from a row
      without.from_row = false;
      const MatchReport report = lab.Serve(without);
      EXPECT_FALSE(report.from_row);
      EXPECT_LT(report.reused, tokens);
    }
  }
}

TEST(StoreReuse, AnIdenticalPromptReusesAllButItsLastTokenWithoutARow) {
  for (const ReuseCase& c : ReuseCases(0)) {
    for (const uint32_t tokens : {1u, 2u, 15u, 16u, 17u, 18u, 31u, 32u, 33u, 34u, 64u, 65u, 66u}) {
      SCOPED_TRACE(c.name + " " + std::to_string(tokens));
      ReuseLab lab(c.options);
      const Ask ask{.prompt = TokensOf(1, tokens), .generate = 5};
      lab.Serve(ask);
      const MatchReport report = lab.Serve(ask);
      EXPECT_EQ(report.reused, tokens - 1);
      EXPECT_FALSE(report.from_row);
    }
  }
}

TEST(StoreReuse, ALongerPromptStartsFromTheEndOfAShorterOneAtEveryTail) {
  for (const ReuseCase& c : ReuseCases(kWidth)) {
    for (const uint32_t tokens : {15u, 16u, 17u, 18u, 31u, 32u, 33u, 34u, 63u, 64u, 65u, 66u}) {
      SCOPED_TRACE(c.name + " " + std::to_string(tokens));
      ReuseLab lab(c.options);
      const std::vector<TokenId> prompt = TokensOf(1, tokens);
      lab.Serve({.prompt = prompt});
      const MatchReport longer = lab.Serve({.prompt = Joined(prompt, TokensOf(2, 20))});
      EXPECT_EQ(longer.reused, tokens);
      const MatchReport third = lab.Serve({.prompt = Joined(prompt, TokensOf(3, 20))});
      EXPECT_EQ(third.reused, tokens);
    }
  }
}

TEST(StoreReuse, TheEndOfATurnIsABoundaryOfTheNext) {
  for (const ReuseCase& c : ReuseCases(kWidth)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    std::vector<TokenId> history = TokensOf(1, 37);
    for (int turn = 0; turn < 6; ++turn) {
      std::optional<PatternSequence> sequence = lab.Admit({.prompt = history, .generate = 21});
      ASSERT_TRUE(sequence.has_value());
      EXPECT_EQ(sequence->match().reused, turn == 0 ? 0 : history.size() - 9);
      sequence->Finish();
      history = Joined(sequence->tokens(), TokensOf(100 + static_cast<uint64_t>(turn), 9));
    }
  }
}

// --- 5. Publishing --------------------------------------------------------------------------

TEST(StoreReuse, NothingIsFoundBeforeTheStepThatWroteItHasEnded) {
  for (ReuseCase c : ReuseCases(kWidth)) {
    SCOPED_TRACE(c.name);
    c.options.reuse.placement.kind = PlacementSpec::Kind::kTail;
    ReuseLab lab(c.options);
    const Ask ask{.prompt = TokensOf(1, 64), .generate = 1, .checkpoint_at = {32}};
    std::optional<PatternSequence> producer = lab.Admit(ask);
    ASSERT_TRUE(producer.has_value());
    EXPECT_EQ(producer->state().TokensToCut(), 32u);
    producer->Step(32);
    EXPECT_EQ(lab.Lookup(ask).reused, 0u);  // written, not yet published
    producer->Publish();
    EXPECT_EQ(lab.Lookup(ask).reused, 32u);
    producer->BreakOffInStep(32);
    EXPECT_EQ(lab.Lookup(ask).reused, 32u);
    producer.reset();
    lab.Check();
    EXPECT_EQ(lab.Serve(ask).reused, 32u);
    EXPECT_EQ(lab.Serve(ask).reused, 64u);
  }
}

TEST(StoreReuse, AbortAfterAnyChunkLeavesHitsOnlyForWhatWasComputed) {
  for (const ReuseCase& c : ReuseCases(kWidth)) {
    for (uint32_t stop = 0; stop <= 70; stop += 7) {
      SCOPED_TRACE(c.name + " " + std::to_string(stop));
      ReuseLab lab(c.options);
      const Ask ask{.prompt = TokensOf(1, 70), .checkpoint_at = {16, 33, 48}};
      {
        std::optional<PatternSequence> cut_short = lab.Admit(ask);
        ASSERT_TRUE(cut_short.has_value());
        cut_short->RunTo(stop, 7);
        if (stop < 70) cut_short->BreakOffInStep(1);
      }
      lab.Check();
      const MatchReport left = lab.Lookup(ask);
      EXPECT_LE(left.reused, stop);
      EXPECT_LE(left.recurrent, stop);
      EXPECT_EQ(left.reused, stop >= 70   ? 70u
                             : stop >= 48 ? 48u
                             : stop >= 33 ? 33u
                                          : stop / 16 * 16)
          << "named positions are boundaries as soon as they are passed";
      lab.Serve(ask);
    }
  }
}

// --- 6. Copy on write -----------------------------------------------------------------------

TEST(StoreReuse, NeitherThePublisherNorAHitAltersWhatIsPublished) {
  for (const ReuseCase& c : ReuseCases(kWidth)) {
    for (const uint32_t tokens : {16u, 17u, 30u, 32u, 40u, 48u, 64u}) {
      SCOPED_TRACE(c.name + " " + std::to_string(tokens));
      ReuseLab lab(c.options);
      const std::vector<TokenId> prompt = TokensOf(1, tokens);
      std::optional<PatternSequence> publisher = lab.Admit({.prompt = prompt, .generate = 40});
      ASSERT_TRUE(publisher.has_value());
      publisher->RunTo(tokens);
      std::vector<PatternSequence> hits;
      for (uint64_t seed : {2, 3, 4}) {  // interleaved with the publisher, which goes on
        const Ask ask{.prompt = Joined(prompt, TokensOf(seed, 30))};
        std::optional<PatternSequence> hit = lab.Admit(ask);
        ASSERT_TRUE(hit.has_value());
        EXPECT_EQ(hit->match().reused, tokens);
        hit->RunTo(tokens + 5, 3);
        publisher->RunTo(publisher->position() + 9, 2);
        hits.push_back(*std::move(hit));
      }
      for (PatternSequence& hit : hits) hit.Finish();
      publisher->Finish();
      lab.Check();
      hits.clear();
      publisher.reset();
      EXPECT_EQ(lab.Serve({.prompt = prompt, .generate = 40}).reused, tokens);
    }
  }
}

TEST(StoreReuse, AForkingSequenceSharesLikeAnyOther) {
  for (const ReuseCase& c : ReuseCases(kWidth)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    for (int again = 0; again < 3; ++again) {
      std::optional<PatternSequence> forking = lab.Admit(
          {.prompt = TokensOf(1, 40), .generate = 20, .checkpoint_at = {16}, .may_fork = true});
      ASSERT_TRUE(forking.has_value());
      while (forking->position() < forking->end()) {
        const uint32_t cut = forking->state().TokensToCut();
        const uint64_t left = forking->end() - forking->position();
        forking->Step(static_cast<uint32_t>(std::min<uint64_t>({left, cut, 5})),
                      forking->position() % 2 == 0);
        forking->Publish();
        lab.Check();
      }
      forking->Publish(true);
    }
    EXPECT_EQ(lab.Lookup({.prompt = TokensOf(1, 40)}).reused, 40u);
  }
}

// --- 7, 12. Recycled pages, cancelled requests ----------------------------------------------

TEST(StoreReuse, RecycledPagesHoldNothingOfWhoHadThem) {
  // Freed bytes are poison: a sequence that reads one finds neither zeros nor its own pattern.
  for (const ReuseCase& c : ReuseCases(kWidth, 3, 0)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    for (uint64_t i = 0; i < 60; ++i) {
      lab.Serve({.prompt = TokensOf(i % 7, 20 + i % 41), .generate = static_cast<uint32_t>(i % 20)},
                1 + static_cast<uint32_t>(i % 17));
    }
    EXPECT_GT(lab.stats().entries_invalidated, 0u);
    lab.store().Clear();
    lab.ExpectAllFree();
  }
}

TEST(StoreReuse, ARequestThatIsDroppedAtAnyStepReturnsEveryPage) {
  for (const ReuseCase& c : ReuseCases(kWidth, 8, 0)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const std::vector<TokenId> prompt = TokensOf(1, 40);
    for (uint32_t stop = 0; stop < 80; stop += 3) {
      for (const bool in_step : {false, true}) {
        std::optional<PatternSequence> sequence =
            lab.Admit({.prompt = Joined(prompt, TokensOf(2 + stop, 20)),
                       .generate = 20,
                       .may_fork = stop % 2 == 0});
        ASSERT_TRUE(sequence.has_value()) << lab.last().reason;
        sequence->RunTo(std::max<uint64_t>(stop, sequence->position()), 5);
        if (in_step && sequence->position() < sequence->end()) sequence->BreakOffInStep(1);
        lab.Check();
        sequence.reset();
        lab.Check();
        for (const PoolStats& pool : lab.store().Stats().pools) {
          EXPECT_EQ(pool.reserved_pages + pool.held_attention_pages + pool.held_state_pages, 0u);
        }
      }
    }
    lab.store().Clear();
    lab.ExpectAllFree();
  }
}

TEST(StoreReuse, OptionalWorkNeverStopsARequestThatFits) {
  // One sequence at a time always fits, whatever the others left behind.
  for (const ReuseCase& c : ReuseCases(kWidth, 1, 0)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    for (uint64_t i = 0; i < 40; ++i) {
      lab.Serve({.prompt = TokensOf(i % 3, 30 + 7 * (i % 9)), .checkpoint_at = {16, 20, 25}});
    }
  }
}

TEST(StoreReuse, ACheckpointThatHasNoRoomIsSkippedAndCounted) {
  for (ReuseCase c : ReuseCases(kWidth, 1, 0)) {
    if (!c.recurrent() || c.options.shape.conv_taps == 2) continue;  // of slots there are plenty
    c.options.budget_bytes =
        StateStore::BudgetForSequences(c.options.shape, c.options.organisation, 1, 100).value();
    c.options.reuse.row_width = 0;
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    std::optional<PatternSequence> alone =
        lab.Admit({.prompt = TokensOf(1, 90), .generate = 10, .checkpoint_at = {32}});
    ASSERT_TRUE(alone.has_value());
    alone->RunTo(100);
    EXPECT_EQ(alone->position(), 100u);
    const ReuseStats before = lab.stats();
    if (c.name == "hybrid, s3") {
      EXPECT_EQ(before.published_checkpoints, 0u);
      EXPECT_GE(before.skipped_checkpoints, 2u);  // at 32 and at the prompt's end
    }
    alone->Publish(/*last=*/true);  // its image is handed over for nothing
    EXPECT_EQ(lab.stats().published_checkpoints, before.published_checkpoints + 1);
    EXPECT_EQ(lab.stats().checkpoints + lab.stats().evicted_checkpoints,
              lab.stats().published_checkpoints);
  }
}

// Where room for a checkpoint is made by evicting the block it would have leant on, a checkpoint
// alone would be of no use: one request in a thousand of these.
TEST(StoreReuse, WhatIsPublishedCanBeStartedFrom) {
  for (const ReuseCase& c : ReuseCases(kWidth, 6)) {
    if (!c.recurrent() || !c.attention() || c.options.shape.conv_taps == 2) continue;
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    Random random(5);
    const auto publish = [&lab](PatternSequence& sequence, bool last) {
      const uint64_t before = lab.stats().published_checkpoints;
      sequence.Publish(last);
      if (lab.stats().published_checkpoints == before) return;
      std::vector<TokenId> known = sequence.tokens();
      known.resize(sequence.position());
      EXPECT_EQ(lab.Lookup({.prompt = Joined(known, {29999})}).reused, sequence.position());
    };
    for (int i = 0; i < 2000; ++i) {
      const uint64_t prompt = random.Below(12);
      std::optional<PatternSequence> sequence =
          lab.Admit({.prompt = TokensOf(prompt, 20 + random.Below(60)), .generate = 2});
      ASSERT_TRUE(sequence.has_value());
      while (sequence->position() < sequence->end()) {
        const uint64_t left = sequence->end() - sequence->position();
        const uint64_t tokens = std::min<uint64_t>({13, left, sequence->state().TokensToCut()});
        sequence->Step(static_cast<uint32_t>(tokens));
        publish(*sequence, false);
      }
      publish(*sequence, true);
    }
  }
}

// --- 10, 14. Capacity -----------------------------------------------------------------------

TEST(StoreReuse, AsManyCheckpointsAreFoundAsThePoolHolds) {
  for (const char* organisation : {"s0:block=16", "s1:block=16", "s2:block=64", "d0", "s3"}) {
    SCOPED_TRACE(organisation);
    ReuseCase c = Case(organisation, testing::TinyRecurrentOnly(), 0);
    c.options.reuse.checkpoint_grid = 17;  // the end of the turn alone
    c.options.budget_bytes =
        StateStore::BudgetForSequences(c.options.shape, c.options.organisation, 21, 1).value();
    ReuseLab lab(c.options);
    std::vector<Ask> asks;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      asks.push_back({.prompt = TokensOf(seed, 17)});
      lab.Serve(asks.back());
    }
    EXPECT_EQ(lab.stats().evicted_checkpoints, 0u);
    for (const Ask& ask : asks) {
      EXPECT_EQ(lab.Lookup({.prompt = Joined(ask.prompt, {1, 2, 3})}).reused, 17u);
    }
    for (uint64_t seed = 20; seed < 60; ++seed) lab.Serve({.prompt = TokensOf(seed, 17)});
    uint32_t found = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      found += lab.Lookup({.prompt = Joined(TokensOf(seed, 17), {1})}).reused == 17 ? 1 : 0;
    }
    EXPECT_GE(found, 20u);
    EXPECT_EQ(lab.store().Boundaries(1000, 0).size(), lab.stats().checkpoints);
  }
}

// --- 11. No cliffs --------------------------------------------------------------------------

TEST(StoreReuse, ReuseFallsByAtMostOneIntervalAsTheSplitMovesByOneToken) {
  for (const ReuseCase& c : ReuseCases(kWidth)) {
    SCOPED_TRACE(c.name);
    // Recurrent models: from the third request on the common part is reused to the token.
    // Attention only: by groups at once.
    for (uint32_t split = 1; split <= 90; ++split) {
      ReuseLab lab(c.options);
      const std::vector<TokenId> common = TokensOf(1, split);
      for (uint64_t i = 0; i < 2; ++i) {
        lab.Serve({.prompt = Joined(common, TokensOf(100 + i, 97 - split))}, 97);
      }
      const MatchReport third =
          lab.Serve({.prompt = Joined(common, TokensOf(102, 97 - split))}, 97);
      EXPECT_EQ(third.reused, split);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// --- 13. Kinds ------------------------------------------------------------------------------

TEST(StoreReuse, AToyKindGoesEverywhereItsCheckpointGoes) {
  for (ReuseCase c : ReuseCases(kWidth, 6, 0)) {
    if (!c.recurrent()) continue;
    SCOPED_TRACE(c.name);
    c.options.extra_kinds = {{"toy", 100}, {"larger toy", 1500}};
    if (c.options.budget_bytes > 2 * kMiB) continue;  // pages of 512 KiB: much the same
    c.options.budget_bytes = std::max(3 * c.options.budget_bytes, 2 * kMiB);
    ReuseLab lab(c.options);
    const std::vector<TokenId> prompt = TokensOf(1, 40);
    for (uint64_t i = 0; i < 12; ++i) {  // publish, adopt, fork, reclaim
      std::optional<PatternSequence> sequence =
          lab.Admit({.prompt = Joined(prompt, TokensOf(2 + i % 4, 30)), .may_fork = i % 2 == 1});
      ASSERT_TRUE(sequence.has_value()) << lab.last().reason;
      if (i >= 2) {
        EXPECT_GT(sequence->match().reused, 0u) << i;
      }
      while (sequence->position() < sequence->end()) {
        const uint64_t left = sequence->end() - sequence->position();
        sequence->Step(
            static_cast<uint32_t>(std::min<uint64_t>({left, sequence->state().TokensToCut(), 7})),
            i % 2 == 1);
        sequence->Publish();
        lab.Check();
      }
      sequence->Publish(/*last=*/true);
    }
    for (uint64_t i = 0; lab.stats().evicted_checkpoints < 5; ++i) {
      ASSERT_LT(i, 2000u);
      lab.Serve({.prompt = TokensOf(50 + i, 33)}, 33);
    }
    lab.Serve({.prompt = prompt, .generate = 5});
    lab.store().Clear();
    lab.ExpectAllFree();
  }
}

// --- Reasons --------------------------------------------------------------------------------

ComputeReason LastReason(const MatchReport& report) {
  EXPECT_GT(report.computed_count, 0u);
  return report.computed[report.computed_count - 1].reason;
}

TEST(StoreReuse, ColdDivergedSaltAndDisabledAreTold) {
  for (const ReuseCase& c : ReuseCases(kWidth)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const std::vector<TokenId> prompt = TokensOf(1, 64);
    EXPECT_EQ(FirstReason(lab.Serve({.prompt = prompt})), ComputeReason::kCold);
    EXPECT_EQ(FirstReason(lab.Serve({.prompt = prompt, .salt = "mine"})), ComputeReason::kSalt);
    const MatchReport off = lab.Serve({.prompt = prompt, .lookup = false});
    EXPECT_EQ(off.reused, 0u);
    EXPECT_EQ(FirstReason(off), ComputeReason::kDisabled);
    // Goes on where nobody did, and leaves where somebody went on.
    const MatchReport longer = lab.Serve({.prompt = Joined(prompt, TokensOf(2, 20))});
    EXPECT_EQ(longer.reused, 64u);
    EXPECT_EQ(longer.diverged_at, 64u);
    EXPECT_EQ(LastReason(longer), ComputeReason::kCold);
    const MatchReport other = lab.Serve({.prompt = Joined(prompt, TokensOf(3, 20))});
    EXPECT_EQ(other.reused, 64u);
    EXPECT_EQ(LastReason(other), ComputeReason::kDiverged);
  }
}

TEST(StoreReuse, AStoreWithoutReuseSaysDisabled) {
  ReuseCase c = Case("s3");
  c.options.reuse.enabled = false;
  ReuseLab lab(c.options);
  for (int i = 0; i < 2; ++i) {
    const MatchReport report = lab.Serve({.prompt = TokensOf(1, 50)});
    EXPECT_EQ(report.reused, 0u);
    EXPECT_EQ(FirstReason(report), ComputeReason::kDisabled);
  }
  lab.ExpectAllFree();
}

TEST(StoreReuse, DivergedAtIsTheTokenWhereThePromptLeavesWhatIsKnown) {
  for (const ReuseCase& c : ReuseCases(kWidth)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const std::vector<TokenId> prompt = TokensOf(1, 75);
    lab.Serve({.prompt = prompt});
    for (uint32_t at = 0; at < 75; ++at) {
      std::vector<TokenId> other = prompt;
      other[at] += 30000;
      EXPECT_EQ(lab.Lookup({.prompt = other}).diverged_at, at);
    }
  }
}

TEST(StoreReuse, NoCheckpointAndBelowGridAreTold) {
  for (ReuseCase c : ReuseCases(kWidth)) {
    if (!c.recurrent()) continue;
    SCOPED_TRACE(c.name);
    c.options.reuse.placement.kind = PlacementSpec::Kind::kTail;
    const std::vector<TokenId> common = TokensOf(1, 40);
    for (const uint32_t grid : {1u, 32u, 48u}) {
      c.options.reuse.checkpoint_grid = grid;
      ReuseLab lab(c.options);
      lab.Serve({.prompt = Joined(common, TokensOf(2, 50))});
      const MatchReport second = lab.Serve({.prompt = Joined(common, TokensOf(3, 50))});
      EXPECT_EQ(second.reused, 0u);
      EXPECT_EQ(second.diverged_at, 40u);
      EXPECT_EQ(FirstReason(second),
                grid == 48 ? ComputeReason::kBelowGrid : ComputeReason::kNoCheckpoint);
      EXPECT_EQ(LastReason(second), ComputeReason::kDiverged);
      for (const BoundaryInfo& boundary : lab.store().Boundaries(100, 0)) {
        EXPECT_EQ(boundary.tokens % grid, 0u);
      }
    }
  }
}

TEST(StoreReuse, WhatWasTakenBackIsToldEvicted) {
  for (const ReuseCase& c : ReuseCases(kWidth, 4, 0)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const Ask ask{.prompt = TokensOf(1, 70)};
    lab.Serve(ask);
    EXPECT_GT(lab.store().Clear(), 0u);
    lab.ExpectAllFree();
    const MatchReport report = lab.Lookup(ask);
    EXPECT_EQ(report.reused, 0u);
    EXPECT_EQ(FirstReason(report), ComputeReason::kEvicted);
    EXPECT_EQ(FirstReason(lab.Lookup({.prompt = TokensOf(2, 70)})), ComputeReason::kCold);
  }
}

TEST(StoreReuse, ComputedTokensAreCountedByReasonAndAddUp) {
  for (const ReuseCase& c : ReuseCases(kWidth, 6, 0)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    uint64_t reused = 0;
    for (uint64_t i = 0; i < 40; ++i) {
      reused += lab.Serve({.prompt = Joined(TokensOf(i % 3, 30), TokensOf(10 + i % 5, 25)),
                           .salt = i % 4 == 0 ? "s" : "",
                           .lookup = i % 11 != 10})
                    .reused;
    }
    const ReuseStats stats = lab.stats();
    uint64_t computed = 0;
    for (uint64_t tokens : stats.computed_tokens) computed += tokens;
    EXPECT_EQ(stats.lookups, 40u);
    EXPECT_EQ(stats.prompt_tokens, 40u * 55);
    EXPECT_EQ(stats.reused_tokens, reused);
    EXPECT_EQ(computed + reused, stats.prompt_tokens);
    EXPECT_LE(stats.reused_tokens, stats.recurrent_tokens);
    EXPECT_LE(stats.reused_tokens, stats.attention_tokens);
  }
}

}  // namespace
}  // namespace tessera
