// SPDX-License-Identifier: Apache-2.0
//
// The meter against requests counted by hand: what each took is known from its own timings.
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "engine/engine_client.h"
#include "engine/engine_test_models.h"
#include "engine/histogram.h"

namespace tessera {
namespace {

using testing::Ask;
using testing::Client;
using testing::MakeEngine;

constexpr double kClose = 1e-9;

TEST(Histogram, AValueOnABoundIsBelowItAndOneAboveAllIsCounted) {
  static constexpr double kBounds[] = {1, 2, 5};
  Histogram histogram(kBounds);
  for (const double value : {0.0, 1.0, 1.5, 2.0, 5.0, 5.5}) histogram.Add(value);
  const HistogramCounts counts = histogram.Counts();
  EXPECT_EQ(counts.buckets[0], 2u);
  EXPECT_EQ(counts.buckets[1], 2u);
  EXPECT_EQ(counts.buckets[2], 1u);
  EXPECT_EQ(counts.buckets[3], 1u);
  EXPECT_EQ(counts.total(), 6u);
  EXPECT_EQ(counts.sum, 15.0);
}

// Keeps what the loop reports of finished requests.
struct Books {
  std::mutex mutex;
  std::vector<FinishedRequest> requests;
};

struct MeteredEngine {
  Books books;
  std::unique_ptr<Engine> engine;

  MeteredEngine() {
    EngineOptions options;
    options.model_path = testing::ToyModelPath();
    options.threads = 2;
    options.max_running = 4;
    options.chunk_tokens = 32;
    options.on_finished = [this](const FinishedRequest& request) {
      std::lock_guard lock(books.mutex);
      books.requests.push_back(request);
    };
    engine = MakeEngine(options);
  }
};

Request Prompt(TokenId token, size_t size, uint32_t max_tokens) {
  Request request;
  request.prompt.assign(size, token);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

TEST(EngineMeter, CountsEveryRequestTokenAndWaitOnce) {
  MeteredEngine metered;
  Ask(*metered.engine, Prompt(65, 50, 20));
  Ask(*metered.engine, Prompt(66, 10, 1));
  Ask(*metered.engine, Prompt(67, 8, 0));
  const RequestMetrics metrics = metered.engine->Requests();
  const std::vector<FinishedRequest>& booked = metered.books.requests;
  ASSERT_EQ(booked.size(), 3u);
  EXPECT_EQ(metrics.finished[static_cast<size_t>(FinishReason::kLength)], 3u);
  // The one without an answer has no first token.
  EXPECT_EQ(metrics.first_token_s.total(), 2u);
  EXPECT_EQ(metrics.between_tokens_s.total(), 19u);
  EXPECT_EQ(metrics.per_token_s.total(), 1u);
  EXPECT_EQ(metrics.decode_s.total(), 1u);
  EXPECT_EQ(metrics.whole_s.total(), 3u);
  EXPECT_EQ(metrics.prompt_tokens.sum, 68);
  EXPECT_EQ(metrics.served_prompt_tokens, 68u);
  EXPECT_EQ(metrics.cached_prompt_tokens, 0u);
  EXPECT_EQ(metrics.generated_tokens.sum, 21);
  EXPECT_EQ(metrics.step_tokens.total(), metered.engine->Stats().steps);
  EXPECT_EQ(metrics.step_tokens.sum, 50 + 19 + 10 + 8);

  double first = 0, queue = 0, prefill = 0, whole = 0;
  for (const FinishedRequest& request : booked) {
    queue += request.timings.queue_ms / 1e3;
    prefill += request.timings.prompt_ms / 1e3;
    whole += request.timings.total_ms() / 1e3;
    if (request.completion_tokens > 0) {
      first += (request.timings.queue_ms + request.timings.prompt_ms) / 1e3;
    }
  }
  EXPECT_NEAR(metrics.first_token_s.sum, first, kClose);
  EXPECT_NEAR(metrics.queue_s.sum, queue, kClose);
  EXPECT_NEAR(metrics.prefill_s.sum, prefill, kClose);
  EXPECT_NEAR(metrics.whole_s.sum, whole, kClose);
  EXPECT_NEAR(metrics.run_s.sum, whole - queue, kClose);
  const double decode = booked[0].timings.predicted_ms / 1e3;
  EXPECT_NEAR(metrics.between_tokens_s.sum, decode, kClose);
  EXPECT_NEAR(metrics.decode_s.sum, decode, kClose);
  EXPECT_NEAR(metrics.per_token_s.sum, decode / 19, kClose);
}

TEST(EngineMeter, WhatSubmitRefusesIsCountedByReasonAndBookedOnce) {
  MeteredEngine metered;
  Engine& engine = *metered.engine;
  const auto refuse = [&](const Request& request) {
    return engine.Submit(request, [](const RequestEvent&) { FAIL(); }).error();
  };
  Request wrong = Prompt(65, 4, 4);
  wrong.sampling.top_p = 0;
  wrong.cache_salt = "s";
  const Status first = refuse(wrong);
  EXPECT_FALSE(refuse(Prompt(65, 1000, 25)).ok()) << "a context of 1024";
  engine.NoteRefused({.reason = RefusalReason::kContext,
                      .error = InvalidArgument("prompt: too long"),
                      .prompt_tokens = 2000,
                      .max_tokens = 5});
  Ask(engine, Prompt(65, 8, 1));
  const RequestMetrics metrics = engine.Requests();
  const auto refused = [&](RefusalReason reason) {
    return metrics.refused[static_cast<size_t>(reason)];
  };
  EXPECT_EQ(refused(RefusalReason::kInvalid), 1u);
  EXPECT_EQ(refused(RefusalReason::kContext), 2u);
  EXPECT_EQ(refused(RefusalReason::kBudget), 0u);
  EXPECT_EQ(metrics.finished[static_cast<size_t>(FinishReason::kRefused)], 0u)
      << "what was never taken has not ended";
  const std::vector<FinishedRequest>& booked = metered.books.requests;
  ASSERT_EQ(booked.size(), 4u);
  EXPECT_EQ(booked[0].finish, FinishReason::kRefused);
  EXPECT_EQ(booked[0].error.message(), first.message());
  EXPECT_EQ(booked[0].prompt_tokens, 4u);
  EXPECT_EQ(booked[0].max_tokens, 4u);
  EXPECT_TRUE(booked[0].salted);
  EXPECT_FALSE(booked[0].admitted);
  EXPECT_EQ(booked[1].prompt_tokens, 1000u);
  EXPECT_FALSE(booked[1].salted);
  EXPECT_EQ(booked[2].prompt_tokens, 2000u);
  EXPECT_EQ(booked[3].finish, FinishReason::kLength);
  for (size_t i = 1; i < booked.size(); ++i) EXPECT_GT(booked[i].id, booked[i - 1].id);
}

TEST(EngineMeter, WhatCanNeverFitTheBudgetIsCountedAsThat) {
  std::vector<FinishedRequest> books;
  EngineOptions options;
  options.on_finished = [&books](const FinishedRequest& request) { books.push_back(request); };
  options.isolate = IsolateKind::kKey;
  options.model_path = testing::ToyModelPath();
  options.threads = 1;
  options.budget_bytes = 256 * 1024;
  auto engine = MakeEngine(options);
  const auto id = engine->Submit(Prompt(65, 900, 100), [](const RequestEvent&) { FAIL(); });
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code(), StatusCode::kNoMemory);
  EXPECT_EQ(engine->Requests().refused[static_cast<size_t>(RefusalReason::kBudget)], 1u);
  ASSERT_EQ(books.size(), 1u);
  EXPECT_TRUE(books[0].salted) << "isolated by its key, as if it had been taken";
}

TEST(EngineMeter, ACancelledRequestIsBookedAsThatAndTakesNoPartInTheWaits) {
  MeteredEngine metered;
  Client client;
  const Result<RequestId> id = metered.engine->Submit(Prompt(65, 20, 900), client.sink());
  ASSERT_TRUE(id);
  client.WaitForTokens(3);
  metered.engine->Cancel(*id);
  client.Wait();
  const RequestMetrics metrics = metered.engine->Requests();
  EXPECT_EQ(metrics.finished[static_cast<size_t>(FinishReason::kCancelled)], 1u);
  EXPECT_EQ(metrics.first_token_s.total(), 1u) << "it did get one";
  EXPECT_EQ(metrics.whole_s.total(), 0u);
  EXPECT_EQ(metrics.prompt_tokens.total(), 0u);
  ASSERT_EQ(metered.books.requests.size(), 1u);
  EXPECT_EQ(metered.books.requests[0].finish, FinishReason::kCancelled);
  EXPECT_EQ(metered.books.requests[0].max_tokens, 900u);
}

TEST(EngineMeter, BooksHoldWhatTheFinalEventSays) {
  MeteredEngine metered;
  Request request = Prompt(65, 40, 5);
  request.cache_salt = std::string(4, 's');
  Ask(*metered.engine, request);
  const testing::Answer again = Ask(*metered.engine, request);
  ASSERT_EQ(metered.books.requests.size(), 2u);
  const FinishedRequest& booked = metered.books.requests[1];
  EXPECT_TRUE(booked.salted);
  EXPECT_TRUE(booked.admitted);
  EXPECT_EQ(booked.receipt, again.receipt);
  EXPECT_EQ(booked.match.reused, 40u);
  EXPECT_TRUE(booked.match.from_row);
  EXPECT_EQ(booked.completion_tokens, 5u);
  EXPECT_EQ(metered.engine->Requests().served_prompt_tokens, 80u);
  EXPECT_EQ(metered.engine->Requests().cached_prompt_tokens, 40u);
}

}  // namespace
}  // namespace tessera
