// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/repeated_prefixes.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "base/random.h"

namespace tessera {
namespace {

constexpr size_t kRunTokens = 16;

// Prefixes by a hash of theirs of 64 bits: two of a million differ all the same with a chance of
// 3e-8, and would move a sum by one run.
class SeenPrefixes {
 public:
  // The longest prefix of whole runs that was seen; all of the prompt's are from now on.
  uint64_t Take(const std::vector<int32_t>& tokens) {
    uint64_t hash = 0;
    uint64_t known = 0;
    for (size_t begin = 0; begin + kRunTokens <= tokens.size(); begin += kRunTokens) {
      for (size_t i = begin; i < begin + kRunTokens; ++i) {
        hash = CounterRandom(hash, static_cast<uint32_t>(tokens[i]));
      }
      const bool is_new = seen_.insert(hash).second;
      if (!is_new && known == begin) known = begin + kRunTokens;
    }
    return known;
  }

 private:
  std::unordered_set<uint64_t> seen_;
};

}  // namespace

std::optional<RepeatedPrefixes> CountRepeatedPrefixes(const std::vector<LoadPrompt>& prompts,
                                                      const std::vector<LoadRecord>& records) {
  std::vector<size_t> order(records.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return records[a].start_ns < records[b].start_ns; });
  SeenPrefixes seen;
  RepeatedPrefixes sums;
  for (const size_t i : order) {
    if (!records[i].started) continue;
    if (prompts[i].tokens.empty()) return std::nullopt;
    const uint64_t known = seen.Take(prompts[i].tokens);
    if (records[i].outcome != LoadOutcome::kCompleted) continue;
    if (!records[i].cached_tokens) return std::nullopt;
    const uint64_t reusable = std::min<uint64_t>(known, prompts[i].tokens.size() - 1);
    sums.repeated_tokens += reusable;
    sums.recomputed_tokens += reusable - std::min(reusable, *records[i].cached_tokens);
  }
  return sums;
}

}  // namespace tessera
