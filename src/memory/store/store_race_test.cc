// SPDX-License-Identifier: Apache-2.0
//
// Several threads run sequences on one store while others clear it, look it up, validate it and
// hold steps open. What each adopts is checked byte by byte (pattern_sequence.h); under TSan, that
// no two threads touch the same byte without the lock between them.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "memory/store/pattern_sequence.h"

namespace tessera {
namespace {

using testing::Ask;
using testing::Joined;
using testing::PatternSequence;
using testing::ReuseCase;
using testing::ReuseCases;
using testing::TokensOf;

constexpr int kThreads = 3;
constexpr uint64_t kRequests = 60;  // of each thread

std::optional<PatternSequence> Admit(StateStore& store, const StoreOptions& options,
                                     const Ask& ask) {
  AdmitResult result = store.Admit({.max_tokens = ask.prompt.size() + ask.generate,
                                    .prompt = ask.prompt,
                                    .salt = ask.salt,
                                    .checkpoint_at = ask.checkpoint_at});
  if (!result.sequence.has_value()) return std::nullopt;
  return PatternSequence(store, options, *std::move(result.sequence), ask);
}

void RunRequests(StateStore& store, const StoreOptions& options, uint64_t thread) {
  Random random(thread);
  for (uint64_t i = 0; i < kRequests; ++i) {
    const Ask ask{.prompt = Joined(TokensOf(random.Below(2), 20 + random.Below(30)),
                                   TokensOf(10 + random.Below(3), 1 + random.Below(20))),
                  .generate = static_cast<uint32_t>(random.Below(10)),
                  .checkpoint_at = {16, 29}};
    std::optional<PatternSequence> sequence = Admit(store, options, ask);
    if (!sequence.has_value()) continue;
    if (random.Below(4) == 0) {
      sequence->RunTo(std::max<uint64_t>(sequence->position(), random.Below(sequence->end())), 5);
    } else {
      sequence->Finish(5);
    }
  }
}

TEST(StoreRace, SequencesRunWhileOthersClearLookUpValidateAndHoldStepsOpen) {
  for (const ReuseCase& c : ReuseCases(8, kThreads + 1, 4)) {
    if (c.options.budget_bytes > 4 * kMiB) continue;  // pages of 512 KiB: much the same
    SCOPED_TRACE(c.name);
    std::unique_ptr<StateStore> store = StateStore::Create(c.options).value();
    std::atomic<int> left{kThreads};
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        RunRequests(*store, c.options, t);
        --left;
      });
    }
    threads.emplace_back([&] {
      for (uint64_t i = 0; left > 0; ++i) {
        store->OpenStep();
        const Status valid = store->Validate(3);
        EXPECT_TRUE(valid.ok()) << valid.ToString();
        store->CloseStep();
        if (i % 8 == 0) store->Clear();
        store->Boundaries(10, 10);
        const std::vector<TokenId> prompt = TokensOf(i % 2, 40);
        store->Lookup({.max_tokens = prompt.size(), .prompt = prompt});
        store->Stats();
        std::this_thread::yield();
      }
    });
    for (std::thread& thread : threads) thread.join();
    store->Clear();
    EXPECT_TRUE(store->Validate(3).ok());
    for (const PoolStats& pool : store->Stats().pools) {
      EXPECT_EQ(pool.free_pages, pool.total_pages) << pool.name;
    }
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace tessera
