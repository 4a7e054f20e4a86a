// SPDX-License-Identifier: Apache-2.0
//
// One thread reclaims an entry step by step and gives the lock back between steps; another comes in
// at exactly that point. The bytes of pages are plain words, written and read without the lock as a
// step does, so that under ThreadSanitizer two threads in one page are a report, not a lucky pass.
#include <gtest/gtest.h>

#include <barrier>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "memory/ledger/ledger.h"
#include "memory/ledger/ledger_cases.h"

namespace tessera {
namespace {

using ::tessera::testing::LedgerCase;
using ::tessera::testing::LedgerCases;
using ::tessera::testing::Members;
using ::tessera::testing::TakeMembers;
using ::tessera::testing::UnrefAll;

constexpr EntryType kAllTypes[] = {EntryType::kBlock, EntryType::kCheckpoint, EntryType::kRow};
constexpr int kStepsToGone = 5;

// What can be found, with what its bytes should be. Under the ledger's lock.
struct Index final : EntryIndex {
  void SetOffered(LedgerLock&, EntryId entry, bool offered) override {
    if (offered) {
      found.insert(entry);
    } else {
      found.erase(entry);
    }
  }
  void Unlink(LedgerLock&, EntryId entry) override { marks.erase(entry); }
  void BecameIdle(LedgerLock&, EntryId) override {}

  std::set<EntryId> found;
  std::map<EntryId, uint64_t> marks;
};

struct Memory {
  explicit Memory(const LedgerCase& of) : ledger(of.Options()) {
    for (uint32_t pages : of.pool_pages) bytes.emplace_back(pages, 0);
    if (of.slab_pool >= 0) {
      slot_bytes.resize(size_t{of.pool_pages[static_cast<size_t>(of.slab_pool)]} *
                        of.slots_per_page);
    }
    ledger.set_index(&index);
  }

  // Without the lock: whoever calls has a hold on the members.
  void Write(EntryType type, const Members& members, uint64_t mark) {
    for (size_t i = 0; i < members.pages.size(); ++i) Byte(type, members, i) = mark;
    if (members.slot.valid()) slot_bytes[members.slot.index()] = mark;
  }
  bool Reads(EntryType type, const Members& members, uint64_t mark) {
    bool same = !members.slot.valid() || slot_bytes[members.slot.index()] == mark;
    for (size_t i = 0; i < members.pages.size(); ++i) same &= Byte(type, members, i) == mark;
    return same;
  }
  uint64_t& Byte(EntryType type, const Members& members, size_t i) {
    return bytes[static_cast<size_t>(ledger.kinds().page_pools(type)[i])][members.pages[i].index()];
  }

  // Takes, writes without the lock, publishes.
  std::optional<EntryId> Make(EntryType type, uint64_t mark) {
    std::optional<Members> members;
    {
      LedgerLock lock(ledger);
      members = TakeMembers(lock, ledger, type);
    }
    if (!members.has_value()) return std::nullopt;
    Write(type, *members, mark);
    LedgerLock lock(ledger);
    const EntryId entry = ledger.Publish(lock, type, members->pages, members->slot);
    index.found.insert(entry);
    index.marks[entry] = mark;
    ledger.UnrefMembers(lock, entry);
    return entry;
  }
  Members MembersOf(EntryId entry) const {
    return {{ledger.pages(entry).begin(), ledger.pages(entry).end()}, ledger.slot(entry)};
  }
  bool Found(LedgerLock&, EntryId entry) const { return index.found.count(entry) > 0; }
  void ExpectValid() {
    LedgerLock lock(ledger);
    const Status status = ledger.Validate(lock, 3);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  void ExpectAllFree() {
    LedgerLock lock(ledger);
    for (int pool = 0; pool < ledger.pool_count(); ++pool) {
      EXPECT_EQ(ledger.counts(lock, pool).free, ledger.pool(pool).total_pages());
    }
  }

  Ledger ledger;
  Index index;
  std::vector<std::vector<uint64_t>> bytes;  // of a page
  std::vector<uint64_t> slot_bytes;
};

// Everything that is free, taken and written by one who knows nothing of the entry.
struct AllFree {
  explicit AllFree(Memory* memory) : of(memory) {
    LedgerLock lock(of->ledger);
    for (int pool = 0; pool < of->ledger.pool_count(); ++pool) {
      const uint32_t free = of->ledger.counts(lock, pool).free;
      Reservation promise = *of->ledger.pool(pool).Reserve(free);
      for (uint32_t i = 0; i < free; ++i) {
        pages.emplace_back(pool, of->ledger.TakeAttention(lock, pool, &promise));
      }
    }
  }
  void Write() {
    for (const auto& [pool, page] : pages) of->bytes[static_cast<size_t>(pool)][page.index()] = ~0u;
  }
  bool Has(EntryType type, const Members& members) const {
    for (const auto& [pool, page] : pages) {
      for (size_t i = 0; i < members.pages.size(); ++i) {
        if (of->ledger.kinds().page_pools(type)[i] == pool && members.pages[i] == page) return true;
      }
    }
    return false;
  }
  void GiveBack() {
    LedgerLock lock(of->ledger);
    for (const auto& [pool, page] : pages) of->ledger.Unref(lock, pool, page);
  }

  Memory* of;
  std::vector<std::pair<int, PageId>> pages;
};

class ReclaimRace : public ::testing::TestWithParam<LedgerCase> {
 protected:
  // One thread makes `steps` arrows, pauses, and then reclaims as far as it gets, while the other
  // has called `arrive` at the pause and runs `meanwhile` beside it. Returns the state the
  // reclaimer came to.
  template <typename Arrive, typename Meanwhile>
  ReclaimState Race(Memory* memory, EntryId entry, int steps, Arrive arrive, Meanwhile meanwhile) {
    std::barrier pause(2);
    ReclaimState reached = ReclaimState::kLive;
    std::thread reclaimer([&] {
      for (int i = 0; i < steps; ++i) {
        LedgerLock lock(memory->ledger);
        reached = memory->ledger.Advance(lock, entry);
      }
      pause.arrive_and_wait();  // at the pause point
      pause.arrive_and_wait();  // the other has arrived
      while (reached != ReclaimState::kGone) {
        LedgerLock lock(memory->ledger);
        const ReclaimState before = memory->ledger.state(entry);
        reached = memory->ledger.Advance(lock, entry);
        if (reached == before) break;
      }
    });
    pause.arrive_and_wait();
    {
      LedgerLock lock(memory->ledger);
      EXPECT_EQ(memory->Found(lock, entry), steps == 0) << "offered after " << steps << " steps";
    }
    arrive();
    pause.arrive_and_wait();
    meanwhile();
    reclaimer.join();
    memory->ExpectValid();
    return reached;
  }

  // Runs `body(memory, entry, members, steps)` at each pause point for each type of entry.
  template <typename Body>
  void AtEachPausePoint(Body body) {
    for (EntryType type : kAllTypes) {
      for (int steps = 0; steps <= kStepsToGone; ++steps) {
        SCOPED_TRACE(::testing::Message()
                     << "type " << static_cast<int>(type) << ", after " << steps);
        Memory memory(GetParam());
        const EntryId entry = *memory.Make(type, 7);
        const Members members = memory.MembersOf(entry);
        body(&memory, entry, members, steps);
        LedgerLock lock(memory.ledger);
        memory.ledger.Resume(lock);
        if (memory.ledger.state(entry) != ReclaimState::kGone) memory.ledger.Reclaim(lock, entry);
      }
    }
  }
};

std::string CaseName(const ::testing::TestParamInfo<LedgerCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Of, ReclaimRace, ::testing::ValuesIn(LedgerCases()), CaseName);

TEST_P(ReclaimRace, AUseThatBeganInTimeReadsItsBytesToTheEnd) {
  AtEachPausePoint([&](Memory* memory, EntryId entry, const Members& members, int steps) {
    std::optional<Use> use;
    const ReclaimState reached = Race(
        memory, entry, steps,
        [&] {
          LedgerLock lock(memory->ledger);
          if (memory->Found(lock, entry)) use = memory->ledger.BeginUse(lock, entry);
        },
        [&] {
          if (!use.has_value()) return;
          AllFree others(memory);
          others.Write();
          EXPECT_TRUE(memory->Reads(entry.type(), members, 7));
          others.GiveBack();
        });
    EXPECT_EQ(reached, use.has_value() ? ReclaimState::kFrozen : ReclaimState::kGone);
    if (!use.has_value()) return;
    LedgerLock lock(memory->ledger);
    memory->ledger.EndUse(lock, *std::move(use));
  });
}

TEST_P(ReclaimRace, ARefThatCameInTimeKeepsEveryMember) {
  AtEachPausePoint([&](Memory* memory, EntryId entry, const Members& members, int steps) {
    bool shared = false;
    const ReclaimState reached = Race(
        memory, entry, steps,
        [&] {
          LedgerLock lock(memory->ledger);
          shared = memory->Found(lock, entry);
          if (shared) memory->ledger.RefMembers(lock, entry);
        },
        [&] {
          if (shared) {
            EXPECT_TRUE(memory->Reads(entry.type(), members, 7));
          }
        });
    EXPECT_EQ(reached, shared ? ReclaimState::kFrozen : ReclaimState::kGone);
    if (!shared) return;
    AllFree others(memory);
    EXPECT_FALSE(others.Has(entry.type(), members));
    others.GiveBack();
    LedgerLock lock(memory->ledger);
    memory->ledger.UnrefMembers(lock, entry);
  });
}

TEST_P(ReclaimRace, APinThatCameInTimeKeepsTheEntryLive) {
  AtEachPausePoint([&](Memory* memory, EntryId entry, const Members& members, int steps) {
    std::optional<Pin> pin;
    const ReclaimState reached = Race(
        memory, entry, steps,
        [&] {
          LedgerLock lock(memory->ledger);
          if (memory->Found(lock, entry)) pin = memory->ledger.BeginPin(lock, entry);
        },
        [&] {
          if (pin.has_value()) {
            EXPECT_TRUE(memory->Reads(entry.type(), members, 7));
          }
        });
    EXPECT_EQ(reached, pin.has_value() ? ReclaimState::kLive : ReclaimState::kGone);
    if (!pin.has_value()) return;
    LedgerLock lock(memory->ledger);
    EXPECT_TRUE(memory->Found(lock, entry));
    memory->ledger.EndPin(lock, *std::move(pin));
  });
}

TEST_P(ReclaimRace, NobodyFindsAPageOfAnEntryThatIsNotGone) {
  AtEachPausePoint([&](Memory* memory, EntryId entry, const Members& members, int steps) {
    std::optional<AllFree> others;
    const ReclaimState reached = Race(
        memory, entry, steps,
        [&] {
          others.emplace(memory);
          const bool has = others->Has(entry.type(), members);
          EXPECT_EQ(has, steps == kStepsToGone && !members.pages.empty());
        },
        [&] { others->Write(); });
    EXPECT_EQ(reached, ReclaimState::kGone);
    others->GiveBack();
    memory->ExpectAllFree();
  });
}

TEST_P(ReclaimRace, AnEntryPublishedMeanwhileIsWhole) {
  AtEachPausePoint([&](Memory* memory, EntryId entry, const Members& members, int steps) {
    std::optional<EntryId> made, beside;
    const ReclaimState reached = Race(
        memory, entry, steps, [&] { made = memory->Make(entry.type(), 8); },
        [&] { beside = memory->Make(entry.type(), 9); });
    EXPECT_EQ(reached, ReclaimState::kGone);
    EXPECT_FALSE(members.pages.empty() && !members.slot.valid());
    for (const auto& [other, mark] : {std::pair(made, 8u), std::pair(beside, 9u)}) {
      ASSERT_TRUE(other.has_value());
      EXPECT_TRUE(memory->Reads(other->type(), memory->MembersOf(*other), mark));
      LedgerLock lock(memory->ledger);
      EXPECT_EQ(memory->ledger.state(*other), ReclaimState::kLive);
      EXPECT_TRUE(memory->ledger.Reclaim(lock, *other));
    }
    memory->ExpectAllFree();
  });
}

TEST_P(ReclaimRace, AnotherReclaimOfThePageLeavesTheOneBegun) {
  AtEachPausePoint([&](Memory* memory, EntryId entry, const Members& members, int steps) {
    if (steps == 0) return;  // nobody has begun
    const ReclaimState reached = Race(
        memory, entry, steps,
        [&] {
          LedgerLock lock(memory->ledger);
          for (size_t i = 0; i < members.pages.size(); ++i) {
            const int pool = memory->ledger.kinds().page_pools(entry.type())[i];
            EXPECT_EQ(memory->ledger.ReclaimPage(lock, pool, members.pages[i]), -1);
          }
          if (!members.slot.valid()) return;
          const PageId slab = memory->ledger.slabs()->PageOf(members.slot);
          EXPECT_EQ(memory->ledger.ReclaimPage(lock, memory->ledger.slab_pool(), slab), -1);
        },
        [] {});
    EXPECT_EQ(reached, ReclaimState::kGone);
    memory->ExpectAllFree();
  });
}

TEST_P(ReclaimRace, UndoneMeanwhileItIsFoundAgainUntilItIsReclaimedAnew) {
  AtEachPausePoint([&](Memory* memory, EntryId entry, const Members& members, int steps) {
    if (steps != 1 && steps != 2) return;
    std::optional<Use> use;
    const ReclaimState reached = Race(
        memory, entry, steps,
        [&] {
          LedgerLock lock(memory->ledger);
          memory->ledger.Unfreeze(lock, entry);
          EXPECT_TRUE(memory->Found(lock, entry));
          use = memory->ledger.BeginUse(lock, entry);
        },
        [&] { EXPECT_TRUE(memory->Reads(entry.type(), members, 7)); });
    EXPECT_EQ(reached, ReclaimState::kFrozen);
    LedgerLock lock(memory->ledger);
    memory->ledger.EndUse(lock, *std::move(use));
  });
}

// A request is cancelled while its step runs: the step goes on writing pages that are nobody's.
TEST_P(ReclaimRace, AStepInFlightWritesWhatItFreedAndNobodyElseHasIt) {
  AtEachPausePoint([&](Memory* memory, EntryId entry, const Members& members, int steps) {
    if (steps == kStepsToGone) return;
    const ReclaimState reached = Race(
        memory, entry, steps,
        [&] {
          LedgerLock lock(memory->ledger);
          memory->ledger.OpenStep(lock);
        },
        [&] {
          std::thread other([&] {
            for (int i = 0; i < 4; ++i) {
              AllFree others(memory);
              EXPECT_FALSE(others.Has(entry.type(), members));
              others.Write();
              others.GiveBack();
            }
          });
          memory->Write(entry.type(), members, 11);
          other.join();
        });
    EXPECT_EQ(reached, ReclaimState::kGone);
    {
      LedgerLock lock(memory->ledger);
      memory->ledger.CloseStep(lock);
    }
    memory->ExpectAllFree();
  });
}

// Four threads without any order: they publish, find and read, pin, share, and reclaim in steps.
class Worker {
 public:
  Worker(Memory* memory, uint64_t seed) : memory_(memory), random_(seed), seed_(seed) {}

  void Run(int operations) {
    for (int i = 0; i < operations; ++i) {
      switch (random_.Below(6)) {
        case 0:
        case 1:
          memory_->Make(kAllTypes[random_.Below(3)], ++made_ * 8 + seed_);
          break;
        case 2:
        case 3:
          Read();
          break;
        case 4:
          Evict();
          break;
        default:
          EvictPage();
      }
    }
  }

 private:
  EntryId Choose(LedgerLock&) {
    const std::set<EntryId>& found = memory_->index.found;
    if (found.empty()) return EntryId();
    return *std::next(found.begin(), static_cast<ptrdiff_t>(random_.Below(found.size())));
  }

  void Read() {
    std::optional<Use> use;
    std::optional<Pin> pin;
    EntryId entry;
    Members members;
    uint64_t mark = 0;
    const uint64_t how = random_.Below(3);
    {
      LedgerLock lock(memory_->ledger);
      entry = Choose(lock);
      if (!entry.valid()) return;
      members = memory_->MembersOf(entry);
      mark = memory_->index.marks.at(entry);
      if (how == 0) use = memory_->ledger.BeginUse(lock, entry);
      if (how == 1) pin = memory_->ledger.BeginPin(lock, entry);
      if (how == 2) memory_->ledger.RefMembers(lock, entry);
    }
    EXPECT_TRUE(memory_->Reads(entry.type(), members, mark));
    LedgerLock lock(memory_->ledger);
    if (use.has_value()) memory_->ledger.EndUse(lock, *std::move(use));
    if (pin.has_value()) memory_->ledger.EndPin(lock, *std::move(pin));
    if (how == 2) memory_->ledger.UnrefMembers(lock, entry);
  }

  // With the lock given back after every step. Who began it ends it: nobody else touches it.
  void Evict() {
    EntryId entry;
    {
      LedgerLock lock(memory_->ledger);
      entry = Choose(lock);
      if (!entry.valid() || memory_->ledger.Advance(lock, entry) == ReclaimState::kLive) return;
    }
    ReclaimState state = ReclaimState::kFrozen;
    while (state != ReclaimState::kGone) {
      std::this_thread::yield();
      LedgerLock lock(memory_->ledger);
      if (state == ReclaimState::kFrozen && random_.Below(4) == 0) {
        return memory_->ledger.Unfreeze(lock, entry);
      }
      state = memory_->ledger.Advance(lock, entry);
    }
  }

  void EvictPage() {
    LedgerLock lock(memory_->ledger);
    if (random_.Below(4) == 0) {
      memory_->ledger.OpenStep(lock);
      memory_->ledger.CloseStep(lock);
    }
    const int pool = static_cast<int>(random_.Below(memory_->bytes.size()));
    const uint32_t page = static_cast<uint32_t>(random_.Below(memory_->bytes[pool].size()));
    memory_->ledger.ReclaimPage(lock, pool, PageId(page));
    const Status status = memory_->ledger.Validate(lock, 1);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  Memory* memory_;
  Random random_;
  uint64_t seed_;
  uint64_t made_ = 0;
};

TEST_P(ReclaimRace, FourThreadsReadOnlyWhatTheyFound) {
  Memory memory(GetParam());
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([&memory, seed] { Worker(&memory, seed).Run(10'000); });
  }
  for (std::thread& thread : threads) thread.join();
  memory.ExpectValid();
  {
    LedgerLock lock(memory.ledger);
    EXPECT_EQ(memory.ledger.unfinished(), 0u);
    const std::map<EntryId, uint64_t> left = memory.index.marks;
    for (const auto& [entry, mark] : left) EXPECT_TRUE(memory.ledger.Reclaim(lock, entry));
  }
  memory.ExpectAllFree();
}

}  // namespace
}  // namespace tessera
