// SPDX-License-Identifier: Apache-2.0
#include "bench/replay_capacity.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

namespace tessera {
namespace {

// Tail, branch point and mark.
constexpr uint64_t kCheckpointsOfRequest = 3;

// Tokens between checkpoints that are placed whatever others asked for; 0: none are.
uint64_t TokensOfEvery(const ReplayOptions& options) {
  const PlacementSpec& placement = options.policy.placement;
  if (placement.kind == PlacementSpec::Kind::kDense) return placement.dense_tokens;
  return placement.kind == PlacementSpec::Kind::kDefault ? options.model.price_tokens() : 0;
}

}  // namespace

uint64_t KnownBlocks(const RequestTrace& trace, const TraceRequest& request) {
  uint64_t ids = 0;
  for (const IdRange& range : trace.Ranges(request)) ids += range.size();
  return std::min(ids, trace.FullBlocks(request));
}

Result<uint64_t> BytesForWholeTrace(const RequestTrace& trace, const ReplayOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const Organisation table,
                           DescribeOrganisation(options.organisation, options.model.shape));
  const uint64_t every = TokensOfEvery(options);
  std::vector<std::unordered_set<uint64_t>> seen(trace.id_spaces);
  uint64_t blocks = 0, checkpoints = 0, longest = 0;
  for (const TraceRequest& request : trace.requests) {
    uint64_t left = KnownBlocks(trace, request), fresh = 0;
    for (const IdRange& range : trace.Ranges(request)) {
      for (uint64_t id = range.first; id <= range.last && left > 0; ++id, --left) {
        fresh += seen[request.id_space].insert(id).second ? 1 : 0;
      }
    }
    // A page may hold the end of what was known and the beginning of what is new.
    blocks += table.AttentionPages(fresh * trace.block_tokens) + 1;
    checkpoints +=
        kCheckpointsOfRequest + (every == 0 ? 0 : fresh * trace.block_tokens / every + 1);
    longest = std::max(longest, request.input_tokens);
  }
  std::vector<uint64_t> pages(table.pools.size(), 1);
  pages[static_cast<size_t>(table.attention_pool)] += blocks + table.AttentionPages(longest);
  if (table.state_pool >= 0) {
    // A slab per slot: what is never too little.
    const uint64_t image = table.state_pages + (table.slot_bytes > 0 ? 1 : 0);
    uint64_t& state = pages[static_cast<size_t>(table.state_pool)];
    state += (checkpoints + 2) * image;
    if (options.policy.placement.kind == PlacementSpec::Kind::kDefault) state += state / 3 + 1;
  }
  return BudgetForPages(table, pages);
}

}  // namespace tessera
