// SPDX-License-Identifier: Apache-2.0
//
// E1 to E4 when memory is short: 64 requests of several lengths and priorities, most of them
// decoding past what they were admitted with, in budgets of one to a few of the longest, so that
// running ones are preempted, pinned ones given up and cached state evicted, while some are
// cancelled: waiting, joining, computing or preempted. Each that finishes has the answer and receipt
// it has alone on an idle engine that reuses nothing.
#include <gtest/gtest.h>

#include <string>
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
  EXPECT_GT(sum.preemptions_pinned, 10u);
  EXPECT_GT(sum.preemptions_recomputed, 10u);
  EXPECT_GT(sum.pins_given_up, 10u);
  EXPECT_GT(sum.resumptions, 20u);
  EXPECT_GT(sum.recomputed_tokens, 100u);
  RecordProperty("pinned", static_cast<int>(sum.preemptions_pinned));
  RecordProperty("recomputed", static_cast<int>(sum.preemptions_recomputed));
}

INSTANTIATE_TEST_SUITE_P(AllArchitectures, EnginePressure,
                         ::testing::Values(std::pair(Architecture::kFalconH1, StateType::kF32),
                                           std::pair(Architecture::kMamba2, StateType::kF32),
                                           std::pair(Architecture::kLlama, StateType::kF32),
                                           std::pair(Architecture::kFalconH1, StateType::kBF16)));

}  // namespace
}  // namespace tessera
