// SPDX-License-Identifier: Apache-2.0
//
// Admission that leaves room, sequences that grow by blocks, and pauses: to the page, over every
// organisation and kind of model. PatternSequence checks that what was computed is still there.
#include <gtest/gtest.h>

#include <cmath>

#include "memory/store/pattern_sequence.h"

namespace tessera {
namespace {

using testing::Ask;
using testing::PatternSequence;
using testing::ReuseCase;
using testing::ReuseCases;
using testing::ReuseLab;
using testing::TokensOf;

uint32_t ReservedOrHeld(const StateStore& store, int pool) {
  const PoolStats stats = store.Stats().pools[static_cast<size_t>(pool)];
  return stats.reserved_pages + stats.held_attention_pages + stats.held_state_pages;
}

TEST(StoreGrowth, AnAdmissionTakesThePromptAndOneBlockAndGrowsABlockAtATime) {
  for (const ReuseCase& c : ReuseCases(8, 6)) {
    if (!c.attention()) continue;
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const Organisation& table = lab.store().organisation();
    const uint32_t block = lab.store().block_tokens();
    const uint64_t prompt = 20;
    std::optional<PatternSequence> sequence =
        lab.Admit({.prompt = TokensOf(1, prompt), .generate = 300, .grows = true});
    if (!sequence.has_value()) continue;  // 320 tokens are more than there is of this kind of page
    const auto attention = [&](uint64_t tokens) { return table.AttentionPages(tokens); };
    const uint32_t at_start = ReservedOrHeld(lab.store(), table.attention_pool);
    const bool one_pool = table.attention_pool == table.state_pool;
    EXPECT_EQ(sequence->state().held_pages().unused,  // slab pages are nobody's own
              attention(prompt + block) + (one_pool ? table.state_pages : 0));
    uint64_t reserved = sequence->state().reserved_tokens();
    EXPECT_EQ(reserved, prompt + block);
    for (uint64_t tokens = reserved + 1; tokens <= 320; ++tokens) {
      const uint32_t lacking = sequence->state().Grow(tokens);
      lab.Check();
      if (lacking > 0) break;
      reserved = sequence->state().reserved_tokens();
      EXPECT_GE(reserved, tokens);
      EXPECT_LT(reserved, tokens + block);
      EXPECT_EQ(ReservedOrHeld(lab.store(), table.attention_pool),
                at_start - attention(prompt + block) + attention(tokens));
    }
    sequence->RunTo(reserved);
  }
}

// However much it may generate: a few words that pin a third of the pool are a fault of others.
TEST(StoreGrowth, AShortPromptTakesAndLeavesNoMoreThanABlockACheckpointAndARow) {
  for (const ReuseCase& c : ReuseCases(8, 6)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const Organisation& table = lab.store().organisation();
    std::optional<PatternSequence> sequence =
        lab.Admit({.prompt = TokensOf(1, 3), .generate = 200, .grows = true});
    if (!sequence.has_value()) continue;
    sequence->RunTo(3);
    const StoreStats running = lab.store().Stats();
    const bool slots = table.slot_bytes > 0;
    if (c.attention()) {
      const auto blocks = table.AttentionPages(3 + lab.store().block_tokens());
      const PoolStats& pool = running.pools[static_cast<size_t>(table.attention_pool)];
      EXPECT_LE(pool.held_attention_pages, 1u);
      // The block that is published is to be copied by whoever appends.
      const uint32_t state = table.attention_pool == table.state_pool ? table.state_pages : 0;
      EXPECT_LE(pool.held_attention_pages + pool.reserved_pages, blocks + 1 + state);
    }
    if (c.recurrent()) {
      const PoolStats& pool = running.pools[static_cast<size_t>(table.state_pool)];
      EXPECT_LE(pool.held_state_pages, table.state_pages + (slots ? 1 : 0));
    }
    sequence.reset();
    const ReuseStats left = lab.stats();
    EXPECT_LE(left.blocks, c.attention() ? 1u : 0u);
    EXPECT_LE(left.checkpoints, c.recurrent() ? 1u : 0u);
    EXPECT_LE(left.rows, 1u);
  }
}

TEST(StoreGrowth, WhatLacksIsSaidToThePageAndCachedStateGoesFirst) {
  for (const ReuseCase& c : ReuseCases(8, 6)) {
    if (!c.attention()) continue;
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    const int pool = lab.store().organisation().attention_pool;
    const uint32_t page = lab.store().block_tokens();
    const auto there = [&] {
      const PoolStats stats = lab.store().Stats().pools[static_cast<size_t>(pool)];
      return stats.free_pages + stats.cached_attention_pages + stats.cached_state_pages;
    };
    lab.Serve({.prompt = TokensOf(7, 50)});
    std::optional<PatternSequence> sequence =
        lab.Admit({.prompt = TokensOf(1, 10), .generate = 60000, .grows = true});
    if (!sequence.has_value()) {
      EXPECT_EQ(lab.last().outcome, Admission::kNeverFits);
      sequence = lab.Admit({.prompt = TokensOf(1, 10), .generate = 200, .grows = true});
    }
    if (!sequence.has_value()) continue;
    const uint64_t reserved = sequence->state().reserved_tokens();
    const uint64_t most = sequence->state().max_tokens();
    const uint64_t beyond = RoundUp(reserved, page) + uint64_t{there() + 3} * page;
    if (beyond > most) {  // there is room for all of it
      EXPECT_EQ(sequence->state().Grow(most), 0u);
      continue;
    }
    EXPECT_EQ(sequence->state().Grow(beyond), 3u);
    EXPECT_EQ(sequence->state().reserved_tokens(), reserved);
    EXPECT_EQ(sequence->state().Grow(beyond - 3 * page), 0u);
    EXPECT_EQ(there(), 0u);
    EXPECT_EQ(sequence->state().Grow(beyond - 3 * page + 1), 1u);
    lab.Check();
  }
}

TEST(StoreGrowth, HeadroomIsLeftInEveryPoolAndNotAPageMore) {
  for (const ReuseCase& c : ReuseCases(0, 8)) {
    for (double share : {0.1, 0.19, 0.27, 0.35}) {
      SCOPED_TRACE(c.name);
      SCOPED_TRACE(share);
      ReuseLab lab(c.options);
      const auto room = [&](size_t pool) {
        const PoolStats stats = lab.store().Stats().pools[pool];
        return stats.free_pages + stats.cached_attention_pages + stats.cached_state_pages;
      };
      const auto headroom = [&](size_t pool) {
        return std::floor(share * lab.store().Stats().pools[pool].total_pages + 1e-9);
      };
      std::vector<PatternSequence> sequences;
      const size_t pools = lab.store().Stats().pools.size();
      while (true) {
        const uint64_t seed = 10 + sequences.size();
        std::vector<uint32_t> before(pools);
        for (size_t i = 0; i < pools; ++i) before[i] = room(i);
        std::optional<PatternSequence> sequence =
            lab.Admit({.prompt = TokensOf(seed, 40), .headroom = share});
        if (sequence.has_value()) {
          for (size_t i = 0; i < pools; ++i) EXPECT_GE(room(i), headroom(i));
          sequences.push_back(*std::move(sequence));
          continue;
        }
        EXPECT_EQ(lab.last().outcome, Admission::kMustWait);
        bool any = false;
        for (size_t i = 0; i < pools; ++i) any |= headroom(i) > 0;
        EXPECT_EQ(lab.last().reason.find("headroom") != std::string::npos, any)
            << lab.last().reason;
        // Without headroom it is admitted, unless the pool is too small for both; then some pool
        // has less than it should.
        sequence = lab.Admit({.prompt = TokensOf(seed, 40)});
        if (!sequence.has_value()) break;
        bool short_of_room = false;
        for (size_t i = 0; i < pools; ++i) short_of_room |= room(i) < headroom(i);
        EXPECT_TRUE(short_of_room);
        break;
      }
    }
  }
}

TEST(StoreGrowth, APauseGivesBackWhatIsNotUsedAndKeepsWhatIsComputed) {
  uint32_t refusals = 0;
  for (const ReuseCase& c : ReuseCases(8, 4)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    std::optional<PatternSequence> sequence =
        lab.Admit({.prompt = TokensOf(1, 40), .generate = 40});
    ASSERT_TRUE(sequence.has_value()) << lab.last().reason;
    sequence->RunTo(20);
    const HeldPages before = sequence->state().held_pages();
    sequence->state().Pause();
    lab.Check();
    for (const PoolStats& pool : lab.store().Stats().pools) EXPECT_EQ(pool.reserved_pages, 0u);
    EXPECT_EQ(sequence->state().held_pages().unused, 0u);
    EXPECT_EQ(sequence->state().held_pages().all, before.all - before.unused);
    // Others take all there is; what is paused stays as it is.
    std::vector<PatternSequence> others;
    for (uint64_t seed = 10; seed < 3000; ++seed) {
      std::optional<PatternSequence> other =
          lab.Admit({.prompt = TokensOf(seed, 10), .lookup = false});
      if (!other.has_value()) break;
      other->RunTo(10);
      others.push_back(*std::move(other));
    }
    ASSERT_FALSE(others.empty());
    const bool refused = !sequence->state().Resume(21, 0);  // they leave what they have no use for
    EXPECT_EQ(sequence->state().paused(), refused);
    EXPECT_TRUE(!refused || sequence->state().held_pages().unused == 0);
    refusals += refused ? 1 : 0;
    lab.Check();
    others.clear();
    EXPECT_TRUE(!refused || sequence->state().Resume(21, 0));
    lab.Check();
    sequence->Finish();
    lab.Check();
  }
  EXPECT_GT(refusals, 8u);
}

// At a boundary the image is a checkpoint already, and the last block nobody's to write: both must
// be promised again.
TEST(StoreGrowth, APauseWhereStateWasPublishedGoesOnFromIt) {
  for (const ReuseCase& c : ReuseCases(8, 4)) {
    SCOPED_TRACE(c.name);
    ReuseLab lab(c.options);
    std::optional<PatternSequence> sequence = lab.Admit(
        {.prompt = TokensOf(1, 40), .generate = 40, .checkpoint_at = {21}, .grows = true});
    ASSERT_TRUE(sequence.has_value()) << lab.last().reason;
    sequence->RunTo(21);
    sequence->state().Pause();
    lab.Check();
    std::optional<PatternSequence> other =
        lab.Admit({.prompt = TokensOf(1, 40), .generate = 3, .salt = ""});
    if (other.has_value()) other->Finish();
    other.reset();
    lab.Check();
    ASSERT_TRUE(sequence->state().Resume(22, 0));
    ASSERT_EQ(sequence->state().Grow(80), 0u);
    lab.Check();
    sequence->Finish();
    lab.Check();
    sequence.reset();
    lab.store().Clear();
    lab.ExpectAllFree();
  }
}

TEST(StoreGrowth, AResumedRequestIsNeitherALookUpNorAWish) {
  ReuseCase c = ReuseCases(8, 12).front();
  c.options.reuse.retention = RetentionSpec::Parse("producer:1").value();
  ReuseLab lab(c.options);
  std::optional<PatternSequence> producer =
      lab.Admit({.prompt = TokensOf(1, 40), .generate = 20, .checkpoint_at = {32}});
  producer->RunTo(35);
  const ReuseStats before = lab.stats();
  EXPECT_EQ(lab.Serve({.prompt = TokensOf(1, 40), .resumed = true}).reused, 32u);
  EXPECT_EQ(lab.stats().lookups, before.lookups);
  EXPECT_EQ(lab.stats().prompt_tokens, before.prompt_tokens);
  EXPECT_EQ(lab.stats().retained_checkpoints, 0u);
  EXPECT_EQ(lab.Serve({.prompt = TokensOf(1, 39)}).reused, 32u);
  EXPECT_EQ(lab.stats().lookups, before.lookups + 1);
  EXPECT_EQ(lab.stats().retained_checkpoints, 1u);
  // Retention protects what a running producer made: a paused one runs no more.
  producer->state().Pause();
  EXPECT_EQ(lab.stats().retained_checkpoints, 0u);
}

TEST(StoreGrowth, BoundariesArePlannedWithinTheTokensThatWereAPrompt) {
  ReuseLab lab(ReuseCases(8, 12).front().options);
  SequenceRequest request;
  const std::vector<TokenId> history = TokensOf(1, 60);
  request.max_tokens = 80;
  request.prompt = history;
  request.plan_tokens = 40;
  AdmitResult admitted = lab.store().Admit(request);
  ASSERT_TRUE(admitted.sequence.has_value());
  SequenceState& sequence = *admitted.sequence;
  uint32_t last = 0;
  while (sequence.TokensToCut() != SequenceState::kNoCut) {
    const uint32_t tokens = sequence.TokensToCut();
    sequence.BeginStep(tokens);
    sequence.EndStep();
    last = static_cast<uint32_t>(sequence.position());
  }
  EXPECT_EQ(last, 40u);
}

}  // namespace
}  // namespace tessera
