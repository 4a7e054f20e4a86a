// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "memory/prefix/prefix_index.h"

namespace tessera {

Status PrefixIndex::Validate(LedgerLock& lock, int level) const {
  TESSERA_CHECK(lock.Guards(*ledger_));
  if (level < 2) return Status::Ok();
  auto wrong = [](std::string what) {
    return Status(StatusCode::kFailed, "prefix index: " + std::move(what));
  };
  if (level >= 3) TESSERA_RETURN_IF_ERROR(tree_.Validate());
  std::vector<uint32_t> citations(citations_.size(), 0);
  uint32_t checkpoints = 0, rows = 0;
  for (uint32_t i = 0; i < tree_.capacity(); ++i) {
    const Node& node = tree_.at(NodeId(i));
    if (!node.has(PrefixTree::kAlive)) continue;
    if (node.block != PrefixTree::kNone) ++citations[node.block];
    if (node.checkpoint != PrefixTree::kNone) {
      ++checkpoints;
      if (checkpoint_node_[node.checkpoint] != NodeId(i)) {
        return wrong(fmt::format("checkpoint {} is at another node than {}", node.checkpoint, i));
      }
    }
    if (node.row != PrefixTree::kNone) {
      ++rows;
      if (row_node_[node.row] != NodeId(i)) {
        return wrong(fmt::format("row {} is at another node than {}", node.row, i));
      }
    }
    for (int pool = 0; pool < ledger_->pool_count(); ++pool) {
      if (Evictable(NodeId(i), pool) && !queues_[static_cast<size_t>(pool)].Contains(i)) {
        return wrong(fmt::format("node {} may be evicted from pool {} and is not listed", i, pool));
      }
    }
  }
  for (uint32_t i = 0; i < citations.size(); ++i) {
    if (ledger_->state(EntryId(EntryType::kBlock, i)) == ReclaimState::kGone) continue;
    if (citations[i] != citations_[i]) {
      return wrong(
          fmt::format("block {} counts {} citations and has {}", i, citations_[i], citations[i]));
    }
    if (citations[i] == 0) continue;
    // All of them from its node up; the node itself is one.
    const NodeId deepest = block_node_[i];
    if (!tree_.at(deepest).has(PrefixTree::kAlive) || tree_.at(deepest).block != i) {
      return wrong(fmt::format("block {} is not at its node {}", i, deepest.index()));
    }
    uint32_t above = 0;
    for (NodeId at = deepest; at != tree_.root(); at = NodeId(tree_.at(at).parent)) {
      above += tree_.at(at).block == i;
    }
    if (above != citations[i]) {
      return wrong(fmt::format("block {} has {} citations, {} of them from its node up", i,
                               citations[i], above));
    }
  }
  const auto linked = [this](EntryType type) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < ledger_->capacity(type); ++i) {
      const ReclaimState state = ledger_->state(EntryId(type, i));
      count += state == ReclaimState::kLive || state == ReclaimState::kFrozen ||
               state == ReclaimState::kIdle;
    }
    return count;
  };
  if (checkpoints != linked(EntryType::kCheckpoint) || rows != linked(EntryType::kRow)) {
    return wrong(fmt::format("{} checkpoints and {} rows hang on nodes, the ledger has {} and {}",
                             checkpoints, rows, linked(EntryType::kCheckpoint),
                             linked(EntryType::kRow)));
  }
  return Status::Ok();
}

}  // namespace tessera
