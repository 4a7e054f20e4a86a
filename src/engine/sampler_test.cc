// SPDX-License-Identifier: Apache-2.0
//
// The sampler against a slow twin that sorts the whole vocabulary, and the properties of R14.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/random.h"
#include "engine/exp_log.h"

namespace tessera {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(Random& random, size_t n, float scale, bool ties) {
  std::vector<float> logits(n);
  for (float& x : logits) {
    x = random.Uniform(-scale, scale);
    if (ties) x = std::round(x);
  }
  return logits;
}

// The header's words, over a full sort.
TokenId SlowSample(const std::vector<float>& logits, const SamplingOptions& options,
                   uint64_t position) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  const double largest = static_cast<double>(logits[static_cast<size_t>(order[0])]);
  if (options.temperature == 0) return order[0];
  std::map<TokenId, double> weight;
  for (TokenId id : order) {
    weight[id] = ExpOfNonPositive((static_cast<double>(logits[static_cast<size_t>(id)]) - largest) /
                                  static_cast<double>(options.temperature));
  }
  if (options.top_k > 0 && options.top_k < order.size()) order.resize(options.top_k);
  std::erase_if(order, [&](TokenId id) { return weight[id] < static_cast<double>(options.min_p); });
  const auto sum_by_id = [&](std::vector<TokenId> ids) {
    std::sort(ids.begin(), ids.end());
    double sum = 0;
    for (TokenId id : ids) sum += weight[id];
    return sum;
  };
  if (options.top_p < 1) {
    const double wanted = sum_by_id(order) * static_cast<double>(options.top_p);
    double sum = 0;
    size_t kept = 0;
    do sum += weight[order[kept++]];
    while (sum < wanted && kept < order.size());
    order.resize(kept);
  }
  const double mark = CounterUniform(options.seed, position) * sum_by_id(order);
  const TokenId first = order[0];
  std::sort(order.begin(), order.end());
  double sum = 0;
  for (TokenId id : order) {
    sum += weight[id];
    if (sum > mark) return id;
  }
  return first;
}

TEST(Sampler, EqualsAFullSortForRandomRowsAndOptions) {
  Random random(11);
  for (int i = 0; i < 3000; ++i) {
    SCOPED_TRACE(i);
    const size_t n = 1 + random.Below(200);
    Sampler sampler(static_cast<uint32_t>(n));
    const auto logits = RandomLogits(random, n, 6, i % 2 == 0);
    SamplingOptions options;
    options.temperature = random.Below(5) == 0 ? 0.f : random.Uniform(0.05f, 2.f);
    options.top_k = static_cast<uint32_t>(random.Below(3) * random.Below(n + 5));
    options.min_p = random.Below(2) == 0 ? 0.f : random.Uniform(0.f, 1.f);
    options.top_p = random.Below(2) == 0 ? 1.f : random.Uniform(0.01f, 1.f);
    options.seed = random.Next();
    for (uint64_t position = 0; position < 3; ++position) {
      ASSERT_EQ(sampler.Sample(logits, options, position), SlowSample(logits, options, position));
    }
  }
}

TEST(Sampler, GreedyTakesTheLowestIdOfATie) {
  std::vector<float> logits(100, 1.f);
  EXPECT_EQ(GreedyToken(logits), 0);
  logits[37] = logits[41] = logits[99] = 2.f;
  EXPECT_EQ(GreedyToken(logits), 37);
  logits[5] = -0.f;
  logits[37] = logits[41] = logits[99] = 0.f;
  EXPECT_EQ(GreedyToken(std::vector<float>{-1.f, -0.f, 0.f}), 1);
}

TEST(Sampler, NanIsNeverChosenAndARowOfNothingElseIsRefused) {
  std::vector<float> logits(40, kNan);
  Sampler sampler(40);
  for (float temperature : {0.f, 1.f, 3e38f}) {
    SamplingOptions options{.temperature = temperature, .top_p = 0.9f, .min_p = 0.1f};
    EXPECT_EQ(sampler.Sample(logits, options, 3), std::nullopt);
  }
  logits[17] = -kInf;
  for (float temperature : {0.f, 1.f, 3e38f}) {
    for (uint32_t top_k : {0u, 1u, 3u}) {
      for (uint64_t position = 0; position < 50; ++position) {
        SamplingOptions options{.temperature = temperature, .top_k = top_k};
        EXPECT_EQ(sampler.Sample(logits, options, position), 17);
      }
    }
  }
  logits[20] = kInf;
  logits[21] = 5;
  for (uint64_t position = 0; position < 50; ++position) {
    EXPECT_EQ(sampler.Sample(logits, {.temperature = 1}, position), 20);
  }
  PositionLogprobs result;
  sampler.Logprobs(logits, 3, 5, &result);
  EXPECT_TRUE(std::isfinite(result.chosen.logprob));
  EXPECT_EQ(result.top[0].id, 20);
  EXPECT_EQ(result.top[0].logprob, 0);
}

TEST(Sampler, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {0.f, std::log(2.f), std::log(5.f), -kInf};
  Sampler sampler(4);
  std::vector<int> counts(4);
  const int draws = 80000;
  for (int i = 0; i < draws; ++i) {
    SamplingOptions options{.temperature = 1, .seed = 99};
    ++counts[static_cast<size_t>(*sampler.Sample(logits, options, static_cast<uint64_t>(i)))];
  }
  // Four standard deviations: 4·sqrt(80000·p·(1-p)) < 550.
  EXPECT_NEAR(counts[0], draws / 8.0, 550);
  EXPECT_NEAR(counts[1], draws / 4.0, 550);
  EXPECT_NEAR(counts[2], draws * 5 / 8.0, 550);
  EXPECT_EQ(counts[3], 0);
}

TEST(Sampler, ADrawDependsOnSeedAndPositionOnly) {
  Random random(5);
  const auto logits = RandomLogits(random, 300, 1, false);
  Sampler one(300);
  Sampler other(300);
  std::vector<std::optional<TokenId>> forward;
  for (uint64_t p = 0; p < 64; ++p) {
    forward.push_back(one.Sample(logits, {.temperature = 1, .seed = 4}, p));
  }
  int differ = 0;
  for (uint64_t p = 64; p-- > 0;) {
    EXPECT_EQ(other.Sample(logits, {.temperature = 1, .seed = 4}, p), forward[p]);
    differ += other.Sample(logits, {.temperature = 1, .seed = 5}, p) != forward[p] ? 1 : 0;
  }
  EXPECT_GT(differ, 32);
}

TEST(Sampler, LogprobsAreLogSoftmaxOfTheRawLogits) {
  Random random(6);
  for (size_t n : {1u, 15u, 16u, 17u, 514u}) {
    const auto logits = RandomLogits(random, n, 9, n == 514);
    Sampler sampler(static_cast<uint32_t>(n));
    PositionLogprobs result;
    const TokenId chosen = static_cast<TokenId>(n / 2);
    sampler.Logprobs(logits, chosen, 8, &result);
    double sum = 0;
    for (float x : logits) sum += std::exp(static_cast<double>(x));
    EXPECT_EQ(result.chosen.id, chosen);
    EXPECT_NEAR(result.chosen.logprob, static_cast<double>(logits[n / 2]) - std::log(sum), 1e-5);
    ASSERT_EQ(result.top.size(), std::min<size_t>(8, n));
    EXPECT_EQ(result.top[0].id, GreedyToken(logits));
    for (size_t i = 1; i < result.top.size(); ++i) {
      const bool in_order = result.top[i - 1].logprob > result.top[i].logprob ||
                            (result.top[i - 1].logprob == result.top[i].logprob &&
                             result.top[i - 1].id < result.top[i].id);
      EXPECT_TRUE(in_order);
    }
    sampler.Logprobs(logits, -1, 0, &result);
    EXPECT_EQ(result.chosen.id, GreedyToken(logits));
    EXPECT_TRUE(result.top.empty());
  }
}

TEST(Sampler, OptionsOutOfRangeAreRefusedByName) {
  EXPECT_TRUE(CheckSamplingOptions({}).ok());
  EXPECT_TRUE(CheckSamplingOptions({.temperature = 2, .top_k = 5, .top_p = .5f, .min_p = 1}).ok());
  for (float bad : {-1.f, kNan, kInf}) {
    EXPECT_NE(CheckSamplingOptions({.temperature = bad}).message().find("temperature"),
              std::string::npos);
  }
  for (float bad : {0.f, -1.f, 1.5f, kNan}) {
    EXPECT_NE(CheckSamplingOptions({.top_p = bad}).message().find("top_p"), std::string::npos);
  }
  for (float bad : {-.1f, 1.5f, kNan}) {
    EXPECT_NE(CheckSamplingOptions({.min_p = bad}).message().find("min_p"), std::string::npos);
  }
  for (float bad : {-1001.f, 1001.f, kNan, kInf}) {
    const auto refused = [](const SamplingOptions& options, const char* field) {
      return CheckSamplingOptions(options).message().find(field) != std::string::npos;
    };
    EXPECT_TRUE(refused({.presence_penalty = bad}, "presence_penalty"));
    EXPECT_TRUE(refused({.frequency_penalty = bad}, "frequency_penalty"));
    EXPECT_TRUE(refused({.repetition_penalty = bad}, "repetition_penalty"));
    EXPECT_TRUE(refused({.logit_bias = {{0, bad}}}, "logit_bias"));
  }
  EXPECT_FALSE(CheckSamplingOptions({.repetition_penalty = 0}).ok());
  EXPECT_FALSE(
      CheckSamplingOptions({.logit_bias = std::vector<LogitBias>(kMaxLogitBiases + 1)}).ok());
}

uint64_t UlpDistance(double a, double b) {
  const int64_t x = std::bit_cast<int64_t>(a);
  const int64_t y = std::bit_cast<int64_t>(b);
  return static_cast<uint64_t>(x > y ? x - y : y - x);
}

TEST(ExpLog, IsWithinTwoUlpOfLibm) {
  Random random(8);
  for (int i = 0; i < 200000; ++i) {
    const double x = -random.Uniform() * (i % 3 == 0 ? 708.0 : i % 3 == 1 ? 30.0 : 1e-3);
    ASSERT_LE(UlpDistance(ExpOfNonPositive(x), std::exp(x)), 2u) << x;
    const double y = std::exp((random.Uniform() - 0.5) * (i % 2 == 0 ? 1400.0 : 3.0));
    // Near 1 the logarithm vanishes: there the error is bounded absolutely.
    ASSERT_TRUE(UlpDistance(LogOfPositive(y), std::log(y)) <= 2 ||
                std::abs(LogOfPositive(y) - std::log(y)) < 1e-17)
        << y;
  }
  EXPECT_EQ(ExpOfNonPositive(0), 1);
  EXPECT_EQ(ExpOfNonPositive(-1e300), 0);
  EXPECT_EQ(ExpOfNonPositive(-std::numeric_limits<double>::infinity()), 0);
  EXPECT_EQ(LogOfPositive(1), 0);
}

}  // namespace
}  // namespace tessera
