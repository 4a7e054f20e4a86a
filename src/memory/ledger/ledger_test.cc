// SPDX-License-Identifier: Apache-2.0
#include "memory/ledger/ledger.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "memory/geometry/model_shapes.h"
#include "memory/ledger/ledger_cases.h"
#include "testing/allocation_count.h"

namespace tessera {
namespace {

using ::tessera::testing::LedgerCase;
using ::tessera::testing::LedgerCases;
using ::tessera::testing::Members;

constexpr EntryType kAllTypes[] = {EntryType::kBlock, EntryType::kCheckpoint, EntryType::kRow};
constexpr char kDies[] = "check failed";

// A hold that is given back nowhere: what dies is the call that made it, not the hold's destructor.
template <typename Hold>
void Leak(Hold hold) {
  new Hold(std::move(hold));
}

// Writes down what the ledger tells, and checks that it is told in time.
struct Listener final : EntryIndex, FreedBytes {
  explicit Listener(Ledger* watched) : ledger(watched) {}

  void SetOffered(LedgerLock&, EntryId entry, bool offered) override {
    log.push_back(fmt::format("{} {}", offered ? "offer" : "hide", Name(entry)));
  }
  void Unlink(LedgerLock&, EntryId entry) override {
    log.push_back(fmt::format("unlink {}", Name(entry)));
    // Logical entries go first: the members are all still its own.
    const std::vector<int> pools(ledger->kinds().page_pools(entry.type()).begin(),
                                 ledger->kinds().page_pools(entry.type()).end());
    for (size_t i = 0; i < pools.size(); ++i) {
      EXPECT_EQ(ledger->owner(pools[i], ledger->pages(entry)[i]), entry);
    }
  }
  void BecameIdle(LedgerLock&, EntryId entry) override {
    log.push_back(fmt::format("idle {}", Name(entry)));
    EXPECT_TRUE(ledger->idle(entry));
  }
  void PageFreed(int pool, PageId page) override {
    freed_pages.insert({pool, page.index()});
    EXPECT_TRUE(ledger->pool(pool).IsHeld(page)) << "told when somebody could have it already";
  }
  void SlotFreed(SlotId slot) override {
    freed_slots.insert(slot.index());
    EXPECT_TRUE(ledger->slabs()->IsUsed(slot));
  }

  static std::string Name(EntryId entry) {
    return fmt::format("{}/{}", static_cast<int>(entry.type()), entry.index());
  }
  std::vector<std::string> TakeLog() { return std::exchange(log, {}); }

  Ledger* ledger;
  std::vector<std::string> log;
  std::set<std::pair<int, uint32_t>> freed_pages;
  std::set<uint32_t> freed_slots;
};

class LedgerTest : public ::testing::TestWithParam<LedgerCase> {
 protected:
  LedgerTest() : ledger(GetParam().Options()), listener(&ledger), lock(ledger) {
    ledger.set_index(&listener);
    ledger.set_freed_bytes(&listener);
  }
  ~LedgerTest() override { Check(); }

  // G1 and everything Validate knows.
  void Check() {
    for (int pool = 0; pool < ledger.pool_count(); ++pool) {
      const LedgerPoolCounts c = ledger.counts(lock, pool);
      EXPECT_EQ(c.total, GetParam().pool_pages[static_cast<size_t>(pool)]);
      EXPECT_EQ(c.free + c.reserved + c.held + c.cached + c.draining, c.total) << "pool " << pool;
      EXPECT_EQ(c.cached, ledger.cached_pages(pool));
    }
    for (int level = 1; level <= 3; ++level) {
      const Status status = ledger.Validate(lock, level);
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
  }

  Members Take(EntryType type) {
    std::optional<Members> members = ::tessera::testing::TakeMembers(lock, ledger, type);
    EXPECT_TRUE(members.has_value());
    Check();
    return *members;
  }
  void Unref(EntryType type, const Members& members) {
    ::tessera::testing::UnrefAll(lock, ledger, type, members);
    Check();
  }
  EntryId Publish(EntryType type, const Members& members) {
    const EntryId entry = ledger.Publish(lock, type, members.pages, members.slot);
    Check();
    return entry;
  }
  EntryId Held(EntryType type) { return Publish(type, Take(type)); }
  EntryId Cached(EntryType type) {
    const EntryId entry = Held(type);
    ledger.UnrefMembers(lock, entry);
    Check();
    return entry;
  }
  ReclaimState Advance(EntryId entry) {
    const ReclaimState state = ledger.Advance(lock, entry);
    Check();
    return state;
  }
  // `steps` arrows: 1 Frozen, 2 Idle, 3 Hidden, 4 Bare, 5 gone.
  void AdvanceBy(EntryId entry, int steps) {
    for (int i = 0; i < steps; ++i) Advance(entry);
  }
  int PoolOf(EntryId entry, size_t member) const {
    return ledger.kinds().page_pools(entry.type())[member];
  }
  // Of an entry that holds all there is: pages of each pool, and of its slab.
  uint32_t PagesIn(EntryType type, int pool) const {
    const bool slab = ledger.kinds().has_slot(type) && pool == ledger.slab_pool();
    return ledger.kinds().pages_in(type, pool) + (slab ? 1 : 0);
  }
  void ExpectAll(EntryType type, uint32_t LedgerPoolCounts::*counter) {
    for (int pool = 0; pool < ledger.pool_count(); ++pool) {
      LedgerPoolCounts expected{.total = ledger.pool(pool).total_pages()};
      expected.free = expected.total - PagesIn(type, pool);
      expected.*counter += PagesIn(type, pool);
      const LedgerPoolCounts counts = ledger.counts(lock, pool);
      EXPECT_EQ(counts.free, expected.free) << pool;
      EXPECT_EQ(counts.held, expected.held) << pool;
      EXPECT_EQ(counts.cached, expected.cached) << pool;
      EXPECT_EQ(counts.draining, expected.draining) << pool;
    }
  }
  void ExpectEverythingFree() {
    for (int pool = 0; pool < ledger.pool_count(); ++pool) {
      EXPECT_EQ(ledger.counts(lock, pool).free, ledger.pool(pool).total_pages()) << pool;
    }
    for (EntryType type : kAllTypes) EXPECT_EQ(ledger.count(type), 0u);
    EXPECT_EQ(ledger.unfinished(), 0u);
  }

  Ledger ledger;
  Listener listener;
  LedgerLock lock;
};

std::string CaseName(const ::testing::TestParamInfo<LedgerCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Of, LedgerTest, ::testing::ValuesIn(LedgerCases()), CaseName);

// Cases whose checkpoints have a slot.
class LedgerSlabTest : public LedgerTest {};
std::vector<LedgerCase> SlabCases() {
  std::vector<LedgerCase> cases;
  for (const LedgerCase& c : LedgerCases()) {
    if (c.slab_pool >= 0) cases.push_back(c);
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Of, LedgerSlabTest, ::testing::ValuesIn(SlabCases()), CaseName);

// Members.

TEST_P(LedgerTest, MembersGoFromFreeToHeldToCachedAndBack) {
  for (EntryType type : kAllTypes) {
    const Members members = Take(type);
    ExpectAll(type, &LedgerPoolCounts::held);
    const EntryId entry = Publish(type, members);
    ExpectAll(type, &LedgerPoolCounts::held);
    EXPECT_EQ(ledger.count(type), 1u);
    Unref(type, members);
    ExpectAll(type, &LedgerPoolCounts::cached);
    ledger.RefMembers(lock, entry);
    ExpectAll(type, &LedgerPoolCounts::held);
    ledger.UnrefMembers(lock, entry);
    ExpectAll(type, &LedgerPoolCounts::cached);
    EXPECT_TRUE(ledger.Reclaim(lock, entry));
    ExpectEverythingFree();
  }
}

TEST_P(LedgerTest, MembersNobodyPublishedAreFreeAfterTheirLastUnref) {
  for (EntryType type : kAllTypes) {
    const Members members = Take(type);
    for (size_t i = 0; i < members.pages.size(); ++i) {
      ledger.Ref(lock, ledger.kinds().page_pools(type)[i], members.pages[i]);
    }
    if (members.slot.valid()) ledger.RefSlot(lock, members.slot);
    Unref(type, members);
    ExpectAll(type, &LedgerPoolCounts::held);
    Unref(type, members);
    ExpectEverythingFree();
  }
}

TEST_P(LedgerTest, AnEntryIsCachedOnlyWhenNoMemberHasARefAndNobodyUsesOrPinsIt) {
  for (EntryType type : kAllTypes) {
    const Members members = Take(type);
    const EntryId entry = Publish(type, members);
    Use use = ledger.BeginUse(lock, entry);
    Pin pin = ledger.BeginPin(lock, entry);
    listener.TakeLog();
    Unref(type, members);
    EXPECT_FALSE(ledger.idle(entry));
    ExpectAll(type, &LedgerPoolCounts::held);
    ledger.EndUse(lock, std::move(use));
    EXPECT_FALSE(ledger.idle(entry));
    ExpectAll(type, &LedgerPoolCounts::held);
    EXPECT_TRUE(listener.TakeLog().empty());
    ledger.EndPin(lock, std::move(pin));
    EXPECT_EQ(listener.TakeLog(), std::vector<std::string>{"idle " + Listener::Name(entry)});
    ExpectAll(type, &LedgerPoolCounts::cached);
    ledger.Reclaim(lock, entry);
  }
}

// Partial release: each member alone keeps the whole entry (an active ref protects its slot and its
// checkpoint).
TEST_P(LedgerTest, OneRefOnOneMemberKeepsTheWholeEntry) {
  for (EntryType type : kAllTypes) {
    const EntryId entry = Cached(type);
    for (size_t i = 0; i < ledger.pages(entry).size(); ++i) {
      ledger.Ref(lock, PoolOf(entry, i), ledger.pages(entry)[i]);
      ExpectAll(type, &LedgerPoolCounts::held);
      EXPECT_EQ(ledger.ReclaimPage(lock, PoolOf(entry, i), ledger.pages(entry)[i]), -1);
      ledger.Unref(lock, PoolOf(entry, i), ledger.pages(entry)[i]);
      ExpectAll(type, &LedgerPoolCounts::cached);
    }
    if (ledger.slot(entry).valid()) {
      ledger.RefSlot(lock, ledger.slot(entry));
      ExpectAll(type, &LedgerPoolCounts::held);
      ledger.UnrefSlot(lock, ledger.slot(entry));
      ExpectAll(type, &LedgerPoolCounts::cached);
    }
    ledger.Reclaim(lock, entry);
  }
}

TEST_P(LedgerTest, RefMembersCountsEveryMemberOfEveryKind) {
  for (EntryType type : kAllTypes) {
    const EntryId entry = Held(type);
    ledger.RefMembers(lock, entry);
    uint32_t members = 0;
    for (size_t i = 0; i < ledger.pages(entry).size(); ++i, ++members) {
      EXPECT_EQ(ledger.refs(PoolOf(entry, i), ledger.pages(entry)[i]), 2u);
      EXPECT_EQ(ledger.owner(PoolOf(entry, i), ledger.pages(entry)[i]), entry);
    }
    if (ledger.slot(entry).valid()) {
      EXPECT_EQ(ledger.slot_owner(ledger.slot(entry)), entry);
    }
    uint32_t registered = 0;
    for (const StateKind& kind : ledger.kinds().kinds()) {
      if (kind.entry == type) registered += kind.pages;
    }
    EXPECT_EQ(members, registered);
    ledger.UnrefMembers(lock, entry);
    EXPECT_FALSE(ledger.Reclaim(lock, entry));
    ledger.Unfreeze(lock, entry);
    ledger.UnrefMembers(lock, entry);
    EXPECT_TRUE(ledger.Reclaim(lock, entry));
  }
  ExpectEverythingFree();
}

TEST_P(LedgerTest, PublishTakesOnlyHeldMembersWithoutAnEntry) {
  for (EntryType type : kAllTypes) {
    const Members members = Take(type);
    for (size_t i = 0; i < members.pages.size(); ++i) {
      Members wrong = members;
      if (members.pages.size() > 1 &&
          ledger.kinds().page_pools(type)[i] == ledger.kinds().page_pools(type)[i == 0 ? 1 : 0]) {
        wrong.pages[i] = members.pages[i == 0 ? 1 : 0];
        EXPECT_DEATH(Publish(type, wrong), kDies) << "a page twice";
      }
      // Nobody holds the lowest free page.
      uint32_t free = 0;
      while (ledger.pool(ledger.kinds().page_pools(type)[i]).IsHeld(PageId(free))) ++free;
      wrong.pages[i] = PageId(free);
      EXPECT_DEATH(Publish(type, wrong), kDies) << "a free page";
      wrong.pages[i] = PageId();
      EXPECT_DEATH(Publish(type, wrong), kDies) << "no page";
    }
    Members wrong = members;
    wrong.pages.push_back(PageId(0));
    EXPECT_DEATH(Publish(type, wrong), kDies) << "a page too many";
    if (members.slot.valid()) {
      wrong = members;
      wrong.slot = SlotId();
      EXPECT_DEATH(Publish(type, wrong), kDies) << "no slot";
      wrong.slot = SlotId(members.slot.index() == 0 ? 1 : members.slot.index() - 1);
      EXPECT_DEATH(Publish(type, wrong), kDies) << "a free slot";
    }
    const EntryId entry = Publish(type, members);
    EXPECT_DEATH(Publish(type, members), kDies) << "held, but another's";
    Unref(type, members);
    EXPECT_DEATH(Publish(type, members), kDies) << "cached";
    ledger.OpenStep(lock);
    ledger.Reclaim(lock, entry);
    EXPECT_DEATH(Publish(type, members), kDies) << "draining";
    ledger.CloseStep(lock);
  }
}

TEST_P(LedgerTest, FreeingTwiceAndHoldingWhatIsFreeAbort) {
  for (EntryType type : kAllTypes) {
    const Members members = Take(type);
    Unref(type, members);
    for (size_t i = 0; i < members.pages.size(); ++i) {
      const int pool = ledger.kinds().page_pools(type)[i];
      EXPECT_DEATH(ledger.Unref(lock, pool, members.pages[i]), kDies);
      EXPECT_DEATH(ledger.Ref(lock, pool, members.pages[i]), kDies);
    }
    if (members.slot.valid()) {
      EXPECT_DEATH(ledger.UnrefSlot(lock, members.slot), kDies);
      EXPECT_DEATH(ledger.RefSlot(lock, members.slot), kDies);
    }
    const EntryId entry = Cached(type);
    EXPECT_DEATH(ledger.UnrefMembers(lock, entry), kDies) << "cached: no ref left to give back";
    ledger.Reclaim(lock, entry);
  }
}

TEST_P(LedgerTest, IdsThatNameNothingAbort) {
  const uint32_t pages = ledger.pool(0).total_pages();
  for (PageId page : {PageId(), PageId(pages)}) {
    EXPECT_DEATH(ledger.Ref(lock, 0, page), kDies);
    EXPECT_DEATH(ledger.Unref(lock, 0, page), kDies);
    EXPECT_DEATH(ledger.owner(0, page), kDies);
  }
  EXPECT_DEATH(ledger.Unref(lock, -1, PageId(0)), kDies);
  EXPECT_DEATH(ledger.Unref(lock, ledger.pool_count(), PageId(0)), kDies);
  EXPECT_DEATH(ledger.UnrefSlot(lock, SlotId()), kDies);
  EXPECT_DEATH(ledger.UnrefSlot(lock, SlotId(1u << 30)), kDies);
  for (EntryId entry : {EntryId(), EntryId(EntryType::kBlock, ledger.capacity(EntryType::kBlock)),
                        EntryId(EntryType::kBlock, 0)}) {
    EXPECT_DEATH(Leak(ledger.BeginUse(lock, entry)), kDies);
    EXPECT_DEATH(Leak(ledger.BeginPin(lock, entry)), kDies);
    EXPECT_DEATH(Leak(ledger.Retain(lock, entry)), kDies);
    EXPECT_DEATH(ledger.RefMembers(lock, entry), kDies);
    EXPECT_DEATH(ledger.Advance(lock, entry), kDies);
    EXPECT_DEATH(ledger.pages(entry), kDies);
    EXPECT_DEATH(ledger.slot(entry), kDies);
  }
}

// Capacity.

TEST_P(LedgerTest, ThereIsAPlaceForAnEntryAsLongAsThereAreMembers) {
  for (EntryType type : kAllTypes) {
    uint32_t most = ~0u;
    for (int pool = 0; pool < ledger.pool_count(); ++pool) {
      const uint32_t pages = ledger.kinds().pages_in(type, pool);
      if (pages > 0) most = std::min(most, ledger.pool(pool).total_pages() / pages);
    }
    if (ledger.kinds().has_slot(type)) {
      most = std::min(
          most, ledger.pool(ledger.slab_pool()).total_pages() * ledger.slabs()->slots_per_page());
    }
    EXPECT_EQ(ledger.capacity(type), most);
    std::vector<EntryId> entries;
    while (std::optional<Members> members = ::tessera::testing::TakeMembers(lock, ledger, type)) {
      entries.push_back(ledger.Publish(lock, type, members->pages, members->slot));
      ledger.UnrefMembers(lock, entries.back());
    }
    Check();
    EXPECT_EQ(ledger.count(type), entries.size());
    // A checkpoint of pages and a slot leaves pages over that fill no further one.
    if (!ledger.kinds().has_slot(type) || ledger.pages(entries[0]).empty()) {
      EXPECT_EQ(entries.size(), most);
    }
    EXPECT_EQ(std::set<EntryId>(entries.begin(), entries.end()).size(), entries.size());
    for (EntryId entry : entries) EXPECT_TRUE(ledger.Reclaim(lock, entry));
    ExpectEverythingFree();
  }
}

// Reclaim.

TEST_P(LedgerTest, AdvanceGoesOneArrowAndTheIndexForgetsBeforeThePagesGo) {
  for (EntryType type : kAllTypes) {
    const EntryId entry = Cached(type);
    const Members members{{ledger.pages(entry).begin(), ledger.pages(entry).end()},
                          ledger.slot(entry)};
    const std::string name = Listener::Name(entry);
    listener.TakeLog();
    const auto owned = [&](EntryId owner) {
      for (size_t i = 0; i < members.pages.size(); ++i) {
        EXPECT_EQ(ledger.owner(PoolOf(entry, i), members.pages[i]), owner);
      }
      if (members.slot.valid()) {
        EXPECT_EQ(ledger.slot_owner(members.slot), owner);
      }
    };
    const uint64_t invalidated = ledger.entries_invalidated();
    EXPECT_EQ(Advance(entry), ReclaimState::kFrozen);
    EXPECT_EQ(listener.TakeLog(), std::vector<std::string>{"hide " + name});
    EXPECT_EQ(Advance(entry), ReclaimState::kIdle);
    EXPECT_TRUE(listener.TakeLog().empty());
    EXPECT_EQ(ledger.entries_invalidated(), invalidated);
    EXPECT_EQ(Advance(entry), ReclaimState::kHidden);
    EXPECT_EQ(listener.TakeLog(), std::vector<std::string>{"unlink " + name});
    EXPECT_EQ(ledger.entries_invalidated(), invalidated + 1);
    ExpectAll(type, &LedgerPoolCounts::cached);
    owned(entry);
    EXPECT_EQ(Advance(entry), ReclaimState::kBare);
    owned(EntryId());
    EXPECT_TRUE(listener.freed_pages.empty() && listener.freed_slots.empty());
    for (size_t i = 0; i < members.pages.size(); ++i) {
      EXPECT_TRUE(ledger.pool(PoolOf(entry, i)).IsHeld(members.pages[i]));
    }
    EXPECT_EQ(Advance(entry), ReclaimState::kGone);
    EXPECT_EQ(ledger.state(entry), ReclaimState::kGone);
    EXPECT_TRUE(listener.TakeLog().empty());
    EXPECT_EQ(std::exchange(listener.freed_pages, {}).size(), members.pages.size());
    EXPECT_EQ(std::exchange(listener.freed_slots, {}).size(), members.slot.valid() ? 1u : 0u);
    ExpectEverythingFree();
    EXPECT_DEATH(Advance(entry), kDies);
  }
}

TEST_P(LedgerTest, BeforeUnlinkItCanBeUndone) {
  for (EntryType type : kAllTypes) {
    for (int steps : {1, 2}) {
      const EntryId entry = Cached(type);
      const std::string name = Listener::Name(entry);
      AdvanceBy(entry, steps);
      listener.TakeLog();
      ledger.Unfreeze(lock, entry);
      Check();
      EXPECT_EQ(listener.TakeLog(), (std::vector<std::string>{"offer " + name, "idle " + name}));
      EXPECT_EQ(ledger.state(entry), ReclaimState::kLive);
      EXPECT_EQ(ledger.unfinished(), 0u);
      ledger.Resume(lock);
      ExpectAll(type, &LedgerPoolCounts::cached);
      ledger.RefMembers(lock, entry);
      Use use = ledger.BeginUse(lock, entry);
      Pin pin = ledger.BeginPin(lock, entry);
      ExpectAll(type, &LedgerPoolCounts::held);
      ledger.EndPin(lock, std::move(pin));
      ledger.EndUse(lock, std::move(use));
      ledger.UnrefMembers(lock, entry);
      EXPECT_TRUE(ledger.Reclaim(lock, entry));
      ExpectEverythingFree();
    }
  }
}

TEST_P(LedgerTest, AnEntryUnfrozenWhileHeldBecomesIdleWhenItsHoldEnds) {
  for (EntryType type : kAllTypes) {
    const EntryId entry = Held(type);
    Advance(entry);
    listener.TakeLog();
    ledger.Unfreeze(lock, entry);
    EXPECT_EQ(listener.TakeLog(), std::vector<std::string>{"offer " + Listener::Name(entry)});
    ledger.UnrefMembers(lock, entry);
    EXPECT_EQ(listener.TakeLog(), std::vector<std::string>{"idle " + Listener::Name(entry)});
    ledger.Reclaim(lock, entry);
  }
}

TEST_P(LedgerTest, AfterUnlinkThereIsNoWayBack) {
  const EntryId entry = Cached(EntryType::kCheckpoint);
  EXPECT_DEATH(ledger.Unfreeze(lock, entry), kDies) << "Live";
  AdvanceBy(entry, 3);
  EXPECT_DEATH(ledger.Unfreeze(lock, entry), kDies) << "Hidden";
  Advance(entry);
  EXPECT_DEATH(ledger.Unfreeze(lock, entry), kDies) << "Bare";
  Advance(entry);
  EXPECT_DEATH(ledger.Unfreeze(lock, entry), kDies) << "gone";
}

TEST_P(LedgerTest, AnEntryThatIsNotLiveGetsNoNewHold) {
  for (EntryType type : kAllTypes) {
    for (int steps = 1; steps <= 5; ++steps) {
      const EntryId entry = Cached(type);
      const Members members{{ledger.pages(entry).begin(), ledger.pages(entry).end()},
                            ledger.slot(entry)};
      AdvanceBy(entry, steps);
      EXPECT_DEATH(Leak(ledger.BeginUse(lock, entry)), kDies) << steps;
      EXPECT_DEATH(Leak(ledger.BeginPin(lock, entry)), kDies) << steps;
      EXPECT_DEATH(Leak(ledger.Retain(lock, entry)), kDies) << steps;
      EXPECT_DEATH(ledger.RefMembers(lock, entry), kDies) << steps;
      for (size_t i = 0; i < members.pages.size(); ++i) {
        EXPECT_DEATH(ledger.Ref(lock, PoolOf(entry, i), members.pages[i]), kDies) << steps;
      }
      if (members.slot.valid()) {
        EXPECT_DEATH(ledger.RefSlot(lock, members.slot), kDies) << steps;
      }
      ledger.Resume(lock);
    }
  }
  ExpectEverythingFree();
}

TEST_P(LedgerTest, AMemberSomebodyHoldsGetsNoFurtherRefWhileItsEntryDrains) {
  for (EntryType type : kAllTypes) {
    const EntryId entry = Held(type);
    Advance(entry);
    for (size_t i = 0; i < ledger.pages(entry).size(); ++i) {
      EXPECT_DEATH(ledger.Ref(lock, PoolOf(entry, i), ledger.pages(entry)[i]), kDies);
    }
    if (ledger.slot(entry).valid()) {
      EXPECT_DEATH(ledger.RefSlot(lock, ledger.slot(entry)), kDies);
    }
    ledger.UnrefMembers(lock, entry);
    ledger.Resume(lock);
  }
  ExpectEverythingFree();
}

TEST_P(LedgerTest, HoldsThereAreGoOnUntilTheyEnd) {
  for (EntryType type : kAllTypes) {
    const EntryId entry = Cached(type);
    Use use = ledger.BeginUse(lock, entry);
    EXPECT_FALSE(ledger.Reclaim(lock, entry));
    EXPECT_EQ(ledger.state(entry), ReclaimState::kFrozen);
    EXPECT_EQ(Advance(entry), ReclaimState::kFrozen);
    ExpectAll(type, &LedgerPoolCounts::held);
    listener.TakeLog();
    ledger.EndUse(lock, std::move(use));
    Check();
    EXPECT_TRUE(listener.TakeLog().empty()) << "an entry that goes is nothing to evict";
    EXPECT_EQ(Advance(entry), ReclaimState::kIdle);
    EXPECT_TRUE(ledger.Reclaim(lock, entry));
  }
  ExpectEverythingFree();
}

TEST_P(LedgerTest, APinnedEntrySurvivesReclaim) {
  for (EntryType type : kAllTypes) {
    const EntryId entry = Cached(type);
    Pin pin = ledger.BeginPin(lock, entry);
    Pin second = ledger.BeginPin(lock, entry);
    listener.TakeLog();
    for (int pins = 2; pins > 0; --pins) {
      EXPECT_TRUE(ledger.pinned(entry));
      EXPECT_EQ(Advance(entry), ReclaimState::kLive);
      EXPECT_FALSE(ledger.Reclaim(lock, entry));
      for (size_t i = 0; i < ledger.pages(entry).size(); ++i) {
        EXPECT_EQ(ledger.ReclaimPage(lock, PoolOf(entry, i), ledger.pages(entry)[i]), -1);
      }
      if (ledger.slot(entry).valid()) {
        const PageId slab = ledger.slabs()->PageOf(ledger.slot(entry));
        EXPECT_EQ(ledger.ReclaimPage(lock, ledger.slab_pool(), slab), -1);
      }
      ledger.Resume(lock);
      EXPECT_EQ(ledger.state(entry), ReclaimState::kLive);
      EXPECT_TRUE(listener.TakeLog().empty());
      ExpectAll(type, &LedgerPoolCounts::held);
      ledger.EndPin(lock, pins == 2 ? std::move(second) : std::move(pin));
    }
    EXPECT_FALSE(ledger.pinned(entry));
    EXPECT_TRUE(ledger.Reclaim(lock, entry));
  }
  ExpectEverythingFree();
}

TEST_P(LedgerTest, ARetentionStopsNoReclaimAndMayOutliveItsEntry) {
  for (EntryType type : kAllTypes) {
    const EntryId first = Cached(type);
    Retention late = ledger.Retain(lock, first);
    EXPECT_EQ(ledger.retentions(first), 1u);
    ExpectAll(type, &LedgerPoolCounts::cached);
    EXPECT_TRUE(ledger.Reclaim(lock, first));
    EXPECT_EQ(ledger.retentions(first), 0u);
    const EntryId second = Cached(type);
    ASSERT_EQ(second, first) << "the index is used again";
    Retention kept = ledger.Retain(lock, second);
    ledger.Release(lock, std::move(late));
    EXPECT_EQ(ledger.retentions(second), 1u) << "another entry's";
    ledger.Release(lock, std::move(kept));
    EXPECT_EQ(ledger.retentions(second), 0u);
    ledger.Reclaim(lock, second);
  }
}

TEST_P(LedgerTest, AReclaimInterruptedAfterAnyStepIsResumed) {
  for (EntryType type : kAllTypes) {
    for (int steps = 1; steps <= 4; ++steps) {
      const EntryId entry = Cached(type);
      AdvanceBy(entry, steps);
      EXPECT_EQ(ledger.unfinished(), 1u);
      ledger.Resume(lock);
      Check();
      EXPECT_EQ(ledger.state(entry), ReclaimState::kGone);
      ExpectEverythingFree();
    }
  }
}

TEST_P(LedgerTest, ResumeEndsAllInterruptedReclaimsButThoseOfHeldEntries) {
  std::vector<EntryId> entries;
  for (EntryType type : {EntryType::kCheckpoint, EntryType::kBlock}) {
    for (int i = 0; i < 3; ++i) entries.push_back(Cached(type));
  }
  const EntryId held = Held(EntryType::kBlock);
  AdvanceBy(entries[0], 4);
  AdvanceBy(entries[3], 1);
  Advance(held);
  AdvanceBy(entries[1], 2);
  AdvanceBy(entries[4], 3);
  EXPECT_EQ(ledger.unfinished(), 5u);
  ledger.Resume(lock);
  Check();
  EXPECT_EQ(ledger.unfinished(), 1u);
  EXPECT_EQ(ledger.state(held), ReclaimState::kFrozen);
  for (size_t i : {0, 1, 3, 4}) EXPECT_EQ(ledger.state(entries[i]), ReclaimState::kGone) << i;
  for (size_t i : {2, 5}) EXPECT_EQ(ledger.state(entries[i]), ReclaimState::kLive) << i;
  ledger.UnrefMembers(lock, held);
  ledger.Resume(lock);
  EXPECT_EQ(ledger.state(held), ReclaimState::kGone);
  for (size_t i : {2, 5}) EXPECT_TRUE(ledger.Reclaim(lock, entries[i]));
  ExpectEverythingFree();
}

TEST_P(LedgerTest, ReclaimPageTakesTheEntryOfAnyMember) {
  for (EntryType type : kAllTypes) {
    for (size_t i = 0; i < ledger.kinds().page_pools(type).size(); ++i) {
      const EntryId entry = Cached(type), other = Cached(type);
      EXPECT_EQ(ledger.ReclaimPage(lock, PoolOf(entry, i), ledger.pages(entry)[i]), 1);
      Check();
      EXPECT_EQ(ledger.state(entry), ReclaimState::kGone);
      EXPECT_EQ(ledger.state(other), ReclaimState::kLive);
      EXPECT_TRUE(ledger.Reclaim(lock, other));
    }
    const Members members = Take(type);
    for (size_t i = 0; i < members.pages.size(); ++i) {
      const int pool = ledger.kinds().page_pools(type)[i];
      EXPECT_EQ(ledger.ReclaimPage(lock, pool, members.pages[i]), -1) << "no entry's";
    }
    Unref(type, members);
    for (size_t i = 0; i < members.pages.size(); ++i) {
      const int pool = ledger.kinds().page_pools(type)[i];
      EXPECT_EQ(ledger.ReclaimPage(lock, pool, members.pages[i]), -1) << "free";
    }
  }
}

TEST_P(LedgerTest, ReclaimPageLeavesAReclaimThatAnotherBegan) {
  for (EntryType type : kAllTypes) {
    for (int steps = 1; steps <= 4; ++steps) {
      const EntryId entry = Cached(type);
      const Members members{{ledger.pages(entry).begin(), ledger.pages(entry).end()},
                            ledger.slot(entry)};
      AdvanceBy(entry, steps);
      const ReclaimState state = ledger.state(entry);
      for (size_t i = 0; i < members.pages.size(); ++i) {
        EXPECT_EQ(ledger.ReclaimPage(lock, PoolOf(entry, i), members.pages[i]), -1);
      }
      if (members.slot.valid()) {
        const PageId slab = ledger.slabs()->PageOf(members.slot);
        EXPECT_EQ(ledger.ReclaimPage(lock, ledger.slab_pool(), slab), -1);
      }
      EXPECT_EQ(ledger.state(entry), state);
      ledger.Resume(lock);
    }
  }
}

// Slabs.

TEST_P(LedgerSlabTest, BeforeASlabPageGoesEveryCheckpointInItIsInvalidated) {
  std::vector<EntryId> entries;
  for (int i = 0; i < 4; ++i) entries.push_back(Cached(EntryType::kCheckpoint));
  const EntryId block = Cached(EntryType::kBlock);
  const PageId slab = ledger.slabs()->PageOf(ledger.slot(entries[0]));
  listener.TakeLog();
  EXPECT_EQ(ledger.ReclaimPage(lock, ledger.slab_pool(), slab), 4);
  Check();
  std::multiset<std::string> unlinked;
  for (const std::string& line : listener.TakeLog()) {
    if (line.starts_with("unlink")) unlinked.insert(line);
  }
  std::multiset<std::string> expected;
  for (EntryId entry : entries) {
    expected.insert("unlink " + Listener::Name(entry));
    EXPECT_EQ(ledger.state(entry), ReclaimState::kGone);
  }
  EXPECT_EQ(unlinked, expected);
  EXPECT_FALSE(ledger.pool(ledger.slab_pool()).IsHeld(slab));
  EXPECT_EQ(ledger.state(block), ReclaimState::kLive);
  EXPECT_TRUE(ledger.Reclaim(lock, block));
  ExpectEverythingFree();
}

TEST_P(LedgerSlabTest, ASlabWithAHeldSlotIsNoVictimAndNothingInItHappens) {
  std::vector<EntryId> entries;
  for (int i = 0; i < 3; ++i) entries.push_back(Cached(EntryType::kCheckpoint));
  const EntryId last = entries[2];
  const PageId slab = ledger.slabs()->PageOf(ledger.slot(last));
  const uint32_t cached = ledger.cached_pages(ledger.slab_pool());
  const uint32_t pages = ledger.kinds().pages_in(EntryType::kCheckpoint, ledger.slab_pool());
  const auto refused = [&](const char* why) {
    listener.TakeLog();
    EXPECT_EQ(ledger.ReclaimPage(lock, ledger.slab_pool(), slab), -1) << why;
    EXPECT_TRUE(listener.TakeLog().empty()) << why;
    for (EntryId entry : entries) EXPECT_NE(ledger.state(entry), ReclaimState::kGone) << why;
    EXPECT_EQ(ledger.state(entries[0]), ReclaimState::kLive);
    Check();
  };
  Use use = ledger.BeginUse(lock, last);
  EXPECT_EQ(ledger.cached_pages(ledger.slab_pool()), cached - pages - 1) << "the slab counts whole";
  refused("used");
  ledger.EndUse(lock, std::move(use));
  EXPECT_EQ(ledger.cached_pages(ledger.slab_pool()), cached);
  Pin pin = ledger.BeginPin(lock, last);
  refused("pinned");
  ledger.EndPin(lock, std::move(pin));
  ledger.RefSlot(lock, ledger.slot(last));
  refused("its slot shared");
  ledger.UnrefSlot(lock, ledger.slot(last));
  if (pages > 0) {
    ledger.Ref(lock, ledger.slab_pool(), ledger.pages(last)[0]);
    refused("a page of its checkpoint shared");
    ledger.Unref(lock, ledger.slab_pool(), ledger.pages(last)[0]);
  }
  const Members written = Take(EntryType::kCheckpoint);
  ASSERT_EQ(ledger.slabs()->PageOf(written.slot), slab);
  refused("one slot being written");
  Unref(EntryType::kCheckpoint, written);
  EXPECT_EQ(ledger.cached_pages(ledger.slab_pool()), cached);
  Advance(last);
  refused("another reclaims one");
  ledger.Unfreeze(lock, last);
  ledger.OpenStep(lock);
  const Members freed = Take(EntryType::kCheckpoint);
  Unref(EntryType::kCheckpoint, freed);
  refused("one slot draining");
  ledger.CloseStep(lock);
  EXPECT_EQ(ledger.ReclaimPage(lock, ledger.slab_pool(), slab), 3);
  ExpectEverythingFree();
}

TEST_P(LedgerSlabTest, AFreeSlotIsReusedAloneFromTheFullestSlab) {
  const uint32_t n = ledger.slabs()->slots_per_page();
  // Slots only, so that several slabs fit beside each other.
  SlotReservation promised = *ledger.slabs()->Reserve(3 * n);
  std::vector<SlotId> slots;
  for (uint32_t i = 0; i < 3 * n; ++i) slots.push_back(ledger.TakeSlot(lock, &promised));
  Check();
  const PageId fullest = ledger.slabs()->PageOf(slots[n]);
  ledger.UnrefSlot(lock, slots[0]);
  ledger.UnrefSlot(lock, slots[1]);
  ledger.UnrefSlot(lock, slots[n]);
  ledger.UnrefSlot(lock, slots[2 * n]);
  ledger.UnrefSlot(lock, slots[2 * n + 1]);
  const uint32_t free = ledger.counts(lock, ledger.slab_pool()).free;
  listener.TakeLog();
  SlotReservation one = *ledger.slabs()->Reserve(1);
  const SlotId again = ledger.TakeSlot(lock, &one);
  EXPECT_EQ(ledger.slabs()->PageOf(again), fullest);
  EXPECT_EQ(again, slots[n]);
  EXPECT_EQ(ledger.counts(lock, ledger.slab_pool()).free, free);
  EXPECT_TRUE(listener.TakeLog().empty()) << "invalidates nobody";
  Check();
  for (uint32_t i = 0; i < 3 * n; ++i) {
    const bool gone = i < 2 || i == 2 * n || i == 2 * n + 1;
    if (!gone) ledger.UnrefSlot(lock, slots[i]);
  }
  ExpectEverythingFree();
}

TEST_P(LedgerSlabTest, ReclaimingOneCheckpointFreesItsSlotAndNotItsSlab) {
  const EntryId first = Cached(EntryType::kCheckpoint), second = Cached(EntryType::kCheckpoint);
  const SlotId slot = ledger.slot(first);
  const PageId slab = ledger.slabs()->PageOf(slot);
  EXPECT_TRUE(ledger.Reclaim(lock, first));
  Check();
  EXPECT_FALSE(ledger.slabs()->IsUsed(slot));
  EXPECT_TRUE(ledger.pool(ledger.slab_pool()).IsHeld(slab));
  EXPECT_EQ(ledger.state(second), ReclaimState::kLive);
  ExpectAll(EntryType::kCheckpoint, &LedgerPoolCounts::cached);
  EXPECT_TRUE(ledger.Reclaim(lock, second));
  ExpectEverythingFree();
}

// Steps.

TEST_P(LedgerTest, WhatIsFreedWhileAStepIsOpenDrainsUntilNoneIs) {
  for (EntryType type : kAllTypes) {
    const EntryId entry = Cached(type);
    const Members members = Take(type);
    const Members cached{{ledger.pages(entry).begin(), ledger.pages(entry).end()},
                         ledger.slot(entry)};
    std::vector<uint32_t> free;
    for (int pool = 0; pool < ledger.pool_count(); ++pool) {
      free.push_back(ledger.counts(lock, pool).free);
    }
    ledger.OpenStep(lock);
    ledger.OpenStep(lock);
    EXPECT_TRUE(ledger.Reclaim(lock, entry));
    Unref(type, members);
    for (int closed = 0; closed < 2; ++closed) {
      for (int pool = 0; pool < ledger.pool_count(); ++pool) {
        const LedgerPoolCounts counts = ledger.counts(lock, pool);
        EXPECT_EQ(counts.free, free[static_cast<size_t>(pool)]) << "pool " << pool;
        EXPECT_EQ(counts.draining, 2 * ledger.kinds().pages_in(type, pool));
        EXPECT_FALSE(ledger.pool(pool).Reserve(counts.free + 1).has_value());
      }
      EXPECT_TRUE(listener.freed_pages.empty() && listener.freed_slots.empty());
      for (size_t i = 0; i < members.pages.size(); ++i) {
        const int pool = ledger.kinds().page_pools(type)[i];
        EXPECT_DEATH(ledger.Ref(lock, pool, members.pages[i]), kDies);
        EXPECT_DEATH(ledger.Unref(lock, pool, cached.pages[i]), kDies);
      }
      if (members.slot.valid()) {
        EXPECT_TRUE(ledger.slabs()->IsUsed(members.slot) && ledger.slabs()->IsUsed(cached.slot));
        SlotReservation one = *ledger.slabs()->Reserve(1);
        const SlotId other = ledger.TakeSlot(lock, &one);
        EXPECT_TRUE(other != members.slot && other != cached.slot);
        ledger.UnrefSlot(lock, other);
        Check();
      }
      if (closed == 0) ledger.CloseStep(lock);
    }
    ledger.CloseStep(lock);
    Check();
    ExpectEverythingFree();
    EXPECT_EQ(std::exchange(listener.freed_pages, {}).size(), 2 * members.pages.size());
    listener.freed_slots.clear();
  }
  EXPECT_DEATH(ledger.CloseStep(lock), kDies);
}

TEST_P(LedgerTest, AReclaimBegunBeforeAStepAndEndedInItDrainsToo) {
  for (int steps = 1; steps <= 4; ++steps) {
    const EntryId entry = Cached(EntryType::kCheckpoint);
    AdvanceBy(entry, steps);
    ledger.OpenStep(lock);
    ledger.Resume(lock);
    Check();
    EXPECT_TRUE(listener.freed_pages.empty() && listener.freed_slots.empty());
    ledger.CloseStep(lock);
    EXPECT_FALSE(listener.freed_pages.empty() && listener.freed_slots.empty());
    listener.freed_pages.clear();
    listener.freed_slots.clear();
    ExpectEverythingFree();
  }
}

TEST(Ledger, IsNotDestroyedInsideAStep) {
  EXPECT_DEATH(
      {
        Ledger ledger(LedgerCases()[0].Options());
        LedgerLock lock(ledger);
        ledger.OpenStep(lock);
        ledger.~Ledger();
      },
      kDies);
}

// Allocation.

TEST_P(LedgerTest, NoCallAllocates) {
  ledger.set_index(nullptr);
  ledger.set_freed_bytes(nullptr);
  std::vector<Members> members;
  for (EntryType type : kAllTypes) members.push_back(Take(type));
  for (EntryType type : kAllTypes) Unref(type, members[static_cast<size_t>(type)]);
  const uint64_t before = testing::AllocationCount();
  for (int round = 0; round < 6; ++round) {
    if (round % 2 == 1) ledger.OpenStep(lock);
    for (EntryType type : kAllTypes) {
      Members& m = members[static_cast<size_t>(type)];
      size_t at = 0;
      for (const StateKind& kind : ledger.kinds().kinds()) {
        if (kind.entry != type) continue;
        Reservation pages = *ledger.pool(kind.pool).Reserve(kind.pages);
        ledger.TakeImage(lock, kind.pool, &pages, std::span(m.pages).subspan(at, kind.pages));
        at += kind.pages;
        if (!kind.slot) continue;
        SlotReservation slot = *ledger.slabs()->Reserve(1);
        m.slot = ledger.TakeSlot(lock, &slot);
      }
      const EntryId entry = ledger.Publish(lock, type, m.pages, m.slot);
      ledger.RefMembers(lock, entry);
      Use use = ledger.BeginUse(lock, entry);
      Pin pin = ledger.BeginPin(lock, entry);
      Retention retention = ledger.Retain(lock, entry);
      ledger.EndPin(lock, std::move(pin));
      ledger.Advance(lock, entry);
      ledger.Unfreeze(lock, entry);
      ledger.EndUse(lock, std::move(use));
      ledger.Release(lock, std::move(retention));
      ledger.UnrefMembers(lock, entry);
      ledger.UnrefMembers(lock, entry);
      if (round % 3 == 0) {
        ledger.Advance(lock, entry);
        ledger.Resume(lock);
      } else if (m.slot.valid()) {
        ledger.ReclaimPage(lock, ledger.slab_pool(), ledger.slabs()->PageOf(m.slot));
      } else {
        ledger.ReclaimPage(lock, ledger.kinds().page_pools(type)[0], m.pages[0]);
      }
    }
    if (round % 2 == 1) ledger.CloseStep(lock);
  }
  EXPECT_EQ(testing::AllocationCount() - before, 0u);
  ExpectEverythingFree();
}

// Holds.

TEST(Ledger, AHoldIsMovedGivenBackAndNeverLost) {
  Ledger ledger(LedgerCases()[0].Options());
  LedgerLock lock(ledger);
  const Members members = *::tessera::testing::TakeMembers(lock, ledger, EntryType::kBlock);
  const EntryId entry = ledger.Publish(lock, EntryType::kBlock, members.pages, members.slot);
  Use first = ledger.BeginUse(lock, entry);
  Use moved = std::move(first);
  EXPECT_FALSE(first.held());
  EXPECT_TRUE(moved.held());
  EXPECT_EQ(moved.entry(), entry);
  EXPECT_DEATH({ moved = ledger.BeginUse(lock, entry); }, kDies) << "the one it had is lost";
  EXPECT_DEATH({ Use dropped = ledger.BeginUse(lock, entry); }, kDies);
  EXPECT_DEATH({ Pin dropped = ledger.BeginPin(lock, entry); }, kDies);
  EXPECT_DEATH(ledger.EndUse(lock, Use()), kDies);
  first = std::move(moved);
  ledger.EndUse(lock, std::move(first));
  ledger.UnrefMembers(lock, entry);
  EXPECT_TRUE(ledger.idle(entry));
}

TEST(Ledger, ValidateWantsTheLockOfThisLedger) {
  Ledger ledger(LedgerCases()[0].Options()), other(LedgerCases()[0].Options());
  LedgerLock lock(other);
  EXPECT_DEATH(ledger.Validate(lock, 1).ok(), kDies);
}

// Validate finds what goes past the ledger.

TEST(Ledger, ValidateFindsAPageThatIsNobodys) {
  Ledger ledger(LedgerCases()[0].Options());
  LedgerLock lock(ledger);
  Reservation one = *ledger.pool(0).Reserve(1);
  const PageId page = ledger.pool(0).TakeAttention(&one);
  EXPECT_EQ(ledger.Validate(lock, 2).ToString(),
            Status(StatusCode::kFailed,
                   "ledger: pool 0 counts 0 cached pages and 0 draining, and has 0 and 1")
                .ToString());
  ledger.pool(0).Free(page);
  EXPECT_TRUE(ledger.Validate(lock, 3).ok());
}

TEST(Ledger, ValidateFindsAHeldPageFreedBehindItsBack) {
  Ledger ledger(LedgerCases()[0].Options());
  LedgerLock lock(ledger);
  const Members members = *::tessera::testing::TakeMembers(lock, ledger, EntryType::kBlock);
  ledger.pool(0).Free(members.pages[0]);
  EXPECT_EQ(
      ledger.Validate(lock, 2).ToString(),
      Status(StatusCode::kFailed, "ledger: page 0 of pool 0 is free and has 1 refs or an owner")
          .ToString());
}

// Kinds.

TEST(StateKinds, OfAnOrganisationNamesEveryMember) {
  const StateShape shape = testing::FalconH1_7B(StateType::kBF16);
  const auto kinds = [&](const char* spec, int row_pool) {
    const Result<Organisation> table = DescribeOrganisation(*OrganisationSpec::Parse(spec), shape);
    return StateKinds::Of(*table, row_pool);
  };
  const StateKinds s2 = kinds("s2", 1);
  EXPECT_EQ(s2.pages_in(EntryType::kBlock, 0), 1u);
  EXPECT_EQ(s2.pages_in(EntryType::kCheckpoint, 0), 3u);
  EXPECT_TRUE(s2.has_slot(EntryType::kCheckpoint));
  EXPECT_FALSE(s2.has_slot(EntryType::kBlock));
  EXPECT_EQ(s2.pages_in(EntryType::kRow, 1), 1u);
  const StateKinds d0 = kinds("d0", -1);
  EXPECT_EQ(d0.pages_in(EntryType::kBlock, 0), 1u);
  EXPECT_EQ(d0.pages_in(EntryType::kCheckpoint, 1), 1u);
  EXPECT_FALSE(d0.has(EntryType::kRow));
  EXPECT_EQ(kinds("s3", -1).pages_in(EntryType::kCheckpoint, 0), 98u);  // ⌈1557/16⌉
  EXPECT_EQ(kinds("s1", -1).pages_in(EntryType::kCheckpoint, 0), 4u);
}

TEST(StateKinds, AKindMoreAddsItsMembersAfterTheOthers) {
  const LedgerCase toy = LedgerCases().back();
  const StateKinds kinds(toy.kinds);
  const std::span<const int> pools = kinds.page_pools(EntryType::kCheckpoint);
  EXPECT_EQ(std::vector<int>(pools.begin(), pools.end()), (std::vector<int>{0, 0, 0, 2, 2}));
  EXPECT_EQ(kinds.pages_in(EntryType::kBlock, 2), 1u);
}

TEST(StateKinds, RefuseTwoSlotsASlotOfABlockAndAPoolThatIsNotThere) {
  const StateKind slot{"a", EntryType::kCheckpoint, 0, 0, true};
  EXPECT_DEATH(StateKinds({slot, slot}), kDies);
  EXPECT_DEATH(StateKinds({{"b", EntryType::kBlock, 0, 1, true}}), kDies);
  for (int pool : {-1, 1}) {
    const StateKinds kinds({{"c", EntryType::kBlock, pool, 1, false}});
    EXPECT_DEATH(Ledger({.pools = {{.page_count = 4}}, .kinds = kinds}), kDies);
  }
  EXPECT_DEATH(Ledger({.pools = {{.page_count = 4}}, .kinds = StateKinds({slot})}), kDies);
}

TEST(EntryId, TheInvalidOneIsNoEntryOfAnyType) {
  EXPECT_FALSE(EntryId().valid());
  for (EntryType type : kAllTypes) {
    for (uint32_t index : {0u, 1u, EntryId::kIndicesMax - 1}) {
      const EntryId entry(type, index);
      EXPECT_TRUE(entry.valid());
      EXPECT_NE(entry, EntryId());
      EXPECT_EQ(entry.type(), type);
      EXPECT_EQ(entry.index(), index);
    }
  }
}

}  // namespace
}  // namespace tessera
