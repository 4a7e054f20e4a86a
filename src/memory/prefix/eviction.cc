// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/eviction.h"

#include <algorithm>

namespace tessera {
namespace {

// Operations saved grow with the tokens saved and, in attention, with those before them; over
// published hybrids a token of prefix costs about as much at 16,384 tokens as all the rest of it.
constexpr double kAttentionScaleTokens = 16384;
// One unit of (tokens saved per page, 16 at most) against look-ups of age.
constexpr double kFlopWeight = 64;

double FlopEfficiency(const EvictionFacts& facts) {
  const double middle = facts.position - facts.saved_tokens / 2.0;
  return facts.saved_tokens * (1 + middle / kAttentionScaleTokens) / std::max(1u, facts.pages);
}

}  // namespace

EvictionKey EvictionKeyOf(EvictionPolicy policy, const EvictionFacts& facts) {
  EvictionKey key;
  key.rank = facts.retained ? EvictionKey::kRetained
             : facts.spare  ? EvictionKey::kSpare
                            : EvictionKey::kOrdinary;
  switch (policy) {
    case EvictionPolicy::kValue:
      if (facts.worthless) return {EvictionKey::kWorthless, static_cast<double>(facts.last_use)};
      key.value =
          facts.credit + (1.0 + facts.hits) * facts.saved_tokens / std::max(1u, facts.pages);
      break;
    case EvictionPolicy::kLru:
      if (!facts.retained) key.rank = EvictionKey::kOrdinary;
      key.value = facts.last_use;
      break;
    case EvictionPolicy::kFlop:
      if (facts.worthless) return {EvictionKey::kWorthless, static_cast<double>(facts.last_use)};
      key.value = facts.last_use + kFlopWeight * FlopEfficiency(facts);
      break;
  }
  return key;
}

}  // namespace tessera
