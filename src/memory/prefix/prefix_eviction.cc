// SPDX-License-Identifier: Apache-2.0
//
// The evicting half of PrefixIndex. What may go are nodes: a leaf gives up its citation of a block,
// a node with a checkpoint the checkpoint; a checkpoint at a leaf takes the attention state that
// only it made useful along, leaf by leaf.
#include <algorithm>

#include "memory/prefix/eviction.h"
#include "memory/prefix/prefix_index.h"

namespace tessera {

struct PrefixIndex::Worth {
  uint32_t pages = 0;         // of the pool that would come free
  uint32_t saved_tokens = 0;  // lost with it
};

// Whether evicting at the node can free pages of the pool, now.
bool PrefixIndex::Evictable(NodeId id, int pool) const {
  const Node& node = tree_.at(id);
  auto idle = [this](EntryType type, uint32_t index) {
    const EntryId entry(type, index);
    if (!ledger_->idle(entry) || ledger_->state(entry) != ReclaimState::kLive) return false;
    return !options_.strict_retention || ledger_->retentions(entry) == 0;
  };
  if (!node.has(PrefixTree::kAlive)) return false;
  if (pool == options_.row_pool) {
    return node.row != PrefixTree::kNone && idle(EntryType::kRow, node.row);
  }
  const bool leaf_block = IsLeaf(node) && node.block != PrefixTree::kNone &&
                          pool == options_.attention_pool && idle(EntryType::kBlock, node.block);
  if (node.checkpoint == PrefixTree::kNone) return leaf_block;
  return idle(EntryType::kCheckpoint, node.checkpoint) &&
         (pool == options_.state_pool || leaf_block);
}

// Up from the node: attention blocks that would lose their last citation, until a node that
// something else needs; on to the nearest checkpoint, for the tokens that would be computed again.
PrefixIndex::Worth PrefixIndex::WorthOf(NodeId id, int pool) const {
  Worth worth;
  const Node& start = tree_.at(id);
  if (start.checkpoint != PrefixTree::kNone && pool == options_.state_pool) {
    const EntryId checkpoint(EntryType::kCheckpoint, start.checkpoint);
    worth.pages += ledger_->kinds().pages_in(EntryType::kCheckpoint, pool);
    const SlotId slot = ledger_->slot(checkpoint);
    if (slot.valid() && ledger_->slabs()->used_in(ledger_->slabs()->PageOf(slot)) == 1) {
      ++worth.pages;
    }
  }
  bool freeing = IsLeaf(start) && pool == options_.attention_pool;
  uint32_t block = PrefixTree::kNone, cited = 0;
  NodeId at = id;
  while (true) {
    const Node& node = tree_.at(at);
    if (node.position == 0) break;
    if (at != id && node.checkpoint != PrefixTree::kNone) break;
    if (at != id && (node.child_count > 1 || node.holds > 0)) freeing = false;
    if (freeing && node.block != PrefixTree::kNone) {
      cited = node.block == block ? cited + 1 : 1;
      block = node.block;
      if (!ledger_->idle(EntryId(EntryType::kBlock, block))) freeing = false;
      if (freeing && cited == citations_[block]) ++worth.pages;
    }
    // Without recurrent layers every node is a boundary.
    if (!has_recurrent()) {
      worth.saved_tokens = node.length;
      return worth;
    }
    at = NodeId(node.parent);
  }
  worth.saved_tokens = start.position - tree_.at(at).position;
  return worth;
}

EvictionClass PrefixIndex::ClassOf(NodeId id, int pool) const {
  const Node& node = tree_.at(id);
  const bool checkpoint = node.checkpoint != PrefixTree::kNone;
  EvictionFacts facts;
  facts.position = node.position;
  facts.last_use = checkpoint ? node.last_use : node.last_seen;
  if (pool == options_.row_pool) return ClassifyForEviction(EvictionPolicy::kLru, facts);
  facts.branches = node.branches;
  // What follows a tail is its sibling: there only the starts tell.
  facts.continued = node.length < kGroupTokens ? node.hits > 0 : node.child_count == 1;
  facts.worthless = has_recurrent() && !checkpoint;
  facts.spare = node.has(PrefixTree::kSpare);
  facts.retained =
      checkpoint && ledger_->retentions(EntryId(EntryType::kCheckpoint, node.checkpoint)) > 0;
  if (!facts.worthless && options_.eviction != EvictionPolicy::kLru) {
    const Worth worth = WorthOf(id, pool);
    facts.pages = worth.pages;
    facts.saved_tokens = worth.saved_tokens;
    facts.price_tokens = options_.price_tokens;
  }
  return ClassifyForEviction(options_.eviction, facts);
}

void PrefixIndex::Consider(LedgerLock& lock, NodeId id) {
  TESSERA_DCHECK(lock.Guards(*ledger_));
  for (int pool = 0; pool < ledger_->pool_count(); ++pool) {
    if (Evictable(id, pool)) {
      queue(pool).Set(id.index(), ClassOf(id, pool));
    } else {
      queue(pool).Erase(id.index());
    }
  }
}

bool PrefixIndex::MakeRoom(LedgerLock& lock, int pool, FunctionRef<bool()> enough) {
  // While a step is open what is evicted drains: all of it would go, and nothing be free.
  if (ledger_->step_open()) return enough();
  ledger_->Resume(lock);  // what an interrupted reclaim had begun to free
  while (!enough()) {
    if (!EvictOne(lock, pool, EvictionRank::kRetained) && !EvictBelowHeld(lock, pool)) return false;
  }
  return true;
}

bool PrefixIndex::MakeRoomUpTo(LedgerLock& lock, int pool, EvictionRank highest,
                               FunctionRef<bool()> enough) {
  if (ledger_->step_open()) return enough();
  while (!enough()) {
    if (!EvictOne(lock, pool, highest)) return false;
  }
  return true;
}

// Classes in the queue may be old: the victim is valued again, and goes only when it is worth no
// more than it was.
bool PrefixIndex::EvictOne(LedgerLock& lock, int pool, EvictionRank highest) {
  const EvictionPolicy policy =
      pool == options_.row_pool ? EvictionPolicy::kLru : options_.eviction;
  while (true) {
    const EvictionQueue::Victim victim = queue(pool).Least(policy, clock_);
    if (victim.id == EvictionQueue::kNone || victim.rank > highest) return false;
    const NodeId id(victim.id);
    if (!Evictable(id, pool)) {
      queue(pool).Erase(victim.id);
      continue;
    }
    const EvictionClass now = ClassOf(id, pool);
    if (now.rank > victim.rank || (now.rank == victim.rank && now.bucket > victim.bucket)) {
      queue(pool).Set(victim.id, now);
      continue;
    }
    const uint64_t invalidated = ledger_->entries_invalidated();
    Evict(lock, id, pool);
    CountReclaim(ledger_->entries_invalidated() - invalidated);
    return true;
  }
}

void PrefixIndex::Evict(LedgerLock& lock, NodeId id, int pool) {
  if (pool == options_.row_pool) return DropRow(lock, id);
  const uint32_t checkpoint = tree_.at(id).checkpoint;
  tree_.Hold(id);                           // until everything at it is settled
  if (!has_recurrent()) DropRow(lock, id);  // N8: also when others still cite the block
  if (checkpoint != PrefixTree::kNone) {
    TESSERA_CHECK(ledger_->Reclaim(lock, EntryId(EntryType::kCheckpoint, checkpoint)));
  } else {
    const EntryId block(EntryType::kBlock, tree_.at(id).block);
    UnciteBlock(id);
    if (citations_[block.index()] == 0) TESSERA_CHECK(ledger_->Reclaim(lock, block));
  }
  tree_.Unhold(id);
  PruneFrom(lock, id);
}

void PrefixIndex::DropRow(LedgerLock& lock, NodeId id) {
  if (tree_.at(id).row == PrefixTree::kNone) return;
  const EntryId row(EntryType::kRow, tree_.at(id).row);
  if (!ledger_->idle(row) || ledger_->state(row) != ReclaimState::kLive) return;
  TESSERA_CHECK(ledger_->Reclaim(lock, row));
}

// What is left idle hangs above or beside something held: a sequence that computed its own copy of
// a prefix holds its end but not the published beginning. It goes although what follows it can then
// not be reused.
bool PrefixIndex::EvictBelowHeld(LedgerLock& lock, int pool) {
  if (pool == options_.row_pool || ledger_->cached_pages(pool) == 0) return false;
  const uint32_t pages = ledger_->pool(pool).total_pages();
  uint32_t& hand = hand_[static_cast<size_t>(pool)];
  for (uint32_t looked = 0; looked < pages; ++looked) {
    const PageId page(hand);
    hand = (hand + 1) % pages;
    if (options_.strict_retention && ledger_->IsRetained(pool, page)) continue;
    const int invalidated = ledger_->ReclaimPage(lock, pool, page);
    if (invalidated <= 0) continue;
    CountReclaim(static_cast<uint64_t>(invalidated));
    return true;
  }
  return false;
}

// A node for something new: the least worth of any pool, until one is free.
bool PrefixIndex::EvictForNode(LedgerLock& lock) {
  while (tree_.size() == tree_.capacity()) {
    bool evicted = false;
    for (int pool = 0; pool < ledger_->pool_count() && !evicted; ++pool) {
      evicted = pool != options_.row_pool && EvictOne(lock, pool, EvictionRank::kRetained);
    }
    if (!evicted) return false;
  }
  return true;
}

uint64_t PrefixIndex::Clear(LedgerLock& lock) {
  ++clears_;
  const uint64_t before = ledger_->entries_invalidated();
  for (int type = kEntryTypes; type > 0; --type) {
    const EntryType kind = static_cast<EntryType>(type - 1);
    for (uint32_t i = 0; i < ledger_->capacity(kind); ++i) {
      const EntryId entry(kind, i);
      if (ledger_->state(entry) != ReclaimState::kGone) ledger_->Reclaim(lock, entry);
    }
  }
  return ledger_->entries_invalidated() - before;
}

}  // namespace tessera
