// SPDX-License-Identifier: Apache-2.0
//
// Retainer applies --retention: it keeps the checkpoints that enough requests asked for from going
// before others.
//
//   producer   from the moment `wanted_by` requests started from a checkpoint until the sequence
//              that made it ends
//   after      and on from there, first made first dropped once such checkpoints take more than
//              `share` of the state pool
//   strict     as producer; nothing evicts them meanwhile (PrefixIndex does not)
//
// R1  A retention is a wish: it is dropped when memory is needed for something that must have it,
//     and the drop is counted (strict refuses instead).
//
// Threads: every method wants the ledger's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/ledger/ledger.h"
#include "memory/prefix/policy.h"

namespace tessera::store {

// What one running sequence made, and what of it is retained for it.
struct ProducerRetentions {
  std::vector<EntryId> produced;
  std::vector<Retention> held;
};

class Retainer {
 public:
  Retainer() = default;
  Retainer(Ledger* ledger, const RetentionSpec& spec);

  bool on() const { return spec_.kind != RetentionSpec::Kind::kOff; }
  // The sequence publishes it; `retentions` is where what is retained for it goes.
  void Produced(LedgerLock& lock, EntryId checkpoint, ProducerRetentions* retentions);
  // A request starts from it, the `hits`-th.
  void Wanted(LedgerLock& lock, EntryId checkpoint, uint32_t hits);
  // The producer ends.
  void Ended(LedgerLock& lock, ProducerRetentions* retentions);
  void ReleaseAll(LedgerLock& lock);

 private:
  Ledger* ledger_ = nullptr;
  RetentionSpec spec_;
  std::vector<ProducerRetentions*> producers_;  // by checkpoint, while the producer runs
  std::vector<Retention> after_;                // a ring, oldest at `first_`
  size_t after_max_ = 0;
  size_t first_ = 0;
};

}  // namespace tessera::store
