// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "memory/store/sequence_hold.h"
#include "memory/store/state_memory.h"

namespace tessera::store {
namespace {

void AddEntries(const EntryCounts& entries, HoldCounts* holds) {
  holds->held += entries.held;
  holds->pinned += entries.pinned;
  holds->retained += entries.retained;
  holds->cached += entries.cached;
}

}  // namespace

PoolStats StateMemory::StatsOfPool(LedgerLock& lock, size_t index) const {
  const int pool = static_cast<int>(index);
  const LedgerPoolCounts counts = ledger_->counts(lock, pool);
  const PagePool& pages = ledger_->pool(pool);
  PoolStats stats;
  stats.name = table_.pools[index].name;
  stats.unit_bytes = table_.page_bytes_all_planes(pool);
  stats.total_pages = counts.total;
  stats.free_pages = counts.free;
  stats.reserved_pages = counts.reserved;
  stats.draining_pages = counts.draining;
  if (pool == table_.attention_pool) {
    stats.cached_attention_pages =
        ledger_->idle_count(EntryType::kBlock) * ledger_->kinds().pages_in(EntryType::kBlock, pool);
  }
  stats.cached_state_pages = counts.cached - stats.cached_attention_pages;
  stats.held_attention_pages = pages.held_attention_pages() - stats.cached_attention_pages;
  // Pages that drain are those of either kind; there are none between steps.
  stats.held_attention_pages -= std::min(stats.held_attention_pages, counts.draining);
  stats.held_state_pages = counts.held - stats.held_attention_pages;
  if (pool == ledger_->slab_pool()) {
    stats.slab_pages = ledger_->slabs()->slab_pages();
    stats.used_slots = ledger_->slabs()->used_slots();
    stats.total_slots = ledger_->slabs()->total_slots();
  }
  return stats;
}

void StateMemory::AddImageStats(const ImageHold& image, StoreStats* stats, uint64_t* runs) const {
  if (!image.held) return;
  stats->ssm_bytes += shape().ssm_image_bytes() * table_.planes;
  stats->conv_bytes += shape().conv_image_bytes() * table_.planes;
  for (size_t i = 0; i < image.offsets.size(); ++i) {
    const bool goes_on =
        i > 0 && image.offsets[i] == image.offsets[i - 1] + table_.state_unit_bytes;
    if (!goes_on) ++*runs;
  }
}

void StateMemory::AddReuseStats(StoreStats* stats) const {
  ReuseStats& reuse = stats->reuse = reuse_stats_;
  reuse.entries_invalidated = ledger_->entries_invalidated();
  reuse.retained_checkpoints = ledger_->retained_count();
  if (index_ == nullptr) return;
  reuse.blocks = ledger_->count(EntryType::kBlock);
  reuse.checkpoints = ledger_->count(EntryType::kCheckpoint);
  reuse.rows = ledger_->count(EntryType::kRow);
  reuse.row_capacity = ledger_->capacity(EntryType::kRow);
  reuse.nodes = index_->tree().size();
  reuse.node_capacity = index_->tree().capacity();
  const PrefixStats& index = index_->stats();
  reuse.lookups = index.lookups;
  reuse.hits = index.hits;
  reuse.prompt_tokens = index.prompt_tokens;
  reuse.attention_tokens = index.attention_tokens;
  reuse.recurrent_tokens = index.recurrent_tokens;
  reuse.reused_tokens = index.reused_tokens;
  std::copy(std::begin(index.computed_tokens), std::end(index.computed_tokens),
            std::begin(reuse.computed_tokens));
  reuse.published_blocks = index.published_blocks;
  reuse.published_checkpoints = index.published_checkpoints;
  reuse.published_rows = index.published_rows;
  reuse.evicted_blocks = index.evicted_blocks;
  reuse.evicted_checkpoints = index.evicted_checkpoints;
  reuse.evicted_rows = index.evicted_rows;
  reuse.retention_drops = index.retention_drops;
  std::copy(&index.outcomes[0][0], &index.outcomes[0][0] + kLookupResults * kComputeReasons,
            &reuse.outcomes[0][0]);
  reuse.reclaims = index.reclaims;
  reuse.reclaimed_entries = index.reclaimed_entries;
}

StoreStats StateMemory::Stats(LedgerLock& lock) const {
  StoreStats stats;
  stats.budget_bytes = options_.budget_bytes;
  stats.arena_bytes = layout_.bytes;
  stats.row_bytes = layout_.bytes - layout_.rows_start;
  stats.metadata_bytes =
      ledger_->metadata_bytes() + (index_ == nullptr ? 0 : index_->metadata_bytes());
  for (size_t i = 0; i < table_.pools.size(); ++i) stats.pools.push_back(StatsOfPool(lock, i));
  AddReuseStats(&stats);
  const uint64_t token_bytes = shape().kv_bytes_per_token_layer() * shape().attention_layers;
  uint64_t runs = 0, images = 0;
  for (const SequenceHold* sequence = sequences_; sequence != nullptr; sequence = sequence->next_) {
    ++stats.sequences;
    stats.attention_bytes += (sequence->position() - sequence->shared_tokens()) * token_bytes;
    for (int i = 0; i < 2; ++i) {
      AddImageStats(sequence->image(i), &stats, &runs);
      images += sequence->image(i).held ? 1 : 0;
    }
  }
  if (runs > 0) {
    const uint64_t image_bytes = table_.state_pages * table_.state_unit_bytes + table_.slot_bytes;
    stats.mean_run_bytes = static_cast<double>(images * image_bytes) / static_cast<double>(runs);
  }
  return stats;
}

StoreCensus StateMemory::Census(LedgerLock& lock, CensusPaper* paper) const {
  StoreCensus census;
  if (attention() != nullptr) {
    census.block_tokens = page_tokens();
    census.block_bytes = table_.page_bytes_all_planes(table_.attention_pool);
    census.blocks.live =
        StatsOfPool(lock, static_cast<size_t>(table_.attention_pool)).held_attention_pages;
  }
  census.ssm_bytes = shape().ssm_bytes();
  census.conv_bytes = shape().conv_bytes();
  census.row_bytes = rows_.unit_bytes();
  for (const SequenceHold* sequence = sequences_; sequence != nullptr; sequence = sequence->next_) {
    for (int i = 0; i < 2; ++i) {
      census.images.live += sequence->image(i).held && !sequence->image(i).published;
    }
  }
  if (index_ == nullptr) return census;
  const PrefixCensus found = index_->Census(lock, paper);
  AddEntries(found.blocks, &census.blocks);
  // Held pages are those of entries in use, too.
  const uint64_t used = census.blocks.held + census.blocks.pinned;
  census.blocks.live -= std::min(census.blocks.live, used);
  AddEntries(found.checkpoints, &census.images);
  AddEntries(found.rows, &census.rows);
  census.reusable_blocks = found.reusable_blocks;
  census.reusable_images = found.reusable_checkpoints;
  return census;
}

std::vector<BoundaryInfo> StateMemory::Boundaries(LedgerLock& lock, size_t limit,
                                                  size_t prefix_tokens) const {
  TESSERA_CHECK(lock.Guards(*ledger_));
  std::vector<BoundaryInfo> result;
  if (index_ == nullptr) return result;
  std::vector<NodeId> nodes;
  for (uint32_t i = 0; i < index_->tree().capacity(); ++i) {
    if (index_->IsBoundary(NodeId(i))) nodes.push_back(NodeId(i));
  }
  const auto newer = [this](NodeId a, NodeId b) {
    const uint32_t use_a = index_->tree().at(a).last_use, use_b = index_->tree().at(b).last_use;
    return use_a != use_b ? use_a > use_b : a < b;
  };
  limit = std::min(limit, nodes.size());
  std::partial_sort(nodes.begin(), nodes.begin() + static_cast<ptrdiff_t>(limit), nodes.end(),
                    newer);
  for (size_t i = 0; i < limit; ++i) result.push_back(Describe(nodes[i], prefix_tokens));
  return result;
}

uint64_t StateMemory::checkpoint_bytes() const {
  return table_.planes * (image_pages_ * state()->unit_bytes() + table_.slot_bytes);
}

BoundaryInfo StateMemory::Describe(NodeId id, size_t prefix_tokens) const {
  const PrefixTree::Node& node = index_->tree().at(id);
  BoundaryInfo info;
  info.tokens = node.position;
  info.row = node.row != PrefixTree::kNone;
  info.spare = node.has(PrefixTree::kSpare);
  info.salted = index_->IsSalted(id);
  info.hits = node.hits;
  info.lookups_since_use = index_->clock() - node.last_use;
  if (node.checkpoint != PrefixTree::kNone) {
    const EntryId entry(EntryType::kCheckpoint, node.checkpoint);
    info.id = entry.index();
    info.checkpoint = true;
    info.held = !ledger_->idle(entry);
    const uint32_t pins = pins_.count(entry);
    info.pinned = pins > 0;
    info.retained = ledger_->retentions(entry) > pins;
    info.bytes = checkpoint_bytes();
  }
  if (!info.salted) info.prefix = index_->PrefixOf(id, prefix_tokens);
  return info;
}

}  // namespace tessera::store
