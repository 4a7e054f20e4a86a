// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/eviction.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr double kAgeOffset = 12;
constexpr double kContinuedWeight = 0.3;
constexpr uint32_t kBranchesMax = 7;
// A checkpoint that saves this many prices counts half of what it would without the price.
constexpr double kHalfWorthPrices = 2.5;
// Bucket of weight 1; half octaves, so weights from 2^-16 to 2^15.5 are told apart.
constexpr int kUnitBucket = 32;
// Of Marconi's efficiency against recency; 16 tokens saved per page of 16 is the best there is
// without sharing, half of it counts in full.
constexpr double kFlopWeight = 0.25;
constexpr double kFlopFullTokensPerPage = 8;

double SavedPerPage(const EvictionFacts& facts) {
  return static_cast<double>(facts.saved_tokens) / std::max(1u, facts.pages);
}

uint32_t Clamp(double bucket) {
  return static_cast<uint32_t>(std::clamp(bucket, 0.0, double{kEvictionBuckets - 1}));
}

uint32_t ValueBucket(const EvictionFacts& facts) {
  if (facts.saved_tokens == 0) return 0;
  const double k = facts.continued && facts.branches == 0 ? kContinuedWeight : 1;
  const double saved = facts.saved_tokens;
  const double weight = k * (1 + std::min(facts.branches, kBranchesMax)) * SavedPerPage(facts) *
                        saved / (saved + kHalfWorthPrices * facts.price_tokens);
  return Clamp(std::round(2 * std::log2(weight)) + kUnitBucket);
}

}  // namespace

EvictionClass ClassifyForEviction(EvictionPolicy policy, const EvictionFacts& facts) {
  EvictionClass result;
  result.order = uint64_t{facts.last_use} << 32 | ~facts.position;
  if (facts.retained) {
    result.rank = EvictionRank::kRetained;
  } else if (policy == EvictionPolicy::kLru) {
    return result;  // it knows no ranks but that
  } else if (facts.worthless) {
    result.rank = EvictionRank::kWorthless;
    return result;
  } else if (facts.spare) {
    result.rank = EvictionRank::kSpare;
  }
  if (policy == EvictionPolicy::kValue) result.bucket = ValueBucket(facts);
  if (policy == EvictionPolicy::kFlop) {
    const double share = std::min(1.0, SavedPerPage(facts) / kFlopFullTokensPerPage);
    result.bucket = Clamp(share * (kEvictionBuckets - 1));
  }
  return result;
}

double EvictionScore(EvictionPolicy policy, uint32_t bucket, uint32_t last_use, uint32_t now) {
  switch (policy) {
    case EvictionPolicy::kValue: {
      const double age = now > last_use ? now - last_use : 0;
      return std::exp2((static_cast<int>(bucket) - kUnitBucket) / 2.0) / (age + kAgeOffset);
    }
    case EvictionPolicy::kLru:
      return last_use;
    case EvictionPolicy::kFlop:
      return static_cast<double>(last_use) / std::max(1u, now) +
             kFlopWeight * bucket / (kEvictionBuckets - 1);
  }
  return 0;
}

}  // namespace tessera
