// SPDX-License-Identifier: Apache-2.0
//
// What the engine's tests use to talk to it: a client that gathers a request's events and waits
// for the final one, and the comparison of two answers to the bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace tessera::testing {

struct Answer {
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<PositionLogprobs> logprobs;
  std::vector<PositionLogprobs> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  Status error;
  uint32_t completion_tokens = 0;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  MatchReport match;
  uint64_t receipt = 0;
  int final_events = 0;
  int events_after_final = 0;
};

class Client {
 public:
  RequestSink sink() {
    return [this](const RequestEvent& event) {
      std::lock_guard lock(mutex_);
      if (answer_.final_events > 0) ++answer_.events_after_final;
      answer_.tokens.insert(answer_.tokens.end(), event.tokens.begin(), event.tokens.end());
      answer_.text += event.text;
      answer_.logprobs.insert(answer_.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
      answer_.prompt_logprobs.insert(answer_.prompt_logprobs.end(), event.prompt_logprobs.begin(),
                                     event.prompt_logprobs.end());
      if (event.finish != FinishReason::kNone) {
        ++answer_.final_events;
        answer_.finish = event.finish;
        answer_.error = event.error;
        answer_.completion_tokens = event.completion_tokens;
        answer_.prompt_tokens = event.prompt_tokens;
        answer_.cached_tokens = event.cached_tokens;
        answer_.match = event.match;
        answer_.receipt = event.receipt;
      }
      changed_.notify_all();
    };
  }
  const Answer& Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return answer_.final_events > 0; });
    return answer_;
  }
  void WaitForTokens(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answer_.tokens.size() >= count || answer_.final_events > 0; });
  }
  Answer Now() {
    std::lock_guard lock(mutex_);
    return answer_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Answer answer_;
};

inline std::unique_ptr<Engine> MakeEngine(const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = Engine::Create(options);
  EXPECT_TRUE(engine) << engine.error().message();
  return engine ? std::move(*engine) : nullptr;
}

inline Answer Ask(Engine& engine, const Request& request) {
  Client client;
  const Result<RequestId> id = engine.Submit(request, client.sink());
  EXPECT_TRUE(id) << id.error().message();
  return id ? client.Wait() : Answer{};
}

inline void ExpectSameLogprobs(const std::vector<PositionLogprobs>& a,
                               const std::vector<PositionLogprobs>& b) {
  ASSERT_EQ(a.size(), b.size());
  const auto same = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.id == y.id && std::bit_cast<uint32_t>(x.logprob) == std::bit_cast<uint32_t>(y.logprob);
  };
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(same(a[i].chosen, b[i].chosen));
    ASSERT_EQ(a[i].top.size(), b[i].top.size());
    for (size_t k = 0; k < a[i].top.size(); ++k) EXPECT_TRUE(same(a[i].top[k], b[i].top[k]));
  }
}

inline void ExpectSame(const Answer& got, const Answer& alone) {
  EXPECT_EQ(got.tokens, alone.tokens);
  EXPECT_EQ(got.text, alone.text);
  EXPECT_EQ(got.finish, alone.finish);
  EXPECT_EQ(got.receipt, alone.receipt);
  EXPECT_EQ(got.completion_tokens, alone.completion_tokens);
  ExpectSameLogprobs(got.logprobs, alone.logprobs);
  ExpectSameLogprobs(got.prompt_logprobs, alone.prompt_logprobs);
}

}  // namespace tessera::testing
