// SPDX-License-Identifier: Apache-2.0
//
// E4 under load: requests of a few conversations that fork, in budgets so small that what is kept
// is evicted all the time, cancelled at random, are answered to the bit as they are alone by an
// engine that reuses nothing. Freed memory is poisoned and pages come in a random order.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "engine/engine_client.h"
#include "engine/engine_test_models.h"
#include "memory/geometry/kept_rows.h"

namespace tessera {
namespace {

using testing::Answer;
using testing::Ask;
using testing::Client;
using testing::ExpectSame;
using testing::MakeEngine;
using testing::ToyModelPath;
using testing::ToyShape;

constexpr uint32_t kMaxPositions = 260;

// A walk down a tree of texts: at each node one of two continuations.
std::vector<TokenId> TreePrompt(Random& random) {
  std::vector<TokenId> prompt;
  uint64_t node = 1;
  do {
    Random text(node);
    const size_t size = 5 + text.Below(60);
    for (size_t i = 0; i < size; ++i) prompt.push_back(static_cast<TokenId>(text.Below(256)));
    node = 2 * node + random.Below(2);
  } while (prompt.size() < 160 && random.Below(4) != 0);
  return prompt;
}

Request TreeRequest(Random& random) {
  Request request;
  request.prompt = TreePrompt(random);
  request.max_tokens = static_cast<uint32_t>(random.Below(20));
  request.ignore_eos = true;
  request.logprobs = 2;
  const char* salts[] = {"", "", "", "tenant"};
  request.cache_salt = salts[random.Below(4)];
  if (random.Below(2) == 0) {
    request.isolate_after = static_cast<uint32_t>(random.Below(request.prompt.size() + 1));
  }
  request.reuse = random.Below(8) != 0;
  if (random.Below(8) == 0) request.prompt_logprobs = 1;
  if (random.Below(3) == 0) {
    request.checkpoint_at = {1 + static_cast<uint32_t>(random.Below(request.prompt.size()))};
  }
  if (random.Below(2) == 0) request.sampling = {.temperature = 1.5f, .seed = random.Next()};
  return request;
}

struct Setting {
  const char* organisation;
  uint32_t max_running;
  uint32_t chunk_tokens;
  uint32_t grid;
  double sequences;  // what the budget holds of the longest
};

class EngineReuseLoad : public ::testing::TestWithParam<std::pair<Architecture, StateType>> {
 protected:
  EngineReuseLoad() {
    options_.model_path = ToyModelPath(GetParam().first);
    options_.state_type = GetParam().second;
    options_.threads = 2;
    Random random(23);
    for (int i = 0; i < 60; ++i) requests_.push_back(TreeRequest(random));
    EngineOptions cold = options_;
    cold.threads = 1;
    cold.max_running = 1;
    cold.chunk_tokens = 512;
    cold.reuse = false;
    auto engine = MakeEngine(cold);
    for (const Request& request : requests_) alone_.push_back(Ask(*engine, request));
  }

  void Apply(const Setting& setting, uint64_t seed) {
    options_.organisation = *OrganisationSpec::Parse(setting.organisation);
    options_.max_running = setting.max_running;
    options_.chunk_tokens = setting.chunk_tokens;
    options_.checkpoint_grid = setting.grid;
    options_.poison = true;
    options_.shuffle_seed = seed | 1;
    const StateShape shape = ToyShape(GetParam().first).state_shape(GetParam().second);
    const uint64_t one =
        *StateStore::BudgetForSequences(shape, options_.organisation, 1, kMaxPositions);
    options_.budget_bytes = static_cast<uint64_t>(setting.sequences * static_cast<double>(one));
  }

  // Rounds of all requests; the second finds what the first left. Returns tokens reused.
  uint64_t RunLoad(Engine& engine, Random& random) {
    uint64_t reused = 0;
    for (int round = 0; round < 2; ++round) {
      std::vector<Client> clients(requests_.size());
      std::vector<bool> cancelled(requests_.size());
      for (size_t i = 0; i < requests_.size(); ++i) {
        const auto id = engine.Submit(requests_[i], clients[i].sink());
        EXPECT_TRUE(id) << id.error().message();
        if (!id) return 0;
        if (i >= 8 && random.Below(3) == 0) clients[i - 8].Wait();
        cancelled[i] = random.Below(7) == 0;
        if (cancelled[i]) engine.Cancel(*id);
      }
      for (size_t i = 0; i < requests_.size(); ++i) {
        SCOPED_TRACE(i);
        const Answer& answer = clients[i].Wait();
        reused += answer.cached_tokens;
        if (answer.finish == FinishReason::kCancelled) {
          EXPECT_TRUE(cancelled[i]);
        } else {
          ExpectSame(answer, alone_[i]);
        }
      }
    }
    return reused;
  }

  EngineOptions options_;
  std::vector<Request> requests_;
  std::vector<Answer> alone_;
};

TEST_P(EngineReuseLoad, SmallBudgetsUnderRandomLoadAnswerAsEachRequestAlone) {
  const Setting settings[] = {{"s3", 4, 32, 1, 1.1},        {"s3", 8, 16, 1, 3},
                              {"s3", 5, 40, 16, 6},         {"s2", 3, 24, 1, 4},
                              {"s2:block=16", 4, 17, 1, 2}, {"s1:block=32", 5, 48, 8, 3},
                              {"s0:block=64", 4, 20, 1, 4}, {"d0:split=0.5", 4, 33, 1, 3}};
  Random random(7);
  uint64_t reused = 0;  // by some: three images for five sequences leave nothing to others
  for (const Setting& setting : settings) {
    SCOPED_TRACE(setting.organisation);
    SCOPED_TRACE(setting.sequences);
    Apply(setting, random.Next());
    auto engine = MakeEngine(options_);
    ASSERT_NE(engine, nullptr);
    reused += RunLoad(*engine, random);
    const EngineStats stats = engine->Stats();
    EXPECT_EQ(stats.running, 0u);
    for (const PoolStats& pool : stats.store.pools) {
      EXPECT_EQ(pool.free_pages + pool.cached_attention_pages + pool.cached_state_pages,
                pool.total_pages)
          << pool.name;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(reused, 0u);
}

INSTANTIATE_TEST_SUITE_P(AllArchitectures, EngineReuseLoad,
                         ::testing::Values(std::pair(Architecture::kFalconH1, StateType::kF32),
                                           std::pair(Architecture::kMamba2, StateType::kF32),
                                           std::pair(Architecture::kLlama, StateType::kF32),
                                           std::pair(Architecture::kFalconH1, StateType::kBF16)));

}  // namespace
}  // namespace tessera
