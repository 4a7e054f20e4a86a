// SPDX-License-Identifier: Apache-2.0
#include "verify/cell_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "memory/geometry/kept_rows.h"
#include "port/process_memory.h"

namespace tessera {
namespace {

// Pages by pool, and slots.
class Demand {
 public:
  explicit Demand(const StateStore& store)
      : store_(store), pages_(store.organisation().pools.size(), 0) {}

  void Add(uint64_t times, uint64_t tokens, bool fork) {
    const StateNeed need = store_.NeedFor(tokens, fork);
    for (size_t i = 0; i < pages_.size(); ++i) pages_[i] += times * need.pages[i];
    slots_ += times * need.slots;
  }

  bool Fits() const {
    std::vector<uint64_t> pages = pages_;
    const Organisation& table = store_.organisation();
    if (slots_ > 0 && table.slots_per_page > 0) {
      pages[static_cast<size_t>(table.state_pool)] += DivideUp(slots_, table.slots_per_page);
    }
    for (size_t i = 0; i < pages.size(); ++i) {
      if (pages[i] > table.pools[i].page_count) return false;
    }
    return true;
  }

 private:
  const StateStore& store_;
  std::vector<uint64_t> pages_;
  uint64_t slots_ = 0;
};

// Boundaries that are published while the cell runs, beside the end of each role.
uint32_t BoundariesOf(const CellSettings& cell, const std::vector<Role>& roles,
                      const Workload& workload) {
  const auto others = static_cast<uint32_t>(roles.size()) - 1;
  switch (cell.reuse) {
    case Reuse::kOff:
      break;
    case Reuse::kHitsEverywhere:
      return static_cast<uint32_t>(workload.scripts[roles[0].script].hit_points.size());
    case Reuse::kHitsAtEdges:  // and the end of each branch
      return 2 * static_cast<uint32_t>(workload.scripts[roles[0].script].hit_points.size());
    case Reuse::kPreempted:
    case Reuse::kEvicted:
      return LeadPreemptions(cell.reuse) + others;
  }
  return 0;
}

bool HasHits(const CellSettings& cell) {
  return cell.reuse == Reuse::kHitsEverywhere || cell.reuse == Reuse::kHitsAtEdges;
}

// Without kept rows.
bool Fits(const StateStore& store, const CellSettings& cell, const std::vector<Role>& roles,
          const Workload& workload) {
  Demand demand(store);
  for (const Role& role : roles) demand.Add(1, workload.scripts[role.script].size(), cell.fork);
  if (cell.reuse == Reuse::kOff) return demand.Fits();
  const uint64_t page_tokens = uint64_t{store.organisation().groups_per_page} * kGroupTokens;
  const uint32_t boundaries = BoundariesOf(cell, roles, workload);
  // An image, and what is published of a page, copied and continued into the next.
  demand.Add(boundaries + roles.size(), page_tokens + kGroupTokens, false);
  if (HasHits(cell)) {
    demand.Add(kAdoptersMax, workload.scripts[roles[0].script].size() + kGroupTokens, cell.fork);
  }
  return demand.Fits();
}

// Bytes of pools for the cell. How much an organisation wastes is its own affair, so they start at
// the bare bytes and grow until everything fits; no memory is touched to find out.
Result<uint64_t> PoolBytesFor(StoreOptions options, const CellSettings& cell,
                              const std::vector<Role>& roles, const Workload& workload) {
  options.dry = true;
  options.reuse.enabled = false;
  options.budget_bytes = 64 * kKiB;
  for (const Role& role : roles) {
    const uint64_t groups = DivideUp(workload.scripts[role.script].size(), kGroupTokens);
    options.budget_bytes +=
        options.shape.planes() *
        (groups * options.shape.group_bytes() + (cell.fork ? 2 : 1) * options.shape.image_bytes());
  }
  for (;; options.budget_bytes += options.budget_bytes / 4) {
    const uint64_t available = AvailableMemoryBytes();
    if (options.budget_bytes > available) {
      return NoMemory(fmt::format("a cell of the matrix needs {} of state, {} is available",
                                  FormatBytes(options.budget_bytes), FormatBytes(available)));
    }
    const auto store = StateStore::Create(options);
    if (!store.has_value()) {
      if (store.error().code() == StatusCode::kNoMemory) continue;
      return store.error();
    }
    if (Fits(**store, cell, roles, workload)) return options.budget_bytes;
  }
}

}  // namespace

Result<std::unique_ptr<StateStore>> MakeCellStore(const Model& model, StateType state_type,
                                                  const CellSettings& cell,
                                                  const std::vector<Role>& roles,
                                                  const Workload& workload) {
  StoreOptions options;
  options.shape = model.shape().state_shape(state_type);
  options.organisation = cell.organisation;
  options.poison = cell.hostile;
  options.shuffle_seed = cell.hostile ? (cell.seed | 1) : 0;
  options.reuse.enabled = cell.reuse != Reuse::kOff;
  options.reuse.contract_id = model.contract_id(state_type);
  options.reuse.row_width = model.shape().width;
  options.reuse.placement.kind = PlacementSpec::Kind::kTail;  // and where the cell names one
  TESSERA_ASSIGN_OR_RETURN(uint64_t bytes, PoolBytesFor(options, cell, roles, workload));
  if (options.reuse.enabled) {
    const KeptRows rows(options.reuse.row_width);
    // A row is kept of each boundary and each end, and a hundredth of a budget keeps rows.
    const uint64_t kept = BoundariesOf(cell, roles, workload) + roles.size();
    bytes = rows.BudgetFor(std::max(bytes, 100 * (kept + 1) * rows.unit_bytes()));
  }
  options.budget_bytes = bytes;
  return StateStore::Create(options);
}

}  // namespace tessera
