// SPDX-License-Identifier: Apache-2.0
//
// E2: what a request gets does not depend on what else runs, in which organisation, on how many
// threads, and in which chunks. Random mixes with cancels are compared, tokens, log-probability
// bits and receipts, with each request run alone on one thread with the scalar kernels.
#include <gtest/gtest.h>

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

Request RandomRequest(Random& random) {
  Request request;
  request.prompt.resize(1 + random.Below(random.Below(4) == 0 ? 280 : 40));
  for (TokenId& id : request.prompt) id = static_cast<TokenId>(random.Below(256));
  request.max_tokens = static_cast<uint32_t>(random.Below(24));
  request.ignore_eos = random.Below(2) == 0;
  if (random.Below(2) == 0) {
    request.sampling = {.temperature = random.Uniform(0.3f, 3.f),
                        .top_k = static_cast<uint32_t>(random.Below(3) * 20),
                        .top_p = random.Below(2) == 0 ? 1.f : 0.9f,
                        .min_p = random.Below(2) == 0 ? 0.f : 0.02f,
                        .seed = random.Next()};
  }
  if (random.Below(3) == 0) request.logprobs = static_cast<int>(random.Below(6));
  if (random.Below(4) == 0) request.prompt_logprobs = static_cast<int>(random.Below(3));
  if (random.Below(4) == 0) request.stop = {"a", "\n\n"};
  return request;
}

// A cancelled one got a prefix.
void ExpectPrefix(const Answer& got, const Answer& alone) {
  ASSERT_LE(got.tokens.size(), alone.tokens.size());
  for (size_t i = 0; i < got.tokens.size(); ++i) EXPECT_EQ(got.tokens[i], alone.tokens[i]);
}

struct Setting {
  const char* organisation;
  int threads;
  uint32_t max_running;
  uint32_t chunk_tokens;
  const char* isa;
};

class EngineExactness : public ::testing::TestWithParam<std::pair<Architecture, StateType>> {};

TEST_P(EngineExactness, RequestsTogetherGetWhatTheyGetAlone) {
  EngineOptions options;
  options.model_path = ToyModelPath(GetParam().first);
  options.state_type = GetParam().second;
  options.threads = 1;
  options.max_running = 1;
  options.chunk_tokens = 512;
  options.isa = "scalar";
  Random random(17);
  std::vector<Request> requests;
  for (int i = 0; i < 14; ++i) requests.push_back(RandomRequest(random));
  std::vector<Answer> alone;
  {
    auto engine = MakeEngine(options);
    for (const Request& request : requests) alone.push_back(Ask(*engine, request));
  }
  const Setting settings[] = {
      {"s3", 2, 5, 7, ""},       {"s2:block=16", 3, 3, 64, ""},      {"s1:block=32", 1, 6, 16, ""},
      {"s0", 2, 1, 1, "scalar"}, {"d0:split=0.3", 3, 8, 33, "avx2"}, {"s3", 1, 14, 17, "scalar"}};
  for (const Setting& setting : settings) {
    SCOPED_TRACE(setting.organisation);
    options.organisation = *OrganisationSpec::Parse(setting.organisation);
    options.threads = setting.threads;
    options.max_running = setting.max_running;
    options.chunk_tokens = setting.chunk_tokens;
    options.isa = setting.isa;
    options.poison = true;
    options.shuffle_seed = random.Next() | 1;
    auto engine = MakeEngine(options);
    ASSERT_NE(engine, nullptr);
    std::vector<Client> clients(requests.size());
    std::vector<bool> cancelled(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto id = engine->Submit(requests[i], clients[i].sink());
      ASSERT_TRUE(id) << id.error().message();
      if (i > 0 && random.Below(5) == 0) clients[i - 1].WaitForTokens(1);
      if (random.Below(5) == 0) {
        cancelled[i] = true;
        engine->Cancel(*id);
      }
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      const Answer& answer = clients[i].Wait();
      if (answer.finish == FinishReason::kCancelled) {
        EXPECT_TRUE(cancelled[i]);
        ExpectPrefix(answer, alone[i]);
      } else {
        ExpectSame(answer, alone[i]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllArchitectures, EngineExactness,
                         ::testing::Values(std::pair(Architecture::kFalconH1, StateType::kF32),
                                           std::pair(Architecture::kMamba2, StateType::kF32),
                                           std::pair(Architecture::kLlama, StateType::kF32),
                                           std::pair(Architecture::kFalconH1, StateType::kBF16),
                                           std::pair(Architecture::kMamba2, StateType::kBF16)));

}  // namespace
}  // namespace tessera
