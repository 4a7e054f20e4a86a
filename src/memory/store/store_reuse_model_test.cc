// SPDX-License-Identifier: Apache-2.0
//
// Seeded random requests over every organisation and kind of model, in stores that are always too
// small: prompts that fork from each other, salts, grids, policies, forks, turns, named positions,
// steps that are open while others end, growth, pauses, headroom, clears, and requests dropped at any
// step, also while they are paused. The twin of a
// sequence is what it would be in an empty store: every byte it adopts is a function of its tokens
// alone (pattern_sequence.h), and it checks each before every step. The store validates after each
// operation, and all of it is free in the end.
#include <gtest/gtest.h>

#include <cstdio>

#include "memory/store/pattern_sequence.h"

#ifndef TESSERA_MODEL_OPERATIONS
#define TESSERA_MODEL_OPERATIONS 12000
#endif

namespace tessera {
namespace {

using testing::Ask;
using testing::PatternSequence;
using testing::ReuseCase;
using testing::ReuseCases;
using testing::ReuseLab;

class RandomRequests {
 public:
  RandomRequests(const StoreOptions& options, uint64_t seed)
      : lab_(options), random_(seed), may_fork_(random_.Below(2) == 0) {}

  void Operation() {
    const uint64_t choice = random_.Below(100);
    if (running_.empty() || (choice < 20 && running_.size() < 5)) {
      Begin();
    } else if (choice < 88) {
      Step();
    } else if (choice < 93) {
      Drop(random_.Below(running_.size()));
    } else if (choice < 97) {
      TogglePhase();
    } else if (choice == 97 && random_.Below(10) == 0) {
      lab_.store().Clear();
    }
    lab_.Check();
  }

  void End() {
    if (open_) TogglePhase();
    running_.clear();
    lab_.Check();
    lab_.store().Clear();
    lab_.Check();
    lab_.ExpectAllFree();
    EXPECT_EQ(lab_.stats().nodes, 1u);
    EXPECT_EQ(lab_.stats().blocks + lab_.stats().checkpoints + lab_.stats().rows, 0u);
  }
  ReuseStats stats() { return lab_.stats(); }
  uint64_t pauses() const { return pauses_; }
  uint64_t growths_refused() const { return growths_refused_; }

 private:
  // A path down a tree that forks two ways at every 7th token, so that groups, tails and boundaries
  // fall everywhere.
  std::vector<TokenId> Prompt() {
    std::vector<TokenId> prompt(1 + random_.Below(75));
    for (size_t i = 0; i < prompt.size(); ++i) {
      const bool fork = i % 7 == 3 && random_.Below(4) == 0;
      prompt[i] = static_cast<TokenId>(i % 100 + (fork ? 500 : 0));
    }
    return prompt;
  }

  void Begin() {
    const uint64_t generate = random_.Below(random_.Below(2) == 0 ? 110 : 25);
    Ask ask{.prompt = Prompt(), .generate = static_cast<uint32_t>(generate)};
    if (!histories_.empty() && random_.Below(3) == 0) {  // the next turn of somebody's
      ask.prompt = histories_[random_.Below(histories_.size())];
      for (uint64_t i = random_.Below(10); i > 0; --i) ask.prompt.push_back(7);
    }
    constexpr const char* kSalts[] = {"", "", "", "a", "b"};
    ask.salt = kSalts[random_.Below(5)];
    if (random_.Below(2) == 0) ask.isolate_after = static_cast<uint32_t>(random_.Below(80));
    for (uint64_t i = random_.Below(3); i > 0; --i) {
      ask.checkpoint_at.push_back(static_cast<uint32_t>(random_.Below(80)));
      ask.message_ends.push_back(static_cast<uint32_t>(random_.Below(80)));
    }
    ask.lookup = random_.Below(10) != 0;
    ask.from_row = random_.Below(3) != 0;
    ask.may_fork = may_fork_ && random_.Below(2) == 0;
    ask.grows = random_.Below(2) == 0;
    ask.headroom = running_.empty() || random_.Below(3) != 0 ? 0 : 0.2;
    ask.resumed = random_.Below(8) == 0;
    const MatchReport known = lab_.Lookup(ask);
    std::optional<PatternSequence> sequence = lab_.Admit(ask);
    if (!sequence.has_value()) {
      EXPECT_NE(lab_.last().outcome == Admission::kMustWait && running_.empty() && !open_, true)
          << "nobody is there to wait for: " << lab_.last().reason;
      return;
    }
    EXPECT_TRUE(sequence->match().reused == known.reused || running_.empty());
    running_.push_back(*std::move(sequence));
    forking_.push_back(ask.may_fork);
  }

  void Step() {
    const size_t index = random_.Below(running_.size());
    PatternSequence& sequence = running_[index];
    const bool forking = forking_[index];
    if (forking && open_) return;  // a forked image goes back into its promise between steps only
    if (!sequence.state().paused() && random_.Below(12) == 0) {
      sequence.state().Pause();
      ++pauses_;
      return;
    }
    if (sequence.state().paused() && !Resume(sequence)) return;
    uint64_t most =
        std::min<uint64_t>(sequence.state().TokensToCut(), sequence.end() - sequence.position());
    if (most > 0) {
      most = 1 + random_.Below(std::min<uint64_t>(most, 20));
      if (!Grow(index, sequence.position() + most)) return;
      sequence.Step(static_cast<uint32_t>(most), forking && random_.Below(2) == 0);
      if (random_.Below(20) == 0) {
        sequence.state().AddCut(static_cast<uint32_t>(sequence.position() + random_.Below(12)));
      }
      if (random_.Below(20) != 0) sequence.Publish();
    }
    if (sequence.position() == sequence.end()) {
      if (random_.Below(8) != 0) sequence.Publish(/*last=*/true);
      if (sequence.end() < 70) histories_.push_back(sequence.tokens());
      if (histories_.size() > 8) histories_.erase(histories_.begin());
      Drop(index);
    }
  }

  bool Resume(PatternSequence& sequence) {
    const uint64_t next = std::min<uint64_t>(sequence.position() + 1, sequence.end());
    return sequence.state().Resume(next, random_.Below(4) == 0 ? 0.2 : 0);
  }

  // What must be had when nothing else is there; else the sequence is paused, or goes.
  bool Grow(size_t index, uint64_t tokens) {
    PatternSequence& sequence = running_[index];
    const uint64_t reserved = sequence.state().reserved_tokens();
    const uint32_t lacking = sequence.state().Grow(tokens);
    if (lacking == 0) return true;
    ++growths_refused_;
    EXPECT_EQ(sequence.state().reserved_tokens(), reserved);
    EXPECT_GT(tokens, reserved);
    if (random_.Below(2) == 0) {
      sequence.state().Pause();
    } else {
      Drop(index);
    }
    return false;
  }

  void Drop(size_t index) {
    const bool may_step = !running_[index].state().paused() &&
                          running_[index].position() < running_[index].state().reserved_tokens();
    if (random_.Below(3) == 0 && may_step && running_[index].position() < running_[index].end()) {
      running_[index].BreakOffInStep(1);
      lab_.Check();
    }
    std::swap(running_[index], running_.back());
    forking_[index] = forking_.back();
    running_.pop_back();
    forking_.pop_back();
  }

  void TogglePhase() {
    open_ = !open_;
    open_ ? lab_.store().OpenStep() : lab_.store().CloseStep();
  }

  ReuseLab lab_;
  Random random_;
  bool may_fork_;
  bool open_ = false;
  uint64_t pauses_ = 0;
  uint64_t growths_refused_ = 0;
  std::vector<PatternSequence> running_;
  std::vector<bool> forking_;
  std::vector<std::vector<TokenId>> histories_;
};

StoreOptions Vary(const ReuseCase& c, uint64_t seed) {
  Random random(seed * 977);
  StoreOptions options = c.options;
  options.shuffle_seed = random.Below(3);
  ReuseOptions& reuse = options.reuse;
  constexpr uint32_t kGrids[] = {1, 1, 5, 16, 24};
  reuse.checkpoint_grid = kGrids[random.Below(5)];
  constexpr const char* kPlacements[] = {"default", "default", "tail", "tail+branch", "dense:11"};
  reuse.placement = PlacementSpec::Parse(kPlacements[random.Below(5)]).value();
  constexpr EvictionPolicy kPolicies[] = {EvictionPolicy::kValue, EvictionPolicy::kLru,
                                          EvictionPolicy::kFlop};
  reuse.eviction = kPolicies[random.Below(3)];
  constexpr const char* kRetentions[] = {"off", "off", "producer:1", "after:2,0.3", "strict"};
  reuse.retention = RetentionSpec::Parse(kRetentions[random.Below(5)]).value();
  if (random.Below(4) == 0) reuse.row_width = 0;
  if (c.recurrent() && options.budget_bytes < kMiB && random.Below(3) == 0) {
    options.extra_kinds = {{"toy", 1 + random.Below(700)}};
    options.budget_bytes *= 4;
  }
  return options;
}

TEST(StoreReuseModel, WhateverIsReusedIsWhatAColdRunWouldHaveWritten) {
  const std::vector<ReuseCase> cases = ReuseCases(8, 3, 3);
  const int rounds = 2;
  const int operations = TESSERA_MODEL_OPERATIONS / rounds / static_cast<int>(cases.size());
  uint64_t hits = 0, evicted = 0, copied = 0, reclaimed_held = 0;
  uint64_t pauses = 0, growths_refused = 0;
  for (uint64_t seed = 1; seed <= cases.size() * rounds; ++seed) {
    const ReuseCase& c = cases[seed % cases.size()];
    SCOPED_TRACE(c.name + ", seed " + std::to_string(seed));
    RandomRequests requests(Vary(c, seed), seed);
    for (int i = 0; i < operations; ++i) {
      requests.Operation();
      if (::testing::Test::HasFailure()) {
        std::printf("%s, seed %llu, operation %d\n", c.name.c_str(),
                    static_cast<unsigned long long>(seed), i);
        return;
      }
    }
    const ReuseStats stats = requests.stats();
    hits += stats.hits;
    copied += stats.copied_groups;
    evicted += stats.evicted_checkpoints;
    reclaimed_held += stats.skipped_checkpoints;
    pauses += requests.pauses();
    growths_refused += requests.growths_refused();
    requests.End();
    if (::testing::Test::HasFailure()) return;
  }
  // What the operations are for did happen.
  EXPECT_GT(hits, 50u);
  EXPECT_GT(evicted, 50u);
  EXPECT_GT(copied, 50u);
  EXPECT_GT(reclaimed_held, 0u);
  EXPECT_GT(pauses, 50u);
  EXPECT_GT(growths_refused, 5u);
}

}  // namespace
}  // namespace tessera
