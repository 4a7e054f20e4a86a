// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "engine/engine_client.h"
#include "engine/engine_test_models.h"
#include "engine/request_check.h"
#include "memory/geometry/kept_rows.h"

namespace tessera {
namespace {

using testing::Answer;
using testing::Ask;
using testing::Client;
using testing::MakeEngine;
using testing::ToyModelPath;

EngineOptions ToyOptions() {
  EngineOptions options;
  options.model_path = ToyModelPath();
  options.threads = 2;
  options.max_running = 4;
  options.chunk_tokens = 32;
  options.poison = true;
  return options;
}

std::vector<TokenId> RandomPrompt(uint64_t seed, size_t size) {
  Random random(seed);
  std::vector<TokenId> prompt(size);
  for (TokenId& id : prompt) id = static_cast<TokenId>(random.Below(256));
  return prompt;
}

Request ToyRequest(size_t prompt_size, uint32_t max_tokens, uint64_t seed = 1) {
  Request request;
  request.prompt = RandomPrompt(seed, prompt_size);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

// What random tokens spell is seldom UTF-8.
std::string TextOf(const Engine& engine, const std::vector<TokenId>& tokens) {
  StreamingDetokenizer detokenizer(&engine.tokenizer());
  std::string text;
  for (TokenId token : tokens) text += detokenizer.Append(token);
  return text + detokenizer.Finish();
}

void ExpectAllFree(Engine& engine) {
  const EngineStats stats = engine.Stats();
  EXPECT_EQ(stats.running, 0u);
  EXPECT_EQ(stats.waiting, 0u);
  for (const PoolStats& pool : stats.store.pools) {
    EXPECT_EQ(pool.free_pages + pool.cached_attention_pages + pool.cached_state_pages,
              pool.total_pages);
  }
}

TEST(Engine, GeneratesMaxTokensAndCountsThem) {
  auto engine = MakeEngine(ToyOptions());
  const Answer answer = Ask(*engine, ToyRequest(50, 20));
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_EQ(answer.tokens.size(), 20u);
  EXPECT_EQ(answer.completion_tokens, 20u);
  EXPECT_EQ(answer.prompt_tokens, 50u);
  EXPECT_NE(answer.receipt, 0u);
  EXPECT_EQ(answer.text, TextOf(*engine, answer.tokens));
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.prompt_tokens, 50u);
  EXPECT_EQ(stats.completion_tokens, 20u);
  EXPECT_EQ(stats.requests_finished, 1u);
  ExpectAllFree(*engine);
}

TEST(Engine, DefaultBudgetIsMaxRunningSequencesAtFullContext) {
  const EngineOptions options = ToyOptions();
  auto engine = MakeEngine(options);
  EXPECT_NE(engine->memory().budget_rule.find("4 sequences"), std::string::npos);
  EXPECT_LE(engine->memory().arena_bytes, engine->memory().budget_bytes);
  EXPECT_GT(engine->memory().metadata_bytes, engine->Stats().store.metadata_bytes);
  // All four run at once; the fifth waits for a place, not for memory.
  std::vector<Client> clients(5);
  for (Client& client : clients) {
    ASSERT_TRUE(engine->Submit(ToyRequest(1000, 24), client.sink()));
  }
  for (Client& client : clients) EXPECT_EQ(client.Wait().finish, FinishReason::kLength);
}

TEST(Engine, BudgetIsNeverExceededAndEverythingFinishes) {
  EngineOptions options = ToyOptions();
  for (const char* organisation : {"s3", "s2:block=16", "s1:block=16", "s0:block=16", "d0"}) {
    SCOPED_TRACE(organisation);
    options.organisation = *OrganisationSpec::Parse(organisation);
    const StateShape shape =
        testing::ToyShape(Architecture::kFalconH1).state_shape(StateType::kF32);
    // Room for two of the larger requests: the others must wait for them.
    options.budget_bytes = *StateStore::BudgetForSequences(shape, options.organisation, 2, 100);
    auto engine = MakeEngine(options);
    EXPECT_LE(engine->memory().arena_bytes, options.budget_bytes);
    std::vector<Client> clients(12);
    for (size_t i = 0; i < clients.size(); ++i) {
      ASSERT_TRUE(engine->Submit(ToyRequest(20 + 5 * i, 20, i), clients[i].sink()));
    }
    for (Client& client : clients) {
      const EngineStats stats = engine->Stats();
      for (const PoolStats& pool : stats.store.pools) {
        EXPECT_EQ(pool.free_pages + pool.draining_pages + pool.cached_attention_pages +
                      pool.cached_state_pages + pool.reserved_pages + pool.held_attention_pages +
                      pool.held_state_pages,
                  pool.total_pages);
      }
      EXPECT_EQ(client.Wait().finish, FinishReason::kLength);
    }
    ExpectAllFree(*engine);
  }
}

// The number in the message is the least that works.
TEST(Engine, ARequestThatNeverFitsIsRefusedWithTheBytesNeeded) {
  EngineOptions options = ToyOptions();
  const StateShape shape = testing::ToyShape(Architecture::kFalconH1).state_shape(StateType::kF32);
  const uint64_t needed =
      KeptRows(64).BudgetFor(*StateStore::BudgetForSequences(shape, options.organisation, 1, 300));
  options.budget_bytes = needed - 1;
  {
    auto engine = MakeEngine(options);
    Client client;
    const Result<RequestId> id = engine->Submit(ToyRequest(280, 20), client.sink());
    ASSERT_FALSE(id);
    EXPECT_EQ(id.error().code(), StatusCode::kNoMemory);
    EXPECT_NE(id.error().message().find(std::to_string(needed)), std::string::npos)
        << id.error().message();
    EXPECT_EQ(client.Now().final_events, 0);
  }
  options.budget_bytes = needed;
  auto engine = MakeEngine(options);
  EXPECT_EQ(Ask(*engine, ToyRequest(280, 20)).finish, FinishReason::kLength);
}

TEST(Engine, AnImpossibleBudgetIsRefusedWithTheBytesNeeded) {
  EngineOptions options = ToyOptions();
  options.budget_bytes = 1000;
  const auto small = Engine::Create(options);
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code(), StatusCode::kNoMemory);
  const StateShape shape = testing::ToyShape(Architecture::kFalconH1).state_shape(StateType::kF32);
  const uint64_t needed = *StateStore::BudgetForSequences(shape, options.organisation, 1, 16);
  EXPECT_NE(small.error().message().find(std::to_string(needed)), std::string::npos);

  options.budget_bytes = uint64_t{1} << 50;
  const auto large = Engine::Create(options);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code(), StatusCode::kNoMemory);
}

TEST(Engine, BadOptionsAreRefusedByName) {
  const auto message = [](const EngineOptions& options) {
    const auto engine = Engine::Create(options);
    EXPECT_FALSE(engine);
    return engine ? std::string() : engine.error().message();
  };
  EngineOptions options = ToyOptions();
  options.chunk_tokens = 3;
  EXPECT_NE(message(options).find("chunk-tokens is 3"), std::string::npos);
  options = ToyOptions();
  options.max_running = 0;
  EXPECT_NE(message(options).find("max-running"), std::string::npos);
  options = ToyOptions();
  options.threads = -1;
  EXPECT_NE(message(options).find("threads"), std::string::npos);
  options = ToyOptions();
  options.checkpoint_grid = 0;
  EXPECT_NE(message(options).find("checkpoint-grid"), std::string::npos);
  for (double headroom : {-0.1, 1.0, std::nan("")}) {
    options = ToyOptions();
    options.headroom = headroom;
    EXPECT_NE(message(options).find("headroom is"), std::string::npos);
  }
  options = ToyOptions();
  options.isa = "sparc";
  EXPECT_NE(message(options).find("TESSERA_ISA=sparc"), std::string::npos);
  options = ToyOptions();
  options.model_path = "/nowhere/model.gguf";
  const auto missing = Engine::Create(options);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), StatusCode::kIo);
}

TEST(Engine, ASpecialTokenHasTextWhereItIsAskedFor) {
  auto engine = MakeEngine(ToyOptions());
  ASSERT_FALSE(engine->tokenizer().end_tokens().empty());
  const TokenId special = engine->tokenizer().end_tokens()[0];
  ASSERT_EQ(engine->tokenizer().TokenBytes(special), "");
  Request request = ToyRequest(4, 2);
  request.ignore_eos = true;
  request.sampling.logit_bias = {{special, 1000}};
  EXPECT_EQ(testing::Ask(*engine, request).text, "");
  request.shown_special = {special};
  const std::string text = engine->tokenizer().TokenBytes(special, /*special=*/true);
  EXPECT_EQ(testing::Ask(*engine, request).text, text + text);
}

TEST(Engine, MinTokensNeedATokenThatDoesNotEndTheText) {
  ModelShape shape;
  shape.vocab_size = 4;
  shape.context_length = 16;
  const TokenId end = 3;
  Request request;
  request.prompt = {0};
  request.max_tokens = 2;
  request.stop_ids = {0, 1, 2, 2};
  EXPECT_TRUE(CheckRequest(request, shape, {&end, 1}).ok()) << "nothing is kept from ending";
  request.min_tokens = 1;
  const Status refused = CheckRequest(request, shape, {&end, 1});
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("each of the model's 4 tokens"), std::string::npos);
  request.ignore_eos = true;
  EXPECT_TRUE(CheckRequest(request, shape, {&end, 1}).ok()) << "the model's end is left";
  request.ignore_eos = false;
  request.stop_ids = {0, 1};
  EXPECT_TRUE(CheckRequest(request, shape, {&end, 1}).ok());
}

TEST(Engine, BadRequestsAreRefusedByName) {
  auto engine = MakeEngine(ToyOptions());
  const auto refusal = [&](const Request& request) {
    const auto id = engine->Submit(request, [](const RequestEvent&) { FAIL(); });
    EXPECT_FALSE(id);
    if (id) return std::string();
    EXPECT_EQ(id.error().code(), StatusCode::kInvalidArgument);
    return id.error().message();
  };
  Request request = ToyRequest(4, 4);
  request.prompt.clear();
  EXPECT_NE(refusal(request).find("prompt has no tokens"), std::string::npos);
  for (TokenId bad : {-1, 300}) {
    request = ToyRequest(4, 4);
    request.prompt[2] = bad;
    EXPECT_NE(refusal(request).find("prompt token 2 is id " + std::to_string(bad)),
              std::string::npos);
  }
  const std::string context = refusal(ToyRequest(1000, 25));
  EXPECT_NE(context.find("1025"), std::string::npos);
  EXPECT_NE(context.find("1024"), std::string::npos);
  EXPECT_NE(refusal(ToyRequest(1, 0xFFFFFFFFu)).find("4294967296"), std::string::npos);
  request = ToyRequest(4, 4);
  request.sampling.top_p = 0;
  EXPECT_NE(refusal(request).find("top_p"), std::string::npos);
  request = ToyRequest(4, 4);
  request.stop = {""};
  EXPECT_NE(refusal(request).find("stop"), std::string::npos);
  request.stop = {"\xC3"};
  EXPECT_NE(refusal(request).find("UTF-8"), std::string::npos);
  request = ToyRequest(4, 4);
  request.shown_special = {300};
  EXPECT_NE(refusal(request).find("shown_special has id 300"), std::string::npos);
  request = ToyRequest(4, 4);
  request.logprobs = 101;
  EXPECT_NE(refusal(request).find("logprobs"), std::string::npos);
  request = ToyRequest(4, 4);
  request.cache_salt = std::string(257, 's');
  EXPECT_NE(refusal(request).find("cache_salt has 257 bytes"), std::string::npos);
  request = ToyRequest(4, 4);
  request.isolate_after = 5;
  EXPECT_NE(refusal(request).find("isolate_after is 5, expected 0 to 4"), std::string::npos);
  for (uint32_t bad : {0u, 5u}) {
    request = ToyRequest(4, 4);
    request.checkpoint_at = {4, bad};
    EXPECT_NE(
        refusal(request).find("checkpoint_at has " + std::to_string(bad) + ", expected 1 to 4"),
        std::string::npos);
  }
  request = ToyRequest(4, 4);
  request.message_ends = {2, 5};
  EXPECT_NE(refusal(request).find("message_ends has 5, expected 1 to 4"), std::string::npos);
  for (uint32_t bad : {3u, 2u}) {
    request.message_ends = {1, 3, bad};
    EXPECT_NE(refusal(request).find("message_ends has " + std::to_string(bad) + " after 3"),
              std::string::npos);
  }
  request = ToyRequest(4, 4);
  request.isolation_key = std::string(257, 'k');
  EXPECT_NE(refusal(request).find("isolation_key has 257 bytes"), std::string::npos);
  request = ToyRequest(4, 4);
  request.checkpoint_at.assign(65, 1);
  EXPECT_NE(refusal(request).find("checkpoint_at has 65 positions"), std::string::npos);
  request = ToyRequest(4, 4);
  request.prompt_logprobs = -2;
  EXPECT_NE(refusal(request).find("prompt_logprobs"), std::string::npos);
}

TEST(Engine, GenerationEndsBeforeAStopString) {
  auto engine = MakeEngine(ToyOptions());
  const Answer free = Ask(*engine, ToyRequest(40, 60, 3));
  // A stop string that spans token borders: six bytes from the middle, at a character's start.
  size_t at = free.text.size() / 2;
  while (at > 0 && (static_cast<unsigned char>(free.text[at]) & 0xC0) == 0x80) --at;
  size_t end = std::min(at + 6, free.text.size());
  while (end < free.text.size() && (static_cast<unsigned char>(free.text[end]) & 0xC0) == 0x80)
    ++end;
  const std::string stop = free.text.substr(at, end - at);
  Request request = ToyRequest(40, 60, 3);
  request.stop = {"never there", stop};
  const Answer stopped = Ask(*engine, request);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.text, free.text.substr(0, free.text.find(stop)));
  EXPECT_LE(stopped.tokens.size(), free.tokens.size());
  EXPECT_EQ(stopped.completion_tokens, stopped.tokens.size());
}

TEST(Engine, EndOfTextEndsGenerationAndIsNotAmongTheTokens) {
  auto engine = MakeEngine(ToyOptions());
  // Hot enough to draw the end-of-text token, one of 300, within the context.
  Request request = ToyRequest(10, 1000, 3);
  request.sampling = {.temperature = 50, .seed = 3};
  request.ignore_eos = false;
  const Answer answer = Ask(*engine, request);
  ASSERT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.completion_tokens, answer.tokens.size() + 1);
  for (TokenId id : answer.tokens) EXPECT_FALSE(engine->tokenizer().IsEndOfGeneration(id));
  request.ignore_eos = true;
  const Answer on = Ask(*engine, request);
  ASSERT_EQ(on.finish, FinishReason::kLength);
  EXPECT_TRUE(engine->tokenizer().IsEndOfGeneration(on.tokens[answer.tokens.size()]));
}

TEST(Engine, LogprobsAreOfTheTokensAndPromptLogprobsOfEveryPosition) {
  auto engine = MakeEngine(ToyOptions());
  Request request = ToyRequest(70, 5);  // three chunks of 32
  request.logprobs = 4;
  request.prompt_logprobs = 3;
  const Answer answer = Ask(*engine, request);
  ASSERT_EQ(answer.logprobs.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(answer.logprobs[i].chosen.id, answer.tokens[i]);
    EXPECT_EQ(answer.logprobs[i].top.size(), 4u);
    EXPECT_EQ(answer.logprobs[i].top[0].id, answer.tokens[i]);  // greedy
    EXPECT_EQ(answer.logprobs[i].top[0].logprob, answer.logprobs[i].chosen.logprob);
  }
  ASSERT_EQ(answer.prompt_logprobs.size(), 70u);
  for (size_t i = 0; i + 1 < 70; ++i) {
    EXPECT_EQ(answer.prompt_logprobs[i].chosen.id, request.prompt[i + 1]);
    EXPECT_EQ(answer.prompt_logprobs[i].top.size(), 3u);
  }
  EXPECT_EQ(answer.prompt_logprobs[69].chosen.id, answer.tokens[0]);

  // What the prompt says of its continuation is what generation saw.
  Request again = request;
  again.prompt.insert(again.prompt.end(), answer.tokens.begin(), answer.tokens.end());
  again.max_tokens = 0;
  const Answer prompt_only = Ask(*engine, again);
  EXPECT_EQ(prompt_only.finish, FinishReason::kLength);
  EXPECT_EQ(prompt_only.completion_tokens, 0u);
  EXPECT_TRUE(prompt_only.tokens.empty());
  EXPECT_EQ(prompt_only.receipt, 0u);
  ASSERT_EQ(prompt_only.prompt_logprobs.size(), 75u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(prompt_only.prompt_logprobs[69 + i].chosen.id, answer.tokens[i]);
    EXPECT_EQ(prompt_only.prompt_logprobs[69 + i].chosen.logprob,
              answer.logprobs[i].chosen.logprob);
  }
  EXPECT_EQ(prompt_only.prompt_logprobs[74].chosen.id, prompt_only.prompt_logprobs[74].top[0].id);
}

TEST(Engine, CancelEndsARequestAndFreesItsMemory) {
  auto engine = MakeEngine(ToyOptions());
  Client running;
  Client waiting;
  std::vector<Client> others(3);
  const auto id = engine->Submit(ToyRequest(10, 1000), running.sink());
  for (Client& other : others) ASSERT_TRUE(engine->Submit(ToyRequest(10, 1000), other.sink()));
  const auto waiting_id = engine->Submit(ToyRequest(10, 10), waiting.sink());
  running.WaitForTokens(3);
  engine->Cancel(*waiting_id);
  EXPECT_EQ(waiting.Wait().finish, FinishReason::kCancelled);
  EXPECT_TRUE(waiting.Now().tokens.empty());
  engine->Cancel(*id);
  const Answer answer = running.Wait();
  EXPECT_EQ(answer.finish, FinishReason::kCancelled);
  EXPECT_GE(answer.tokens.size(), 3u);
  EXPECT_LT(answer.tokens.size(), 1000u);
  EXPECT_EQ(answer.text, TextOf(*engine, answer.tokens));
  engine->Cancel(*id);                      // finished: nothing
  engine->Cancel(RequestId(uint64_t{77}));  // never was: nothing
  engine->Cancel(RequestId());
  for (Client& other : others) EXPECT_EQ(other.Wait().finish, FinishReason::kLength);
  EXPECT_EQ(engine->Stats().requests_cancelled, 2u);
  ExpectAllFree(*engine);
}

TEST(Engine, EachRequestGetsExactlyOneFinalEventAlsoWhenTheEngineGoes) {
  std::vector<Client> clients(40);
  {
    auto engine = MakeEngine(ToyOptions());
    std::vector<RequestId> ids;
    for (size_t i = 0; i < clients.size(); ++i) {
      const auto id = engine->Submit(ToyRequest(1 + i * 7, 1 + i, i), clients[i].sink());
      ASSERT_TRUE(id);
      ids.push_back(*id);
      if (i % 3 == 0) engine->Cancel(ids[i / 2]);
    }
    clients[5].Wait();
  }
  for (Client& client : clients) {
    const Answer answer = client.Now();
    EXPECT_EQ(answer.final_events, 1);
    EXPECT_EQ(answer.events_after_final, 0);
  }
}

TEST(Engine, ASinkMayCancelItsOwnRequest) {
  auto engine = MakeEngine(ToyOptions());
  Client client;
  RequestSink inner = client.sink();
  RequestId id;
  std::mutex id_known;
  id_known.lock();
  const auto sink = [&](const RequestEvent& event) {
    if (event.finish == FinishReason::kNone) {
      std::lock_guard lock(id_known);
      engine->Cancel(id);
    }
    inner(event);
  };
  id = *engine->Submit(ToyRequest(5, 500), sink);
  id_known.unlock();
  EXPECT_EQ(client.Wait().finish, FinishReason::kCancelled);
}

TEST(Engine, ManyThreadsMaySubmitAndCancelAtOnce) {
  auto engine = MakeEngine(ToyOptions());
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 6; ++i) {
        Client client;
        const auto id = engine->Submit(ToyRequest(5 + 9 * i, 12, t), client.sink());
        ASSERT_TRUE(id);
        if (i % 2 == 1) engine->Cancel(*id);
        engine->Stats();
        EXPECT_EQ(client.Wait().final_events, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectAllFree(*engine);
}

}  // namespace
}  // namespace tessera
