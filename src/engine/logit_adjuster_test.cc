// SPDX-License-Identifier: Apache-2.0
//
// The adjuster against a twin that asks every step of every token.
#include "engine/logit_adjuster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/random.h"
#include "engine/sampler.h"

namespace tessera {
namespace {

// The header's words, token by token.
std::vector<float> SlowAdjust(const std::vector<float>& logits, const SamplingOptions& options,
                              const SampleContext& context) {
  std::vector<float> adjusted = logits;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const auto made = std::count(context.answer.begin(), context.answer.end(), id);
    const auto seen = made + std::count(context.prompt.begin(), context.prompt.end(), id);
    float& x = adjusted[i];
    if (seen > 0 && options.repetition_penalty != 1) {
      x = x > 0 ? x / options.repetition_penalty : x * options.repetition_penalty;
    }
    if (made > 0) {
      const float frequency = options.frequency_penalty * static_cast<float>(made);
      x = x - frequency;
      x = x - options.presence_penalty;
    }
    for (const LogitBias& bias : options.logit_bias) {
      if (bias.id == id) x = x + bias.bias;
    }
    const auto& forbidden = context.forbidden;
    if (std::find(forbidden.begin(), forbidden.end(), id) != forbidden.end()) x = NAN;
  }
  return adjusted;
}

std::vector<TokenId> RandomTokens(Random& random, size_t vocab, size_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& id : tokens) id = static_cast<TokenId>(random.Below(vocab));
  return tokens;
}

TEST(LogitAdjuster, EqualsTheSlowTwinToTheBitForRandomRowsAndHistories) {
  Random random(3);
  for (int i = 0; i < 2000; ++i) {
    SCOPED_TRACE(i);
    const size_t vocab = 1 + random.Below(60);
    LogitAdjuster adjuster(static_cast<uint32_t>(vocab));
    SamplingOptions options;
    if (random.Below(2) == 0) options.repetition_penalty = random.Uniform(0.5f, 2.f);
    if (random.Below(2) == 0) options.frequency_penalty = random.Uniform(-2.f, 2.f);
    if (random.Below(2) == 0) options.presence_penalty = random.Uniform(-2.f, 2.f);
    for (size_t b = random.Below(4); b > 0; --b) {
      options.logit_bias.push_back(
          {static_cast<TokenId>(random.Below(vocab)), random.Uniform(-100.f, 100.f)});
    }
    // The same adjuster for row after row: nothing of one is left for the next.
    for (int row = 0; row < 3; ++row) {
      std::vector<float> logits(vocab);
      for (float& x : logits) x = random.Uniform(-5.f, 5.f);
      const auto prompt = RandomTokens(random, vocab, random.Below(40));
      const auto answer = RandomTokens(random, vocab, random.Below(40));
      const auto forbidden = RandomTokens(random, vocab + 5, random.Below(3));
      const SampleContext context{prompt, answer, forbidden};
      const std::span<const float> got = adjuster.Adjust(logits, options, context);
      const std::vector<float> expected = SlowAdjust(logits, options, context);
      ASSERT_EQ(got.size(), vocab);
      for (size_t t = 0; t < vocab; ++t) {
        if (std::isnan(expected[t])) {
          ASSERT_TRUE(std::isnan(got[t])) << t;
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[t]), std::bit_cast<uint32_t>(expected[t])) << t;
        }
      }
    }
  }
}

TEST(LogitAdjuster, ARowThatNothingChangesIsNotCopied) {
  const std::vector<float> logits = {1, 2, 3};
  const std::vector<TokenId> prompt = {0, 1};
  LogitAdjuster adjuster(3);
  EXPECT_EQ(adjuster.Adjust(logits, {}, {prompt, {}, {}}).data(), logits.data());
  // A penalty on the answer has nothing to act on before there is one.
  EXPECT_EQ(adjuster.Adjust(logits, {.presence_penalty = 1}, {prompt, {}, {}}).data(),
            logits.data());
}

TEST(LogitAdjuster, PenaltiesOfTheAnswerLeaveThePromptAlone) {
  const std::vector<float> logits = {1, 1, 1};
  const std::vector<TokenId> prompt = {0, 0};
  const std::vector<TokenId> answer = {1, 1};
  LogitAdjuster adjuster(3);
  const auto row = adjuster.Adjust(logits, {.presence_penalty = 0.5f, .frequency_penalty = 0.25f},
                                   {prompt, answer, {}});
  EXPECT_EQ(row[0], 1);
  EXPECT_EQ(row[1], 0);
  EXPECT_EQ(row[2], 1);
}

TEST(LogitAdjuster, AForbiddenTokenIsNotSampledHoweverLikelyItIs) {
  std::vector<float> logits(20, 0.f);
  logits[7] = 1e30f;
  const std::vector<TokenId> forbidden = {7, 3};
  LogitAdjuster adjuster(20);
  Sampler sampler(20);
  for (float temperature : {0.f, 1.f, 2.f}) {
    for (uint64_t position = 0; position < 100; ++position) {
      const SamplingOptions options{.temperature = temperature};
      const auto token =
          sampler.Sample(adjuster.Adjust(logits, options, {{}, {}, forbidden}), options, position);
      ASSERT_TRUE(token.has_value());
      EXPECT_TRUE(*token != 7 && *token != 3) << *token;
    }
  }
}

}  // namespace
}  // namespace tessera
