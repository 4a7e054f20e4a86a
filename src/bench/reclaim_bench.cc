// SPDX-License-Identifier: Apache-2.0
#include "bench/reclaim_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "bench/prompt_forest.h"
#include "memory/geometry/organisation.h"
#include "port/clock.h"

namespace tessera {
namespace {

// Slabs of S2 on the 7B geometry: 466, of 16 slots.
constexpr uint64_t kGroupsMax = 1'000'000;

class ReclaimBench {
 public:
  ReclaimBench(const MemoryBenchOptions& options, const Organisation& table, uint64_t groups,
               bool mixed, MemoryBenchReport* report)
      : options_(options),
        mixed_(mixed),
        forest_(table, groups, mixed),
        ledger_(forest_.ledger()),
        report_(report) {}

  void Pages();
  void Slabs();

 private:
  ReclaimTime Line(const char* page) const;
  uint64_t FreePages() const;
  // The node at which the context of the entry ends.
  NodeId ContextOf(EntryId entry) const;
  std::vector<EntryId> EntriesOf(PageId slab) const;
  void Thin(LedgerLock& lock, PageId slab, uint32_t slots);
  void Count(ReclaimTime* line, double of, uint64_t entries, uint64_t contexts, uint64_t pages);

  const MemoryBenchOptions& options_;
  const bool mixed_;
  PromptForest forest_;
  Ledger& ledger_;
  MemoryBenchReport* report_;
  Random random_{2};
};

ReclaimTime ReclaimBench::Line(const char* page) const {
  ReclaimTime line;
  line.organisation = forest_.table().spec.ToString();
  line.page = page;
  line.entries = forest_.groups();
  return line;
}

uint64_t ReclaimBench::FreePages() const {
  uint64_t pages = 0;
  for (int pool = 0; pool < ledger_.pool_count(); ++pool) pages += ledger_.pool(pool).free_pages();
  return pages;
}

// Leaves of random prompts, a checkpoint and then its blocks from the end: each page by itself.
void ReclaimBench::Pages() {
  const Organisation& table = forest_.table();
  ReclaimTime attention = Line("attention"), state = Line("state");
  std::vector<uint32_t> order(forest_.prompts());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.Below(i)]);
  order.resize(std::min<size_t>(order.size(), options_.samples));
  uint64_t attention_pages = 0, state_pages = 0, blocks = 0;
  for (uint32_t prompt : order) {
    const std::span<const PageId> pages = forest_.LeafPages(prompt);
    LedgerLock lock(ledger_);
    const uint64_t before = FreePages();
    const uint64_t begin = NowNs();
    TESSERA_CHECK(ledger_.Reclaim(lock, forest_.LeafCheckpoint(prompt)));
    const uint64_t without = NowNs();
    state_pages += FreePages() - before;
    const uint64_t after = FreePages();
    const uint64_t again = NowNs();
    for (size_t p = pages.size(); p > 0; --p) {
      const int gone = ledger_.ReclaimPage(lock, table.attention_pool, pages[p - 1]);
      TESSERA_CHECK(gone == 1);
    }
    const uint64_t end = NowNs();
    attention_pages += FreePages() - after;
    blocks += pages.size();
    state.ns.Add(static_cast<double>(without - begin));
    attention.ns.Add(static_cast<double>(end - again) / static_cast<double>(pages.size()));
  }
  Count(&attention, static_cast<double>(blocks), blocks, blocks, attention_pages);
  Count(&state, static_cast<double>(order.size()), order.size(), order.size(), state_pages);
  report_->reclaims.push_back(std::move(attention));
  report_->reclaims.push_back(std::move(state));
}

void ReclaimBench::Count(ReclaimTime* line, double of, uint64_t entries, uint64_t contexts,
                         uint64_t pages) {
  line->invalidated = static_cast<double>(entries) / of;
  line->contexts = static_cast<double>(contexts) / of;
  line->pages_freed = static_cast<double>(pages) / of;
}

NodeId ReclaimBench::ContextOf(EntryId entry) const {
  const PrefixTree& tree = forest_.index().tree();
  NodeId node = forest_.index().NodeOf(entry);
  while (tree.at(node).position > PromptForest::kContextTokens) node = NodeId(tree.at(node).parent);
  return node;
}

std::vector<EntryId> ReclaimBench::EntriesOf(PageId slab) const {
  std::vector<EntryId> entries;
  const uint32_t slots = ledger_.slabs()->slots_per_page();
  for (uint32_t i = 0; i < slots; ++i) {
    const EntryId owner = ledger_.slot_owner(SlotId(slab.index() * slots + i));
    if (owner.valid()) entries.push_back(owner);
  }
  return entries;
}

// Reclaims checkpoints of the slab, any, until so many are left.
void ReclaimBench::Thin(LedgerLock& lock, PageId slab, uint32_t slots) {
  std::vector<EntryId> entries = EntriesOf(slab);
  while (entries.size() > slots) {
    const size_t at = random_.Below(entries.size());
    TESSERA_CHECK(ledger_.Reclaim(lock, entries[at]));
    entries.erase(entries.begin() + static_cast<ptrdiff_t>(at));
  }
}

void ReclaimBench::Slabs() {
  const Organisation& table = forest_.table();
  LedgerLock lock(ledger_);
  std::vector<PageId> slabs;  // full ones
  for (uint32_t page = 0; page < ledger_.pool(table.state_pool).total_pages(); ++page) {
    if (ledger_.slabs()->used_in(PageId(page)) == table.slots_per_page) slabs.emplace_back(page);
  }
  std::vector<uint32_t> occupancies;
  for (uint32_t used = 1; used < table.slots_per_page; used *= 2) occupancies.push_back(used);
  occupancies.push_back(table.slots_per_page);
  for (size_t kind = 0; kind < occupancies.size(); ++kind) {
    ReclaimTime line = Line("slab");
    line.slots_used = occupancies[kind];
    line.slots = table.slots_per_page;
    line.owners = mixed_ ? "many" : "few";
    uint64_t entries = 0, contexts = 0, pages = 0;
    std::vector<PageId> chosen;
    for (size_t i = kind; i < slabs.size(); i += occupancies.size()) chosen.push_back(slabs[i]);
    for (PageId slab : chosen) {
      Thin(lock, slab, occupancies[kind]);
      std::set<uint32_t> whose;
      for (EntryId entry : EntriesOf(slab)) whose.insert(ContextOf(entry).index());
      contexts += whose.size();
    }
    for (PageId slab : chosen) {  // apart, so that the nodes just walked are not the ones needed
      const uint64_t before = FreePages();
      const uint64_t begin = NowNs();
      const int gone = ledger_.ReclaimPage(lock, table.state_pool, slab);
      const uint64_t end = NowNs();
      TESSERA_CHECK(gone == static_cast<int>(occupancies[kind]));
      entries += static_cast<uint64_t>(gone);
      pages += FreePages() - before;
      line.ns.Add(static_cast<double>(end - begin));
    }
    if (line.ns.empty()) continue;
    Count(&line, static_cast<double>(line.ns.size()), entries, contexts, pages);
    report_->reclaims.push_back(std::move(line));
  }
}

}  // namespace

Status RunReclaimBench(const MemoryBenchOptions& options, const StateShape& shape, uint64_t most,
                       MemoryBenchReport* report) {
  using Kind = OrganisationSpec::Kind;
  const uint64_t groups = std::min(kGroupsMax, most);
  for (Kind kind : {Kind::kS0, Kind::kS1, Kind::kS2, Kind::kD0, Kind::kS3}) {
    OrganisationSpec spec;
    spec.kind = kind;
    TESSERA_ASSIGN_OR_RETURN(const Organisation table, DescribeOrganisation(spec, shape));
    if (options.progress) options.progress(fmt::format("{}: reclaiming", spec.ToString()));
    ReclaimBench(options, table, groups, /*mixed=*/false, report).Pages();
    if (table.slot_bytes == 0) continue;
    ReclaimBench(options, table, groups, /*mixed=*/false, report).Slabs();
    ReclaimBench(options, table, groups, /*mixed=*/true, report).Slabs();
  }
  return Status::Ok();
}

}  // namespace tessera
