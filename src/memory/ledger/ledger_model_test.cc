// SPDX-License-Identifier: Apache-2.0
//
// Seeded random operations on a Ledger beside a twin made of sets and maps, everything compared
// after each operation. Operations are drawn before they run and mean something in any state, so
// that a failing list can be shrunk: whatever can go while it still fails is dropped, and the rest
// is printed with its seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "memory/ledger/ledger.h"
#include "memory/ledger/ledger_cases.h"
#include "memory/ledger/ledger_twin.h"

// The slow twin of this binary runs more.
#ifndef TESSERA_MODEL_OPERATIONS
#define TESSERA_MODEL_OPERATIONS 200'000
#endif

namespace tessera {
namespace {

using ::tessera::testing::Key;
using ::tessera::testing::kSlot;
using ::tessera::testing::LedgerCase;
using ::tessera::testing::LedgerCases;
using ::tessera::testing::LedgerTwin;
using ::tessera::testing::Members;
using ::tessera::testing::TakeMembers;
using ::tessera::testing::TwinEntry;

constexpr uint64_t kOperations = TESSERA_MODEL_OPERATIONS;
constexpr uint64_t kOperationsPerSeed = 2'000;

void Require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

enum class OpKind : uint8_t {
  kTake,
  kPublish,
  kShare,
  kShareOne,
  kUnref,
  kUnrefOne,
  kBeginUse,
  kEndUse,
  kBeginPin,
  kEndPin,
  kRetain,
  kRelease,
  kAdvance,
  kUnfreeze,
  kReclaim,
  kReclaimPage,
  kResume,
  kOpenStep,
  kCloseStep,
  kReserve,
  kReserveSlots,
  kCancel,
};
constexpr const char* kOpNames[] = {
    "Take",      "Publish",  "Share",        "ShareOne",    "Unref",  "UnrefOne",
    "BeginUse",  "EndUse",   "BeginPin",     "EndPin",      "Retain", "Release",
    "Advance",   "Unfreeze", "Reclaim",      "ReclaimPage", "Resume", "OpenStep",
    "CloseStep", "Reserve",  "ReserveSlots", "Cancel",
};
// How often each is drawn: taking and giving back in balance, so that pools fill and empty.
constexpr int kWeights[] = {12, 9, 8, 3, 14, 3, 4, 4, 3, 3, 2, 2, 14, 4, 3, 4, 1, 2, 4, 1, 1, 2};

struct Op {
  OpKind kind = OpKind::kTake;
  uint32_t a = 0, b = 0;  // choose among what there is
};

std::vector<Op> DrawOps(uint64_t seed, uint64_t count) {
  Random random(seed);
  int sum = 0;
  for (int weight : kWeights) sum += weight;
  std::vector<Op> ops(count);
  for (Op& op : ops) {
    int left = static_cast<int>(random.Below(static_cast<uint64_t>(sum)));
    int kind = 0;
    while (left >= kWeights[kind]) left -= kWeights[kind++];
    op = {static_cast<OpKind>(kind), static_cast<uint32_t>(random.Below(1 << 20)),
          static_cast<uint32_t>(random.Below(1 << 20))};
  }
  return ops;
}

// What the index and the poisoner are told.
struct Listener final : EntryIndex, FreedBytes {
  void SetOffered(LedgerLock&, EntryId entry, bool offered) override {
    if (offered) {
      Require(hidden.erase(entry) == 1, "offered again without having been hidden");
    } else {
      Require(hidden.insert(entry).second, "hidden twice");
    }
  }
  void Unlink(LedgerLock&, EntryId entry) override {
    Require(hidden.erase(entry) == 1, "unlinked while offered");
  }
  void BecameIdle(LedgerLock&, EntryId) override { ++told_idle; }
  void PageFreed(int, PageId) override { ++freed; }
  void SlotFreed(SlotId) override { ++freed; }

  std::set<EntryId> hidden;  // between freeze and unlink
  uint64_t told_idle = 0, freed = 0;
};

class World {
 public:
  World(const LedgerCase& of, uint64_t seed, bool planted)
      : of_(of), ledger_(of.Options(seed % 3 == 0 ? seed : 0)), twin_(of) {
    twin_.forgets_steps = planted;
    ledger_.set_index(&listener_);
    ledger_.set_freed_bytes(&listener_);
  }

  void Do(const Op& op) {
    LedgerLock lock(ledger_);
    Dispatch(lock, op);
    Compare(lock);
  }

  // Everybody gives back what they have, and everything is free.
  void End() {
    LedgerLock lock(ledger_);
    while (!holders_.empty()) Unref(lock, {});
    while (!uses_.empty()) EndUse(lock, {});
    while (!pins_.empty()) EndPin(lock, {});
    while (!retentions_.empty()) Release(lock, {});
    while (!reservations_.empty() || !slot_reservations_.empty()) Cancel({});
    while (twin_.steps > 0) CloseStep(lock);
    Resume(lock);
    while (!twin_.entries.empty()) Reclaim(lock, {});
    Compare(lock);
    for (int pool = 0; pool < ledger_.pool_count(); ++pool) {
      Require(ledger_.counts(lock, pool).free == ledger_.pool(pool).total_pages(),
              "a page is lost");
    }
  }

 private:
  void Dispatch(LedgerLock& lock, const Op& op) {
    switch (op.kind) {
      case OpKind::kTake:
        return Take(lock, op);
      case OpKind::kPublish:
        return Publish(lock, op);
      case OpKind::kShare:
        return Share(lock, op);
      case OpKind::kShareOne:
        return ShareOne(lock, op);
      case OpKind::kUnref:
        return Unref(lock, op);
      case OpKind::kUnrefOne:
        return UnrefOne(lock, op);
      case OpKind::kBeginUse:
        return BeginUse(lock, op);
      case OpKind::kEndUse:
        return EndUse(lock, op);
      case OpKind::kBeginPin:
        return BeginPin(lock, op);
      case OpKind::kEndPin:
        return EndPin(lock, op);
      case OpKind::kRetain:
        return Retain(lock, op);
      case OpKind::kRelease:
        return Release(lock, op);
      case OpKind::kAdvance:
        return Advance(lock, op);
      case OpKind::kUnfreeze:
        return Unfreeze(lock, op);
      case OpKind::kReclaim:
        return Reclaim(lock, op);
      case OpKind::kReclaimPage:
        return ReclaimPage(lock, op);
      case OpKind::kResume:
        return Resume(lock);
      case OpKind::kOpenStep:
        return OpenStep(lock);
      case OpKind::kCloseStep:
        return CloseStep(lock);
      case OpKind::kReserve:
        return Reserve(op);
      case OpKind::kReserveSlots:
        return ReserveSlots(op);
      case OpKind::kCancel:
        return Cancel(op);
    }
  }

  std::vector<Key> Keys(EntryType type, const Members& members) const {
    std::vector<Key> keys;
    for (size_t i = 0; i < members.pages.size(); ++i) {
      keys.push_back({ledger_.kinds().page_pools(type)[i], members.pages[i].index()});
    }
    if (members.slot.valid()) keys.push_back({kSlot, members.slot.index()});
    return keys;
  }
  template <typename T>
  static T TakeOut(std::vector<T>* from, uint32_t choice) {
    const size_t at = choice % from->size();
    T taken = std::move((*from)[at]);
    from->erase(from->begin() + static_cast<ptrdiff_t>(at));
    return taken;
  }
  // An entry in one of the states, or none.
  template <typename Wanted>
  EntryId Pick(uint32_t choice, Wanted wanted) const {
    std::vector<EntryId> there;
    for (const auto& [id, entry] : twin_.entries) {
      if (wanted(entry)) there.push_back(id);
    }
    return there.empty() ? EntryId() : there[choice % there.size()];
  }
  static bool IsLive(const TwinEntry& entry) { return entry.state == ReclaimState::kLive; }
  static bool IsAny(const TwinEntry&) { return true; }

  // Sequences.

  void Take(LedgerLock& lock, const Op& op) {
    const EntryType type = static_cast<EntryType>(op.a % kEntryTypes);
    bool fits = true;
    for (int pool = 0; pool < ledger_.pool_count(); ++pool) {
      uint32_t need = ledger_.kinds().pages_in(type, pool);
      if (ledger_.kinds().has_slot(type) && pool == of_.slab_pool) {
        need += twin_.SparePages(twin_.reserved_slots + 1) - twin_.SparePages(twin_.reserved_slots);
      }
      fits = fits && need <= twin_.Counts(pool).free;
    }
    size_t fullest = 0;
    for (const auto& [page, slots] : twin_.Slabs()) {
      if (slots.size() < of_.slots_per_page) fullest = std::max(fullest, slots.size());
    }
    const std::optional<Members> members = TakeMembers(lock, ledger_, type);
    Require(members.has_value() == fits, "what fits is got, and only that");
    if (!fits) return;
    if (members->slot.valid()) {
      const uint32_t slab = members->slot.index() / of_.slots_per_page;
      Require(twin_.SlotsIn(slab).size() == fullest, "a slot not from the fullest slab");
    }
    const std::vector<Key> keys = Keys(type, *members);
    for (const Key& key : keys) {
      Require(twin_.Free(key), "a member that was not free was handed out");
      twin_.Ref(key);
    }
    holders_.push_back(keys);
    hands_.push_back({type, *members});
  }

  void Publish(LedgerLock& lock, const Op& op) {
    if (hands_.empty()) return;
    const auto [type, members] = TakeOut(&hands_, op.a);
    const std::vector<Key> keys = Keys(type, members);
    for (const Key& key : keys) {
      if (twin_.refs.count(key) == 0 || twin_.Owner(key).valid()) return;  // no longer all there
    }
    const EntryId entry = ledger_.Publish(lock, type, members.pages, members.slot);
    Require(twin_.entries.count(entry) == 0, "an id that is in use");
    twin_.entries[entry] = {.members = keys, .serial = ++serials_};
  }

  void Share(LedgerLock& lock, const Op& op) {
    const EntryId entry = Pick(op.a, IsLive);
    if (!entry.valid()) return;
    ledger_.RefMembers(lock, entry);
    holders_.push_back(twin_.entries.at(entry).members);
    for (const Key& key : holders_.back()) twin_.Ref(key);
  }

  void ShareOne(LedgerLock& lock, const Op& op) {
    if (twin_.refs.empty()) return;
    const Key key =
        std::next(twin_.refs.begin(), static_cast<ptrdiff_t>(op.a % twin_.refs.size()))->first;
    const EntryId owner = twin_.Owner(key);
    if (owner.valid() && !IsLive(twin_.entries.at(owner))) return;
    if (key.pool == kSlot) {
      ledger_.RefSlot(lock, SlotId(key.index));
    } else {
      ledger_.Ref(lock, key.pool, PageId(key.index));
    }
    twin_.Ref(key);
    holders_.push_back({key});
  }

  void UnrefKey(LedgerLock& lock, const Key& key) {
    if (key.pool == kSlot) {
      ledger_.UnrefSlot(lock, SlotId(key.index));
    } else {
      ledger_.Unref(lock, key.pool, PageId(key.index));
    }
    twin_.Unref(key);
  }
  void Unref(LedgerLock& lock, const Op& op) {
    if (holders_.empty()) return;
    for (const Key& key : TakeOut(&holders_, op.a)) UnrefKey(lock, key);
  }
  void UnrefOne(LedgerLock& lock, const Op& op) {
    if (holders_.empty()) return;
    std::vector<Key>& keys = holders_[op.a % holders_.size()];
    UnrefKey(lock, TakeOut(&keys, op.b));
    if (keys.empty()) std::erase_if(holders_, [](const auto& holder) { return holder.empty(); });
  }

  // Holds.

  void BeginUse(LedgerLock& lock, const Op& op) {
    const EntryId entry = Pick(op.a, IsLive);
    if (!entry.valid()) return;
    uses_.push_back(ledger_.BeginUse(lock, entry));
    ++twin_.entries.at(entry).uses;
  }
  void EndUse(LedgerLock& lock, const Op& op) {
    if (uses_.empty()) return;
    Use use = TakeOut(&uses_, op.a);
    const EntryId entry = use.entry();
    ledger_.EndUse(lock, std::move(use));
    --twin_.entries.at(entry).uses;
    twin_.HoldEnded(entry);
  }
  void BeginPin(LedgerLock& lock, const Op& op) {
    const EntryId entry = Pick(op.a, IsLive);
    if (!entry.valid()) return;
    pins_.push_back(ledger_.BeginPin(lock, entry));
    ++twin_.entries.at(entry).pins;
  }
  void EndPin(LedgerLock& lock, const Op& op) {
    if (pins_.empty()) return;
    Pin pin = TakeOut(&pins_, op.a);
    const EntryId entry = pin.entry();
    ledger_.EndPin(lock, std::move(pin));
    --twin_.entries.at(entry).pins;
    twin_.HoldEnded(entry);
  }
  void Retain(LedgerLock& lock, const Op& op) {
    const EntryId entry = Pick(op.a, IsLive);
    if (!entry.valid()) return;
    retentions_.emplace_back(ledger_.Retain(lock, entry), twin_.entries.at(entry).serial);
    ++twin_.entries.at(entry).retentions;
  }
  void Release(LedgerLock& lock, const Op& op) {
    if (retentions_.empty()) return;
    auto [retention, serial] = TakeOut(&retentions_, op.a);
    const auto at = twin_.entries.find(retention.entry());
    ledger_.Release(lock, std::move(retention));
    if (at == twin_.entries.end() || at->second.serial != serial) return;
    if (--at->second.retentions == 0) twin_.HoldEnded(at->first);
  }

  // Reclaim.

  void Advance(LedgerLock& lock, const Op& op) {
    const EntryId entry = Pick(op.a, IsAny);
    if (!entry.valid()) return;
    Require(ledger_.Advance(lock, entry) == twin_.Advance(entry), "another arrow");
  }
  void Unfreeze(LedgerLock& lock, const Op& op) {
    const EntryId entry = Pick(op.a, [](const TwinEntry& e) {
      return e.state == ReclaimState::kFrozen || e.state == ReclaimState::kIdle;
    });
    if (!entry.valid()) return;
    ledger_.Unfreeze(lock, entry);
    twin_.entries.at(entry).state = ReclaimState::kLive;
    twin_.HoldEnded(entry);
  }
  void Reclaim(LedgerLock& lock, const Op& op) {
    const EntryId entry = Pick(op.a, IsAny);
    if (!entry.valid()) return;
    Require(ledger_.Reclaim(lock, entry) == twin_.Reclaim(entry), "reclaim went another way");
  }
  void ReclaimPage(LedgerLock& lock, const Op& op) {
    const int pool = static_cast<int>(op.a % static_cast<uint32_t>(ledger_.pool_count()));
    const uint32_t page = op.b % ledger_.pool(pool).total_pages();
    Require(ledger_.ReclaimPage(lock, pool, PageId(page)) == twin_.ReclaimPage(pool, page),
            "another number of entries invalidated");
  }
  void Resume(LedgerLock& lock) {
    ledger_.Resume(lock);
    std::vector<EntryId> unfinished;
    for (const auto& [id, entry] : twin_.entries) {
      if (!IsLive(entry)) unfinished.push_back(id);
    }
    for (EntryId id : unfinished) twin_.Reclaim(id);
  }

  // Steps and promises.

  void OpenStep(LedgerLock& lock) {
    if (twin_.steps == 3) return;
    ledger_.OpenStep(lock);
    ++twin_.steps;
  }
  void CloseStep(LedgerLock& lock) {
    if (twin_.steps == 0) return;
    ledger_.CloseStep(lock);
    twin_.CloseStep();
  }
  void Reserve(const Op& op) {
    const int pool = static_cast<int>(op.a % static_cast<uint32_t>(ledger_.pool_count()));
    const uint32_t pages = op.b % 6;
    std::optional<Reservation> got = ledger_.pool(pool).Reserve(pages);
    Require(got.has_value() == (pages <= twin_.Counts(pool).free), "a promise of pages");
    if (!got.has_value()) return;
    twin_.reserved[static_cast<size_t>(pool)] += pages;
    reservations_.emplace_back(pool, *std::move(got));
  }
  void ReserveSlots(const Op& op) {
    if (of_.slab_pool < 0) return;
    const uint32_t slots = op.b % 6;
    const uint32_t pages =
        twin_.SparePages(twin_.reserved_slots + slots) - twin_.SparePages(twin_.reserved_slots);
    std::optional<SlotReservation> got = ledger_.slabs()->Reserve(slots);
    Require(got.has_value() == (pages <= twin_.Counts(of_.slab_pool).free), "a promise of slots");
    if (!got.has_value()) return;
    twin_.reserved_slots += slots;
    slot_reservations_.push_back(*std::move(got));
  }
  void Cancel(const Op& op) {
    if (!reservations_.empty()) {
      const auto [pool, promise] = TakeOut(&reservations_, op.a);
      twin_.reserved[static_cast<size_t>(pool)] -= promise.pages();
    }
    if (!slot_reservations_.empty()) {
      twin_.reserved_slots -= TakeOut(&slot_reservations_, op.a).slots();
    }
  }

  // Comparison.

  void Compare(LedgerLock& lock) {
    const Status status = ledger_.Validate(lock, 3);
    Require(status.ok(), status.ToString());
    for (int pool = 0; pool < ledger_.pool_count(); ++pool) CompareCounts(lock, pool);
    CompareOwnersAndRefs();
    uint32_t count[kEntryTypes] = {}, unfinished = 0;
    for (const auto& [id, entry] : twin_.entries) {
      ++count[static_cast<size_t>(id.type())];
      unfinished += IsLive(entry) ? 0 : 1;
      CompareEntry(id, entry);
    }
    for (int type = 0; type < kEntryTypes; ++type) {
      Require(ledger_.count(static_cast<EntryType>(type)) == count[type], "number of entries");
    }
    Require(ledger_.unfinished() == unfinished, "number of unfinished reclaims");
    Require(ledger_.entries_invalidated() == twin_.invalidated, "number of entries invalidated");
    Require(listener_.told_idle == twin_.told_idle, "entries said to be idle");
    Require(listener_.freed == twin_.freed, "members said to be free");
  }

  void CompareCounts(LedgerLock& lock, int pool) {
    const LedgerPoolCounts is = ledger_.counts(lock, pool), is_right = twin_.Counts(pool);
    const auto text = [](const LedgerPoolCounts& c) {
      return fmt::format("free {} reserved {} held {} cached {} draining {}", c.free, c.reserved,
                         c.held, c.cached, c.draining);
    };
    Require(text(is) == text(is_right),
            fmt::format("pool {}: {}, and not {}", pool, text(is), text(is_right)));
    Require(is.free + is.reserved + is.held + is.cached + is.draining == is.total, "conservation");
  }

  void CompareOwnersAndRefs() {
    std::map<Key, EntryId> owners;
    for (const auto& [id, entry] : twin_.entries) {
      if (entry.state == ReclaimState::kBare) continue;
      for (const Key& key : entry.members) owners[key] = id;
    }
    size_t owned = 0, held = 0, slots_held = 0;
    for (int pool = 0; pool < ledger_.pool_count(); ++pool) {
      for (uint32_t page = 0; page < ledger_.pool(pool).total_pages(); ++page) {
        owned += ledger_.owner(pool, PageId(page)).valid() ? 1 : 0;
        held += ledger_.refs(pool, PageId(page)) > 0 ? 1 : 0;
      }
    }
    for (uint32_t slot = 0; slot < Slots(); ++slot) {
      owned += ledger_.slot_owner(SlotId(slot)).valid() ? 1 : 0;
    }
    for (const auto& [key, owner] : owners) {
      const EntryId is = key.pool == kSlot ? ledger_.slot_owner(SlotId(key.index))
                                           : ledger_.owner(key.pool, PageId(key.index));
      Require(is == owner, "owner of a member");
    }
    for (const auto& [key, count] : twin_.refs) {
      slots_held += key.pool == kSlot ? 1 : 0;
      if (key.pool == kSlot) continue;
      Require(ledger_.refs(key.pool, PageId(key.index)) == count, "refs of a page");
    }
    Require(owned == owners.size(), "an owner too many");
    Require(held + slots_held == twin_.refs.size(), "a page with refs too many");
  }

  void CompareEntry(EntryId id, const TwinEntry& entry) {
    Require(ledger_.state(id) == entry.state, "state of an entry");
    const bool bare = entry.state == ReclaimState::kBare;
    Require(ledger_.idle(id) == (bare || twin_.Idle(entry)), "whether an entry is idle");
    Require(ledger_.pinned(id) == (entry.pins > 0), "whether an entry is pinned");
    Require(ledger_.retentions(id) == entry.retentions, "retentions of an entry");
    const bool hidden = entry.state == ReclaimState::kFrozen || entry.state == ReclaimState::kIdle;
    Require((listener_.hidden.count(id) > 0) == hidden, "whether an entry is offered");
    const std::span<const PageId> pages = ledger_.pages(id);
    const Members members{{pages.begin(), pages.end()}, ledger_.slot(id)};
    Require(Keys(id.type(), members) == entry.members, "members of an entry");
  }

  uint32_t Slots() const {
    if (of_.slab_pool < 0) return 0;
    return of_.pool_pages[static_cast<size_t>(of_.slab_pool)] * of_.slots_per_page;
  }

  const LedgerCase& of_;
  Ledger ledger_;
  Listener listener_;
  LedgerTwin twin_;
  uint64_t serials_ = 0;
  std::vector<std::pair<EntryType, Members>> hands_;  // taken and not published
  std::vector<std::vector<Key>> holders_;             // one ref on each
  std::vector<Use> uses_;
  std::vector<Pin> pins_;
  std::vector<std::pair<Retention, uint64_t>> retentions_;
  std::vector<std::pair<int, Reservation>> reservations_;
  std::vector<SlotReservation> slot_reservations_;
};

[[noreturn]] void ThrowCheck(const char* file, int line, const char* condition) {
  throw std::runtime_error(fmt::format("{}:{}: check failed: {}", file, line, condition));
}

struct Trial {
  const LedgerCase& of;
  uint64_t seed = 0;
  bool planted = false;

  // What went wrong, or empty. A world that failed is in no state to be destroyed: it stays.
  std::string Failure(const std::vector<Op>& ops, size_t* failed_at = nullptr) const {
    const CheckHandler before = SetCheckHandler(ThrowCheck);
    auto world = std::make_unique<World>(of, seed, planted);
    std::string failure;
    size_t done = 0;
    try {
      for (const Op& op : ops) {
        world->Do(op);
        ++done;
      }
      world->End();
    } catch (const std::runtime_error& error) {
      failure = error.what();
      static std::vector<World*>* const broken = new std::vector<World*>;
      broken->push_back(world.release());
    }
    SetCheckHandler(before);
    if (failed_at != nullptr) *failed_at = done;
    return failure;
  }

  // Drops stretches of operations, ever shorter ones, for as long as what is left fails.
  std::vector<Op> Shrink(std::vector<Op> ops) const {
    size_t failed_at = 0;
    Failure(ops, &failed_at);
    ops.resize(std::min(ops.size(), failed_at + 1));
    for (size_t length = ops.size() / 2; length > 0; length /= 2) {
      for (size_t at = ops.size(); at >= length; --at) {
        std::vector<Op> fewer(ops);
        const auto begin = fewer.begin() + static_cast<ptrdiff_t>(at - length);
        fewer.erase(begin, begin + static_cast<ptrdiff_t>(length));
        if (Failure(fewer).empty()) continue;
        ops = std::move(fewer);
        at = std::min(at, ops.size() + 1);
      }
    }
    return ops;
  }

  std::string Report(const std::vector<Op>& ops) const {
    std::string text = fmt::format("{}, seed {}: {}\n", of.name, seed, Failure(ops));
    for (const Op& op : ops) {
      text += fmt::format("  {} {} {}\n", kOpNames[static_cast<size_t>(op.kind)], op.a, op.b);
    }
    return text;
  }
};

class LedgerModel : public ::testing::TestWithParam<LedgerCase> {};
std::string CaseName(const ::testing::TestParamInfo<LedgerCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Of, LedgerModel, ::testing::ValuesIn(LedgerCases()), CaseName);

TEST_P(LedgerModel, RandomOperationsAgreeWithATwinMadeOfSets) {
  const uint64_t seeds = kOperations / LedgerCases().size() / kOperationsPerSeed;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Trial trial{GetParam(), seed};
    const std::vector<Op> ops = DrawOps(seed, kOperationsPerSeed);
    if (trial.Failure(ops).empty()) continue;
    FAIL() << trial.Report(trial.Shrink(ops));
  }
  std::printf("%s: seeds 1 to %llu, %llu operations each\n", GetParam().name.c_str(),
              static_cast<unsigned long long>(seeds),
              static_cast<unsigned long long>(kOperationsPerSeed));
}

// The comparison can fail, and what it then prints is short: open a step, take, give back.
TEST_P(LedgerModel, ATwinThatForgetsStepsIsFoundOutInAFewOperations) {
  const Trial trial{GetParam(), 1, /*planted=*/true};
  const std::vector<Op> ops = DrawOps(1, kOperationsPerSeed);
  ASSERT_NE(trial.Failure(ops), "");
  const std::vector<Op> shrunk = trial.Shrink(ops);
  EXPECT_EQ(shrunk.size(), 3u) << trial.Report(shrunk);
  EXPECT_NE(trial.Failure(shrunk), "");
}

}  // namespace
}  // namespace tessera
