// SPDX-License-Identifier: Apache-2.0
//
// LedgerTwin is what a Ledger should say, for tests: sets of who holds what, from which every
// number is counted anew when asked for. Slow, so that it is obvious.
#pragma once

#include <algorithm>
#include <compare>
#include <map>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "memory/ledger/ledger_cases.h"

namespace tessera::testing {

inline constexpr int kSlot = -1;  // the "pool" of slots
struct Key {
  int pool = 0;
  uint32_t index = 0;
  friend auto operator<=>(const Key&, const Key&) = default;
};

struct TwinEntry {
  std::vector<Key> members;
  ReclaimState state = ReclaimState::kLive;
  uint32_t uses = 0, pins = 0, retentions = 0;
  uint64_t serial = 0;  // which of the entries that had this id
};

class LedgerTwin {
 public:
  explicit LedgerTwin(const LedgerCase& of) : reserved(of.pool_pages.size(), 0), of_(of) {}

  std::map<Key, uint32_t> refs;  // never 0
  std::map<EntryId, TwinEntry> entries;
  std::set<Key> draining;
  std::vector<uint32_t> reserved;
  uint32_t reserved_slots = 0;
  int steps = 0;
  uint64_t invalidated = 0, freed = 0, told_idle = 0;
  bool forgets_steps = false;  // a planted fault

  bool Idle(const TwinEntry& entry) const {
    const auto held = [&](const Key& key) { return refs.count(key) > 0; };
    return entry.uses == 0 && entry.pins == 0 &&
           std::none_of(entry.members.begin(), entry.members.end(), held);
  }
  // The entry whose member it is; a Bare one's are nobody's.
  EntryId Owner(const Key& key) const {
    for (const auto& [id, entry] : entries) {
      if (entry.state != ReclaimState::kBare && Has(entry, key)) return id;
    }
    return EntryId();
  }
  bool Free(const Key& key) const {
    if (refs.count(key) + draining.count(key) > 0) return false;
    for (const auto& [id, entry] : entries) {
      if (Has(entry, key)) return false;
    }
    return true;
  }

  void Release(const Key& key) {
    if (steps > 0 && !forgets_steps) {
      draining.insert(key);
    } else {
      ++freed;
    }
  }
  void Ref(const Key& key) { ++refs[key]; }
  void Unref(const Key& key) {
    if (--refs.at(key) > 0) return;
    refs.erase(key);
    const EntryId owner = Owner(key);
    if (!owner.valid()) return Release(key);
    HoldEnded(owner);
  }
  void HoldEnded(EntryId id) {
    const TwinEntry& entry = entries.at(id);
    if (entry.state == ReclaimState::kLive && Idle(entry)) ++told_idle;
  }
  ReclaimState Advance(EntryId id) {
    TwinEntry& entry = entries.at(id);
    switch (entry.state) {
      case ReclaimState::kLive:
        if (entry.pins == 0) entry.state = ReclaimState::kFrozen;
        return entry.state;
      case ReclaimState::kFrozen:
        if (Idle(entry)) entry.state = ReclaimState::kIdle;
        return entry.state;
      case ReclaimState::kIdle:
        ++invalidated;
        return entry.state = ReclaimState::kHidden;
      case ReclaimState::kHidden:
        return entry.state = ReclaimState::kBare;
      default:
        for (const Key& key : entry.members) Release(key);
        entries.erase(id);
        return ReclaimState::kGone;
    }
  }
  bool Reclaim(EntryId id) {
    while (true) {
      const ReclaimState before = entries.at(id).state, now = Advance(id);
      if (now == ReclaimState::kGone) return true;
      if (now == before) return false;
    }
  }
  int ReclaimPage(int pool, uint32_t page) {
    const EntryId owner = Owner({pool, page});
    std::set<EntryId> victims;
    if (owner.valid()) victims.insert(owner);
    if (pool == of_.slab_pool) {
      for (uint32_t slot : SlotsIn(page)) victims.insert(Owner({kSlot, slot}));
    }
    if (victims.empty()) return -1;
    for (EntryId id : victims) {
      if (!id.valid() || !Idle(entries.at(id))) return -1;
      if (entries.at(id).state != ReclaimState::kLive) return -1;
    }
    for (EntryId id : victims) Reclaim(id);
    return static_cast<int>(victims.size());
  }
  void CloseStep() {
    if (--steps > 0) return;
    freed += draining.size();
    draining.clear();
  }

  // Used slots of a slab page, by slot.
  std::set<uint32_t> SlotsIn(uint32_t page) const {
    std::set<uint32_t> slots;
    for (const auto& [slab, used] : Slabs()) {
      if (slab == page) slots = used;
    }
    return slots;
  }
  std::map<uint32_t, std::set<uint32_t>> Slabs() const {
    std::map<uint32_t, std::set<uint32_t>> slabs;
    const auto add = [&](const Key& key) {
      if (key.pool == kSlot) slabs[key.index / of_.slots_per_page].insert(key.index);
    };
    for (const auto& [key, count] : refs) add(key);
    for (const Key& key : draining) add(key);
    for (const auto& [id, entry] : entries) {
      for (const Key& key : entry.members) add(key);
    }
    return slabs;
  }
  uint32_t SparePages(uint32_t slots) const {
    uint32_t free_slots = 0;
    for (const auto& [page, used] : Slabs()) {
      free_slots += of_.slots_per_page - static_cast<uint32_t>(used.size());
    }
    if (slots <= free_slots) return 0;
    return static_cast<uint32_t>(DivideUp(slots - free_slots, of_.slots_per_page));
  }
  LedgerPoolCounts Counts(int pool) const {
    LedgerPoolCounts counts{.total = of_.pool_pages[static_cast<size_t>(pool)]};
    std::set<uint32_t> held, cached, waiting;
    for (const auto& [key, count] : refs) {
      if (key.pool == pool) held.insert(key.index);
    }
    for (const Key& key : draining) {
      if (key.pool == pool) waiting.insert(key.index);
    }
    std::set<EntryId> idle;
    for (const auto& [id, entry] : entries) {
      const bool bare = entry.state == ReclaimState::kBare;
      if (!bare && Idle(entry)) idle.insert(id);
      std::set<uint32_t>& where = bare ? waiting : idle.count(id) > 0 ? cached : held;
      for (const Key& key : entry.members) {
        if (key.pool == pool) where.insert(key.index);
      }
    }
    counts.reserved = reserved[static_cast<size_t>(pool)];
    if (pool == of_.slab_pool) {
      counts.reserved += SparePages(reserved_slots);
      for (const auto& [page, slots] : Slabs()) {
        bool all_idle = true;
        for (uint32_t slot : slots) all_idle = all_idle && idle.count(Owner({kSlot, slot})) > 0;
        (all_idle ? cached : held).insert(page);
      }
    }
    counts.held = static_cast<uint32_t>(held.size());
    counts.cached = static_cast<uint32_t>(cached.size());
    counts.draining = static_cast<uint32_t>(waiting.size());
    counts.free = counts.total - counts.reserved - counts.held - counts.cached - counts.draining;
    return counts;
  }

 private:
  static bool Has(const TwinEntry& entry, const Key& key) {
    return std::find(entry.members.begin(), entry.members.end(), key) != entry.members.end();
  }
  const LedgerCase& of_;
};

}  // namespace tessera::testing
