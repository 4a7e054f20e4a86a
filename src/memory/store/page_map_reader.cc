// SPDX-License-Identifier: Apache-2.0
#include "memory/store/page_map_reader.h"

#include <algorithm>

#include "memory/store/sequence_hold.h"

namespace tessera {

std::string_view PageUseName(PageUse use) {
  switch (use) {
    case PageUse::kFree:
      return "free";
    case PageUse::kHeld:
      return "held";
    case PageUse::kCached:
      return "cached";
    case PageUse::kDraining:
      return "draining";
  }
  return "";
}

std::string_view PageContentName(PageContent content) {
  switch (content) {
    case PageContent::kNone:
      return "none";
    case PageContent::kBlock:
      return "block";
    case PageContent::kImage:
      return "image";
    case PageContent::kRow:
      return "row";
    case PageContent::kSlab:
      return "slab";
  }
  return "";
}

namespace store {

PageMapReader::PageMapReader(const StateMemory* memory)
    : memory_(memory), cells_(static_cast<size_t>(memory->ledger().pool_count())) {
  for (size_t pool = 0; pool < cells_.size(); ++pool) {
    cells_[pool].resize(memory_->ledger().pool(static_cast<int>(pool)).total_pages());
  }
}

void PageMapReader::Read(LedgerLock& lock) {
  TESSERA_CHECK(lock.Guards(memory_->ledger()));
  for (size_t pool = 0; pool < cells_.size(); ++pool) ReadPool(static_cast<int>(pool));
  for (const SequenceHold* sequence = memory_->first_sequence(); sequence != nullptr;
       sequence = sequence->next()) {
    ReadSequence(*sequence);
  }
}

void PageMapReader::ReadPool(int pool) {
  const Ledger& ledger = memory_->ledger();
  const PagePool& pages = ledger.pool(pool);
  const bool has_slabs = pool == ledger.slab_pool();
  std::vector<Cell>& cells = cells_[static_cast<size_t>(pool)];
  for (uint32_t i = 0; i < cells.size(); ++i) {
    const PageId page(i);
    Cell& cell = cells[i];
    cell.page.pages = 1;
    if (!pages.IsHeld(page)) continue;
    if (const EntryId entry = ledger.owner(pool, page); entry.valid()) {
      ReadEntry(entry, ledger.refs(pool, page), &cell);
    } else if (has_slabs && ledger.slabs()->used_in(page) > 0) {
      cell.page.use = ledger.SlabIsIdle(page) ? PageUse::kCached : PageUse::kHeld;
      cell.page.content = PageContent::kSlab;
      cell.page.begin = ledger.slabs()->used_in(page);
      cell.page.end = ledger.slabs()->slots_per_page();
    } else {
      cell.page.use = PageUse::kDraining;  // unless a sequence says that it is its own
    }
  }
}

void PageMapReader::ReadEntry(EntryId entry, uint32_t sharers, Cell* cell) const {
  PageRun& page = cell->page;
  page.use = memory_->ledger().idle(entry) ? PageUse::kCached : PageUse::kHeld;
  page.findable = true;
  page.owner = entry.index();
  page.sharers = sharers;
  switch (entry.type()) {
    case EntryType::kBlock:
      page.content = PageContent::kBlock;
      break;
    case EntryType::kCheckpoint:
      page.content = PageContent::kImage;
      break;
    case EntryType::kRow:
      page.content = PageContent::kRow;
      break;
  }
  const NodeId id = memory_->index()->NodeOf(entry);
  if (!id.valid()) return;  // being reclaimed: the index has forgotten it
  const PrefixTree& tree = memory_->index()->tree();
  const PrefixTree::Node* node = &tree.at(id);
  page.end = node->position;
  if (page.content != PageContent::kBlock) return;
  page.begin = (page.end - 1) / memory_->page_tokens() * memory_->page_tokens();
  while (node->position > page.begin && node->parent != kNone)
    node = &tree.at(NodeId(node->parent));
  cell->previous = node->block;
}

void PageMapReader::ReadSequence(const SequenceHold& sequence) {
  PageRun run;
  run.pages = 1;
  run.use = PageUse::kHeld;
  run.owner = sequence.tag();
  run.sharers = 1;
  if (memory_->attention() != nullptr) {
    const int pool = memory_->table().attention_pool;
    run.content = PageContent::kBlock;
    const uint32_t tokens = memory_->page_tokens();
    run.begin = static_cast<uint32_t>(sequence.shared_tokens()) / tokens * tokens;
    for (PageId page : sequence.own_pages()) {
      run.end = run.begin + tokens;
      Claim(pool, page, run);
      run.begin = run.end;
    }
    if (sequence.replaced_page().valid()) {  // its copy has its place
      run.end = run.begin;
      Claim(pool, sequence.replaced_page(), run);
    }
  }
  run.content = PageContent::kImage;
  run.begin = 0;
  run.end = static_cast<uint32_t>(sequence.position());
  for (int i = 0; i < 2; ++i) {
    if (!sequence.image(i).held) continue;
    for (PageId page : sequence.image(i).pages) Claim(memory_->table().state_pool, page, run);
  }
}

void PageMapReader::Claim(int pool, PageId page, const PageRun& run) {
  Cell& cell = cells_[static_cast<size_t>(pool)][page.index()];
  if (!cell.page.findable) cell.page = run;
}

bool PageMapReader::Continues(const PageRun& run, const Cell& last, const Cell& next) {
  const PageRun& page = next.page;
  if (page.use != run.use || page.content != run.content || page.findable != run.findable ||
      page.sharers != run.sharers) {
    return false;
  }
  if (page.content != PageContent::kBlock) {
    return page.owner == run.owner && page.begin == run.begin && page.end == run.end;
  }
  const bool same_path = page.findable ? next.previous == last.page.owner : page.owner == run.owner;
  return same_path && page.begin == run.end;
}

std::vector<PoolPageMap> PageMapReader::Runs() const {
  const Organisation& table = memory_->table();
  std::vector<PoolPageMap> maps;
  for (size_t pool = 0; pool < cells_.size(); ++pool) {
    PoolPageMap& map = maps.emplace_back();
    const bool rows = static_cast<int>(pool) == memory_->row_pool();
    map.name = rows ? "kept rows" : table.pools[pool].name;
    map.page_bytes =
        rows ? memory_->rows().unit_bytes() : table.page_bytes_all_planes(static_cast<int>(pool));
    map.pages = static_cast<uint32_t>(cells_[pool].size());
    const Cell* last = nullptr;
    for (const Cell& cell : cells_[pool]) {
      if (last != nullptr && Continues(map.runs.back(), *last, cell)) {
        ++map.runs.back().pages;
        if (cell.page.content == PageContent::kBlock) map.runs.back().end = cell.page.end;
      } else {
        map.runs.push_back(cell.page);
      }
      last = &cell;
    }
  }
  return maps;
}

}  // namespace store
}  // namespace tessera
