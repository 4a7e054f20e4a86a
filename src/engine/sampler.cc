// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "engine/exp_log.h"

namespace tessera {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr uint32_t kLanes = 16;

// A logit as the order sees it. Both comparisons are false for NaN, which ends at -kLargest.
inline float Ordered(float x) {
  const float low = x > -kLargest ? x : -kLargest;
  return low < kLargest ? low : kLargest;
}

// Lanes so that the compiler vectorises: a maximum is exact in any order.
float LargestOf(std::span<const float> logits) {
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -kLargest);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (uint32_t l = 0; l < kLanes; ++l) {
      const float x = Ordered(logits[i + l]);
      lanes[l] = x > lanes[l] ? x : lanes[l];
    }
  }
  float largest = *std::max_element(lanes, lanes + kLanes);
  for (; i < logits.size(); ++i) largest = std::max(largest, Ordered(logits[i]));
  return largest;
}

struct Precedes {
  std::span<const float> logits;
  bool operator()(TokenId a, TokenId b) const {
    const float x = Ordered(logits[static_cast<size_t>(a)]);
    const float y = Ordered(logits[static_cast<size_t>(b)]);
    return x > y || (x == y && a < b);
  }
};

}  // namespace

std::optional<TokenId> GreedyToken(std::span<const float> logits) {
  const float largest = LargestOf(logits);
  for (size_t i = 0; i < logits.size(); ++i) {
    // NaN is not the -kLargest it is ordered as: a row of NaN and -inf yields an -inf.
    if (Ordered(logits[i]) == largest && !std::isnan(logits[i])) return static_cast<TokenId>(i);
  }
  return std::nullopt;
}

namespace {

// Far beyond use, and small enough that no sum of them with a logit is infinite.
constexpr float kPenaltyMax = 1000;

Status CheckWithin(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) return Status::Ok();  // not NaN
  return InvalidArgument(
      fmt::format("{} is {}, expected a number from {} to {}", field, value, low, high));
}

Status CheckAdjustments(const SamplingOptions& options) {
  if (!(options.repetition_penalty > 0 && options.repetition_penalty <= kPenaltyMax)) {
    return InvalidArgument(
        fmt::format("repetition_penalty is {}, expected more than 0 and at most {}",
                    options.repetition_penalty, kPenaltyMax));
  }
  TESSERA_RETURN_IF_ERROR(
      CheckWithin("presence_penalty", options.presence_penalty, -kPenaltyMax, kPenaltyMax));
  TESSERA_RETURN_IF_ERROR(
      CheckWithin("frequency_penalty", options.frequency_penalty, -kPenaltyMax, kPenaltyMax));
  if (options.logit_bias.size() > kMaxLogitBiases) {
    return InvalidArgument(fmt::format("logit_bias has {} tokens, at most {} are allowed",
                                       options.logit_bias.size(), kMaxLogitBiases));
  }
  for (const LogitBias& bias : options.logit_bias) {
    TESSERA_RETURN_IF_ERROR(CheckWithin("logit_bias", bias.bias, -kPenaltyMax, kPenaltyMax));
  }
  return Status::Ok();
}

}  // namespace

Status CheckSamplingOptions(const SamplingOptions& options) {
  // Written so that NaN fails.
  if (!(options.temperature >= 0) || options.temperature > kLargest) {
    return InvalidArgument(
        fmt::format("temperature is {}, expected a number >= 0", options.temperature));
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return InvalidArgument(
        fmt::format("top_p is {}, expected more than 0 and at most 1", options.top_p));
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return InvalidArgument(fmt::format("min_p is {}, expected 0 to 1", options.min_p));
  }
  return CheckAdjustments(options);
}

Sampler::Sampler(uint32_t vocab_size) : candidates_(vocab_size), weights_(vocab_size) {}

void Sampler::SelectFirst(std::span<const float> logits, uint32_t count) {
  candidates_.clear();
  if (count == 0) return;             // log-probabilities of the chosen tokens alone
  candidates_.resize(logits.size());  // within capacity
  std::iota(candidates_.begin(), candidates_.end(), 0);
  if (count >= logits.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + count, candidates_.end(),
                   Precedes{logits});
  candidates_.resize(count);
}

void Sampler::KeepTopP(std::span<const float> logits, float top_p) {
  double total = 0;
  for (TokenId id : candidates_) total += weights_[static_cast<size_t>(id)];
  // A heap yields the order only as far as it is needed: O(n + kept·log n).
  const auto follows = [precedes = Precedes{logits}](TokenId a, TokenId b) {
    return precedes(b, a);
  };
  std::make_heap(candidates_.begin(), candidates_.end(), follows);
  auto heap_end = candidates_.end();
  double sum = 0;
  const double wanted = total * static_cast<double>(top_p);
  do {
    std::pop_heap(candidates_.begin(), heap_end, follows);
    --heap_end;
    sum += weights_[static_cast<size_t>(*heap_end)];
  } while (sum < wanted && heap_end != candidates_.begin());
  candidates_.erase(candidates_.begin(), heap_end);
}

std::optional<TokenId> Sampler::Sample(std::span<const float> logits,
                                       const SamplingOptions& options, uint64_t position) {
  TESSERA_CHECK(logits.size() == weights_.size());
  const std::optional<TokenId> best = GreedyToken(logits);
  if (!best.has_value() || options.temperature == 0) return best;

  const double largest = static_cast<double>(Ordered(logits[static_cast<size_t>(*best)]));
  const double temperature = static_cast<double>(options.temperature);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double x = static_cast<double>(Ordered(logits[i]));
    weights_[i] = ExpOfNonPositive((x - largest) / temperature);
  }
  const bool all = options.top_k == 0 || options.top_k >= logits.size();
  SelectFirst(logits, all ? static_cast<uint32_t>(logits.size()) : options.top_k);
  const double floor = static_cast<double>(options.min_p);
  // NaN may tie with -kLargest at a huge temperature; it is never a candidate.
  std::erase_if(candidates_, [&](TokenId id) {
    const size_t i = static_cast<size_t>(id);
    return weights_[i] < floor || std::isnan(logits[i]);
  });
  // Sums below are in ascending order of ids, whatever order selection left.
  if (!all) std::sort(candidates_.begin(), candidates_.end());
  if (options.top_p < 1) {
    KeepTopP(logits, options.top_p);
    std::sort(candidates_.begin(), candidates_.end());
  }

  double total = 0;
  for (TokenId id : candidates_) total += weights_[static_cast<size_t>(id)];
  const double mark = CounterUniform(options.seed, position) * total;
  double sum = 0;
  for (TokenId id : candidates_) {
    sum += weights_[static_cast<size_t>(id)];
    if (sum > mark) return id;
  }
  return best;  // u·total rounded up to total itself
}

void Sampler::Logprobs(std::span<const float> logits, TokenId chosen, uint32_t count,
                       PositionLogprobs* result) {
  const double largest = static_cast<double>(LargestOf(logits));
  double lanes[kLanes] = {};
  for (size_t i = 0; i < logits.size(); ++i) {
    weights_[i] = ExpOfNonPositive(static_cast<double>(Ordered(logits[i])) - largest);
  }
  for (size_t i = 0; i < logits.size(); ++i) lanes[i % kLanes] += weights_[i];
  double sum = 0;
  for (double lane : lanes) sum += lane;
  const double log_sum = LogOfPositive(sum);
  const auto logprob = [&](TokenId id) {
    const double x = static_cast<double>(Ordered(logits[static_cast<size_t>(id)]));
    const double value = x - largest - log_sum;
    return static_cast<float>(std::max(value, -static_cast<double>(kLargest)));
  };

  count = std::min(count, static_cast<uint32_t>(logits.size()));
  SelectFirst(logits, count);
  std::sort(candidates_.begin(), candidates_.end(), Precedes{logits});
  result->top.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    result->top[i] = {.id = candidates_[i], .logprob = logprob(candidates_[i])};
  }
  if (chosen < 0) chosen = GreedyToken(logits).value_or(0);
  result->chosen = {.id = chosen, .logprob = logprob(chosen)};
}

}  // namespace tessera
