// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/prefix_census.h"

#include "base/check.h"
#include "memory/prefix/prefix_index.h"

namespace tessera {
namespace {

enum Mark : uint8_t { kUnknown, kComplete, kBroken };

}  // namespace

CensusPaper PrefixIndex::MakeCensusPaper() const {
  return {std::vector<uint8_t>(tree_.capacity(), kUnknown),
          std::vector<uint8_t>(ledger_->capacity(EntryType::kBlock), 0)};
}

void PrefixIndex::CountEntry(EntryId entry, EntryCounts* counts) const {
  if (ledger_->pinned(entry)) {
    ++counts->pinned;
  } else if (!ledger_->idle(entry)) {
    ++counts->held;
  } else if (ledger_->retentions(entry) > 0) {
    ++counts->retained;
  } else {
    ++counts->cached;
  }
}

// From a boundary up to what is known of its path, and marks what was walked. No node is walked
// twice, so that all boundaries together cost one visit of each node.
bool PrefixIndex::MarkPath(NodeId boundary, CensusPaper* paper) const {
  NodeId end = boundary;
  uint8_t found = kUnknown;
  while (found == kUnknown) {
    const Node& node = tree_.at(end);
    if (node.position == 0) {
      found = kComplete;
    } else if (paper->nodes[end.index()] != kUnknown) {
      found = paper->nodes[end.index()];
    } else if (has_attention() && !node.has(PrefixTree::kNamespace) && !BlockOffered(node)) {
      found = paper->nodes[end.index()] = kBroken;
    } else {
      end = NodeId(node.parent);
    }
  }
  for (NodeId at = boundary; at != end; at = NodeId(tree_.at(at).parent)) {
    paper->nodes[at.index()] = found;
    const uint32_t block = tree_.at(at).block;
    if (found == kComplete && block != PrefixTree::kNone) paper->blocks[block] = 1;
  }
  return found == kComplete;
}

PrefixCensus PrefixIndex::Census(LedgerLock& lock, CensusPaper* paper) const {
  TESSERA_CHECK(lock.Guards(*ledger_));
  PrefixCensus census;
  uint32_t left = tree_.size();
  for (uint32_t i = 0; left > 0; ++i) {
    const Node& node = tree_.at(NodeId(i));
    if (!node.has(PrefixTree::kAlive)) continue;
    --left;
    // A block is counted where it ends; what is to be reclaimed has an entry and no more offer.
    if (node.block != PrefixTree::kNone && block_node_[node.block] == NodeId(i)) {
      CountEntry(EntryId(EntryType::kBlock, node.block), &census.blocks);
    }
    if (node.row != PrefixTree::kNone) {
      CountEntry(EntryId(EntryType::kRow, node.row), &census.rows);
    }
    if (node.checkpoint != PrefixTree::kNone) {
      CountEntry(EntryId(EntryType::kCheckpoint, node.checkpoint), &census.checkpoints);
    }
    const bool boundary = has_recurrent() ? CheckpointOffered(node) : BlockOffered(node);
    if (boundary && MarkPath(NodeId(i), paper) && has_recurrent()) ++census.reusable_checkpoints;
  }
  for (const uint8_t reusable : paper->blocks) census.reusable_blocks += reusable;
  return census;
}

}  // namespace tessera
