// SPDX-License-Identifier: Apache-2.0
//
// E1 to E4 when memory is short: 64 requests of several lengths and priorities, most of them
// decoding past what they were admitted with, in budgets of one to a few of the longest, so that
// running ones are preempted, pinned ones given up and cached state evicted, while some are
// cancelled: waiting, joining, computing or preempted. Each that finishes has the answer and receipt
// it has alone on an idle engine that reuses nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

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
using testing::ToyShape;

constexpr uint32_t kMaxPositions = 200;
constexpr size_t kRequests = 64;

std::vector<TokenId> Text(uint64_t seed, size_t size) {
  Random random(seed);
  std::vector<TokenId> text(size);
  for (TokenId& id : text) id = static_cast<TokenId>(random.Below(256));
  return text;
}

// A third begin with one of two long texts, a third are short; half of all decode for long.
Request MixedRequest(Random& random) {
  Request request;
  if (random.Below(3) == 0) request.prompt = Text(900 + random.Below(2), 60);
  const std::vector<TokenId> own =
      Text(random.Next(), 1 + random.Below(random.Below(2) == 0 ? 60 : 12));
  request.prompt.insert(request.prompt.end(), own.begin(), own.end());
  request.max_tokens =
      static_cast<uint32_t>(random.Below(2) == 0 ? random.Below(10) : 20 + random.Below(60));
  request.ignore_eos = random.Below(8) != 0;
  request.priority = static_cast<int32_t>(random.Below(3)) - 1;
  if (random.Below(2) == 0) request.logprobs = 2;
  if (random.Below(8) == 0) request.prompt_logprobs = 1;
  if (random.Below(6) == 0) request.cache_salt = "tenant";
  if (request.prompt.size() > 60 && random.Below(2) == 0) request.isolate_after = 60;
  if (random.Below(8) == 0) request.reuse = false;
  if (random.Below(2) == 0) request.sampling = {.temperature = 1.5f, .seed = random.Next()};
  if (random.Below(6) == 0) request.stop = {"ab", "\n\n"};
  return request;
}

struct Setting {
  const char* organisation;
  double sequences;  // what the budget holds of the longest
  uint32_t max_running = 8;
  uint32_t chunk_tokens = 24;
  double headroom = 0;
  const char* retention = "off";
  IsolateKind isolate = IsolateKind::kOff;
  bool reuse = true;
  uint32_t grid = 1;
};

// Those that need not be cancelled; a third of the cancelled ones are when they have begun.
void Cancel(Engine& engine, Random& random, Client& client, RequestId id) {
  if (random.Below(3) == 0) client.WaitForTokens(1 + random.Below(5));
  engine.Cancel(id);
}

class EnginePressure : public ::testing::TestWithParam<std::pair<Architecture, StateType>> {
 protected:
  EnginePressure() {
    options_.model_path = ToyModelPath(GetParam().first);
    options_.state_type = GetParam().second;
    options_.threads = 2;
    Random random(31);
    for (size_t i = 0; i < kRequests; ++i) requests_.push_back(MixedRequest(random));
    EngineOptions idle = options_;
    idle.threads = 1;
    idle.max_running = 1;
    idle.chunk_tokens = 256;
    idle.reuse = false;
    auto engine = MakeEngine(idle);
    for (const Request& request : requests_) alone_.push_back(Ask(*engine, request));
  }

  EngineOptions OptionsFor(const Setting& setting, uint64_t seed) const {
    EngineOptions options = options_;
    options.organisation = *OrganisationSpec::Parse(setting.organisation);
    options.max_running = setting.max_running;
    options.chunk_tokens = setting.chunk_tokens;
    options.headroom = setting.headroom;
    options.retention = *RetentionSpec::Parse(setting.retention);
    options.isolate = setting.isolate;
    options.reuse = setting.reuse;
    options.checkpoint_grid = setting.grid;
    options.poison = true;
    options.shuffle_seed = seed | 1;
    const StateShape shape = ToyShape(GetParam().first).state_shape(GetParam().second);
    const uint64_t one =
        *StateStore::BudgetForSequences(shape, options.organisation, 1, kMaxPositions);
    options.budget_bytes = static_cast<uint64_t>(setting.sequences * static_cast<double>(one));
    return options;
  }

  EngineStats RunAll(const EngineOptions& options, Random& random) {
    auto engine = MakeEngine(options);
    if (engine == nullptr) return {};
    std::vector<Client> clients(requests_.size());
    std::vector<bool> cancelled(requests_.size());
    for (size_t i = 0; i < requests_.size(); ++i) {
      const auto id = engine->Submit(requests_[i], clients[i].sink());
      EXPECT_TRUE(id) << id.error().message();
      if (!id) return {};
      cancelled[i] = random.Below(6) == 0;
      if (cancelled[i]) Cancel(*engine, random, clients[i], *id);
    }
    for (size_t i = 0; i < requests_.size(); ++i) {
      SCOPED_TRACE(i);
      const Answer& answer = clients[i].Wait();
      if (answer.finish == FinishReason::kCancelled) {
        EXPECT_TRUE(cancelled[i]);
        EXPECT_LE(answer.tokens.size(), alone_[i].tokens.size());
        for (size_t k = 0; k < std::min(answer.tokens.size(), alone_[i].tokens.size()); ++k) {
          EXPECT_EQ(answer.tokens[k], alone_[i].tokens[k]);
        }
      } else {
        ExpectSame(answer, alone_[i]);
      }
      EXPECT_EQ(clients[i].Now().final_events, 1);
    }
    const EngineStats stats = engine->Stats();
    EXPECT_EQ(stats.running + stats.waiting + stats.pinned, 0u);
    for (const PoolStats& pool : stats.store.pools) {
      EXPECT_EQ(pool.free_pages + pool.cached_attention_pages + pool.cached_state_pages,
                pool.total_pages)
          << pool.name;
    }
    engine->ClearCache();
    for (const PoolStats& pool : engine->Stats().store.pools) {
      EXPECT_EQ(pool.free_pages, pool.total_pages) << pool.name << ", after all was let go";
    }
    return stats;
  }

  EngineOptions options_;
  std::vector<Request> requests_;
  std::vector<Answer> alone_;
};

TEST_P(EnginePressure, WhatIsPreemptedAnswersAsAlone) {
  const Setting settings[] = {
      {.organisation = "s3", .sequences = 1.02, .chunk_tokens = 16},
      {.organisation = "s3", .sequences = 1.6},
      {.organisation = "s3", .sequences = 3, .max_running = 12, .chunk_tokens = 40},
      {.organisation = "s3", .sequences = 2, .headroom = 0.19},
      {.organisation = "s3", .sequences = 2, .retention = "producer:2"},
      {.organisation = "s3", .sequences = 2, .retention = "strict"},
      {.organisation = "s3", .sequences = 2, .retention = "after:2,0.3"},
      {.organisation = "s3", .sequences = 1.5, .isolate = IsolateKind::kRequest},
      {.organisation = "s3", .sequences = 1.5, .isolate = IsolateKind::kKey},
      {.organisation = "s3", .sequences = 1.5, .reuse = false},
      {.organisation = "s3:page=64", .sequences = 2, .grid = 16},
      {.organisation = "s2:block=32", .sequences = 2},
      {.organisation = "s1:block=16", .sequences = 1.6, .headroom = 0.1},
      {.organisation = "s0:block=32", .sequences = 2},
      {.organisation = "d0:split=0.5", .sequences = 2.2, .headroom = 0.1}};
  Random random(3);
  EngineStats sum;
  for (const Setting& setting : settings) {
    SCOPED_TRACE(setting.organisation);
    SCOPED_TRACE(setting.sequences);
    SCOPED_TRACE(setting.retention);
    const EngineStats stats = RunAll(OptionsFor(setting, random.Next()), random);
    sum.preemptions_pinned += stats.preemptions_pinned;
    sum.preemptions_recomputed += stats.preemptions_recomputed;
    sum.pins_given_up += stats.pins_given_up;
    sum.resumptions += stats.resumptions;
    sum.recomputed_tokens += stats.recomputed_tokens;
    sum.admissions_refused += stats.admissions_refused;
    sum.joins += stats.joins;
    if (HasFailure()) return;
  }
  EXPECT_GT(sum.admissions_refused, 0u);
  EXPECT_GT(sum.joins, 0u);
  if (GetParam().first == Architecture::kMamba2) return;  // nothing grows
  // How many there are depends on how fast requests come.
  EXPECT_GT(sum.preemptions_pinned, 0u);
  EXPECT_GT(sum.preemptions_recomputed + sum.pins_given_up, 0u);
  EXPECT_GT(sum.resumptions, 0u);
  EXPECT_GT(sum.recomputed_tokens, 0u);
  RecordProperty("pinned", static_cast<int>(sum.preemptions_pinned));
  RecordProperty("recomputed", static_cast<int>(sum.preemptions_recomputed));
}

EngineOptions Toy(double sequences, uint64_t positions) {
  EngineOptions options;
  options.model_path = ToyModelPath();
  options.threads = 2;
  options.chunk_tokens = 32;
  options.poison = true;
  const StateShape shape = ToyShape(Architecture::kFalconH1).state_shape(StateType::kF32);
  const uint64_t one = *StateStore::BudgetForSequences(shape, options.organisation, 1, positions);
  options.budget_bytes = static_cast<uint64_t>(sequences * static_cast<double>(one));
  return options;
}

TEST(EnginePreemption, IdenticalGreedyPromptsHaveOneAnswer) {
  auto engine = MakeEngine(Toy(2.5, 170));
  Request request;
  request.prompt = Text(5, 70);
  request.max_tokens = 90;
  request.ignore_eos = true;
  request.logprobs = 1;
  std::vector<Client> clients(24);
  for (Client& client : clients) ASSERT_TRUE(engine->Submit(request, client.sink()));
  std::set<std::pair<std::string, uint64_t>> answers;
  for (Client& client : clients) {
    const Answer& answer = client.Wait();
    EXPECT_EQ(answer.finish, FinishReason::kLength);
    EXPECT_EQ(answer.tokens.size(), 90u);
    EXPECT_EQ(answer.logprobs.size(), 90u);
    answers.emplace(answer.text, answer.receipt);
  }
  EXPECT_EQ(answers.size(), 1u);
  const EngineStats stats = engine->Stats();
  EXPECT_GT(stats.preemptions_pinned + stats.preemptions_recomputed, 0u);
  EXPECT_EQ(stats.completion_tokens, 24u * 90u) << "a token was sampled twice";
}

// What is counted: prompts once, whatever was computed again beside them.
TEST(EnginePreemption, TokensComputedAgainAreCountedApart) {
  EngineOptions options = Toy(1.3, 120);
  options.reuse = false;
  auto engine = MakeEngine(options);
  std::vector<Client> clients(6);
  for (size_t i = 0; i < clients.size(); ++i) {
    Request request;
    request.prompt = Text(i, 40);
    request.max_tokens = 80;
    request.ignore_eos = true;
    ASSERT_TRUE(engine->Submit(request, clients[i].sink()));
  }
  for (Client& client : clients) client.Wait();
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.prompt_tokens, 6u * 40u);
  EXPECT_EQ(stats.completion_tokens, 6u * 80u);
  EXPECT_GT(stats.recomputed_tokens, 0u);
  EXPECT_GT(stats.growths_refused, 0u);
  EXPECT_GT(stats.plans, 0u);
  EXPECT_GE(stats.plan_ns, stats.plan_ns_max);
}

TEST(EnginePreemption, OneThatJustFitsAloneRunsToItsEnd) {
  // The checkpoint at its prompt's end takes the pages that it needs later.
  for (double sequences : {1.0, 1.2, 1.6}) {
    SCOPED_TRACE(sequences);
    EngineOptions options = Toy(sequences, 200);
    auto engine = MakeEngine(options);
    Request request;
    request.prompt = Text(9, 100);
    request.max_tokens = 0;
    while (true) {  // the longest that Submit takes
      Client client;
      request.max_tokens += 16;
      const auto id = engine->Submit(request, client.sink());
      if (!id) break;
      client.Wait();
    }
    request.max_tokens -= 16;
    request.ignore_eos = true;
    ASSERT_GT(request.max_tokens, 0u);
    EngineOptions roomy = options;
    roomy.budget_bytes *= 8;
    const Answer answer = Ask(*engine, request);
    EXPECT_EQ(answer.finish, FinishReason::kLength);
    ExpectSame(answer, Ask(*MakeEngine(roomy), request));
  }
}

// Recomputed in one chunk, prompt and sampled tokens together.
TEST(EnginePreemption, RowsOfAPromptAreToldOnce) {
  EngineOptions options = Toy(1.3, 120);
  options.chunk_tokens = 256;
  options.reuse = false;
  auto engine = MakeEngine(options);
  std::vector<Client> clients(6);
  for (size_t i = 0; i < clients.size(); ++i) {
    Request request;
    request.prompt = Text(i, 40);
    request.max_tokens = 80;
    request.ignore_eos = true;
    request.prompt_logprobs = 1;
    ASSERT_TRUE(engine->Submit(request, clients[i].sink()));
  }
  for (Client& client : clients) EXPECT_EQ(client.Wait().prompt_logprobs.size(), 40u);
  EXPECT_GT(engine->Stats().preemptions_recomputed, 0u);
}

TEST(EnginePreemption, HeadroomDoesNotKeepOutOneThatRunsAlone) {
  EngineOptions options = Toy(1.1, 200);
  options.headroom = 0.6;
  auto engine = MakeEngine(options);
  std::vector<Client> clients(3);
  for (size_t i = 0; i < clients.size(); ++i) {
    Request request;
    request.prompt = Text(i, 150);  // more than the headroom leaves
    request.max_tokens = 20;
    request.ignore_eos = true;
    ASSERT_TRUE(engine->Submit(request, clients[i].sink()));
  }
  for (Client& client : clients) EXPECT_EQ(client.Wait().finish, FinishReason::kLength);
  EXPECT_GT(engine->Stats().admissions_refused, 0u);
}

// Its own checkpoint, which others wanted, is retained while it runs and takes the pages it lacks.
TEST(EnginePreemption, OneThatIsAloneGetsWhatIsStrictlyRetainedForIt) {
  EngineOptions options = Toy(1.0, 200);
  options.retention = *RetentionSpec::Parse("strict");
  EngineOptions roomy = options;
  roomy.budget_bytes *= 8;
  auto engine = MakeEngine(options);
  Request request;
  request.prompt = Text(9, 40);
  request.max_tokens = 160;
  request.ignore_eos = true;
  Client client;
  while (!engine->Submit(request, client.sink())) --request.max_tokens;  // kept rows take some
  client.WaitForTokens(1);
  uint32_t reused = 0;  // not by those for whom there is no room until it has ended
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Request other;
    other.prompt = request.prompt;
    other.prompt.push_back(static_cast<TokenId>(seed));
    other.max_tokens = 1;
    reused += Ask(*engine, other).cached_tokens;
  }
  EXPECT_GT(reused, 0u);
  const Answer answer = client.Wait();
  ExpectSame(answer, Ask(*MakeEngine(roomy), request));
}

TEST(EnginePreemption, LowerPrioritiesGoFirst) {
  EngineOptions options = Toy(4, 300);
  options.max_running = 1;
  auto engine = MakeEngine(options);
  Client blocker;
  Request request;
  request.prompt = Text(1, 10);
  request.max_tokens = 200;
  request.ignore_eos = true;
  const auto blocking = engine->Submit(request, blocker.sink());
  ASSERT_TRUE(blocking);
  blocker.WaitForTokens(1);
  request.max_tokens = 2;
  std::mutex mutex;
  std::vector<int> order;
  std::vector<Client> clients(4);
  const int32_t priorities[] = {3, 0, -7, 0};
  for (int i = 0; i < 4; ++i) {
    request.priority = priorities[i];
    const auto sink = [&, i, inner = clients[i].sink()](const RequestEvent& event) {
      if (event.finish != FinishReason::kNone) {
        std::lock_guard lock(mutex);
        order.push_back(i);
      }
      inner(event);
    };
    ASSERT_TRUE(engine->Submit(request, sink));
  }
  engine->Cancel(*blocking);
  for (Client& client : clients) client.Wait();
  EXPECT_EQ(order, std::vector<int>({2, 1, 3, 0}));
}

TEST(EnginePreemption, UnderIsolateKeyOnlyRequestsOfAKeyShare) {
  EngineOptions options = Toy(8, 120);
  options.isolate = IsolateKind::kKey;
  auto engine = MakeEngine(options);
  Request request;
  request.prompt = Text(1, 100);
  request.max_tokens = 1;
  const auto cached = [&](const char* key, const char* salt) {
    request.isolation_key = key;
    request.cache_salt = salt;
    return Ask(*engine, request).cached_tokens;
  };
  EXPECT_EQ(cached("a", ""), 0u);
  EXPECT_GT(cached("a", ""), 0u);
  EXPECT_EQ(cached("b", ""), 0u);
  EXPECT_EQ(cached("", ""), 0u);
  EXPECT_EQ(cached("a", "s"), 0u);
  EXPECT_GT(cached("a", "s"), 0u);
  EXPECT_EQ(cached("b", "s"), 0u);
}

INSTANTIATE_TEST_SUITE_P(AllArchitectures, EnginePressure,
                         ::testing::Values(std::pair(Architecture::kFalconH1, StateType::kF32),
                                           std::pair(Architecture::kMamba2, StateType::kF32),
                                           std::pair(Architecture::kLlama, StateType::kF32),
                                           std::pair(Architecture::kFalconH1, StateType::kBF16)));

}  // namespace
}  // namespace tessera
