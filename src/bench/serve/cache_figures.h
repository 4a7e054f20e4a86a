// SPDX-License-Identifier: Apache-2.0
//
// What a Tessera server's cache did during a run, from GET /cache before and after it: prompt
// tokens that were looked up, how deep attention state went, how much was reused, and why the rest
// was computed. Other clients of the server are in these figures too.
//
// Recomputed are the tokens that the server had known and computed again: their state was evicted,
// or attention was there without a checkpoint. Under isolation it cannot know;
// bench/serve/repeated_prefixes.h can.
//
// Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/serve/figures.h"

namespace tessera {

// The body of GET /cache, as far as it is read. Absent when it is no Tessera server's.
struct CacheCounters {
  double lookups = 0, hits = 0, prompt_tokens = 0, attention_tokens = 0, recurrent_tokens = 0,
         reused_tokens = 0, evicted_checkpoints = 0, evicted_blocks = 0, forward_tokens = 0;
  std::vector<std::pair<std::string, double>> computed_tokens;  // by reason
};
std::optional<CacheCounters> ParseCacheCounters(const std::string& body);

void AddCacheFigures(const CacheCounters& before, const CacheCounters& after, Figures* figures);

}  // namespace tessera
