// SPDX-License-Identifier: Apache-2.0
//
// What the engine reuses, and that nobody can tell from the answers: tokens, log-probability bits
// and receipts are those of an engine that reuses nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "engine/engine_client.h"
#include "engine/engine_test_models.h"

namespace tessera {
namespace {

using testing::Answer;
using testing::Ask;
using testing::Client;
using testing::ExpectSame;
using testing::MakeEngine;
using testing::ToyModelPath;

constexpr Architecture kArchitectures[] = {Architecture::kFalconH1, Architecture::kMamba2,
                                           Architecture::kLlama};
const char* const kOrganisations[] = {"s0", "s1:block=32",  "s2:block=16",
                                      "s2", "d0:split=0.4", "s3"};

EngineOptions ReuseOptions(Architecture architecture = Architecture::kFalconH1) {
  EngineOptions options;
  options.model_path = ToyModelPath(architecture);
  options.threads = 2;
  options.max_running = 4;
  options.chunk_tokens = 32;
  options.budget_bytes = 64 * kMiB;  // nothing is evicted: that is the load test's
  options.poison = true;
  options.shuffle_seed = 3;
  return options;
}

std::vector<TokenId> RandomTokens(uint64_t seed, size_t size) {
  Random random(seed);
  std::vector<TokenId> tokens(size);
  for (TokenId& id : tokens) id = static_cast<TokenId>(random.Below(256));
  return tokens;
}

Request PromptRequest(std::vector<TokenId> prompt, uint32_t max_tokens = 6) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.logprobs = 3;
  return request;
}

// The first `shared` tokens of one text, then `tail` of another.
std::vector<TokenId> Forked(uint64_t text, size_t shared, uint64_t other, size_t tail) {
  std::vector<TokenId> prompt = RandomTokens(text, shared);
  const std::vector<TokenId> rest = RandomTokens(1000 + other, tail);
  prompt.insert(prompt.end(), rest.begin(), rest.end());
  return prompt;
}

// Answers of an engine that reuses nothing.
class Cold {
 public:
  explicit Cold(Architecture architecture = Architecture::kFalconH1) {
    EngineOptions options = ReuseOptions(architecture);
    options.reuse = false;
    options.threads = 1;
    options.chunk_tokens = 512;
    engine_ = MakeEngine(options);
  }
  Answer operator()(const Request& request) {
    Answer answer = Ask(*engine_, request);
    EXPECT_EQ(answer.cached_tokens, 0u);
    return answer;
  }

 private:
  std::unique_ptr<Engine> engine_;
};

// Holds the engine's loop, so that requests submitted meanwhile come to it together.
class HeldLoop {
 public:
  explicit HeldLoop(Engine& engine) {
    Request request;
    request.prompt = {1};
    request.max_tokens = 1;
    request.ignore_eos = true;
    EXPECT_TRUE(engine.Submit(request, [this](const RequestEvent& event) {
      if (event.finish == FinishReason::kNone) return;
      holding_.count_down();
      released_.wait();
    }));
    holding_.wait();
  }
  void Release() { released_.count_down(); }

 private:
  std::latch holding_{1};
  std::latch released_{1};
};

// Each token that was computed has one reason, and the ranges are in order without a gap.
void ExpectReasonForEveryToken(const Answer& answer) {
  const MatchReport& match = answer.match;
  EXPECT_EQ(match.prompt_tokens, answer.prompt_tokens);
  EXPECT_EQ(match.reused, answer.cached_tokens);
  uint32_t at = match.reused;
  for (uint32_t i = 0; i < match.computed_count; ++i) {
    EXPECT_EQ(match.computed[i].begin, at);
    EXPECT_GT(match.computed[i].end, at);
    at = match.computed[i].end;
  }
  EXPECT_EQ(at, match.prompt_tokens);
}

TEST(EngineReuse, AnIdenticalPromptRunsNoPassOfTheModelBeforeItsFirstToken) {
  for (Architecture architecture : kArchitectures) {
    SCOPED_TRACE(static_cast<int>(architecture));
    auto engine = MakeEngine(ReuseOptions(architecture));
    for (size_t size : {1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 48, 49, 100}) {
      SCOPED_TRACE(size);
      const Request request = PromptRequest(RandomTokens(size, size), 1);
      const Answer first = Ask(*engine, request);
      const EngineStats before = engine->Stats();
      const Answer again = Ask(*engine, request);
      const EngineStats after = engine->Stats();
      EXPECT_EQ(first.cached_tokens, 0u);
      EXPECT_EQ(again.cached_tokens, size);
      EXPECT_EQ(after.steps, before.steps);
      EXPECT_EQ(after.prompt_tokens, before.prompt_tokens);
      EXPECT_EQ(after.completion_tokens, before.completion_tokens + 1);
      EXPECT_TRUE(again.match.from_row);
      ExpectSame(again, first);
      ExpectReasonForEveryToken(again);
    }
  }
}

TEST(EngineReuse, FromAKeptRowGenerationIsThatOfAColdRun) {
  for (Architecture architecture : kArchitectures) {
    SCOPED_TRACE(static_cast<int>(architecture));
    Cold cold(architecture);
    auto engine = MakeEngine(ReuseOptions(architecture));
    for (size_t size : {1, 2, 16, 17, 33, 64, 90}) {
      SCOPED_TRACE(size);
      Request request = PromptRequest(RandomTokens(size, size), 20);
      const Answer alone = cold(request);
      ExpectSame(Ask(*engine, request), alone);
      // Twice: what the first hit appended is not what the second one finds.
      for (int i = 0; i < 2; ++i) {
        const Answer hit = Ask(*engine, request);
        EXPECT_EQ(hit.cached_tokens, size);
        ExpectSame(hit, alone);
      }
      request.sampling = {.temperature = 2, .seed = 11};
      const Answer sampled = Ask(*engine, request);
      EXPECT_EQ(sampled.cached_tokens, size);
      ExpectSame(sampled, cold(request));
    }
  }
}

// More than the output head takes at a time; one of them wants a row of every position.
TEST(EngineReuse, RowsOfPromptsThatEndInOneStepAreKeptApart) {
  Cold cold;
  EngineOptions options = ReuseOptions();
  options.max_running = 24;
  options.chunk_tokens = 256;
  auto engine = MakeEngine(options);
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 20; ++i) requests.push_back(PromptRequest(RandomTokens(i, 3 + i % 4)));
  for (int round = 0; round < 2; ++round) {
    for (Request& request : requests) request.prompt_logprobs = -1;
    if (round == 0) requests[3].prompt_logprobs = 1;
    HeldLoop held(*engine);
    const uint64_t before = engine->Stats().prompt_tokens;
    std::vector<Client> clients(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(engine->Submit(requests[i], clients[i].sink()));
    }
    held.Release();
    for (size_t i = 0; i < requests.size(); ++i) ExpectSame(clients[i].Wait(), cold(requests[i]));
    if (round == 1) {
      EXPECT_EQ(engine->Stats().prompt_tokens, before);
    }
  }
}

TEST(EngineReuse, EveryBoundaryIsHitWithTailsOfOneTwoAndMoreTokens) {
  Cold cold;
  for (const char* organisation : kOrganisations) {
    SCOPED_TRACE(organisation);
    EngineOptions options = ReuseOptions();
    options.organisation = *OrganisationSpec::Parse(organisation);
    auto engine = MakeEngine(options);
    for (uint32_t boundary : {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49}) {
      SCOPED_TRACE(boundary);
      const uint64_t text = 100 + boundary;
      Request base = PromptRequest(RandomTokens(text, 60), 2);
      base.checkpoint_at = {boundary};
      EXPECT_EQ(Ask(*engine, base).cached_tokens, 0u);
      for (size_t tail : {1, 2, 5, 40}) {
        const Request forked = PromptRequest(Forked(text, boundary, tail, tail));
        const Answer hit = Ask(*engine, forked);
        EXPECT_EQ(hit.cached_tokens, boundary);
        ExpectReasonForEveryToken(hit);
        ExpectSame(hit, cold(forked));
      }
    }
  }
}

TEST(EngineReuse, WhereAMessageEndedTheNextConversationStarts) {
  for (Architecture architecture : kArchitectures) {
    SCOPED_TRACE(static_cast<int>(architecture));
    Cold cold(architecture);
    auto engine = MakeEngine(ReuseOptions(architecture));
    Request first = PromptRequest(RandomTokens(7, 150));
    for (uint32_t end = 30; end < 150; end += 10) first.message_ends.push_back(end);
    ExpectSame(Ask(*engine, first), cold(first));
    // The first: what conversations begin with; the last: of whoever takes back a turn or two.
    for (uint32_t end : {30u, 130u, 140u}) {
      const Request other = PromptRequest(Forked(7, end, end, 20));
      const Answer hit = Ask(*engine, other);
      EXPECT_EQ(hit.cached_tokens, end);
      ExpectSame(hit, cold(other));
    }
  }
}

// A boundary inside a block: whoever appends copies it, so that the next one finds what was there.
TEST(EngineReuse, AppendersDoNotAlterWhatTheyStartedFrom) {
  for (Architecture architecture : kArchitectures) {
    Cold cold(architecture);
    for (const char* organisation : kOrganisations) {
      SCOPED_TRACE(organisation);
      EngineOptions options = ReuseOptions(architecture);
      options.organisation = *OrganisationSpec::Parse(organisation);
      auto engine = MakeEngine(options);
      Request base = PromptRequest(RandomTokens(5, 37));
      const Answer alone = cold(base);
      ExpectSame(Ask(*engine, base), alone);
      for (uint64_t other = 0; other < 4; ++other) {
        const Request forked = PromptRequest(Forked(5, 37, other % 2, 3 + 10 * (other % 2)));
        const Answer hit = Ask(*engine, forked);
        EXPECT_GE(hit.cached_tokens, 37u);
        ExpectSame(hit, cold(forked));
        const Answer again = Ask(*engine, base);
        EXPECT_EQ(again.cached_tokens, 37u);
        ExpectSame(again, alone);
      }
    }
  }
}

TEST(EngineReuse, ASharedBeginningIsUsedByManyAtOnceInEveryOrganisation) {
  for (Architecture architecture : kArchitectures) {
    Cold cold(architecture);
    std::vector<Request> requests;
    std::vector<Answer> alone;
    for (uint64_t i = 0; i < 8; ++i) {
      requests.push_back(PromptRequest(Forked(9, 45, i, 1 + 7 * i), 12));
      alone.push_back(cold(requests.back()));
    }
    Request base = PromptRequest(RandomTokens(9, 45), 0);
    for (const char* organisation : kOrganisations) {
      SCOPED_TRACE(organisation);
      EngineOptions options = ReuseOptions(architecture);
      options.organisation = *OrganisationSpec::Parse(organisation);
      auto engine = MakeEngine(options);
      Ask(*engine, base);
      HeldLoop held(*engine);
      std::vector<Client> clients(requests.size());
      for (size_t i = 0; i < requests.size(); ++i) {
        ASSERT_TRUE(engine->Submit(requests[i], clients[i].sink()));
      }
      held.Release();
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(clients[i].Wait().cached_tokens, 45u);
        ExpectSame(clients[i].Wait(), alone[i]);
      }
    }
  }
}

TEST(EngineReuse, TheNextTurnStartsWhereTheLastOneEnded) {
  for (Architecture architecture : kArchitectures) {
    SCOPED_TRACE(static_cast<int>(architecture));
    Cold cold(architecture);
    auto engine = MakeEngine(ReuseOptions(architecture));
    std::vector<TokenId> conversation = RandomTokens(21, 20);
    uint32_t known = 0;
    for (uint64_t turn = 0; turn < 4; ++turn) {
      const Request request = PromptRequest(conversation, 9);
      const Answer answer = Ask(*engine, request);
      EXPECT_EQ(answer.cached_tokens, known);
      ExpectSame(answer, cold(request));
      conversation.insert(conversation.end(), answer.tokens.begin(), answer.tokens.end());
      // The last token was sampled, not computed.
      known = static_cast<uint32_t>(conversation.size()) - 1;
      const std::vector<TokenId> said = RandomTokens(30 + turn, 5);
      conversation.insert(conversation.end(), said.begin(), said.end());
    }
  }
}

TEST(EngineReuse, APromptWithoutCompletionLeavesItsRow) {
  Cold cold;
  auto engine = MakeEngine(ReuseOptions());
  Request request = PromptRequest(RandomTokens(4, 50), 0);
  Ask(*engine, request);
  request.max_tokens = 8;
  const Answer hit = Ask(*engine, request);
  EXPECT_EQ(hit.cached_tokens, 50u);
  ExpectSame(hit, cold(request));
  request.max_tokens = 0;  // and from a row there may be nothing to do at all
  const Answer nothing = Ask(*engine, request);
  EXPECT_EQ(nothing.cached_tokens, 50u);
  EXPECT_EQ(nothing.finish, FinishReason::kLength);
  EXPECT_TRUE(nothing.tokens.empty());
}

TEST(EngineReuse, SaltsShareNothing) {
  Cold cold;
  const Request plain = PromptRequest(RandomTokens(6, 40));
  const Answer alone = cold(plain);
  auto engine = MakeEngine(ReuseOptions());
  // In this order none has seen its own salt before; "" is no salt.
  for (const char* salt : {"", "a", "b", "ab"}) {
    SCOPED_TRACE(salt);
    Request salted = plain;
    salted.cache_salt = salt;
    const Answer first = Ask(*engine, salted);
    EXPECT_EQ(first.cached_tokens, 0u);
    ExpectSame(first, alone);
  }
  for (const char* salt : {"b", "", "ab", "a"}) {
    Request salted = plain;
    salted.cache_salt = salt;
    const Answer again = Ask(*engine, salted);
    EXPECT_EQ(again.cached_tokens, 40u);
    ExpectSame(again, alone);
  }
}

TEST(EngineReuse, IsolatedRequestsReuseNothingNotEvenTheirOwn) {
  Cold cold;
  EngineOptions options = ReuseOptions();
  options.isolate = IsolateKind::kRequest;
  auto engine = MakeEngine(options);
  Request request = PromptRequest(RandomTokens(6, 40));
  const Answer alone = cold(request);
  for (const char* salt : {"", "", "a", "a", "r1", "r2"}) {
    request.cache_salt = salt;
    const Answer answer = Ask(*engine, request);
    EXPECT_EQ(answer.cached_tokens, 0u);
    ExpectReasonForEveryToken(answer);
    ExpectSame(answer, alone);
  }
  // And do not wait for each other either.
  HeldLoop held(*engine);
  std::vector<Client> clients(3);
  for (Client& client : clients) ASSERT_TRUE(engine->Submit(request, client.sink()));
  held.Release();
  for (Client& client : clients) ExpectSame(client.Wait(), alone);
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.joins, 0u);
  EXPECT_EQ(stats.store.reuse.published_blocks + stats.store.reuse.published_checkpoints +
                stats.store.reuse.published_rows,
            0u)
      << "nobody could find it";
}

// One text before what is each tenant's own, under every way of isolating.
TEST(EngineReuse, TenantsComputeWhatTheyDeclarePublicOnceAndReuseNothingElseOfEachOther) {
  Cold cold;
  Request request = PromptRequest(Forked(6, 50, 7, 20));
  request.isolate_after = 50;
  const Answer alone = cold(request);
  for (const IsolateKind isolate : {IsolateKind::kOff, IsolateKind::kKey, IsolateKind::kRequest}) {
    SCOPED_TRACE(IsolateName(isolate));
    EngineOptions options = ReuseOptions();
    options.isolate = isolate;
    auto engine = MakeEngine(options);
    const auto ask = [&](const char* tenant, uint32_t isolate_after) {
      Request one = request;
      one.isolate_after = isolate_after;
      (isolate == IsolateKind::kKey ? one.isolation_key : one.cache_salt) = tenant;
      const Answer answer = Ask(*engine, one);
      ExpectReasonForEveryToken(answer);
      ExpectSame(answer, alone);
      return answer.cached_tokens;
    };
    EXPECT_EQ(ask("a", 50), 0u);
    EXPECT_EQ(ask("b", 50), 48u);
    EXPECT_EQ(ask("c", 49), 48u);
    EXPECT_EQ(ask("d", 47), 0u);  // shares less: 32 tokens, where nobody left a checkpoint
    EXPECT_EQ(ask("e", 15), 0u);
    EXPECT_EQ(ask("b", 50), isolate == IsolateKind::kRequest ? 48u : 70u);
    EXPECT_EQ(ask("a", 0), 0u);
    // Who is not isolated shares it too.
    EXPECT_EQ(ask("", 0), isolate == IsolateKind::kOff ? 48u : 0u);
    // What no other request could find is not kept.
    for (const BoundaryInfo& entry : engine->CacheEntries(1000, 0)) {
      EXPECT_TRUE(!entry.salted || isolate != IsolateKind::kRequest) << entry.tokens;
    }
  }
}

TEST(EngineReuse, TenantsThatComeTogetherWaitForThePublicPartAlone) {
  Cold cold;
  auto engine = MakeEngine(ReuseOptions());
  std::vector<Request> requests(4);
  HeldLoop held(*engine);
  const uint64_t before = engine->Stats().prompt_tokens;
  std::vector<Client> clients(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i] = PromptRequest(Forked(6, 64, 7, 40));  // the same, all of it
    requests[i].cache_salt = std::string(1, static_cast<char>('a' + i));
    requests[i].isolate_after = 64;
    ASSERT_TRUE(engine->Submit(requests[i], clients[i].sink()));
  }
  held.Release();
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answer answer = clients[i].Wait();
    EXPECT_EQ(answer.cached_tokens, i == 0 ? 0u : 64u);
    ExpectSame(answer, cold(requests[i]));
  }
  EXPECT_EQ(engine->Stats().joins, 3u);
  EXPECT_EQ(engine->Stats().prompt_tokens - before, 64u + 4 * 40u);
}

TEST(EngineReuse, PromptLogprobsAreComputedWhateverIsKnown) {
  Cold cold;
  auto engine = MakeEngine(ReuseOptions());
  Request request = PromptRequest(RandomTokens(6, 40));
  Ask(*engine, request);
  request.prompt_logprobs = 2;
  const Answer echoed = Ask(*engine, request);
  EXPECT_EQ(echoed.cached_tokens, 0u);
  EXPECT_EQ(echoed.prompt_logprobs.size(), 40u);
  ASSERT_EQ(echoed.match.computed_count, 1u);
  EXPECT_EQ(echoed.match.computed[0].reason, ComputeReason::kDisabled);
  ExpectSame(echoed, cold(request));
}

TEST(EngineReuse, ARequestMayRefuseReuseAndStillLeaveSomething) {
  auto engine = MakeEngine(ReuseOptions());
  Request request = PromptRequest(RandomTokens(6, 40));
  request.reuse = false;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Ask(*engine, request).cached_tokens, 0u);
  request.reuse = true;
  EXPECT_EQ(Ask(*engine, request).cached_tokens, 40u);
}

TEST(EngineReuse, WithReuseOffNothingIsKept) {
  EngineOptions options = ReuseOptions();
  options.reuse = false;
  auto engine = MakeEngine(options);
  const Request request = PromptRequest(RandomTokens(6, 40));
  for (int i = 0; i < 2; ++i) {
    const Answer answer = Ask(*engine, request);
    EXPECT_EQ(answer.cached_tokens, 0u);
    ASSERT_EQ(answer.match.computed_count, 1u);
    EXPECT_EQ(answer.match.computed[0].reason, ComputeReason::kDisabled);
  }
  EXPECT_TRUE(engine->CacheEntries(100, 4).empty());
  for (const PoolStats& pool : engine->Stats().store.pools) {
    EXPECT_EQ(pool.free_pages, pool.total_pages);
  }
}

TEST(EngineReuse, AfterAClearEverythingIsComputedAgain) {
  auto engine = MakeEngine(ReuseOptions());
  const Request request = PromptRequest(RandomTokens(6, 40));
  const Answer cold = Ask(*engine, request);
  EXPECT_FALSE(engine->CacheEntries(100, 4).empty());
  EXPECT_GT(engine->ClearCache(), 0u);
  EXPECT_TRUE(engine->CacheEntries(100, 4).empty());
  for (const PoolStats& pool : engine->Stats().store.pools) {
    EXPECT_EQ(pool.free_pages, pool.total_pages);
  }
  const Answer again = Ask(*engine, request);
  EXPECT_EQ(again.cached_tokens, 0u);
  ExpectSame(again, cold);
}

// The fence: while a step computes, what is freed is nobody's. The clearing thread sees it wait.
TEST(EngineReuse, WhatAClearFreesWhileAStepComputesWaitsForItsEnd) {
  Cold cold;
  const Request requests[] = {PromptRequest(RandomTokens(6, 70), 2),
                              PromptRequest(Forked(6, 50, 1, 200), 30)};
  const Answer alone[] = {cold(requests[0]), cold(requests[1])};
  for (const char* organisation : kOrganisations) {
    SCOPED_TRACE(organisation);
    EngineOptions options = ReuseOptions();
    options.organisation = *OrganisationSpec::Parse(organisation);
    options.budget_bytes = 8 * kMiB;  // a clear looks at every entry there may be, under the lock
    auto engine = MakeEngine(options);
    std::atomic<bool> done = false;
    std::atomic<uint32_t> waited = 0;
    std::thread clearing([&] {
      while (!done) {
        engine->ClearCache();
        for (const PoolStats& pool : engine->Stats().store.pools) waited += pool.draining_pages;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
    // Each request leaves something idle while the other runs.
    for (int round = 0; round < 300 && (round < 5 || waited == 0); ++round) {
      Client clients[2];
      for (size_t i = 0; i < 2; ++i) {
        ASSERT_TRUE(engine->Submit(requests[i], clients[i].sink()));
      }
      for (size_t i = 0; i < 2; ++i) ExpectSame(clients[i].Wait(), alone[i]);
    }
    done = true;
    clearing.join();
    EXPECT_GT(waited, 0u);
    engine->ClearCache();
    for (const PoolStats& pool : engine->Stats().store.pools) {
      EXPECT_EQ(pool.free_pages, pool.total_pages);
    }
  }
}

TEST(EngineReuse, BoundariesLieOnTheGrid) {
  Cold cold;
  EngineOptions options = ReuseOptions();
  options.checkpoint_grid = 24;
  auto engine = MakeEngine(options);
  const Request request = PromptRequest(RandomTokens(6, 80));
  const Answer alone = cold(request);
  Ask(*engine, request);
  const Answer again = Ask(*engine, request);
  EXPECT_EQ(again.cached_tokens % 24, 0u);
  ExpectReasonForEveryToken(again);
  ExpectSame(again, alone);
}

// A chunk that is rounded down to the grid, or to a page, may come to nothing and then for ever.
TEST(EngineReuse, ChunksOfEverySizeGoOnUnderEveryGrid) {
  Cold cold;
  for (const uint32_t chunk : {1u, 2u, 15u, 16u, 17u, 64u}) {
    for (const uint32_t grid : {1u, 3u, 16u, 17u, 100u}) {
      SCOPED_TRACE("chunks of " + std::to_string(chunk) + ", grid " + std::to_string(grid));
      EngineOptions options = ReuseOptions();
      options.max_running = 1;
      options.chunk_tokens = chunk;
      options.checkpoint_grid = grid;
      auto engine = MakeEngine(options);
      for (const size_t size : {1u, 16u, 17u, 67u}) {
        const Request request = PromptRequest(Forked(6, size, 7, 16));
        ExpectSame(Ask(*engine, request), cold(request));
      }
    }
  }
}

TEST(EngineReuse, ACancelledPrefillLeavesWhatItComputedAndNoMore) {
  Cold cold;
  EngineOptions options = ReuseOptions();
  options.chunk_tokens = 4;
  auto engine = MakeEngine(options);
  int cancelled = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Request request = PromptRequest(RandomTokens(seed, 900), 3);
    const uint64_t before = engine->Stats().prompt_tokens;
    Client client;
    const auto id = engine->Submit(request, client.sink());
    ASSERT_TRUE(id);
    while (engine->Stats().prompt_tokens < before + 16 * seed) std::this_thread::yield();
    engine->Cancel(*id);
    if (client.Wait().finish != FinishReason::kCancelled || !client.Now().tokens.empty()) continue;
    ++cancelled;
    const uint64_t computed = engine->Stats().prompt_tokens - before;
    const Answer answer = Ask(*engine, request);
    EXPECT_EQ(answer.cached_tokens, computed);
    if (cancelled <= 3) ExpectSame(answer, cold(request));
  }
  EXPECT_GT(cancelled, 0);
}

TEST(EngineReuse, IdenticalPromptsThatComeTogetherAreComputedOnce) {
  for (Architecture architecture : kArchitectures) {
    SCOPED_TRACE(static_cast<int>(architecture));
    Cold cold(architecture);
    auto engine = MakeEngine(ReuseOptions(architecture));
    const Request request = PromptRequest(RandomTokens(8, 300), 10);
    const Answer alone = cold(request);
    HeldLoop held(*engine);
    const uint64_t before = engine->Stats().prompt_tokens;
    std::vector<Client> clients(10);
    for (Client& client : clients) ASSERT_TRUE(engine->Submit(request, client.sink()));
    held.Release();
    for (size_t i = 0; i < clients.size(); ++i) {
      EXPECT_EQ(clients[i].Wait().cached_tokens, i == 0 ? 0u : 300u);
      ExpectSame(clients[i].Wait(), alone);
    }
    EXPECT_EQ(engine->Stats().prompt_tokens, before + 300);
    EXPECT_EQ(engine->Stats().joins, 9u);
  }
}

// Some have a beginning in common that ends within a group, some a longer one, one is all of it.
TEST(EngineReuse, WhoeverJoinsAPrefillIsAnsweredAsAloneInEveryOrganisation) {
  for (Architecture architecture : kArchitectures) {
    Cold cold(architecture);
    std::vector<Request> requests = {PromptRequest(RandomTokens(8, 130), 10)};
    for (uint64_t i = 1; i < 4; ++i) requests.push_back(PromptRequest(Forked(8, 41, i, 9 * i), 12));
    requests.push_back(PromptRequest(Forked(8, 100, 4, 25), 12));
    requests.push_back(requests[0]);
    std::vector<Answer> alone;
    for (const Request& request : requests) alone.push_back(cold(request));
    for (const char* organisation : kOrganisations) {
      SCOPED_TRACE(organisation);
      EngineOptions options = ReuseOptions(architecture);
      options.organisation = *OrganisationSpec::Parse(organisation);
      auto engine = MakeEngine(options);
      HeldLoop held(*engine);
      std::vector<Client> clients(requests.size());
      for (size_t i = 0; i < requests.size(); ++i) {
        ASSERT_TRUE(engine->Submit(requests[i], clients[i].sink()));
      }
      held.Release();
      const uint32_t joined[] = {0, 41, 41, 41, 100, 130};
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(clients[i].Wait().cached_tokens, joined[i]);
        ExpectSame(clients[i].Wait(), alone[i]);
      }
      EXPECT_EQ(engine->Stats().joins, requests.size() - 1);
    }
  }
}

TEST(EngineReuse, TheCommonBeginningOfPromptsThatComeTogetherIsComputedOnce) {
  for (Architecture architecture : kArchitectures) {
    SCOPED_TRACE(static_cast<int>(architecture));
    Cold cold(architecture);
    auto engine = MakeEngine(ReuseOptions(architecture));
    HeldLoop held(*engine);
    const uint64_t before = engine->Stats().prompt_tokens;
    std::vector<Request> requests;
    std::vector<Client> clients(6);
    for (size_t i = 0; i < clients.size(); ++i) {
      requests.push_back(PromptRequest(Forked(8, 203, i, 10)));
      ASSERT_TRUE(engine->Submit(requests.back(), clients[i].sink()));
    }
    held.Release();
    for (size_t i = 0; i < clients.size(); ++i) {
      EXPECT_EQ(clients[i].Wait().cached_tokens, i == 0 ? 0u : 203u);
      ExpectSame(clients[i].Wait(), cold(requests[i]));
    }
    EXPECT_EQ(engine->Stats().prompt_tokens, before + 203 + 60);
  }
}

// A producer takes so many boundaries from those who wait for it; others do not wait in vain.
TEST(EngineReuse, MoreThanAProducerTakesAreComputedWithoutWaiting) {
  Cold cold;
  EngineOptions options = ReuseOptions();
  options.max_running = 8;
  auto engine = MakeEngine(options);
  HeldLoop held(*engine);
  std::vector<Request> requests = {PromptRequest(RandomTokens(8, 900), 1)};
  for (uint64_t i = 1; i <= SequenceState::kAddedCutsMax + 4; ++i) {
    requests.push_back(PromptRequest(Forked(8, 40 * i + 1, i, 5), 3));
  }
  std::vector<Client> clients(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(engine->Submit(requests[i], clients[i].sink()));
  }
  held.Release();
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const bool joins = i > 0 && i <= SequenceState::kAddedCutsMax;
    EXPECT_EQ(clients[i].Wait().cached_tokens, joins ? 40 * i + 1 : 0);
    ExpectSame(clients[i].Wait(), cold(requests[i]));
  }
  EXPECT_EQ(engine->Stats().joins, uint64_t{SequenceState::kAddedCutsMax});
}

TEST(EngineReuse, WhoeverDoesNotShareThePrefixPassesThoseWhoWaitForIt) {
  EngineOptions options = ReuseOptions();
  options.chunk_tokens = 4;
  auto engine = MakeEngine(options);
  const Request known = PromptRequest(RandomTokens(3, 20), 1);
  Ask(*engine, known);
  HeldLoop held(*engine);
  std::vector<std::string> order;  // of first tokens; only the loop writes
  const auto noting = [&order](const char* name, Client& client) {
    return [inner = client.sink(), name, &order](const RequestEvent& event) {
      if (event.finish != FinishReason::kNone) order.push_back(name);
      inner(event);
    };
  };
  Client producer, waiting, other;
  const Request request = PromptRequest(RandomTokens(8, 600), 1);
  ASSERT_TRUE(engine->Submit(request, noting("producer", producer)));
  ASSERT_TRUE(engine->Submit(request, noting("waiting", waiting)));
  ASSERT_TRUE(engine->Submit(known, noting("other", other)));  // its row needs no room
  held.Release();
  producer.Wait();
  waiting.Wait();
  other.Wait();
  EXPECT_EQ(order, std::vector<std::string>({"other", "producer", "waiting"}));
  EXPECT_EQ(engine->Stats().joins, 1u);
}

TEST(EngineReuse, WhenAProducerIsCancelledTheNextOneGoesOnFromWhereItStopped) {
  Cold cold;
  EngineOptions options = ReuseOptions();
  options.chunk_tokens = 4;
  auto engine = MakeEngine(options);
  const Request request = PromptRequest(RandomTokens(8, 900), 5);
  HeldLoop held(*engine);
  const uint64_t before = engine->Stats().prompt_tokens;
  std::vector<Client> clients(4);
  std::vector<RequestId> ids;
  for (Client& client : clients) ids.push_back(*engine->Submit(request, client.sink()));
  held.Release();
  while (engine->Stats().prompt_tokens < before + 100) std::this_thread::yield();
  engine->Cancel(ids[0]);
  const Answer alone = cold(request);
  for (size_t i = 1; i < clients.size(); ++i) ExpectSame(clients[i].Wait(), alone);
  EXPECT_EQ(clients[0].Wait().final_events, 1);
  // Cancelled with a group or less to go, the other two do not wait for that.
  const uint64_t computed = engine->Stats().prompt_tokens - before;
  EXPECT_GE(computed, 900u);
  EXPECT_LE(computed, 900u + 2 * 16);
}

}  // namespace
}  // namespace tessera
