// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/prefix_index.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "memory/prefix/isolation.h"
#include "memory/prefix/prefix_finder.h"

namespace tessera {

namespace {

void Increment(uint16_t* count) {
  if (*count < std::numeric_limits<uint16_t>::max()) ++*count;
}

}  // namespace

Lease& Lease::operator=(Lease&& other) noexcept {
  TESSERA_CHECK(!boundary_.valid() && !shared_.valid());
  boundary_ = std::exchange(other.boundary_, NodeId());
  shared_ = std::exchange(other.shared_, NodeId());
  position_ = other.position_;
  shared_tokens_ = other.shared_tokens_;
  checkpoint_ = std::exchange(other.checkpoint_, EntryId());
  row_ = std::exchange(other.row_, EntryId());
  return *this;
}

PublishPath& PublishPath::operator=(PublishPath&& other) noexcept {
  TESSERA_CHECK(!node_.valid());
  node_ = std::exchange(other.node_, NodeId());
  position_ = other.position_;
  isolate_at_ = other.isolate_at_;
  salt_ = other.salt_;
  clears_ = other.clears_;
  return *this;
}

PrefixIndex::PrefixIndex(Ledger* ledger, const Options& options)
    : ledger_(ledger),
      options_(options),
      tree_(options.node_capacity),
      block_node_(ledger->capacity(EntryType::kBlock)),
      citations_(ledger->capacity(EntryType::kBlock), 0),
      checkpoint_node_(ledger->capacity(EntryType::kCheckpoint)),
      row_node_(ledger->capacity(EntryType::kRow)),
      hand_(static_cast<size_t>(ledger->pool_count()), 0) {
  for (int i = 0; i < ledger->pool_count(); ++i) queues_.emplace_back(tree_.capacity());
  ledger_->set_index(this);
}

PrefixIndex::~PrefixIndex() { ledger_->set_index(nullptr); }

// ---- Finding and adopting.

Match PrefixIndex::Find(LedgerLock& lock, const PrefixQuery& query) const {
  TESSERA_DCHECK(lock.Guards(*ledger_));
  return PrefixFinder(tree_,
                      {.contract_id = options_.contract_id,
                       .grid = options_.grid,
                       .attention = has_attention(),
                       .recurrent = has_recurrent()},
                      query)
      .Run();
}

void PrefixIndex::CountLookup(LedgerLock& lock, const Match& match) {
  TESSERA_DCHECK(lock.Guards(*ledger_));
  const MatchReport& report = match.report;
  ++clock_;
  if (match.boundary.valid()) {
    Node& node = tree_.at(match.boundary);
    Increment(&node.hits);
    if (match.own_way) Increment(&node.branches);
    node.last_use = clock_;
  }
  ++stats_.lookups;
  stats_.hits += report.reused > 0 ? 1 : 0;
  ++stats_.outcomes[static_cast<size_t>(report.result())][static_cast<size_t>(report.reason())];
  stats_.prompt_tokens += report.prompt_tokens;
  stats_.attention_tokens += report.attention;
  stats_.recurrent_tokens += report.recurrent;
  stats_.reused_tokens += report.reused;
  for (uint32_t i = 0; i < report.computed_count; ++i) {
    const ComputedRange& range = report.computed[i];
    stats_.computed_tokens[static_cast<size_t>(range.reason)] += range.end - range.begin;
  }
}

Lease PrefixIndex::Adopt(LedgerLock& lock, const Match& match) {
  Lease lease;
  if (!match.boundary.valid()) return lease;
  const uint32_t page_tokens = options_.groups_per_page * kGroupTokens;
  lease.boundary_ = match.boundary;
  lease.position_ = match.report.reused;
  lease.shared_tokens_ = has_attention() ? lease.position_ / page_tokens * page_tokens : 0;
  lease.shared_ = match.boundary;
  while (tree_.at(lease.shared_).position > lease.shared_tokens_) {
    lease.shared_ = NodeId(tree_.at(lease.shared_).parent);
  }
  RefBlocks(lock, lease.boundary_, lease.shared_tokens_, true);
  RefBlocks(lock, lease.shared_, 0, true);
  tree_.Hold(lease.boundary_);
  tree_.Hold(lease.shared_);
  const Node& node = tree_.at(lease.boundary_);
  if (has_recurrent()) {
    lease.checkpoint_ = EntryId(EntryType::kCheckpoint, node.checkpoint);
    ledger_->RefMembers(lock, lease.checkpoint_);
  }
  if (match.report.from_row) {
    lease.row_ = EntryId(EntryType::kRow, node.row);
    ledger_->RefMembers(lock, lease.row_);
  }
  return lease;
}

// Refs (or unrefs) the distinct blocks that nodes from `from` up to position `down_to` cite.
void PrefixIndex::RefBlocks(LedgerLock& lock, NodeId from, uint32_t down_to, bool ref) {
  if (!has_attention()) return;
  uint32_t last = PrefixTree::kNone;
  for (NodeId id = from; tree_.at(id).position > down_to;) {
    Node& node = tree_.at(id);
    if (node.block != last && !node.has(PrefixTree::kNamespace)) {
      last = node.block;
      const EntryId block(EntryType::kBlock, last);
      if (ref) {
        ledger_->RefMembers(lock, block);
      } else {
        ledger_->UnrefMembers(lock, block);
      }
    }
    if (ref) node.last_seen = clock_ + 1;  // the look-up that is about to be counted
    id = NodeId(node.parent);
  }
}

void PrefixIndex::ListGroupPages(LedgerLock& lock, const Lease& lease,
                                 std::span<PageId> pages) const {
  TESSERA_DCHECK(lock.Guards(*ledger_));
  if (!has_attention()) return;
  NodeId id = lease.boundary_;
  for (size_t group = pages.size(); group > 0; id = NodeId(tree_.at(id).parent)) {
    const Node& node = tree_.at(id);
    if (node.has(PrefixTree::kNamespace)) continue;
    pages[--group] = ledger_->pages(EntryId(EntryType::kBlock, node.block))[0];
  }
}

void PrefixIndex::ReleaseSource(LedgerLock& lock, Lease* lease) {
  if (!lease->boundary_.valid()) return;
  const NodeId boundary = std::exchange(lease->boundary_, NodeId());
  tree_.Unhold(boundary);
  RefBlocks(lock, boundary, lease->shared_tokens_, false);
  if (lease->checkpoint_.valid()) ledger_->UnrefMembers(lock, lease->checkpoint_);
  if (lease->row_.valid()) ledger_->UnrefMembers(lock, lease->row_);
  lease->checkpoint_ = lease->row_ = EntryId();
  PruneFrom(lock, boundary);
}

void PrefixIndex::Release(LedgerLock& lock, Lease* lease) {
  ReleaseSource(lock, lease);
  if (!lease->shared_.valid()) return;
  const NodeId shared = std::exchange(lease->shared_, NodeId());
  tree_.Unhold(shared);
  RefBlocks(lock, shared, 0, false);
  PruneFrom(lock, shared);
}

// ---- Publishing.

PublishPath PrefixIndex::OpenPath(LedgerLock& lock, const PrefixQuery& query, const Lease& lease) {
  TESSERA_DCHECK(lock.Guards(*ledger_));
  PublishPath path;
  path.salt_ = query.salt;
  path.isolate_at_ = PublicTokens(query.salt, query.isolate_after);
  if (lease.boundary_.valid()) {
    path.node_ = lease.boundary_;
    // A path goes on from whole groups: of a tail those above it, past the namespace it hangs in.
    const auto is_whole = [](const Node& node) {
      return node.position == 0 ||
             (node.length == kGroupTokens && !node.has(PrefixTree::kNamespace));
    };
    while (!is_whole(tree_.at(path.node_))) path.node_ = NodeId(tree_.at(path.node_).parent);
    path.position_ = tree_.at(path.node_).position;
  } else {
    path.node_ = AddNamespace(lock, tree_.root(), path.isolate_at_ > 0 ? "" : query.salt);
  }
  if (path.node_.valid()) tree_.Hold(path.node_);
  path.clears_ = clears_;
  return path;
}

void PrefixIndex::CloseIfCleared(LedgerLock& lock, PublishPath* path) {
  if (path->clears_ != clears_ && path->position_ > 0) ClosePath(lock, path);
}

void PrefixIndex::ClosePath(LedgerLock& lock, PublishPath* path) {
  if (!path->node_.valid()) return;
  const NodeId node = std::exchange(path->node_, NodeId());
  tree_.Unhold(node);
  PruneFrom(lock, node);
}

NodeId PrefixIndex::AddNamespace(LedgerLock& lock, NodeId parent, std::string_view salt) {
  NodeId node = tree_.AddNamespace(parent, options_.contract_id, salt);
  if (!node.valid() && EvictForNode(lock)) {
    node = tree_.AddNamespace(parent, options_.contract_id, salt);
  }
  return node;
}

NodeId PrefixIndex::AddNode(LedgerLock& lock, NodeId parent, std::span<const TokenId> tokens) {
  const uint64_t hash = PrefixTree::ChildHash(tree_.at(parent).path_hash, tokens);
  NodeId node = tree_.Find(parent, hash, tokens);
  if (node.valid()) return node;
  node = tree_.Add(parent, hash, tokens);
  if (!node.valid() && EvictForNode(lock)) node = tree_.Add(parent, hash, tokens);
  if (node.valid()) {
    tree_.at(node).last_seen = clock_;
    // What it follows is continued from now on.
    Consider(lock, parent);
  }
  return node;
}

NodeId PrefixIndex::AddAfter(LedgerLock& lock, const PublishPath& path,
                             std::span<const TokenId> tokens) {
  if (!EndsPublicPart(path)) return AddNode(lock, path.node_, tokens);
  const NodeId space = AddNamespace(lock, path.node_, path.salt_);
  if (!space.valid()) return space;
  tree_.Hold(space);  // evicting for a node may take what else hangs there
  const NodeId node = AddNode(lock, space, tokens);
  tree_.Unhold(space);
  if (!node.valid()) PruneFrom(lock, space);
  Consider(lock, path.node_);
  return node;
}

bool PrefixIndex::PublishGroup(LedgerLock& lock, PublishPath* path, std::span<const TokenId> tokens,
                               PageId page) {
  TESSERA_CHECK(path->open() && tokens.size() == kGroupTokens);
  const NodeId node = AddAfter(lock, *path, tokens);
  if (!node.valid()) {
    ClosePath(lock, path);
    return false;
  }
  tree_.Hold(node);
  tree_.Unhold(path->node_);
  path->node_ = node;
  path->position_ += kGroupTokens;
  if (page.valid()) CiteBlock(lock, node, page);
  return true;
}

void PrefixIndex::PrefetchGroups(const PublishPath& path, std::span<const TokenId> tokens) const {
  if (!path.open()) return;
  uint64_t hash = tree_.at(path.node_).path_hash;
  const size_t count = std::min(kGroupsAhead, tokens.size() / kGroupTokens);
  for (size_t group = 0; group < count; ++group) {
    hash = PrefixTree::ChildHash(hash, tokens.subspan(group * kGroupTokens, kGroupTokens));
    tree_.Prefetch(hash);
  }
}

NodeId PrefixIndex::PublishTail(LedgerLock& lock, const PublishPath& path,
                                std::span<const TokenId> tokens, PageId page) {
  TESSERA_CHECK(path.open() && tokens.size() < kGroupTokens);
  if (tokens.empty()) return path.node_;
  const NodeId node = AddAfter(lock, path, tokens);
  if (node.valid() && page.valid()) CiteBlock(lock, node, page);
  return node;
}

NodeId PrefixIndex::FindTail(const PublishPath& path, std::span<const TokenId> tokens) const {
  if (tokens.empty()) return path.node_;
  NodeId node = path.node_;
  if (EndsPublicPart(path)) node = tree_.FindNamespace(node, options_.contract_id, path.salt_);
  if (!node.valid()) return node;
  return tree_.Find(node, PrefixTree::ChildHash(tree_.at(node).path_hash, tokens), tokens);
}

// The node's tokens lie in `page`; nothing when it has a block already (N5).
void PrefixIndex::CiteBlock(LedgerLock& lock, NodeId id, PageId page) {
  Node& node = tree_.at(id);
  if (node.block != PrefixTree::kNone) return;
  EntryId block = ledger_->owner(options_.attention_pool, page);
  if (!block.valid()) {
    block = ledger_->Publish(lock, EntryType::kBlock, {&page, 1}, SlotId());
    citations_[block.index()] = 0;
    ++stats_.published_blocks;
  }
  TESSERA_CHECK(block.type() == EntryType::kBlock);
  // A block that is being reclaimed takes nothing new: its bytes are about to go.
  if (ledger_->state(block) != ReclaimState::kLive) return;
  node.block = block.index();
  ++citations_[block.index()];
  block_node_[block.index()] = id;
}

EntryId PrefixIndex::PublishCheckpoint(LedgerLock& lock, NodeId id, std::span<const PageId> pages,
                                       SlotId slot, bool spare) {
  Node& node = tree_.at(id);
  TESSERA_CHECK(node.checkpoint == PrefixTree::kNone);
  const EntryId entry = ledger_->Publish(lock, EntryType::kCheckpoint, pages, slot);
  node.checkpoint = entry.index();
  node.flags &= static_cast<uint8_t>(~(PrefixTree::kCheckpointLost | PrefixTree::kSpare));
  if (spare) node.flags |= PrefixTree::kSpare;
  node.hits = node.branches = 0;
  node.last_use = clock_;
  checkpoint_node_[entry.index()] = id;
  ++stats_.published_checkpoints;
  return entry;
}

EntryId PrefixIndex::PublishRow(LedgerLock& lock, NodeId id, PageId page) {
  Node& node = tree_.at(id);
  TESSERA_CHECK(node.row == PrefixTree::kNone && HasStart(id));
  const EntryId entry = ledger_->Publish(lock, EntryType::kRow, {&page, 1}, SlotId());
  node.row = entry.index();
  row_node_[entry.index()] = id;
  ++stats_.published_rows;
  return entry;
}

void PrefixIndex::Settle(LedgerLock& lock, NodeId node) { PruneFrom(lock, node); }

void PrefixIndex::PruneFrom(LedgerLock& lock, NodeId node) {
  const NodeId left = tree_.Prune(node, [this](NodeId removed) {
    for (EvictionQueue& queue : queues_) queue.Erase(removed.index());
  });
  // The chain it ended goes on being taken back from its end, as a rule.
  if (IsLeaf(tree_.at(left))) PrefetchRemoval(left);
  Consider(lock, left);
}

void PrefixIndex::PrefetchRemoval(NodeId id) const {
  tree_.Prefetch(tree_.at(id).path_hash);
  for (const EvictionQueue& queue : queues_) queue.Prefetch(id.index());
}

// ---- What the ledger says.

NodeId PrefixIndex::NodeOf(EntryId entry) const {
  switch (entry.type()) {
    case EntryType::kBlock:
      return block_node_[entry.index()];
    case EntryType::kCheckpoint:
      return checkpoint_node_[entry.index()];
    case EntryType::kRow:
      return row_node_[entry.index()];
  }
  return NodeId();
}

bool PrefixIndex::IsBoundary(NodeId id) const {
  const Node& node = tree_.at(id);
  if (!node.has(PrefixTree::kAlive)) return false;
  return has_recurrent() ? node.checkpoint != PrefixTree::kNone
                         : node.block != PrefixTree::kNone && node.child_count == 0;
}

bool PrefixIndex::IsSalted(NodeId id) const {
  while (!tree_.at(id).has(PrefixTree::kNamespace)) id = NodeId(tree_.at(id).parent);
  return id != tree_.FindNamespace(tree_.root(), options_.contract_id, "");
}

std::vector<TokenId> PrefixIndex::PrefixOf(NodeId id, size_t count) const {
  std::vector<TokenId> tokens(std::min<size_t>(count, tree_.at(id).position));
  for (; tree_.at(id).position > 0; id = NodeId(tree_.at(id).parent)) {
    const Node& node = tree_.at(id);
    if (node.has(PrefixTree::kNamespace)) continue;
    const size_t begin = node.position - node.length;
    for (size_t i = begin; i < std::min<size_t>(node.position, tokens.size()); ++i) {
      tokens[i] = node.tokens[i - begin];
    }
  }
  return tokens;
}

uint64_t PrefixIndex::metadata_bytes() const {
  const uint64_t per_node = queues_.size() * EvictionQueue::kBytesPerId;
  return tree_.metadata_bytes() + tree_.capacity() * per_node + block_node_.size() * 8 +
         (checkpoint_node_.size() + row_node_.size()) * 4;
}

void PrefixIndex::SetOffered(LedgerLock& lock, EntryId entry, bool offered) {
  TESSERA_DCHECK(lock.Guards(*ledger_));
  // What is withdrawn leaves the queues soon.
  for (const EvictionQueue& queue : queues_) queue.Prefetch(NodeOf(entry).index());
  auto set = [offered](Node& node, uint8_t flag) {
    node.flags = static_cast<uint8_t>(offered ? node.flags & ~flag : node.flags | flag);
  };
  if (entry.type() == EntryType::kCheckpoint) {
    return set(tree_.at(checkpoint_node_[entry.index()]), PrefixTree::kCheckpointWithdrawn);
  }
  if (entry.type() == EntryType::kRow) {
    return set(tree_.at(row_node_[entry.index()]), PrefixTree::kRowWithdrawn);
  }
  NodeId id = block_node_[entry.index()];
  for (uint32_t left = citations_[entry.index()]; left > 0;) {
    Node& node = tree_.at(id);
    if (node.block == entry.index()) {
      set(node, PrefixTree::kBlockWithdrawn);
      PrefetchRemoval(id);
      --left;
    }
    id = NodeId(node.parent);
  }
}

void PrefixIndex::UnciteBlock(NodeId id) {
  Node& node = tree_.at(id);
  const uint32_t block = std::exchange(node.block, PrefixTree::kNone);
  node.flags &= static_cast<uint8_t>(~PrefixTree::kBlockWithdrawn);
  --citations_[block];
  // The deepest is given up first; what is left is above it, not always next to it: between them
  // may be a node whose group was published from another page, and that node may go before.
  if (block_node_[block] != id) return;
  NodeId above(node.parent);
  while (citations_[block] > 0 && tree_.at(above).block != block) {
    above = NodeId(tree_.at(above).parent);
  }
  block_node_[block] = above;
}

void PrefixIndex::Unlink(LedgerLock& lock, EntryId entry) {
  const NodeId id = NodeOf(entry);
  // A leaf that was evicted gave up its citation, and perhaps its node, before.
  if (!id.valid() || !tree_.at(id).has(PrefixTree::kAlive)) {
    TESSERA_CHECK(entry.type() == EntryType::kBlock && citations_[entry.index()] == 0);
    ++stats_.evicted_blocks;
    return;
  }
  tree_.Hold(id);  // until everything at it is settled
  UnlinkFrom(lock, id, entry);
  tree_.Unhold(id);
  PruneFrom(lock, id);
}

void PrefixIndex::UnlinkFrom(LedgerLock& lock, NodeId id, EntryId entry) {
  if (entry.type() == EntryType::kBlock) {
    ++stats_.evicted_blocks;
    NodeId cited = id;
    while (citations_[entry.index()] > 0) {
      const NodeId parent(tree_.at(cited).parent);
      if (tree_.at(cited).block == entry.index()) {
        UnciteBlock(cited);
        if (!has_recurrent()) DropRow(lock, cited);
      }
      cited = parent;
    }
    return;
  }
  Node& node = tree_.at(id);
  // It stays, as a rule, and is valued anew: all that takes is on its way while the node is read.
  for (const EvictionQueue& queue : queues_) queue.PrefetchNeighbours(id.index());
  if (node.block != PrefixTree::kNone) ledger_->Prefetch(EntryId(EntryType::kBlock, node.block));
  if (entry.type() == EntryType::kCheckpoint) {
    ++stats_.evicted_checkpoints;
    if (ledger_->retentions(entry) > 0) ++stats_.retention_drops;
    node.checkpoint = PrefixTree::kNone;
    node.flags &= static_cast<uint8_t>(~(PrefixTree::kCheckpointWithdrawn | PrefixTree::kSpare));
    node.flags |= PrefixTree::kCheckpointLost;
    DropRow(lock, id);
  } else {
    ++stats_.evicted_rows;
    node.row = PrefixTree::kNone;
    node.flags &= static_cast<uint8_t>(~PrefixTree::kRowWithdrawn);
  }
}

void PrefixIndex::BecameIdle(LedgerLock& lock, EntryId entry) { Consider(lock, NodeOf(entry)); }

}  // namespace tessera
