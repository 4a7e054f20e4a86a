// SPDX-License-Identifier: Apache-2.0
//
// PrefixIndex finds the state of a token prefix again: blocks, checkpoints and kept rows of the
// ledger, hung on a tree of prefixes, each kind on its own. A prefix can be reused up to a boundary
// where all the kinds a model has are there; the index says how far that is, and why not further.
// It also chooses what goes when memory is short.
//
//   Find ----> Match --Adopt (same lock)--> Lease --ReleaseSource--> Lease --Release--> (gone)
//                                             |  (source state read)      (shared blocks)
//   OpenPath (at what was adopted) --PublishGroup*--PublishTail/Checkpoint/Row--> ClosePath
//
// N1  Find changes nothing. A Match is good while the lock is held and nothing was published or
//     evicted since.
// N2  Every boundary returned is complete: attention from token 0 on, the checkpoint at exactly
//     this position (models with recurrent layers), the kept row when the whole prompt is reused.
//     What is being reclaimed is not offered.
// N3  Whoever adopts holds a ref on every member it will read: nothing of it can be reclaimed.
//     Releasing takes exactly those refs back.
// N4  Paths of different contract ids share no node, those of different salts only nodes of tokens
//     that both declare public (isolation.h).
// N5  What is published is immutable; a member that is there already is not replaced.
// N6  Eviction takes what is worth least first (eviction.h), leaves before what they hang on, and nothing
//     that is held or pinned. When only what hangs below something held is left it is taken all the
//     same: whatever the ledger counts as cached can be had.
// N7  No call after construction allocates. Decisions depend on the calls made so far only.
// N8  A row hangs only where its prompt could be started from: it goes with the checkpoint of its node
//     or, in a model without recurrent layers, with the block. Held, it goes in its own time.
//
// Blocks are cited by the nodes whose tokens they hold: one in an organisation with pages of 16
// tokens, up to `groups_per_page` in one with larger pages. A leaf that is evicted gives up its
// citation; the page is free when the last one goes.
//
// Failure: publishing says no when every node is in use and none can be had. Threads: all methods
// want the ledger's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "memory/ledger/ledger.h"
#include "memory/prefix/eviction_queue.h"
#include "memory/prefix/match.h"
#include "memory/prefix/policy.h"
#include "memory/prefix/prefix_census.h"
#include "memory/prefix/prefix_tree.h"
#include "port/huge_pages.h"

namespace tessera {

struct PrefixQuery {
  std::span<const TokenId> prompt;
  std::string_view salt;
  uint32_t isolate_after = 0;  // tokens that are public although there is a salt (isolation.h)
  bool from_row = false;       // a reuse of the whole prompt is of use
};

struct Match {
  MatchReport report;
  NodeId boundary;  // of what is reused; invalid when nothing is
  // The prompt does not merely go on after what is known: others went on there, or it ends within.
  // Said by what is there now: who comes back to a way that was evicted goes on.
  bool own_way = false;
};

// Refs on what was adopted; ended by Release under the lock.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { TESSERA_CHECK(!boundary_.valid() && !shared_.valid()); }

  bool held() const { return shared_.valid(); }
  uint32_t position() const { return position_; }
  // Whole pages up to here stay shared; groups after it are to be copied by whoever appends.
  uint32_t shared_tokens() const { return shared_tokens_; }
  EntryId checkpoint() const { return checkpoint_; }  // of the source; invalid without or released
  EntryId row() const { return row_; }
  bool has_source() const { return boundary_.valid(); }

 private:
  friend class PrefixIndex;
  NodeId boundary_;  // while the source is held
  NodeId shared_;    // the node at shared_tokens, while those blocks are held
  uint32_t position_ = 0;
  uint32_t shared_tokens_ = 0;
  EntryId checkpoint_;
  EntryId row_;
};

// Where a sequence publishes next: a full node, or the namespace that its paths begin in, which its
// hold keeps alive.
class PublishPath {
 public:
  PublishPath() = default;
  PublishPath(PublishPath&& other) noexcept { *this = std::move(other); }
  PublishPath& operator=(PublishPath&& other) noexcept;
  ~PublishPath() { TESSERA_CHECK(!node_.valid()); }

  bool open() const { return node_.valid(); }
  uint32_t position() const { return position_; }

 private:
  friend class PrefixIndex;
  NodeId node_;
  uint32_t position_ = 0;
  uint32_t isolate_at_ = 0;  // what follows this position hangs under the salt there
  std::string_view salt_;
  uint64_t clears_ = 0;  // when it was opened
};

struct PrefixStats {
  uint64_t lookups = 0;
  uint64_t hits = 0;  // with anything reused
  uint64_t prompt_tokens = 0;
  uint64_t attention_tokens = 0;  // sum of A_max
  uint64_t recurrent_tokens = 0;  // sum of R_max
  uint64_t reused_tokens = 0;
  uint64_t computed_tokens[kComputeReasons] = {};
  uint64_t published_blocks = 0;
  uint64_t published_checkpoints = 0;
  uint64_t published_rows = 0;
  uint64_t evicted_blocks = 0;
  uint64_t evicted_checkpoints = 0;
  uint64_t evicted_rows = 0;
  uint64_t retention_drops = 0;  // retained checkpoints evicted all the same
  uint64_t outcomes[kLookupResults][kComputeReasons] = {};  // of look-ups
  uint64_t reclaims = 0;                                    // a victim was taken, for its pages
  uint64_t reclaimed_entries = 0;                           // and so many entries went with it
};

class PrefixIndex : public EntryIndex {
 public:
  struct Options {
    uint32_t node_capacity = 1;
    uint64_t contract_id = 0;
    uint32_t groups_per_page = 1;
    uint32_t grid = 1;  // for the reason below_grid
    int attention_pool = -1;
    int state_pool = -1;
    int row_pool = -1;
    uint32_t price_tokens = 0;  // of a checkpoint, in tokens of KV, for its worth
    EvictionPolicy eviction = EvictionPolicy::kValue;
    bool strict_retention = false;  // retained entries are never evicted
  };

  // The ledger must outlive it; it is the ledger's index from now on.
  PrefixIndex(Ledger* ledger, const Options& options);
  ~PrefixIndex() override;

  Match Find(LedgerLock& lock, const PrefixQuery& query) const;
  // Every member the match reads is held from now on.
  Lease Adopt(LedgerLock& lock, const Match& match);
  // The page of each group [0, ⌈position/16⌉) of what was adopted, source still held.
  void ListGroupPages(LedgerLock& lock, const Lease& lease, std::span<PageId> pages) const;
  // The checkpoint and the blocks to be copied were read: only whole shared pages stay held.
  void ReleaseSource(LedgerLock& lock, Lease* lease);
  void Release(LedgerLock& lock, Lease* lease);
  // The request that looked up goes ahead: counts it, in statistics and for what it starts from.
  void CountLookup(LedgerLock& lock, const Match& match);

  // Opens where the lease ends, or at the start of the query's paths, for publishing what comes
  // after it. Not open when every node is in use. The bytes of the query's salt stay where they are
  // until it is closed.
  PublishPath OpenPath(LedgerLock& lock, const PrefixQuery& query, const Lease& lease);
  void ClosePath(LedgerLock& lock, PublishPath* path);
  // Closes it when a Clear has marked to go what it continues: nothing after that could be found.
  void CloseIfCleared(LedgerLock& lock, PublishPath* path);
  // The next 16 tokens, whose attention lies in `page` (invalid: the model has none), which the
  // caller holds. False when there is no node for them: the path is closed.
  bool PublishGroup(LedgerLock& lock, PublishPath* path, std::span<const TokenId> tokens,
                    PageId page);
  // Before many PublishGroup: fetches what the first of them will read. `tokens` are all that come.
  void PrefetchGroups(const PublishPath& path, std::span<const TokenId> tokens) const;
  static constexpr size_t kGroupsAhead = 8;  // as many
  // The node of the path's end or, with tokens (1 to 15), of a tail under it, which is made, with
  // its block in `page`. Invalid when there is no node.
  NodeId PublishTail(LedgerLock& lock, const PublishPath& path, std::span<const TokenId> tokens,
                     PageId page);
  NodeId NodeOf(const PublishPath& path) const { return path.node_; }
  // The node PublishTail would use, if it is there.
  NodeId FindTail(const PublishPath& path, std::span<const TokenId> tokens) const;
  bool HasBlock(NodeId node) const { return tree_.at(node).block != PrefixTree::kNone; }
  bool HasCheckpoint(NodeId node) const { return tree_.at(node).checkpoint != PrefixTree::kNone; }
  bool HasRow(NodeId node) const { return tree_.at(node).row != PrefixTree::kNone; }
  // Whether a row may hang there (N8).
  bool HasStart(NodeId node) const {
    return has_recurrent() ? HasCheckpoint(node) : HasBlock(node);
  }
  // Members are held by the caller. CHECKs that there is none yet and, of a row, HasStart.
  EntryId PublishCheckpoint(LedgerLock& lock, NodeId node, std::span<const PageId> pages,
                            SlotId slot, bool spare);
  EntryId PublishRow(LedgerLock& lock, NodeId node, PageId page);
  // After members were added to a node: drops it if it got none, else makes it evictable in time.
  void Settle(LedgerLock& lock, NodeId node);

  // Evicts until `enough`, or until nothing is left: then false. The other is for optional work: it
  // evicts in order, up to `highest`, and nothing out of order.
  bool MakeRoom(LedgerLock& lock, int pool, FunctionRef<bool()> enough);
  bool MakeRoomUpTo(LedgerLock& lock, int pool, EvictionRank highest, FunctionRef<bool()> enough);
  // Reclaims all that is idle and marks the rest to go when its holds end. Entries invalidated now.
  uint64_t Clear(LedgerLock& lock);

  const PrefixTree& tree() const { return tree_; }
  const PrefixStats& stats() const { return stats_; }
  NodeId NodeOf(EntryId entry) const;
  uint32_t clock() const { return clock_; }
  uint64_t metadata_bytes() const;
  // Whether the node is a boundary that somebody could start from: it has a checkpoint or, in a
  // model without recurrent layers, is the end of a path.
  bool IsBoundary(NodeId node) const;
  bool IsSalted(NodeId node) const;
  // The first tokens of the node's prefix, at most `count`.
  std::vector<TokenId> PrefixOf(NodeId node, size_t count) const;

  // EntryIndex.
  void SetOffered(LedgerLock& lock, EntryId entry, bool offered) override;
  void Unlink(LedgerLock& lock, EntryId entry) override;
  void BecameIdle(LedgerLock& lock, EntryId entry) override;

  // O(nodes), each visited twice at most. The paper is for one census.
  CensusPaper MakeCensusPaper() const;
  PrefixCensus Census(LedgerLock& lock, CensusPaper* paper) const;

  // Level 2: citations, nodes of entries. 3: the tree as well.
  Status Validate(LedgerLock& lock, int level) const;

 private:
  using Node = PrefixTree::Node;

  bool BlockOffered(const Node& node) const {
    return node.block != PrefixTree::kNone && !node.has(PrefixTree::kBlockWithdrawn);
  }
  bool CheckpointOffered(const Node& node) const {
    return node.checkpoint != PrefixTree::kNone && !node.has(PrefixTree::kCheckpointWithdrawn);
  }
  bool has_attention() const { return options_.attention_pool >= 0; }
  bool has_recurrent() const { return options_.state_pool >= 0; }

  NodeId AddNamespace(LedgerLock& lock, NodeId parent, std::string_view salt);
  static bool EndsPublicPart(const PublishPath& path) {
    return path.position_ > 0 && path.position_ == path.isolate_at_;
  }
  // A node after the path's end: under it, or in the salt's namespace where everybody's tokens end.
  // Invalid when there is none for it.
  NodeId AddAfter(LedgerLock& lock, const PublishPath& path, std::span<const TokenId> tokens);
  void RefBlocks(LedgerLock& lock, NodeId from, uint32_t down_to, bool ref);
  void CiteBlock(LedgerLock& lock, NodeId node, PageId page);
  void UnciteBlock(NodeId node);
  void UnlinkFrom(LedgerLock& lock, NodeId node, EntryId entry);
  NodeId AddNode(LedgerLock& lock, NodeId parent, std::span<const TokenId> tokens);
  void PruneFrom(LedgerLock& lock, NodeId node);
  // What taking the node out will touch, each in a place of its own.
  void PrefetchRemoval(NodeId node) const;

  // prefix_census.cc
  void CountEntry(EntryId entry, EntryCounts* counts) const;
  bool MarkPath(NodeId boundary, CensusPaper* paper) const;

  // Eviction (prefix_eviction.cc).
  EvictionQueue& queue(int pool) { return queues_[static_cast<size_t>(pool)]; }
  void Consider(LedgerLock& lock, NodeId node);
  bool IsLeaf(const Node& node) const { return node.child_count == 0 && node.holds == 0; }
  bool Evictable(NodeId node, int pool) const;
  EvictionClass ClassOf(NodeId node, int pool) const;
  struct Worth;
  Worth WorthOf(NodeId node, int pool) const;
  void CountReclaim(uint64_t invalidated) {
    ++stats_.reclaims;
    stats_.reclaimed_entries += invalidated;
  }
  bool EvictOne(LedgerLock& lock, int pool, EvictionRank highest);
  void Evict(LedgerLock& lock, NodeId node, int pool);
  void DropRow(LedgerLock& lock, NodeId node);
  bool EvictBelowHeld(LedgerLock& lock, int pool);
  bool EvictForNode(LedgerLock& lock);

  Ledger* const ledger_;
  const Options options_;
  PrefixTree tree_;
  // By index of the entry.
  HugeVector<NodeId> block_node_;  // the deepest that cites it
  HugeVector<uint32_t> citations_;
  std::vector<NodeId> checkpoint_node_;
  std::vector<NodeId> row_node_;
  std::vector<EvictionQueue> queues_;  // by pool
  std::vector<uint32_t> hand_;         // by pool: where EvictBelowHeld looks next
  uint32_t clock_ = 0;                 // look-ups
  uint64_t clears_ = 0;
  PrefixStats stats_;
};

}  // namespace tessera
