// SPDX-License-Identifier: Apache-2.0
//
// ClientPins keeps the checkpoints that clients named from going before others: each holds a
// retention until it is released or its time has passed.
//
//   (none) --Add--> Kept --its memory is needed and nothing else is left--> Lost
//                     |                                                       |
//                     +------------- Remove, Expire, ReleaseAll --------------+--> (none)
//
// P1  A pin is the strongest wish there is, and a wish: no request waits for ever because of one. A
//     checkpoint that is pinned is evicted after all that are not, and then the pin is Lost, which
//     the list says.
// P2  Times are the caller's: any clock that does not run backwards.
// P3  A pin has one owner, who alone lists and removes it. Expire and ReleaseAll ask nobody.
//
// Threads: every method wants the ledger's lock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memory/ledger/ledger.h"
#include "memory/store/state_store.h"

namespace tessera::store {

class ClientPins {
 public:
  explicit ClientPins(Ledger* ledger) : ledger_(ledger) {}

  // `info` but for its id. False when there are kClientPinsMax.
  bool Add(LedgerLock& lock, EntryId checkpoint, std::string_view owner, PinInfo* info);
  // False when the owner has no such pin.
  bool Remove(LedgerLock& lock, uint64_t id, std::string_view owner);
  // Those whose expiry is at or before `now`.
  void Expire(LedgerLock& lock, uint64_t now);
  void ReleaseAll(LedgerLock& lock);

  std::vector<PinInfo> List(LedgerLock& lock, std::string_view owner) const;
  // Pins of the checkpoint.
  uint32_t count(EntryId checkpoint) const;

 private:
  struct Entry {
    PinInfo info;
    std::string owner;
    Retention retention;
  };
  void Drop(LedgerLock& lock, size_t index);

  Ledger* ledger_;
  std::vector<Entry> pins_;  // by id, ascending
  uint64_t next_id_ = 1;
  uint64_t next_expiry_ = 0;  // the earliest; 0: none
};

}  // namespace tessera::store
