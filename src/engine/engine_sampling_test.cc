// SPDX-License-Identifier: Apache-2.0
//
// Penalties, biases, stop ids and min_tokens through the engine: that they see the history they
// should, and that answers do not depend on what runs beside.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

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

class EngineSampling : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.model_path = testing::ToyModelPath();
    options.threads = 2;
    options.max_running = 4;
    options.chunk_tokens = 32;
    engine_ = MakeEngine(options);
  }

  static Request Greedy(uint32_t max_tokens) {
    Request request;
    Random random(7);
    for (int i = 0; i < 40; ++i) request.prompt.push_back(static_cast<TokenId>(random.Below(256)));
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    return request;
  }
  static size_t CountOf(const std::vector<TokenId>& tokens, TokenId id) {
    return static_cast<size_t>(std::count(tokens.begin(), tokens.end(), id));
  }

  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineSampling, AStopIdEndsTheTextBeforeItself) {
  const Answer whole = Ask(*engine_, Greedy(30));
  // The last token that has not been before: where it stops is known.
  size_t at = 29;
  while (at > 0 && CountOf({whole.tokens.begin(), whole.tokens.begin() + static_cast<long>(at)},
                           whole.tokens[at]) > 0) {
    --at;
  }
  Request request = Greedy(30);
  request.stop_ids = {299, whole.tokens[at]};
  const Answer answer = Ask(*engine_, request);
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.completion_tokens, at + 1);
  EXPECT_EQ(answer.tokens, std::vector<TokenId>(whole.tokens.begin(),
                                                whole.tokens.begin() + static_cast<long>(at)));
}

TEST_F(EngineSampling, NoTokenThatEndsIsSampledBeforeMinTokens) {
  Request request = Greedy(30);
  request.stop_ids = {Ask(*engine_, Greedy(1)).tokens[0]};
  EXPECT_EQ(Ask(*engine_, request).completion_tokens, 1u);
  // A bias that would have the stop token always: after min_tokens it comes at once.
  request.sampling.logit_bias = {{request.stop_ids[0], 1000.f}};
  request.min_tokens = 12;
  const Answer answer = Ask(*engine_, request);
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.completion_tokens, 13u);
  EXPECT_EQ(answer.tokens.size(), 12u);
  EXPECT_EQ(CountOf(answer.tokens, request.stop_ids[0]), 0u);
}

TEST_F(EngineSampling, EndOfTextOfTheModelWaitsForMinTokensToo) {
  const std::span<const TokenId> ends = engine_->tokenizer().end_tokens();
  if (ends.empty()) GTEST_SKIP() << "the model has no end token";
  Request request = Greedy(20);
  request.ignore_eos = false;
  request.sampling.logit_bias = {{ends[0], 1000.f}};
  EXPECT_EQ(Ask(*engine_, request).completion_tokens, 1u);
  request.min_tokens = 5;
  EXPECT_EQ(Ask(*engine_, request).completion_tokens, 6u);
}

TEST_F(EngineSampling, AStopStringIsTextUntilMinTokens) {
  Request request = Greedy(10);
  request.sampling.logit_bias = {{'a', 1000.f}};
  ASSERT_EQ(Ask(*engine_, request).text, "aaaaaaaaaa");
  request.stop = {"aa"};
  EXPECT_EQ(Ask(*engine_, request).text, "");
  request.min_tokens = 5;
  const Answer answer = Ask(*engine_, request);
  EXPECT_EQ(answer.text, "aaaaa");
  EXPECT_EQ(answer.completion_tokens, 7u);
  EXPECT_EQ(answer.finish, FinishReason::kStop);
}

TEST_F(EngineSampling, ABiasedTokenComesAlwaysAndAPenaltyPutsAnEndToIt) {
  Request request = Greedy(16);
  request.sampling.logit_bias = {{42, 500.f}};
  EXPECT_EQ(CountOf(Ask(*engine_, request).tokens, 42), 16u);
  request.sampling.frequency_penalty = 200;  // 500, 300, 100, -100: three times
  EXPECT_EQ(CountOf(Ask(*engine_, request).tokens, 42), 3u);
  request.sampling.frequency_penalty = 0;
  request.sampling.presence_penalty = 1000;
  EXPECT_EQ(CountOf(Ask(*engine_, request).tokens, 42), 1u);
}

TEST_F(EngineSampling, ThePromptCountsForRepetitionOnly) {
  Request request = Greedy(8);
  request.prompt.push_back(42);
  request.sampling.logit_bias = {{42, 30.f}};
  const auto first = [&] { return Ask(*engine_, request).tokens[0]; };
  EXPECT_EQ(first(), 42);
  request.sampling.presence_penalty = 1000;
  EXPECT_EQ(first(), 42);
  request.sampling = {};
  const TokenId best = Ask(*engine_, request).tokens[0];
  request.sampling.repetition_penalty = 1000;
  request.prompt.insert(request.prompt.begin(), best);
  EXPECT_NE(first(), best);
}

TEST_F(EngineSampling, AnswersWithPenaltiesAreTheSameAloneAndTogether) {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 8; ++i) {
    Request request = Greedy(24);
    request.prompt.resize(10 + 4 * i);
    request.logprobs = 3;
    request.sampling.temperature = i % 2 == 0 ? 0.f : 1.5f;
    request.sampling.seed = i;
    request.sampling.presence_penalty = 0.5f;
    request.sampling.frequency_penalty = 0.25f;
    request.sampling.repetition_penalty = 1.2f;
    request.sampling.logit_bias = {{static_cast<TokenId>(i), 2.f}};
    requests.push_back(request);
  }
  std::vector<Answer> alone;
  for (const Request& request : requests) alone.push_back(Ask(*engine_, request));
  std::vector<Client> clients(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(engine_->Submit(requests[i], clients[i].sink()));
  }
  for (size_t i = 0; i < requests.size(); ++i) ExpectSame(clients[i].Wait(), alone[i]);
}

TEST_F(EngineSampling, IdsOutsideTheVocabularyAndTooLargeMinTokensAreRefusedByName) {
  const auto message = [&](const Request& request) {
    const Result<RequestId> id = engine_->Submit(request, [](const RequestEvent&) {});
    return id ? std::string("accepted") : id.error().message();
  };
  Request request = Greedy(4);
  request.stop_ids = {300};
  EXPECT_EQ(message(request), "stop_ids has id 300, outside the vocabulary of 300");
  request.stop_ids.assign(65, 1);
  EXPECT_EQ(message(request), "65 stop token ids, at most 64 are allowed");
  request = Greedy(4);
  request.sampling.logit_bias = {{-1, 1.f}};
  EXPECT_EQ(message(request), "logit_bias has id -1, outside the vocabulary of 300");
  request = Greedy(4);
  request.min_tokens = 5;
  EXPECT_EQ(message(request), "min_tokens is 5, more than max_tokens, 4");
}

}  // namespace
}  // namespace tessera
