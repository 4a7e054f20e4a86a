// SPDX-License-Identifier: Apache-2.0
//
// How much of a load's prompts an earlier prompt of the same load began with: what a server that
// keeps everything, and shares it with everybody, need not compute again. It is counted in whole
// runs of 16 tokens, over requests in the order of their start, and never the last token of a
// prompt, whose logits are wanted.
//
// Of that, what the server's usage does not say was cached was recomputed, whatever the reason:
// evicted, isolated, or not yet there when it was asked for.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/serve/load_record.h"
#include "bench/serve/workload.h"

namespace tessera {

struct RepeatedPrefixes {
  uint64_t repeated_tokens = 0;
  uint64_t recomputed_tokens = 0;
};

// Over completed requests. Absent when a prompt is not token ids, or an answer does not say how
// much of it was cached.
std::optional<RepeatedPrefixes> CountRepeatedPrefixes(const std::vector<LoadPrompt>& prompts,
                                                      const std::vector<LoadRecord>& records);

}  // namespace tessera
