// SPDX-License-Identifier: Apache-2.0
#include "engine/logit_adjuster.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace tessera {
namespace {

bool ChangesAnything(const SamplingOptions& options, const SampleContext& context) {
  return options.repetition_penalty != 1 || !options.logit_bias.empty() ||
         !context.forbidden.empty() ||
         ((options.presence_penalty != 0 || options.frequency_penalty != 0) &&
          !context.answer.empty());
}

size_t Index(TokenId id) { return static_cast<size_t>(id); }

}  // namespace

std::span<const float> LogitAdjuster::Adjust(std::span<const float> logits,
                                             const SamplingOptions& options,
                                             const SampleContext& context) {
  if (!ChangesAnything(options, context)) return logits;
  TESSERA_CHECK(logits.size() == logits_.size());
  std::copy(logits.begin(), logits.end(), logits_.begin());
  if (options.repetition_penalty != 1) PenalizeRepeated(options.repetition_penalty, context);
  if (options.presence_penalty != 0 || options.frequency_penalty != 0) {
    PenalizeMade(options, context.answer);
  }
  for (const LogitBias& bias : options.logit_bias) logits_[Index(bias.id)] += bias.bias;
  for (TokenId id : context.forbidden) {
    if (Index(id) < logits_.size()) logits_[Index(id)] = std::numeric_limits<float>::quiet_NaN();
  }
  return logits_;
}

void LogitAdjuster::PenalizeRepeated(float penalty, const SampleContext& context) {
  // Counting marks a token as done: a history of n tokens costs n, not the vocabulary.
  const auto penalize = [&](std::span<const TokenId> tokens) {
    for (TokenId id : tokens) {
      if (counts_[Index(id)]++ > 0) continue;
      float& x = logits_[Index(id)];
      x = x > 0 ? x / penalty : x * penalty;
    }
  };
  penalize(context.prompt);
  penalize(context.answer);
  for (TokenId id : context.prompt) counts_[Index(id)] = 0;
  for (TokenId id : context.answer) counts_[Index(id)] = 0;
}

void LogitAdjuster::PenalizeMade(const SamplingOptions& options, std::span<const TokenId> answer) {
  for (TokenId id : answer) ++counts_[Index(id)];
  for (TokenId id : answer) {
    uint32_t& made = counts_[Index(id)];
    if (made == 0) continue;  // done
    float& x = logits_[Index(id)];
    const float penalty = options.frequency_penalty * static_cast<float>(made);
    x -= penalty;
    x -= options.presence_penalty;
    made = 0;
  }
}

}  // namespace tessera
