// SPDX-License-Identifier: Apache-2.0
#include "memory/store/retainer.h"

#include <utility>

namespace tessera::store {

Retainer::Retainer(Ledger* ledger, const RetentionSpec& spec) : ledger_(ledger), spec_(spec) {
  if (!on()) return;
  producers_.resize(ledger->capacity(EntryType::kCheckpoint), nullptr);
  if (spec_.kind != RetentionSpec::Kind::kAfter) return;
  // The pool holds so many checkpoints and nothing else.
  after_max_ = static_cast<size_t>(spec_.share * ledger->capacity(EntryType::kCheckpoint));
  after_.resize(after_max_);
}

void Retainer::Produced(LedgerLock& lock, EntryId checkpoint, ProducerRetentions* retentions) {
  TESSERA_DCHECK(lock.Guards(*ledger_));
  producers_[checkpoint.index()] = retentions;
  retentions->produced.push_back(checkpoint);
}

void Retainer::Wanted(LedgerLock& lock, EntryId checkpoint, uint32_t hits) {
  ProducerRetentions*& producer = producers_[checkpoint.index()];
  if (producer == nullptr || hits < spec_.wanted_by) return;
  producer->held.push_back(ledger_->Retain(lock, checkpoint));
  producer = nullptr;  // once
}

void Retainer::Ended(LedgerLock& lock, ProducerRetentions* retentions) {
  for (EntryId checkpoint : retentions->produced) {
    // Another one's by now, when this one's was reclaimed and the index given away.
    if (producers_[checkpoint.index()] == retentions) producers_[checkpoint.index()] = nullptr;
  }
  for (Retention& retention : retentions->held) {
    Retention dropped = std::move(retention);
    if (after_max_ > 0) {
      std::swap(dropped, after_[first_]);  // the oldest makes way
      first_ = (first_ + 1) % after_max_;
    }
    if (dropped.held()) ledger_->Release(lock, std::move(dropped));
  }
  retentions->produced.clear();
  retentions->held.clear();
}

void Retainer::ReleaseAll(LedgerLock& lock) {
  for (Retention& retention : after_) {
    if (retention.held()) ledger_->Release(lock, std::move(retention));
  }
}

}  // namespace tessera::store
