// SPDX-License-Identifier: Apache-2.0
#include "verify/cell_store.h"

#include <fmt/format.h>

#include <utility>

#include "base/bytes.h"
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
    case Reuse::kHitsAtEdges:  // the subject's, and the end of each branch
      return 2 * static_cast<uint32_t>(workload.scripts[roles[0].script].hit_points.size());
    case Reuse::kPreempted:
    case Reuse::kEvicted:
      return kLeadPreemptions + others * kCompanionPreemptions;
  }
  return 0;
}

bool HasHits(const CellSettings& cell) {
  return cell.reuse == Reuse::kHitsEverywhere || cell.reuse == Reuse::kHitsAtEdges;
}

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
  return demand.Fits() && store.Stats().reuse.row_capacity > boundaries + roles.size();
}

}  // namespace

// How much an organisation wastes is its own affair, so the budget starts at the bare bytes and
// doubles until everything fits.
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
  uint64_t bytes = 64 * kKiB;
  for (const Role& role : roles) {
    const uint64_t groups = DivideUp(workload.scripts[role.script].size(), kGroupTokens);
    bytes += options.shape.planes() * (groups * options.shape.group_bytes() +
                                       (cell.fork ? 2 : 1) * options.shape.image_bytes());
  }
  for (;; bytes *= 2) {
    const uint64_t available = AvailableMemoryBytes();
    if (bytes > available) {
      return NoMemory(fmt::format("a cell of the matrix needs {} of state, {} is available",
                                  FormatBytes(bytes), FormatBytes(available)));
    }
    options.budget_bytes = bytes;
    options.dry = true;  // no memory is touched to find out
    auto store = StateStore::Create(options);
    if (!store.has_value()) {
      if (store.error().code() == StatusCode::kNoMemory) continue;
      return store.error();
    }
    options.dry = false;
    if (Fits(**store, cell, roles, workload)) return StateStore::Create(options);
  }
}

}  // namespace tessera
